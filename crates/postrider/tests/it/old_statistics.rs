//! Questions about a burst that autovacuum has not seen yet: 100,000 deliveries in 1,000 lanes, where the planner takes every
//! table for nearly empty. That is when somebody looks. What each question reads is counted, in rows and in pages, not timed:
//! the machine may be busy. A good plan reads a table once; a bad one reads it for each lane or for each message.

use std::time::{Duration, Instant, SystemTime};

use postrider::inspect::{DeadFilter, DeliveryFilter, DeliveryState, LaneFilter, LaneState, ListFilter, PageRequest};
use postrider::{Inspect as _, PostgresStore, Queue as _, Schema};
use postrider_testkit::{Cluster, Database};
use tokio_postgres::Client;
use uuid::Uuid;

use crate::support::{number, run};

/// Questions about no more than a hundred messages, or about one page that an index has in order, may read this much.
const SMALL: (i64, i64) = (2_000, 5_000);
/// All others may read some of the tables, a few times; and one page for each delivery when lanes are counted by their index,
/// and some more.
const LARGE: (i64, i64) = (500_000, 300_000);
/// Deliveries counted by topic, which only the message has: each message is looked up once, in about four pages.
const BY_MESSAGE: (i64, i64) = (500_000, 500_000);

/// What the store is asked, and how many rows and pages that may read.
const QUESTIONS: [(&str, (i64, i64)); 34] = [
    ("status", LARGE),
    ("list", LARGE),
    ("list pending", SMALL),
    ("list leased", LARGE),
    ("list dead", LARGE),
    ("list delivered", LARGE),
    ("list discarded", LARGE),
    ("list of a lane", LARGE),
    ("list of a topic", SMALL),
    ("list pending of a topic", SMALL),
    ("list dead of a topic", LARGE),
    ("list by the end of an id", LARGE),
    ("list by a dedupe key", SMALL),
    ("list by a dedupe key of a topic", SMALL),
    ("show", SMALL),
    ("explain", SMALL),
    ("entries", SMALL),
    ("entries of dead letters", SMALL),
    ("lanes", LARGE),
    ("lanes that wait", LARGE),
    ("one lane", SMALL),
    ("dead letters", SMALL),
    ("dead letters of a sink", SMALL),
    ("dead letters by id", SMALL),
    ("dead letters of a topic", SMALL),
    ("dead groups", LARGE),
    ("dead groups of a topic", LARGE),
    ("dead letters counted", LARGE),
    ("dead letters of a topic counted", LARGE),
    ("waiting", LARGE),
    ("waiting of a topic", BY_MESSAGE),
    ("future times", LARGE),
    ("has due", SMALL),
    ("samples, relays, audit, routes", SMALL),
];

/// What people ask in `psql`.
const VIEWS: [&str; 11] = [
    "select * from outbox.status",
    "select * from outbox.sinks",
    "select * from outbox.lanes",
    "select * from outbox.lanes order by depth desc limit 100",
    "select * from outbox.in_flight",
    "select * from outbox.dead_letters",
    "select * from outbox.dead_letters order by failed_at desc limit 100",
    "select count(*) from outbox.deliveries where state = 'pending'",
    "select * from outbox.messages order by message_id desc limit 100",
    "select * from outbox.relays, outbox.samples, outbox.audit_log",
    "select * from outbox.recent_attempts()",
];

/// Ids of what was loaded.
struct Loaded {
    waiting: Vec<Uuid>,
    dead: Vec<Uuid>,
}

/// A burst, dead letters, an attempt for each delivery, some leases and heads that failed; and what the planner knew before.
async fn load(client: &Client) -> Loaded {
    let id = "encode(int8send((((date_part('epoch', now()) * 1000)::int8 - 1000 - i / 1000) << 16) | (7 << 12) | i % 1000) \
              || substring(uuid_send(gen_random_uuid()) from 9), 'hex')::uuid";
    let message = "insert into outbox.message \
                   (id, occurred_at, priority, content_bytes, namespace, topic, payload, lane, sequence_id)";
    let burst = format!(
        "with m as materialized (select i, {id} as id, 'lane-' || i % 1000 as lane from generate_series(1, 100000) i), \
         w as ({message} select id, now(), 0, 1, 'default', 't', '1', lane, i from m), \
         k as (insert into outbox.dedupe (namespace, topic, dedupe_key, message_id) \
               select 'default', 't', 'key-' || i, id from m) \
         insert into outbox.delivery (message_id, occurred_at, due_at, priority, size_bytes, sink, lane, sequence_id) \
         select id, now(), now(), 0, 1, 'default', lane, i from m; \
         {message} select {id}, now(), 0, 1, 'default', 'd', '1', null, null from generate_series(1, 5000) i; \
         insert into outbox.dead_letter (message_id, sink, died_at, reason, priority, size_bytes, attempt_no, attempt_count, \
         parked) select id, 'default', now(), 'FAILED', 0, 1, 1, 1, false from outbox.message where topic = 'd'; \
         insert into outbox.attempt (message_id, claimed_at, completed_at, attempt_no, state, sink, worker_id) \
         select message_id, now(), now(), 1, 'RETRYABLE'::outbox.attempt_state, 'default', 'w' from outbox.delivery \
         union all select message_id, now(), now(), 1, 'FAILED', 'default', 'w' from outbox.dead_letter; \
         update outbox.delivery set due_at = now() + interval '1 hour', attempt_no = 1, attempt_count = 1 \
         where sequence_id <= 100; \
         update outbox.delivery set claimed_at = now(), lease_expires_at = now() + interval '1 hour', claimed_by = 'w', \
         lease_token = gen_random_uuid() where sequence_id between 101 and 200"
    );
    run(client, &burst).await;
    // As a vacuum leaves a table whose last row stands at the end of 72 pages.
    let nearly_empty = "update pg_class set reltuples = 1, relpages = 72 where relnamespace = 'outbox'::regnamespace \
                        and relkind = 'r' and relname ~ '^(delivery|dead_letter|message|attempt|dedupe)'; \
                        delete from pg_statistic where starelid in \
                        (select oid from pg_class where relnamespace = 'outbox'::regnamespace)";
    run(client, nearly_empty).await;
    let ids = async |table: &str| -> Vec<Uuid> {
        let sql = format!("select message_id from outbox.{table} order by message_id desc limit 100");
        client.query(&sql, &[]).await.unwrap().iter().map(|row| row.get(0)).collect()
    };
    Loaded { waiting: ids("delivery").await, dead: ids("dead_letter").await }
}

async fn ask(store: &PostgresStore, question: &str, loaded: &Loaded) {
    let (list, lanes) = (ListFilter::default(), LaneFilter::default());
    let page = PageRequest::first(100);
    let dead = DeadFilter::default();
    let of_sink = || Some("default".to_owned());
    let of_lane = || Some("lane-500".to_owned());
    // Whatever matches `*`, of the last hour: all of it, so that nothing is spared by the filter.
    let since = SystemTime::now().checked_sub(Duration::from_hours(1));
    let of_topic =
        |state, topic: &str| ListFilter { state, topic: Some(topic.to_owned()), from: since, ..list.clone() };
    let dead_of_topic = DeadFilter { topic: Some("d*".to_owned()), died_from: since, ..DeadFilter::default() };
    let asked = match question {
        "status" => store.status().await.map(drop),
        "list" => store.list(&list, &page).await.map(drop),
        "list of a lane" => store.list(&ListFilter { lane: of_lane(), ..list }, &page).await.map(drop),
        "list of a topic" => store.list(&of_topic(None, "t*"), &page).await.map(drop),
        "list by the end of an id" => {
            let id = loaded.waiting[0].simple().to_string()[20..].to_owned();
            let found = store.list(&ListFilter { id: Some(id.try_into().unwrap()), ..list }, &page).await;
            found.map(|found| assert_eq!(found.items.len(), 1))
        }
        "list by a dedupe key" => {
            let found = store.list(&ListFilter { dedupe_key: Some("key-7".to_owned()), ..list }, &page).await;
            found.map(|found| assert_eq!(found.items.len(), 1))
        }
        "list by a dedupe key of a topic" => {
            let key = Some("key-7".to_owned());
            let found = store.list(&ListFilter { dedupe_key: key, ..of_topic(None, "t*") }, &page).await;
            found.map(|found| assert_eq!(found.items.len(), 1))
        }
        "list pending of a topic" => store.list(&of_topic(Some(DeliveryState::Pending), "t*"), &page).await.map(drop),
        "list dead of a topic" => store.list(&of_topic(Some(DeliveryState::Dead), "d*"), &page).await.map(drop),
        "show" => store.show(loaded.waiting[0]).await.map(drop),
        "explain" => store.explain(loaded.waiting[0]).await.map(drop),
        "entries" => store.entries(&loaded.waiting).await.map(drop),
        "entries of dead letters" => store.entries(&loaded.dead).await.map(drop),
        "lanes" => store.lanes(&lanes, &PageRequest::first(100)).await.map(drop),
        "lanes that wait" => store
            .lanes(&LaneFilter { state: Some(LaneState::Waiting), ..lanes }, &PageRequest::first(100))
            .await
            .map(drop),
        "one lane" => store
            .lanes(&LaneFilter { sink: of_sink(), lane: of_lane(), ..lanes }, &PageRequest::first(100))
            .await
            .map(drop),
        "dead letters" => store.dead_letters(&dead, &page).await.map(drop),
        "dead letters of a sink" => store.dead_letters(&DeadFilter { sink: of_sink(), ..dead }, &page).await.map(drop),
        "dead letters by id" => {
            let ids = Some(loaded.dead.clone());
            store.dead_letters(&DeadFilter { message_ids: ids, ..dead }, &page).await.map(drop)
        }
        "dead letters of a topic" => store.dead_letters(&dead_of_topic, &page).await.map(drop),
        "dead groups" => store.dead_groups(&dead).await.map(drop),
        "dead groups of a topic" => store.dead_groups(&dead_of_topic).await.map(drop),
        "dead letters counted" => store.count_dead(&dead).await.map(drop),
        "dead letters of a topic counted" => {
            assert_eq!(store.count_dead(&dead_of_topic).await.unwrap(), 5000);
            Ok(())
        }
        "waiting of a topic" => {
            let which = DeliveryFilter { topic: Some("t*".to_owned()), ..DeliveryFilter::default() };
            store.count_open(&which).await.map(|open| assert_eq!(open.pending + open.leased, 100_000))
        }
        "waiting" => store.count_open(&DeliveryFilter::default()).await.map(drop),
        "future times" => store.future_times(Duration::from_secs(2)).await.map(drop),
        "has due" => store.has_due("default", None).await.map(drop),
        "samples, relays, audit, routes" => {
            store.samples(Duration::from_hours(1)).await.unwrap();
            store.relays().await.unwrap();
            store.audit(&PageRequest::first(100)).await.unwrap();
            store.routes().await.map(drop)
        }
        states => {
            let state = DeliveryState::ALL.iter().copied().find(|state| states == format!("list {}", state.as_str()));
            assert!(state.is_some(), "{states} is no question");
            store.list(&ListFilter { state, ..list }, &page).await.map(drop)
        }
    };
    asked.unwrap_or_else(|error| panic!("{question}: {error}"));
}

/// Rows and pages of the outbox that were ever read. A session counts what it read when it ends, at the latest.
async fn read(client: &Client) -> (i64, i64) {
    let others = "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid() \
                  and backend_type = 'client backend'";
    while number(client, others).await > 0 {
        tokio::task::yield_now().await;
    }
    let sum = |figure: &str| {
        format!(
            "select sum(pg_stat_get_{figure}(c.oid)) from pg_class c \
             where c.relnamespace = 'outbox'::regnamespace and c.relkind in ('r', 'i')"
        )
    };
    (number(client, &sum("tuples_returned")).await, number(client, &sum("blocks_fetched")).await)
}

/// What is wrong with a question, if it reads too much.
async fn judge(
    client: &Client,
    question: &str,
    most: (i64, i64),
    before: (i64, i64),
    begun: Instant,
) -> Option<String> {
    let took = begun.elapsed();
    let after = read(client).await;
    let (rows, pages) = (after.0 - before.0, after.1 - before.1);
    let words = format!("{question}: {rows} rows and {pages} pages, in {took:?}");
    println!("{words}");
    (rows > most.0 || pages > most.1).then_some(words)
}

async fn views(database: &Database, client: &Client) -> Vec<String> {
    let mut bad = Vec::new();
    for sql in VIEWS {
        let (before, begun) = (read(client).await, Instant::now());
        let person = database.connect().await;
        person
            .batch_execute(&format!("set statement_timeout = '30s'; {sql}"))
            .await
            .unwrap_or_else(|error| panic!("{sql}: {error:?}"));
        drop(person);
        bad.extend(judge(client, sql, LARGE, before, begun).await);
    }
    bad
}

/// Proves H3, P16: no question reads a table again and again, whatever the planner thinks of it.
#[tokio::test]
async fn heavy_slow_every_question_holds_after_a_burst() {
    let cluster =
        Cluster::start_with(&[("autovacuum", "off"), ("synchronous_commit", "off"), ("shared_buffers", "256MB")]).await;
    let database = cluster.database().await;
    let client = database.connect().await;
    let loaded = load(&client).await;
    let mut bad = views(&database, &client).await;
    for (question, most) in QUESTIONS {
        let (before, begun) = (read(&client).await, Instant::now());
        let store = PostgresStore::connect(&database.url(), Schema::default()).await.unwrap();
        ask(&store, question, &loaded).await;
        drop(store);
        bad.extend(judge(&client, question, most, before, begun).await);
    }
    assert_eq!(bad, Vec::<String>::new());
}
