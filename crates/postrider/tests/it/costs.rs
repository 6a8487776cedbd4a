//! What a message costs, in figures that do not depend on the machine: round trips, write-ahead log bytes and HOT
//! updates. Measured in the steady state: pages already in the log since the last checkpoint, so without full-page
//! images.

use std::time::Duration;

use postrider::lifecycle::{Claim, Completion, Outcome};
use postrider::{Message, Outbox, PostgresStore, Queue as _, Schema};
use postrider_testkit::{Cluster, WireCounter};
use tokio_postgres::Client;

use crate::support::{fresh, number, run};

const BATCH: i32 = 1000;
/// WAL bytes of claim and complete together, a message: without lanes, and in lanes.
const DRAIN_WAL_BYTES: [i64; 2] = [486, 524];
/// Most WAL bytes of an enqueue, a message.
const ENQUEUE_WAL_BYTES: i64 = 900;

/// Proves H5, H2: two round trips claim and finish a batch of any size; one enqueues it.
#[tokio::test]
async fn two_round_trips_for_a_batch_of_any_size() {
    let (database, mut client) = fresh().await;
    let wire = WireCounter::start(database.cluster().port()).await;
    let store = PostgresStore::connect(&wire.url(&database), Schema::default()).await.unwrap();
    let outbox = Outbox::default();
    for batch in [1_u32, 100, 1000, 5000] {
        let messages: Vec<Message> = (0..batch).map(|n| Message::json("t", &n).unwrap()).collect();
        let tx = client.transaction().await.unwrap();
        outbox.enqueue_many(&tx, &messages).await.unwrap();
        tx.commit().await.unwrap();

        // The pool's own connection is there already; what is counted is the work.
        wire.reset();
        let held = store.claim(&Claim::new("w").batch_size(batch)).await.unwrap();
        assert_eq!((held.len(), wire.round_trips()), (batch as usize, 1), "claim of {batch}");
        let completions: Vec<Completion> = held
            .iter()
            .enumerate()
            .map(|(n, held)| match n % 10 {
                9 => Completion::new(
                    held,
                    Outcome::Retryable {
                        retry_after: Duration::from_hours(1),
                        failure: postrider::lifecycle::Failure::default(),
                    },
                ),
                _ => Completion::new(held, Outcome::Dispatched),
            })
            .collect();
        assert_eq!(store.complete("w", &completions).await.unwrap().len(), batch as usize);
        assert_eq!(wire.round_trips(), 2, "claim and complete of {batch}");
    }
}

/// An enqueue inside a caller's transaction is one round trip, for one message or a thousand.
#[tokio::test]
async fn one_round_trip_to_enqueue() {
    let (database, _client) = fresh().await;
    let wire = WireCounter::start(database.cluster().port()).await;
    let (mut client, connection) = tokio_postgres::connect(&wire.url(&database), tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let outbox = Outbox::default();
    let tx = client.transaction().await.unwrap();
    for batch in [1, 1000] {
        let messages: Vec<Message> =
            (0..batch).map(|n| Message::json("t", &n).unwrap().lane("a").dedupe_key(format!("{batch}/{n}"))).collect();
        wire.reset();
        outbox.enqueue_many(&tx, &messages).await.unwrap();
        assert_eq!(wire.round_trips(), 1);
    }
}

/// Pages that each call touches, the first of a session, which looks everything up in the catalogs, and later ones.
const PAGES: [(&str, i64); 6] = [
    ("the first claim of a session", 2_585),
    ("a claim of nothing", 7),
    ("a claim of one", 16),
    ("completing one", 10),
    ("a claim of a hundred", 613),
    ("completing a hundred", 827),
];

/// What a call costs may not creep up: each commit that adds a twentieth says so here.
pub(crate) fn assert_no_dearer(what: &str, cost: i64, known: i64) {
    let most = known + known / 20;
    assert!(cost <= most, "{what} costs {cost} now, and {known} so far: a twentieth more is too much");
}

/// Proves H5: a claim and its completion touch no more pages than they did, the first ones and later ones.
#[tokio::test]
async fn claims_and_completions_touch_few_pages() {
    let (database, client) = fresh().await;
    run(&client, "select outbox.enqueue('t', '{}')").await;
    let worker = database.connect().await;
    // The least of three rounds: when autovacuum has been at a table, the next call plans its statements anew.
    let mut least = PAGES.map(|(what, _)| (what, i64::MAX));
    let mut count = |which: usize, pages: i64| least[which].1 = least[which].1.min(pages);
    let complete = "from outbox.mark_delivered((select lease_token from outbox.delivery limit 1), \
                    array(select message_id from outbox.delivery))";
    count(0, pages(&worker, "from outbox.claim('w', 100, 60)").await);
    run(&worker, &format!("select {complete}")).await;
    for _ in 0..3 {
        count(1, pages(&worker, "from outbox.claim('w', 100, 60)").await);
        for (which, messages) in [(2, 1), (4, 100)] {
            let enqueue = format!(
                "select outbox.enqueue_many(array_fill('t'::text, array[{messages}]), \
                 array_fill('1'::jsonb, array[{messages}]))"
            );
            run(&client, &enqueue).await;
            count(which, pages(&worker, "from outbox.claim('w', 100, 60)").await);
            let (token, ids) = held(&worker).await;
            count(which + 1, pages(&worker, &format!("from outbox.mark_delivered('{token}', '{ids}')")).await);
        }
    }
    println!("{least:?}");
    for ((what, known), (_, cost)) in PAGES.into_iter().zip(least) {
        assert_no_dearer(what, cost, known);
    }
}

/// The token and the ids of what is leased, as text.
async fn held(client: &Client) -> (String, String) {
    let sql =
        "select max(lease_token::text), array_agg(message_id)::text from outbox.delivery where lease_token is not null";
    let row = client.query_one(sql, &[]).await.unwrap();
    (row.get(0), row.get(1))
}

/// Pages of shared buffers that a call touches, found there or read.
pub(crate) async fn pages(client: &Client, call: &str) -> i64 {
    let sql = format!("explain (analyze, buffers, format json) select {call}");
    let plan: serde_json::Value = client.query_one(&sql, &[]).await.unwrap().get(0);
    ["Shared Hit Blocks", "Shared Read Blocks"].iter().map(|kind| plan[0]["Plan"][*kind].as_i64().unwrap()).sum()
}

pub(crate) async fn wal_position(client: &Client) -> i64 {
    number(client, "select pg_current_wal_insert_lsn() - '0/0'::pg_lsn").await
}

/// Enqueues a batch with a 200-byte payload, for an SQL expression as its tenant.
async fn enqueue_batch(client: &Client, lanes: i32, tenant: &str) {
    let lane = if lanes == 0 { "null::text".to_owned() } else { format!("'lane-' || i % {lanes}") };
    let sql = format!(
        "select count(*) from (select array_agg({lane} order by i) as lane from generate_series(1, {BATCH}) i) l, \
         outbox.enqueue_many(topic => array_fill('order.placed'::text, array[{BATCH}]), \
         payload => array_fill(jsonb_build_object('data', repeat('x', 180)), array[{BATCH}]), lane => l.lane, \
         tenant_id => array_fill({tenant}::text, array[{BATCH}]))"
    );
    assert_eq!(number(client, &sql).await, i64::from(BATCH));
}

/// Claims and delivers a batch. Returns the claim's updates and how many of them were HOT, by the transaction's own
/// statistics (a delivery that ends is deleted, not updated).
async fn drain_batch(client: &Client) -> (i64, i64) {
    let drain = format!(
        "select outbox.mark_delivered(max(lease_token::text)::uuid, array_agg(message_id)) \
         from outbox.claim('relay-host-12345', {BATCH}, 60)"
    );
    run(client, "begin").await;
    // The session's counters also hold what it has not reported yet of earlier transactions: the difference counts.
    let before = updates(client).await;
    assert_eq!(number(client, &drain).await, i64::from(BATCH));
    let after = updates(client).await;
    run(client, "commit").await;
    (after.0 - before.0, after.1 - before.1)
}

/// Updates of the hot table that this session has counted, and the HOT ones among them.
async fn updates(client: &Client) -> (i64, i64) {
    (
        number(client, "select pg_stat_get_xact_tuples_updated('outbox.delivery'::regclass)").await,
        number(client, "select pg_stat_get_xact_tuples_hot_updated('outbox.delivery'::regclass)").await,
    )
}

/// What a message costs on average over several batches.
struct Costs {
    enqueue_wal_bytes: i64,
    drain_wal_bytes: i64,
    claim_updates: i64,
    hot_claim_updates: i64,
}

async fn measure(lanes: i32, tenant: &str) -> Costs {
    const BATCHES: i64 = 10;
    let messages = BATCHES * i64::from(BATCH);
    let settings =
        [("autovacuum", "off"), ("checkpoint_timeout", "1h"), ("max_wal_size", "8GB"), ("full_page_writes", "off")];
    let cluster = Cluster::start_with(&settings).await;
    let client = cluster.database().await.connect().await;
    // A few rounds first: pages exist and have their shape.
    for _ in 0..3 {
        enqueue_batch(&client, lanes, tenant).await;
        drain_batch(&client).await;
    }
    let start = wal_position(&client).await;
    for _ in 0..BATCHES {
        enqueue_batch(&client, lanes, tenant).await;
    }
    let enqueued = wal_position(&client).await;
    let (mut claim_updates, mut hot_claim_updates) = (0, 0);
    for _ in 0..BATCHES {
        let (updates, hot) = drain_batch(&client).await;
        claim_updates += updates;
        hot_claim_updates += hot;
    }
    let drained = wal_position(&client).await;
    assert_eq!(claim_updates, messages, "one update a claimed message");
    Costs {
        enqueue_wal_bytes: (enqueued - start) / messages,
        drain_wal_bytes: (drained - enqueued) / messages,
        claim_updates,
        hot_claim_updates,
    }
}

async fn assert_within_the_promise(what: &str, lanes: i32, tenant: &str) {
    let costs = measure(lanes, tenant).await;
    let Costs { enqueue_wal_bytes: enqueue, drain_wal_bytes: drain, claim_updates, hot_claim_updates } = costs;
    println!("{what}: enqueue {enqueue}, claim + complete {drain} WAL bytes a message");
    assert!(enqueue <= ENQUEUE_WAL_BYTES, "enqueue costs {enqueue} WAL bytes a message");
    let known = DRAIN_WAL_BYTES[usize::from(lanes > 0)];
    assert_no_dearer("WAL of claim and complete, in bytes a message,", drain, known);
    assert_eq!(hot_claim_updates, claim_updates, "every claim is a HOT update");
}

/// Messages without a lane: WAL bytes and HOT updates within the promise.
#[tokio::test]
async fn wal_bytes_without_lanes() {
    assert_within_the_promise("without lanes", 0, "null").await;
}

/// Messages in a hundred lanes: the same promise.
#[tokio::test]
async fn wal_bytes_with_lanes() {
    assert_within_the_promise("in lanes", 100, "null").await;
}

/// Messages of a tenant with a short name: the same promise. (Spelled as a UUID it is about 95 bytes more.)
#[tokio::test]
async fn wal_bytes_of_a_tenant() {
    assert_within_the_promise("of a tenant", 0, "'tenant-1'").await;
}
