//! One round of the storm: relays, producers, an operator and everything that breaks, on one fresh database, for some
//! time. Then all is mended, everything must be delivered within a minute, and the history checker reads what happened.
//! A run is as many rounds as its time allows, so that a long one needs no more memory than a short one.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use postrider::{PostgresStore, Schema};
use postrider_testkit::{Cluster, FaultProxy};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::books::Books;
use crate::checker::Checker;
use crate::database::{self, Faulty, HOUSEKEEPING, STOPPING};
use crate::faults::{Fault, Injected, RELAY_KILLS};
use crate::figures::RoundFigures;
use crate::fleet::{Fleet, Site};
use crate::kinds::Plan;
use crate::network::{NETWORK, Network};
use crate::operator::Operator;
use crate::producers::{OWN_TABLE, PRODUCERS, Producers};
use crate::receiver::Receiver;
use crate::relay::REFUSED;
use crate::samples::{self, MOST_MEMORY_BYTES};

pub(crate) const RELAYS: usize = 6;
pub(crate) const LEASE: Duration = Duration::from_secs(3);
/// Most messages that one relay holds.
pub(crate) const MAX_HELD: u32 = 120;
const LANES_OF_A_PRODUCER: u32 = 60;
/// The longest that the receiver takes for one batch.
const SLOWEST_ANSWER: Duration = Duration::from_millis(12);
const TICK: Duration = Duration::from_millis(4);
const SAMPLE_EVERY: Duration = Duration::from_secs(3);
/// From the end of the faults until everything is delivered.
pub(crate) const CALM: Duration = Duration::from_mins(1);
/// Messages that arrive between two faults of a kind, on average. Not time: a machine that is busy with other things has
/// the same storm, only slower.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    pub(crate) relay: u64,
    pub(crate) server: u64,
    pub(crate) network: u64,
    pub(crate) database: u64,
}

/// Close checkpoints and little memory: a killed server is back in a fraction of a second. Without `fsync`, for what a
/// killed process has written the kernel still has; a loss of power is another test's.
pub(crate) const SETTINGS: &[(&str, &str)] = &[
    ("fsync", "off"),
    ("shared_buffers", "64MB"),
    ("max_wal_size", "256MB"),
    ("checkpoint_timeout", "30s"),
    ("max_connections", "110"),
    ("autovacuum_naptime", "2s"),
];

pub(crate) struct Round {
    pub(crate) seed: u64,
    pub(crate) time: Duration,
    pub(crate) pace: Pace,
    pub(crate) injected: Arc<Injected>,
}

/// What an actor of the storm has seen: a snapshot that could be taken, with the most sessions of a relay.
type Seen = Result<Option<i64>, tokio_postgres::Error>;

/// Everything that goes on in a round, but for the relays.
struct Stage {
    faulty: Faulty,
    books: Arc<Books>,
    site: Arc<Site>,
    proxies: Vec<Arc<FaultProxy>>,
    producers_proxy: Arc<FaultProxy>,
    operator: Operator,
    lost_answers: Arc<AtomicU64>,
}

impl Round {
    /// Runs it, and returns what was seen; violations are in it.
    pub(crate) async fn run(&self, cluster: &Cluster) -> RoundFigures {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let stage = self.stage(cluster, directory.path()).await;
        let mut fleet = Fleet::start(Arc::clone(&stage.site), &stage.proxies, self.rng(1));
        let enough = CancellationToken::new();
        let producers = Producers {
            books: Arc::clone(&stage.books),
            injected: Arc::clone(&self.injected),
            enough: enough.clone(),
            url: format!("{}?application_name=producer", stage.producers_proxy.url(&stage.faulty.database)),
            seed: self.seed,
            lost_answers: Arc::clone(&stage.lost_answers),
        };
        let store = PostgresStore::open(&stage.producers_proxy.url(&stage.faulty.database), Schema::default());
        let mut producing = producers.start(&store.expect("a URL of ours"));
        let mut figures = RoundFigures::default();
        self.rage(&stage, &mut fleet, &mut figures).await;

        let calm_at = Instant::now();
        stage.producers_proxy.take_back();
        enough.cancel();
        while producing.join_next().await.is_some() {
            fleet.tick();
        }
        figures.drained = self.drain(&stage, &mut fleet, calm_at).await;
        let words = figures.drained.is_none().then(|| fleet.last_words());
        let ended = std::mem::take(&mut fleet.ended);
        fleet.end().await;
        if let Some(words) = words {
            stage.books.violation(format!("liveness: not everything was delivered within {CALM:?} of calm: {words}"));
        }
        self.check(&stage, &ended, &mut figures).await;
        figures
    }

    async fn stage(&self, cluster: &Cluster, directory: &std::path::Path) -> Stage {
        let database = cluster.database().await;
        let setup = database.connect().await;
        setup.batch_execute(OWN_TABLE).await.expect("a table of our own");
        setup.batch_execute(database::RAISE).await.expect("a trigger of our own");
        let mut proxies = Vec::new();
        for _ in 0..=RELAYS {
            proxies.push(Arc::new(FaultProxy::start(cluster.port()).await));
        }
        let producers_proxy = proxies.remove(RELAYS);
        let plan = Plan { seed: self.seed, producers: PRODUCERS, lanes: LANES_OF_A_PRODUCER };
        let books = Arc::new(Books::new(plan));
        let injected = Arc::clone(&self.injected);
        let faulty = Faulty {
            cluster: cluster.clone(),
            database: database.clone(),
            injected: Arc::clone(&injected),
            books: Arc::clone(&books),
            lease: LEASE,
            outages: Arc::new(Mutex::default()),
        };
        let receiver = Receiver::start(directory.join("receiver"), Arc::clone(&books), SLOWEST_ANSWER);
        let operator = Operator {
            store: PostgresStore::open(&database.url(), Schema::default()).expect("a URL of ours"),
            books: Arc::clone(&books),
            injected: Arc::clone(&injected),
            enough: CancellationToken::new(),
            refused: Arc::default(),
        };
        let site = Arc::new(Site {
            database,
            directory: directory.to_owned(),
            books: Arc::clone(&books),
            injected,
            receiver,
            lease: LEASE,
            max_held: MAX_HELD,
        });
        Stage { faulty, books, site, proxies, producers_proxy, operator, lost_answers: Arc::default() }
    }

    /// Everything breaks, until the time is over. Then all is mended.
    async fn rage(&self, stage: &Stage, fleet: &mut Fleet, figures: &mut RoundFigures) {
        let over = CancellationToken::new();
        let mut actors = JoinSet::new();
        actors.spawn(restarts(stage.faulty.clone(), self.pace, self.rng(2), over.clone()));
        for (number, faults) in [(3, &STOPPING), (4, &HOUSEKEEPING)] {
            actors.spawn(strikes(
                stage.faulty.clone(),
                self.injected.of(faults),
                self.pace,
                self.rng(number),
                over.clone(),
            ));
        }
        let (operator, late) = (stage.operator.clone(), stage.operator.clone());
        actors.spawn(async move {
            operator.work().await;
            Ok(None)
        });
        actors.spawn(async move {
            late.be_late().await;
            Ok(None)
        });
        let mut network = Network {
            relays: stage.proxies.clone(),
            producers: Arc::clone(&stage.producers_proxy),
            injected: Arc::clone(&self.injected),
            lease: LEASE,
            rng: self.rng(5),
            later: Vec::new(),
        };
        let mut rng = self.rng(6);
        let (kills, cuts) = (self.relay_faults(), self.injected.of(&NETWORK));
        let over_at = Instant::now() + self.time;
        let mut next_relay = spread(&mut rng, self.pace.relay);
        let mut next_cut = spread(&mut rng, self.pace.network);
        let mut next_sample = Instant::now() + SAMPLE_EVERY;
        while Instant::now() < over_at {
            tokio::time::sleep(TICK).await;
            fleet.tick();
            network.tick();
            let (now, arrived) = (Instant::now(), stage.books.open().arrived);
            if arrived >= next_relay && !kills.is_empty() && fleet.strike(kills[rng.random_range(0..kills.len())]) {
                next_relay = arrived + spread(&mut rng, self.pace.relay);
            }
            if arrived >= next_cut && !cuts.is_empty() && network.strike(cuts[rng.random_range(0..cuts.len())]) {
                next_cut = arrived + spread(&mut rng, self.pace.network);
            }
            if now >= next_sample {
                next_sample = now + SAMPLE_EVERY;
                Self::sample(stage, fleet, figures, &mut actors);
            }
        }
        over.cancel();
        stage.operator.enough.cancel();
        network.mend();
        fleet.mend();
        while let Some(ended) = actors.join_next().await {
            fleet.tick();
            if let Ok(Ok(Some(sessions))) = ended {
                figures.samples += 1;
                figures.connections = figures.connections.max(sessions);
            }
        }
        while stage.faulty.mend().await.is_err() {
            tokio::time::sleep(TICK).await;
        }
        stage.operator.resume().await;
    }

    /// SIGKILL at any instruction is as frequent as all the others.
    fn relay_faults(&self) -> Vec<Fault> {
        let mut faults = self.injected.of(&RELAY_KILLS);
        faults.extend(self.injected.of(&[Fault::RelayKilled, Fault::RelayKilled, Fault::RelayStopped]));
        faults
    }

    fn sample(stage: &Stage, fleet: &Fleet, figures: &mut RoundFigures, actors: &mut JoinSet<Seen>) {
        let memory = fleet.largest();
        figures.memory_bytes = figures.memory_bytes.max(memory);
        if memory > MOST_MEMORY_BYTES {
            stage.books.violation(format!("memory: a relay has {memory} bytes"));
        }
        let (faulty, books) = (stage.faulty.clone(), Arc::clone(&stage.books));
        actors.spawn(async move {
            let client = faulty.session().await?;
            samples::conservation(&client, &books).await?;
            samples::sessions(&client, &books).await.map(Some)
        });
    }

    /// Waits until nothing is left to deliver. `None`: something was, after all that time.
    async fn drain(&self, stage: &Stage, fleet: &mut Fleet, calm_at: Instant) -> Option<Duration> {
        let client = stage.faulty.session().await.ok()?;
        while calm_at.elapsed() < CALM {
            fleet.tick();
            let tidied = stage.operator.tidy(false).await;
            if tidied.is_ok_and(|changed| changed == 0)
                && samples::left(&client, REFUSED).await.is_ok_and(|left| left == 0)
            {
                return Some(calm_at.elapsed());
            }
            tokio::time::sleep(10 * TICK).await;
        }
        None
    }

    async fn check(
        &self,
        stage: &Stage,
        ended: &std::collections::HashMap<String, Duration>,
        figures: &mut RoundFigures,
    ) {
        let outages = merged(&mut stage.faulty.outages.lock().unwrap_or_else(PoisonError::into_inner));
        let mut checker = Checker::new(&stage.books, ended, &outages);
        let read = samples::history(&stage.faulty.database, &mut checker).await;
        figures.history = checker.finish();
        if let Err(error) = read {
            stage.books.violation(format!("the history could not be read: {error}"));
        }
        let client = stage.faulty.database.connect().await;
        for done in [
            samples::own_rows(&client, &stage.books, PRODUCERS - 1).await,
            samples::conservation(&client, &stage.books).await,
        ] {
            if let Err(error) = done {
                stage.books.violation(format!("the database could not be asked: {error}"));
            }
        }
        figures.stale_refused = stage.operator.refused.load(Ordering::Relaxed);
        figures.lost_answers = stage.lost_answers.load(Ordering::Relaxed);
        figures.outage = outages.iter().map(|(from, to)| to.saturating_sub(*from)).sum();
        // Each expiry explains one, and nothing else may make one.
        if figures.history.duplicates > figures.history.expired {
            stage.books.violation(format!(
                "duplicates: {} and {} expiries",
                figures.history.duplicates, figures.history.expired
            ));
        }
        let books = stage.books.open();
        let (violations, more) = books.violations();
        figures.violations = violations.to_vec();
        figures.more_violations = more;
    }

    fn rng(&self, actor: u64) -> StdRng {
        StdRng::seed_from_u64(self.seed ^ (actor << 56))
    }
}

/// Between half and one and a half of the mean.
fn spread(rng: &mut StdRng, mean: u64) -> u64 {
    rng.random_range(mean / 2..=mean * 3 / 2)
}

/// The server is killed, and now and then restarted in order.
async fn restarts(server: Faulty, pace: Pace, mut rng: StdRng, over: CancellationToken) -> Seen {
    let kinds = server.injected.of(&[Fault::ServerKilled, Fault::ServerRestarted]);
    while !kinds.is_empty() {
        let wait = server.books.arrivals(spread(&mut rng, pace.server));
        if over.run_until_cancelled(wait).await.is_none() {
            break;
        }
        let seldom = kinds.len() > 1 && rng.random_ratio(1, 12);
        let down_for = Duration::from_millis(rng.random_range(0..200));
        server.restart(kinds[usize::from(seldom)], down_for).await;
    }
    Ok(None)
}

/// One fault of the database after the other, in an order of the seed's.
async fn strikes(server: Faulty, kinds: Vec<Fault>, pace: Pace, mut rng: StdRng, over: CancellationToken) -> Seen {
    while !kinds.is_empty() {
        let wait = server.books.arrivals(spread(&mut rng, pace.database));
        if over.run_until_cancelled(wait).await.is_none() {
            break;
        }
        server.strike(kinds[rng.random_range(0..kinds.len())]).await;
    }
    Ok(None)
}

/// Without overlaps.
fn merged(outages: &mut [(Duration, Duration)]) -> Vec<(Duration, Duration)> {
    outages.sort_unstable();
    let mut merged: Vec<(Duration, Duration)> = Vec::new();
    for &(from, to) in outages.iter() {
        match merged.last_mut() {
            Some(last) if last.1 >= from => last.1 = last.1.max(to),
            _ => merged.push((from, to)),
        }
    }
    merged
}
