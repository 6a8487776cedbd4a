//! Three relay processes, producers, one database, and everything that can break does, at random: relays are killed and
//! stopped past their lease, the server is killed, connections are cut, stalled, and cut between a commit and its answer.
//! When it is over, the receiver has every message, each lane in order, and the books of the database agree with it.
//!
//! `POSTRIDER_KILL_SEED` repeats a run's choices; `POSTRIDER_KILL_SECONDS` makes the storm longer (see
//! `scripts/kill-test`).

use std::collections::BTreeMap;
use std::env;
use std::time::{Duration, Instant};

use postrider::{PostgresStore, Schema};
use postrider_testkit::{Cluster, Database, FaultProxy};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng as _};

use super::books::{assert_books_agree, assert_books_are_whole, number};
use super::child::{Mood, Orders, RECEIVER};
use super::fleet::Fleet;
use super::producers::{self, Work, Written};
use super::receiver::{Arrivals, arrivals};

const SEED: &str = "POSTRIDER_KILL_SEED";
const SECONDS: &str = "POSTRIDER_KILL_SECONDS";
/// The storm in CI, and what goes through it; a longer one gets more.
const USUAL_SECONDS: u64 = 60;
const IN_LANES: usize = 20_000;
const LANES: usize = 200;
const RELAYS: usize = 3;
/// The place of the producers' proxy, behind those of the relays.
const PRODUCERS: usize = RELAYS;
const LEASE: Duration = Duration::from_secs(3);
/// Most messages that one relay holds.
const MAX_HELD: u32 = 200;
/// How long the receiver takes to confirm one message: slow enough that faults find something on its way.
const CONFIRM: Duration = Duration::from_millis(12);
/// Between two faults.
const BETWEEN_MS: std::ops::Range<u64> = 100..1_500;
const TICK: Duration = Duration::from_millis(20);
const DRAIN_DEADLINE: Duration = Duration::from_mins(3);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    RelayKilled,
    RelayStopped,
    ServerKilled,
    ConnectionsCut,
    CutAfterEnqueue,
    CutAfterClaim,
    CutAfterComplete,
    CutAfterRenew,
    Stalled,
}

const FAULTS: [Fault; 9] = [
    Fault::RelayKilled,
    Fault::RelayStopped,
    Fault::ConnectionsCut,
    Fault::CutAfterEnqueue,
    Fault::CutAfterClaim,
    Fault::CutAfterComplete,
    Fault::CutAfterRenew,
    Fault::ServerKilled,
    Fault::Stalled,
];

impl Fault {
    /// How many relays it can make forget what they had sent, or come too late to say it. A cut alone does not, but it
    /// takes time, and a lease may be nearly over.
    fn relays_hit(self) -> usize {
        match self {
            Self::CutAfterEnqueue => 0,
            Self::ServerKilled => RELAYS,
            _ => 1,
        }
    }
}

/// What breaks things, and remembers what it broke.
struct Storm {
    cluster: Cluster,
    /// One in front of each relay, and one for the producers.
    proxies: Vec<FaultProxy>,
    /// Which of them stand still, and until when.
    stalled: Vec<(usize, Instant)>,
    fleet: Fleet,
    rng: StdRng,
    faults: BTreeMap<Fault, usize>,
}

impl Storm {
    /// Every fault once, then any of them, until the time is over. Then all is mended.
    async fn rage(&mut self, time: Duration) {
        let over_at = Instant::now() + time;
        let mut first = FAULTS.into_iter();
        while Instant::now() < over_at {
            let calm = Duration::from_millis(self.rng.random_range(BETWEEN_MS));
            self.wait(calm).await;
            // Relays are hit as often as all the rest.
            let kinds = if self.rng.random() { 2 } else { FAULTS.len() };
            let fault = first.next().unwrap_or_else(|| FAULTS[self.rng.random_range(0..kinds)]);
            if self.strike(fault).await {
                *self.faults.entry(fault).or_default() += 1;
            }
        }
        for proxy in &self.proxies {
            proxy.cut_after_commit("", 0);
            proxy.stall(false);
        }
        self.fleet.all_back();
    }

    /// Lets time pass; what is to come back comes back.
    async fn wait(&mut self, time: Duration) {
        let over_at = Instant::now() + time;
        while Instant::now() < over_at {
            self.fleet.tick();
            self.stalled.retain(|(place, until)| {
                let over = *until <= Instant::now();
                self.proxies[*place].stall(!over);
                !over
            });
            tokio::time::sleep(TICK).await;
        }
    }

    /// False: it could not be done now.
    async fn strike(&mut self, fault: Fault) -> bool {
        let place = self.rng.random_range(0..self.fleet.len());
        let count = self.rng.random_range(1..4);
        match fault {
            Fault::RelayKilled => self.fleet.kill(place, Duration::from_millis(self.rng.random_range(0..2_000))),
            Fault::RelayStopped => {
                self.fleet.stop(place, LEASE + Duration::from_millis(self.rng.random_range(200..2_000)))
            }
            Fault::ServerKilled => {
                let cluster = self.cluster.clone();
                tokio::task::spawn_blocking(move || cluster.kill9()).await.expect("kill the server");
                let down = Duration::from_millis(self.rng.random_range(0..1_500));
                self.wait(down).await;
                self.cluster.restart().await;
                true
            }
            Fault::ConnectionsCut => {
                self.proxies[place].refuse(self.rng.random());
                self.proxies[place].cut_all();
                let refusing = Duration::from_millis(self.rng.random_range(0..500));
                self.wait(refusing).await;
                self.proxies[place].refuse(false);
                true
            }
            Fault::CutAfterEnqueue => self.cut_after(PRODUCERS, "outbox\".enqueue_many", count),
            Fault::CutAfterClaim => self.cut_after(place, "outbox\".claim(", count),
            Fault::CutAfterComplete => self.cut_after(place, "outbox\".complete_many", count),
            Fault::CutAfterRenew => self.cut_after(place, "outbox\".renew", count),
            Fault::Stalled => {
                let until = Instant::now() + LEASE + Duration::from_millis(self.rng.random_range(0..2_000));
                self.proxies[place].stall(true);
                self.stalled.push((place, until));
                true
            }
        }
    }

    fn cut_after(&self, place: usize, statement: &str, count: u64) -> bool {
        self.proxies[place].cut_after_commit(statement, count);
        true
    }
}

/// Proves E2, and L4, M5, P1, P2 through the relay: nothing is lost, lanes keep their order, no delivery is in two hands
/// at once, every attempt is accounted for, and what arrives twice is no more than the faults explain.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heavy_three_relays_survive_a_storm() {
    let seed = env::var(SEED).map_or_else(|_| rand::rng().random(), |seed| seed.parse().expect("a number"));
    let seconds = env::var(SECONDS).map_or(USUAL_SECONDS, |seconds| seconds.parse().expect("a number"));
    println!("{SEED}={seed} {SECONDS}={seconds}");
    let work =
        Work { lanes: LANES, in_lanes: IN_LANES * usize::try_from(seconds.div_ceil(USUAL_SECONDS)).expect("few") };
    let cluster = Cluster::start().await;
    let database = cluster.database().await;
    let mut proxies = Vec::new();
    for _ in 0..=RELAYS {
        proxies.push(FaultProxy::start(cluster.port()).await);
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let outbox = PostgresStore::open(&proxies[PRODUCERS].url(&database), Schema::default()).expect("a URL");

    let began = Instant::now();
    let mut written = producers::all(work.write(&outbox, 0..4, Duration::ZERO, seed)).await;
    let fleet = Fleet::start(RELAYS, {
        let urls: Vec<String> = proxies.iter().map(|proxy| proxy.url(&database)).collect();
        let directory = directory.path().to_owned();
        move |place, started| {
            let worker_id = format!("relay-{place}-{started}");
            let mut orders = Orders::new(&urls[place], &worker_id, &directory, Mood::Slow(CONFIRM));
            orders.lease = LEASE;
            orders.max_messages = MAX_HELD;
            orders.batch_size = MAX_HELD / 2;
            // Nothing here is anybody's fault: nothing may die of it.
            orders.max_attempts = 1_000_000;
            orders
        }
    });
    let storm_time = Duration::from_secs(seconds);
    let producing = work.write(&outbox, 4..10, storm_time * 8 / 10, seed);
    let mut storm = Storm {
        cluster,
        proxies,
        stalled: Vec::new(),
        fleet,
        rng: StdRng::seed_from_u64(seed),
        faults: BTreeMap::new(),
    };
    storm.rage(storm_time).await;
    let calm_at = Instant::now();
    written.add(producers::all(producing).await);
    drained(&database, &storm).await;
    println!("stormed for {storm_time:?}, drained {:?} later, {:?} in all", calm_at.elapsed(), began.elapsed());
    let cut_after_commit: u64 = storm.proxies.iter().map(|proxy| proxy.counts().cut_after_commit).sum();
    let cut: u64 = storm.proxies.iter().map(|proxy| proxy.counts().cut).sum();
    let log = storm.fleet.end().await;
    println!("{written:?}\n{:?}\n{cut} connections cut, {cut_after_commit} after a commit", storm.faults);
    println!("lease lost: said {} times", log.lines().filter(|line| line.contains("lease lost")).count());

    let arrived = arrivals(&directory.path().join(RECEIVER));
    assert_everything_arrived(&arrived, work, written);
    let client = database.connect().await;
    assert_books_are_whole(&client, 2 * work.in_lanes).await;
    let duplicates = assert_books_agree(&client, &arrived).await;
    let explained: usize =
        storm.faults.iter().map(|(fault, count)| fault.relays_hit() * count * MAX_HELD as usize).sum();
    println!("{duplicates} duplicates, {explained} explained at most; {} torn lines", arrived.torn);
    assert!(duplicates <= explained);
    assert!(storm.faults.len() == FAULTS.len() && cut_after_commit > 0 && written.known > 0, "it was no storm");
}

/// Waits until nothing is left to deliver.
async fn drained(database: &Database, storm: &Storm) {
    let client = database.connect().await;
    let deadline = Instant::now() + DRAIN_DEADLINE;
    loop {
        let left = number(&client, "select count(*) from outbox.deliveries").await;
        if left == 0 {
            return;
        }
        assert!(Instant::now() < deadline, "{left} left after {DRAIN_DEADLINE:?}:\n{}", storm.fleet.last_words());
        tokio::time::sleep(TICK).await;
    }
}

fn assert_everything_arrived(arrived: &Arrivals, work: Work, written: Written) {
    let all = 2 * work.in_lanes;
    assert_eq!(written.created + written.known, all);
    let distinct = arrived.distinct();
    assert_eq!(distinct.len(), all, "messages missing, or enqueued twice");
    let mut keys: Vec<&str> = distinct.values().filter_map(|arrival| arrival.dedupe_key.as_deref()).collect();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), all, "each was enqueued once");
    for arrival in distinct.values() {
        let number = arrival.payload["number"].as_i64();
        assert_eq!(number, Some(arrival.sequence_id.unwrap_or(0)), "not the number it was produced with: {arrival:?}");
    }
    let last = arrived.assert_lanes_in_order();
    let each = i64::try_from(work.in_lanes / work.lanes).expect("few");
    assert_eq!(last.len(), work.lanes);
    assert!(last.values().all(|last| *last == each), "{each} in each lane: {last:?}");
}
