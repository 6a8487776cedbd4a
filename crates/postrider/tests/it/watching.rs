//! What is watched in PostgreSQL: each attempt is in one sample, what is old is forgotten, and history costs none of it
//! anything. The store contract has what holds for every store.

use std::time::Duration;

use postrider::lifecycle::{Claim, Failure, Outcome};
use postrider::{Message, PostgresStore, Schema, Store};
use postrider_testkit::Cluster;
use tokio_postgres::Client;

use crate::support::{claim, complete, enqueue, enqueue_plain, fresh, mark_delivered, number, run, texts, try_sql};

/// Messages delivered before anything is measured: more than a search looks at, and enough for the b-trees to have the
/// height they have afterwards.
const BASE: i32 = 100_000;
/// Messages delivered then.
const HISTORY: i32 = 400_000;

/// Samples as often as somebody asks for one.
const OFTEN: &str = "update outbox.setting set sample_every = '2 milliseconds', sample_lag = '1 millisecond'";

/// Measures until it is time.
async fn measure(client: &Client) {
    while number(client, "select outbox.measure()::int").await == 0 {
        tokio::task::yield_now().await;
    }
}

/// Each attempt is counted in one sample, whenever it was recorded, and by `status` as often.
#[tokio::test]
async fn each_attempt_is_in_one_sample() {
    let (_database, client) = fresh().await;
    run(&client, OFTEN).await;
    enqueue_plain(&client, 60).await;
    let mut delivered = 0;
    for round in 1..=12 {
        let held = claim(&client, "w", round % 5 + 1).await;
        delivered += i64::from(mark_delivered(&client, &held).await);
        if round % 3 > 0 {
            measure(&client).await;
        }
        assert_eq!(number(&client, "select recent_dispatched from outbox.status").await, delivered, "round {round}");
    }
    client.query("select pg_sleep(0.002)", &[]).await.unwrap();
    measure(&client).await;
    assert_eq!(number(&client, "select sum(dispatched) from outbox.samples").await, delivered);
    let gaps = "select count(*) from (select at - seconds * interval '1 second' as from_at, lag(at) over (order by at) as to_at \
                from outbox.samples) s where abs(extract(epoch from from_at - to_at)) > 0.0001";
    assert_eq!(number(&client, gaps).await, 0, "an interval begins where the one before ended");
}

/// After a pause the first sample tells of a long time. What is recent is not: only the attempts of the window are.
#[tokio::test]
async fn what_a_long_sample_tells_is_not_all_recent() {
    let (_database, client) = fresh().await;
    run(&client, OFTEN).await;
    enqueue_plain(&client, 6).await;
    mark_delivered(&client, &claim(&client, "w", 3).await).await;
    client.query("select pg_sleep(0.01)", &[]).await.unwrap();
    run(&client, "create temporary table window_from as select clock_timestamp() as at").await;
    mark_delivered(&client, &claim(&client, "w", 2).await).await;
    client.query("select pg_sleep(0.01)", &[]).await.unwrap();
    measure(&client).await;
    assert_eq!(number(&client, "select dispatched from outbox.samples").await, 5, "the sample has all");
    mark_delivered(&client, &claim(&client, "w", 1).await).await;
    // The window begins where it is wanted, however slow this machine is: its time stands still in a transaction.
    let recent = async || {
        let narrow = "begin; update outbox.setting set status_window = now() - (select at from window_from)";
        run(&client, narrow).await;
        let recent = number(&client, "select recent_dispatched from outbox.status").await;
        run(&client, "rollback").await;
        recent
    };
    assert_eq!(recent().await, 3, "what was delivered before the window is not recent");
    client.query("select pg_sleep(0.01)", &[]).await.unwrap();
    measure(&client).await;
    assert_eq!(recent().await, 3, "and what came after the long sample is counted once");
}

/// At full speed `status` does not read all that came after the last sample: the next sample has it.
#[tokio::test]
async fn the_look_past_the_last_sample_is_bounded() {
    let (_database, client) = fresh().await;
    run(&client, OFTEN).await;
    measure(&client).await;
    enqueue_plain(&client, 10_500).await;
    for batch in [10_000, 500] {
        let held = claim(&client, "w", batch).await;
        assert_eq!(mark_delivered(&client, &held).await, batch);
    }
    let recent = "select recent_dispatched from outbox.status";
    assert_eq!(number(&client, recent).await, 10_000);
    client.query("select pg_sleep(0.01)", &[]).await.unwrap();
    measure(&client).await;
    assert_eq!(number(&client, recent).await, 10_500);
}

/// What a sample has counted is not read again, though no vacuum has come by; and a sample waits for no vacuum.
#[tokio::test]
async fn a_sample_summarizes_what_it_has_counted() {
    let cluster = Cluster::start_with(&[("autovacuum", "off")]).await;
    let database = cluster.database().await;
    let client = database.connect().await;
    run(&client, OFTEN).await;
    measure(&client).await;
    attempts(&client, 30_000).await;
    let written = number(
        &client,
        "select max(pg_relation_size(c.oid)) / 8192 from pg_class c \
                                   where relname ~ '^attempt_' and relkind = 'r'",
    )
    .await;
    let status = "select * from outbox.status";
    assert!(pages(&client, status).await > written, "they have to be read");
    client.query("select pg_sleep(0.005)", &[]).await.unwrap();
    measure(&client).await;
    let after = pages(&client, status).await;
    assert!(after < written / 2, "{after} pages of {written}");

    // As a vacuum has it.
    let vacuum = database.connect().await;
    let lock = "begin; do $$ declare part regclass; begin \
                for part in select relid from pg_partition_tree('outbox.attempt') where isleaf loop \
                execute format('lock table %s in share update exclusive mode', part); end loop; end $$";
    run(&vacuum, lock).await;
    attempts(&client, 30_000).await;
    client.query("select pg_sleep(0.005)", &[]).await.unwrap();
    measure(&client).await;
    assert_eq!(number(&client, "select sum(dispatched) from outbox.samples").await, 60_000);
    assert!(pages(&client, status).await > written, "the vacuum has not come so far");
    run(&vacuum, "commit").await;
    client.query("select pg_sleep(0.005)", &[]).await.unwrap();
    measure(&client).await;
    assert!(pages(&client, status).await < written / 2);
}

/// The last success and failure are known when the window is over, though it was over before anybody measured, and stay so
/// from sample to sample. The store is empty, its window is a second, and samples are often and reach a moment back, until
/// `reach` says otherwise.
pub(crate) async fn assert_last_outcomes_are_kept(store: &dyn Store, reach: impl AsyncFnOnce()) {
    let status = async || {
        let lines = store.status().await.unwrap();
        let line = lines.into_iter().find(|line| line.sink == "default").unwrap();
        (line.recent.dispatched + line.recent.failed, line.last_success_at, line.last_error_at)
    };
    let measure = async || {
        tokio::time::sleep(Duration::from_millis(1100)).await;
        while !store.measure().await.unwrap() {
            tokio::task::yield_now().await;
        }
    };
    let message = || Message::json("t", &1).unwrap();
    store.enqueue(&[message(), message()]).await.unwrap();
    let held = store.claim(&Claim::new("w").batch_size(2)).await.unwrap();
    store.ack("w", &held[0]).await.unwrap();
    store.finish("w", &held[1], Outcome::Failed(Failure::new("NO", "no"))).await.unwrap();
    let (_, success, error) = status().await;
    assert!(success.is_some() && error.is_some());
    measure().await;
    assert_eq!(status().await, (0, success, error), "the first sample finds them");
    reach().await;
    measure().await;
    measure().await;
    assert_eq!(status().await, (0, success, error), "the next have them from it");
    store.enqueue(&[message()]).await.unwrap();
    store.ack("w", &store.claim(&Claim::new("w")).await.unwrap()[0]).await.unwrap();
    measure().await;
    let (_, later, same) = status().await;
    assert!(later > success && same == error);
}

/// Proves E4, P16: what happened last is known for good.
#[tokio::test]
async fn what_happened_last_is_kept() {
    let (database, client) = fresh().await;
    run(&client, OFTEN).await;
    run(&client, "update outbox.setting set status_window = '1 second', sample_reach = '2 milliseconds'").await;
    let store = PostgresStore::connect(&database.url(), Schema::default()).await.unwrap();
    let reach = async || run(&client, "update outbox.setting set sample_reach = '1 hour'").await;
    assert_last_outcomes_are_kept(&store, reach).await;
    // A sink that nothing leads to any more is not shown for what it did once.
    run(&client, "update outbox.sample set sink = 'gone', dispatched = 0").await;
    assert_eq!(texts(&client, "select sink from outbox.status").await, ["default"]);
}

/// One measures; who comes meanwhile goes away at once, and an old snapshot is refused.
#[tokio::test]
async fn a_second_measurer_does_not_wait() {
    let (database, client) = fresh().await;
    run(&client, OFTEN).await;
    let other = database.connect().await;
    run(&client, "begin; select outbox.measure()").await;
    assert_eq!(number(&other, "select outbox.measure()::int").await, 0);
    run(&client, "commit").await;
    measure(&other).await;
    assert_eq!(number(&client, "select count(distinct at) from outbox.samples").await, 2);
    let stale = "begin isolation level repeatable read; select outbox.measure()";
    assert_eq!(try_sql(&client, stale).await, "25001");
}

/// Samples and relays past their retention go, a bounded number at a time.
#[tokio::test]
async fn what_is_old_is_forgotten() {
    let (_database, client) = fresh().await;
    run(&client, OFTEN).await;
    let old = "insert into outbox.sample select now() - interval '25 hours' - i * interval '1 second', 1, 0, 0, 0, 0, 0, 0, 0, \
               0, 0, 0, 0, 0, null, null, null, null, 'default' from generate_series(1, 5) i; \
               insert into outbox.relay select 'gone', now(), now() - interval '25 hours', '10 seconds', '1', '[]'";
    run(&client, old).await;
    for expected in [3 + 1, 1 + 2, 3] {
        client.query("select pg_sleep(0.005)", &[]).await.unwrap();
        client.query("select outbox.measure(batch_size => 2)", &[]).await.unwrap();
        assert_eq!(number(&client, "select count(*) from outbox.samples").await, expected);
    }
    client.query("select outbox.report('here', '1', 10, '[{\"sink\": \"a\"}, 7]')", &[]).await.unwrap();
    assert_eq!(texts(&client, "select worker_id from outbox.relays").await, ["here"]);
}

/// The head's error is its last attempt's, in the view as in the library.
#[tokio::test]
async fn a_lane_shows_the_error_of_its_head() {
    let (_database, client) = fresh().await;
    enqueue(&client, "t", ", lane => 'a'").await;
    let held = claim(&client, "w", 1).await;
    complete(&client, "w", &held[0], "FAILED").await.unwrap();
    let fail = "select outbox.complete(message_id, lease_token, 'w', 'FAILED', error_code => 'E2', error_message => 'no') \
                from outbox.delivery";
    run(&client, "select outbox.redrive(all_dead => true)").await;
    claim(&client, "w", 1).await;
    client.query(fail, &[]).await.unwrap();
    let lane = "select concat_ws(' ', state, head_failed, head_error_code, head_error_message) from outbox.lanes";
    assert_eq!(texts(&client, lane).await, ["parked t E2 no"]);
}

/// Attempts that end now, of messages that are not there.
async fn attempts(client: &Client, count: i32) {
    let sql = format!(
        "insert into outbox.attempt (message_id, claimed_at, completed_at, attempt_no, state, sink, worker_id) \
         select (left(outbox.message_id_floor(now())::text, 19) || right(gen_random_uuid()::text, 17))::uuid, now(), now(), 1, 'DISPATCHED', 'default', 'w' \
         from generate_series(1, {count})"
    );
    run(client, &sql).await;
}

/// Pages that a statement touches, once it is planned.
async fn pages(client: &Client, sql: &str) -> i64 {
    let mut touched = 0;
    for _ in 0..2 {
        client.query("select pg_sleep(0.005)", &[]).await.unwrap();
        let explain = format!("explain (analyze, buffers, format json) {sql}");
        let plan: serde_json::Value = client.query_one(&explain, &[]).await.unwrap().get(0);
        let top = &plan[0]["Plan"];
        touched = top["Shared Hit Blocks"].as_i64().unwrap() + top["Shared Read Blocks"].as_i64().unwrap();
    }
    touched
}

/// Messages that were delivered yesterday, with ids that end `seconds` ago.
async fn deliver(client: &Client, count: i32, seconds: i32) {
    let sql = format!(
        "with m as materialized (select i, encode(int8send((((date_part('epoch', now()) * 1000)::int8 - {seconds} * 1000 - i) << 16) \
                | (7 << 12)) || substring(uuid_send(gen_random_uuid()) from 9), 'hex')::uuid as id from generate_series(1, {count}) i), \
         w as (insert into outbox.message (id, occurred_at, priority, content_bytes, namespace, topic, payload) \
               select id, now(), 0, 1, 'default', 't', '1' from m) \
         insert into outbox.attempt (message_id, claimed_at, completed_at, attempt_no, state, sink, worker_id) \
         select id, now(), now() - interval '1 day' - i * interval '1 millisecond', 1, 'DISPATCHED', 'default', 'w' from m"
    );
    run(client, &sql).await;
    // Also makes the summaries that autovacuum would have made.
    run(client, "vacuum (freeze, analyze) outbox.message, outbox.attempt").await;
}

/// Proves P16: what a sample, the status, the lanes and a search read does not grow with history.
#[tokio::test]
async fn heavy_history_costs_measure_and_status_nothing() {
    let cluster = Cluster::start_with(&[("autovacuum", "off"), ("synchronous_commit", "off")]).await;
    let database = cluster.database().await;
    let client = database.connect().await;
    run(&client, OFTEN).await;
    deliver(&client, BASE, 60).await;
    enqueue_plain(&client, 1000).await;
    crate::support::enqueue_lanes(&client, 100, 10).await;
    let held = claim(&client, "w", 100).await;
    mark_delivered(&client, &held[..50]).await;
    let statements = [
        "select outbox.measure()",
        "select * from outbox.status",
        "select * from outbox.lanes order by depth desc limit 10",
        "select * from outbox.find_messages()",
        "select * from outbox.find_messages(topic => 'nothing')",
        "select * from outbox.find_messages(namespace => 'nothing', sink => 'default')",
        "select * from outbox.find_messages(sink => 'nothing')",
        "select * from outbox.find_messages(state => 'delivered')",
        "select * from outbox.find_messages(state => 'delivered', sink => 'nothing')",
        "select * from outbox.find_messages(state => 'delivered', tenant_id => 'tenant-1')",
        "select * from outbox.find_messages(state => 'discarded')",
        "select * from outbox.find_messages(state => 'pending', topic => 'nothing')",
        "select * from outbox.find_messages(state => 'leased', lane => 'nothing')",
        "select * from outbox.find_messages(state => 'dead')",
        "select * from outbox.find_messages(topic => 'noth*')",
        "select * from outbox.find_ids('00000000', look_at => 10000)",
        "select * from outbox.find_keys('nothing')",
    ];
    let mut before = Vec::new();
    for sql in statements {
        before.push(pages(&client, sql).await);
    }
    deliver(&client, HISTORY, 600).await;
    let history = "select sum(relpages) from pg_class where relnamespace = 'outbox'::regnamespace \
                   and relname ~ '^(message|attempt)_' and relkind = 'r'";
    let history = number(&client, history).await;
    assert!(history > 5000, "{history} pages of history are too few to be seen");
    for (sql, before) in statements.iter().zip(before) {
        let after = pages(&client, sql).await;
        println!("{sql}: {before} pages before, {after} after, of {history}");
        assert!(after - before < history / 50 + before / 10, "{sql}: {before} pages before, {after} after");
    }
}
