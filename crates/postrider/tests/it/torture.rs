//! Eight processes drain 50,000 messages, most of them in 500 lanes, while producers still write. Workers fail at
//! random, give up for good, walk away with a batch (their leases run out), or stall past their lease and complete too
//! late. A receiver's log in the database says what arrived and in which order. At the end, and at every snapshot taken
//! on the way, everything adds up.

use std::collections::HashSet;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use postrider::lifecycle::{Claim, Claimed, Completion, Failure, LeaseToken, Outcome};
use postrider::{PostgresStore, Queue as _, Schema};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio_postgres::Client;
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::support::{fresh, number, run};

const MESSAGES: i64 = 50_000;
const LANES: i64 = 500;
const PROCESSES: u64 = 8;
const BATCH: i64 = 1000;
const SAMPLE_EVERY: Duration = Duration::from_millis(200);
/// Set for a child process: the database it works on. The same test is then the worker.
const WORKER_URL: &str = "POSTRIDER_TORTURE_URL";
const WORKER_SEED: &str = "POSTRIDER_TORTURE_SEED";
const LEASE: Duration = Duration::from_secs(2);

/// Proves L4, M5, M8, P1, P2, E2: nothing lost, one lease at a time, lanes in order and in one hand, attempts 1..n
/// without gaps, `enqueued = pending + leased + delivered + dead` in every snapshot.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heavy_eight_processes_lose_nothing() {
    if let Ok(url) = std::env::var(WORKER_URL) {
        let seed = std::env::var(WORKER_SEED).unwrap().parse().unwrap();
        return work(&url, seed).await;
    }
    let seed: u64 = rand::rng().random();
    println!("seed {seed}");
    let (database, client) = fresh().await;
    run(
        &client,
        "create table received (n bigserial primary key, message_id uuid not null, lane text, sequence_id bigint); \
             create table refused (worker text not null, count int not null)",
    )
    .await;
    let mut workers: Vec<Child> = (0..PROCESSES).map(|n| spawn_worker(&database.url(), seed.wrapping_add(n))).collect();
    let producer = tokio::spawn(produce(database.connect().await));

    let deadline = Instant::now() + Duration::from_mins(5);
    let mut snapshots = 0;
    loop {
        snapshots += 1;
        let (enqueued, delivered) = assert_adds_up(&client).await;
        if enqueued == MESSAGES && delivered == MESSAGES {
            break;
        }
        assert!(Instant::now() < deadline, "only {delivered} of {MESSAGES} delivered");
        number(&client, "select outbox.redrive(all_dead => true)").await;
        number(&client, "select outbox.repair_expired_leases()").await;
        for worker in &mut workers {
            assert_eq!(worker.try_wait().unwrap(), None, "a worker ended by itself");
        }
        tokio::time::sleep(SAMPLE_EVERY).await;
    }
    producer.await.unwrap();
    for mut worker in workers {
        worker.kill().unwrap();
        worker.wait().unwrap();
    }
    println!("{snapshots} snapshots added up");
    assert!(snapshots > 10, "too few snapshots to mean anything");
    assert_nothing_is_lost(&client).await;
    assert_attempts_are_whole(&client).await;
    assert_lanes_kept_their_order(&client).await;
}

fn spawn_worker(url: &str, seed: u64) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "torture::heavy_eight_processes_lose_nothing", "--nocapture"])
        .env(WORKER_URL, url)
        .env(WORKER_SEED, seed.to_string())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

async fn produce(client: Client) {
    for batch in 0..MESSAGES / BATCH {
        // Nine in ten have a lane.
        let sql = format!(
            "select count(*) from (select array_agg(case when i % 10 > 0 then 'lane-' || (i * 7 + {batch}) % {LANES} end order by i) l, \
             array_agg(to_jsonb(i) order by i) p from generate_series(1, {BATCH}) i) m, \
             outbox.enqueue_many(topic => array_fill('t'::text, array[{BATCH}]), payload => m.p, lane => m.l)"
        );
        assert_eq!(number(&client, &sql).await, BATCH);
    }
}

/// One snapshot: what was enqueued is pending, leased, delivered or dead. Returns enqueued and delivered.
async fn assert_adds_up(client: &Client) -> (i64, i64) {
    let row = client
        .query_one(
            "select (select count(*) from outbox.messages), \
             (select count(*) from outbox.deliveries where state = 'pending'), \
             (select count(*) from outbox.deliveries where state = 'leased'), \
             (select count(*) from outbox.attempts where state = 'DISPATCHED'), \
             (select count(*) from outbox.dead_letters)",
            &[],
        )
        .await
        .unwrap();
    let [enqueued, pending, leased, delivered, dead]: [i64; 5] = std::array::from_fn(|n| row.get(n));
    assert_eq!(
        enqueued,
        pending + leased + delivered + dead,
        "{enqueued} enqueued, {pending} pending, {leased} leased, {delivered} delivered, {dead} dead"
    );
    (enqueued, delivered)
}

async fn assert_nothing_is_lost(client: &Client) {
    let missing = "select count(*) from outbox.messages m where not exists (select from received r where r.message_id = m.message_id)";
    assert_eq!(number(client, missing).await, 0, "messages never arrived");
    assert_eq!(number(client, "select count(*) from outbox.deliveries").await, 0);
    let refused = number(client, "select coalesce(sum(count), 0) from refused").await;
    let zombies = number(client, "select count(*) from outbox.attempts where state = 'ZOMBIE_REQUEUE'").await;
    println!("{zombies} leases ran out, {refused} late completions were refused");
    assert!(refused > 0 && zombies > 0, "the torture did not hurt");
}

async fn assert_attempts_are_whole(client: &Client) {
    let gaps = "select count(*) from (select count(*) as n, min(attempt_no) as low, max(attempt_no) as high, \
                count(*) filter (where state = 'DISPATCHED') as delivered from outbox.attempts group by message_id) a \
                where low <> 1 or high <> n or delivered <> 1";
    assert_eq!(number(client, gaps).await, 0, "attempts are 1..n without gaps, one of them delivered");
    let overlaps = "select count(*) from (select claimed_at, lag(completed_at) over (partition by message_id order by attempt_no) as before \
                    from outbox.attempts) a where claimed_at < before";
    assert_eq!(number(client, overlaps).await, 0, "no two leases on one delivery at once");
    // A lease that ran out is over when it ends, not when somebody comes to record it.
    let hands = format!(
        "select count(*) from (select claimed_at, max(ended_at) over (partition by lane order by claimed_at \
         groups between unbounded preceding and 1 preceding) as before \
         from (select m.lane, a.claimed_at, case a.state when 'ZOMBIE_REQUEUE' \
               then least(a.completed_at, a.claimed_at + interval '{} seconds') else a.completed_at end as ended_at \
               from outbox.attempts a join outbox.messages m using (message_id) where m.lane is not null) e) h \
         where claimed_at < before",
        LEASE.as_secs()
    );
    assert_eq!(number(client, &hands).await, 0, "no lane in two hands at once");
}

async fn assert_lanes_kept_their_order(client: &Client) {
    let sequences = "select count(*) from (select lane, count(*) as n, max(sequence_id) as high from outbox.messages \
                     where lane is not null group by lane) l where n <> high";
    assert_eq!(number(client, sequences).await, 0, "lanes are gapless");
    let disorder = "select count(*) from (select sequence_id, lag(sequence_id) over (partition by lane order by n) as before from \
                    (select lane, sequence_id, min(n) as n from received where lane is not null group by lane, sequence_id) f) o \
                    where sequence_id < before";
    assert_eq!(number(client, disorder).await, 0, "first arrivals of a lane are in order");
}

/// A worker process: claims, delivers to the log, and misbehaves. Ends when it is killed.
async fn work(url: &str, seed: u64) {
    let store = PostgresStore::connect(url, Schema::default()).await.unwrap();
    let mut rng = StdRng::seed_from_u64(seed);
    let worker = format!("worker-{}", std::process::id());
    loop {
        let claim = Claim::new(&worker)
            .batch_size(rng.random_range(1..150))
            .lane_run(rng.random_range(1..20))
            .lease(LEASE)
            .max_attempts(1_000_000);
        let held = store.claim(&claim).await.unwrap();
        if held.is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
            continue;
        }
        deliver(&store, &worker, &held, &mut rng).await;
    }
}

async fn deliver(store: &PostgresStore, worker: &str, held: &[Claimed], rng: &mut StdRng) {
    let mood = rng.random_range(0..100);
    if mood == 0 {
        return; // Walks away before it sent anything.
    }
    let mut blocked: HashSet<&str> = HashSet::new();
    let mut sent = Vec::new();
    let mut outcomes = Vec::new();
    let mut unsent = Vec::new();
    for message in held {
        let lane = message.lane.as_deref();
        if lane.is_some_and(|lane| blocked.contains(lane)) {
            unsent.push(message.message_id);
            continue;
        }
        let outcome = match rng.random_range(0..1000) {
            0..60 => Outcome::Retryable {
                retry_after: Duration::from_millis(rng.random_range(0..60)),
                failure: Failure::new("BUSY", "later"),
            },
            60..65 => Outcome::Failed(Failure::new("REFUSED", "no")),
            _ => Outcome::Dispatched,
        };
        if outcome == Outcome::Dispatched {
            sent.push(message);
        } else {
            blocked.extend(lane);
        }
        outcomes.push(Completion::new(message, outcome));
    }
    receive(store, &sent).await;
    if mood == 1 {
        return; // Sent, and died before it could say so.
    }
    if mood < 4 {
        tokio::time::sleep(LEASE + Duration::from_millis(200)).await;
    }
    let completed = store.complete(worker, &outcomes).await.unwrap();
    let released = store.release(held[0].lease_token, &unsent).await.unwrap();
    let refused = outcomes.len() - completed.len() + unsent.len() - released.len();
    if refused > 0 {
        let client = store.connection().await.unwrap();
        let count = i32::try_from(refused).unwrap();
        let sql = "insert into refused values ($1, $2)";
        client.query_typed(sql, &[(&worker, Type::TEXT), (&count, Type::INT4)]).await.unwrap();
    }
    if rng.random_range(0..20) == 0 {
        // A token that was never given out changes nothing.
        let ids: Vec<Uuid> = held.iter().map(|held| held.message_id).collect();
        assert_eq!(store.release(LeaseToken(Uuid::new_v4()), &ids).await.unwrap(), Vec::<Uuid>::new());
    }
}

/// The receiver: one row for each message, in the order they were sent.
async fn receive(store: &PostgresStore, sent: &[&Claimed]) {
    let ids: Vec<Uuid> = sent.iter().map(|message| message.message_id).collect();
    let lanes: Vec<Option<&str>> = sent.iter().map(|message| message.lane.as_deref()).collect();
    let sequences: Vec<Option<i64>> = sent.iter().map(|message| message.sequence_id).collect();
    let sql = "insert into received (message_id, lane, sequence_id) \
               select i, l, s from unnest($1, $2, $3) with ordinality u (i, l, s, n) order by n";
    let parameters: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 3] =
        [(&ids, Type::UUID_ARRAY), (&lanes, Type::TEXT_ARRAY), (&sequences, Type::INT8_ARRAY)];
    store.connection().await.unwrap().query_typed(sql, &parameters).await.unwrap();
}
