//! What a claim reads, and what its holder's calls read. The statements inside the functions must use the intended indexes
//! whatever the planner knows (empty table, loaded and never analyzed, a million rows), and the pages touched by a claim of
//! 100 must not grow with history, with what is not due, with other tenants, with one blocked lane, or with the number of lanes.
//!
//! Scans are read from the transaction's own statistics, pages from EXPLAIN (ANALYZE, BUFFERS): both exact.

use std::collections::BTreeMap;

use postrider_testkit::Database;
use tokio_postgres::Client;

use crate::support::{enqueue_lanes, enqueue_plain, number, quiet_cluster, run};

/// What is pending before anything is added: enough for the b-trees to have the height they have with a million.
const BASE: i32 = 100_000;
const MILLION: i32 = 1_000_000;
/// Claims measured on each side; the median counts.
const CLAIMS: usize = 5;

/// What a holder calls, with the `TOKEN` and the `IDS` of a claim of 100.
const HOLDERS_CALLS: &[&str] = &[
    "renew(TOKEN, IDS, 60)",
    "release(TOKEN, IDS)",
    "mark_delivered(TOKEN, IDS)",
    "complete_many(IDS, array_fill(TOKEN, array[cardinality(IDS)]), array(select (array['DISPATCHED', 'RETRYABLE', 'FAILED'])\
     [1 + n % 3] from generate_series(1, cardinality(IDS)) n))",
];

async fn quiet() -> (Database, Client) {
    let database = quiet_cluster().await.database().await;
    let client = database.connect().await;
    (database, client)
}

/// Index scans and sequential scans of the outbox's tables by one claim of 100 (which is rolled back).
async fn scans(client: &Client, arguments: &str) -> BTreeMap<String, i64> {
    run(client, "begin").await;
    client.query(&format!("select from outbox.claim('w', 100, 60{arguments})"), &[]).await.unwrap();
    let scans = scans_until_now(client).await;
    run(client, "rollback").await;
    scans
}

/// Those of the transaction.
async fn scans_until_now(client: &Client) -> BTreeMap<String, i64> {
    let rows = client
        .query(
            "select case c.relkind when 'r' then 'seq ' else '' end \
                    || regexp_replace(c.relname, '_\\d{8}_\\d\\d|_rest', ''), sum(pg_stat_get_xact_numscans(c.oid))::int8 \
             from pg_class c where c.relnamespace = 'outbox'::regnamespace and c.relkind in ('r', 'i') \
             and pg_stat_get_xact_numscans(c.oid) > 0 group by 1",
            &[],
        )
        .await
        .unwrap();
    rows.iter().map(|row| (row.get(0), row.get(1))).collect()
}

async fn assert_intended_indexes(client: &Client, when: &str) {
    for (arguments, wanted) in [
        ("", ["delivery_due", "delivery_lane"]),
        (", tenant_id => 'tenant-1'", ["delivery_due_of_tenant", "delivery_lane_of_tenant"]),
    ] {
        let scans = scans(client, arguments).await;
        for index in wanted {
            assert!(scans.contains_key(index), "{when}: {index} is not used: {scans:?}");
        }
        for table in ["delivery", "message", "attempt"] {
            assert!(!scans.contains_key(&format!("seq {table}")), "{when}: {table} is read from end to end: {scans:?}");
        }
    }
    for call in HOLDERS_CALLS {
        holder_pages(client, call, when).await;
    }
}

/// Pages that a holder's call touches (it is rolled back). The call finds its rows by their ids and reads no table from end to end.
async fn holder_pages(client: &Client, call: &str, when: &str) -> i64 {
    run(client, "begin").await;
    let claim = "select coalesce(min(lease_token::text), gen_random_uuid()::text), \
                 coalesce(array_agg(message_id), array[gen_random_uuid()])::text from outbox.claim('w', 100, 60)";
    let held = client.query_one(claim, &[]).await.unwrap();
    let value = |column, kind| format!("'{}'::{kind}", held.get::<_, &str>(column));
    let sql = call.replace("TOKEN", &value(0, "uuid")).replace("IDS", &value(1, "uuid[]"));
    let before = scans_until_now(client).await;
    let (_, touched) = explain(client, &sql).await;
    let after = scans_until_now(client).await;
    run(client, "rollback").await;
    let read = |of: &str| after.get(of) > before.get(of);
    assert!(read("delivery_pk"), "{when}: {call}: {after:?}");
    for table in ["delivery", "message", "attempt", "dead_letter"] {
        assert!(!read(&format!("seq {table}")), "{when}: {call} reads {table} from end to end: {after:?}");
    }
    touched
}

/// Delivers all that is held.
const DELIVER: &str = "select outbox.mark_delivered(lease_token, array_agg(message_id)) from outbox.delivery \
     where lease_token is not null group by lease_token";

/// Rows that this function returns, and pages that it touches.
async fn explain(client: &Client, call: &str) -> (f64, i64) {
    let sql = format!("explain (analyze, buffers, format json) select * from outbox.{call}");
    let plan: serde_json::Value = client.query_one(&sql, &[]).await.unwrap().get(0);
    let top = &plan[0]["Plan"];
    let pages = top["Shared Hit Blocks"].as_i64().unwrap() + top["Shared Read Blocks"].as_i64().unwrap();
    (top["Actual Rows"].as_f64().unwrap(), pages)
}

/// Pages that this claim of 100 touches.
async fn claim_pages(client: &Client, arguments: &str) -> i64 {
    let (rows, pages) = explain(client, &format!("claim('w', 100, 60{arguments})")).await;
    assert!((rows - 100.0).abs() < 0.5, "a full batch, not {rows}");
    pages
}

/// The median of several measurements.
async fn median(client: &Client, measure: impl AsyncFn() -> i64) -> i64 {
    let vacuum = "vacuum (freeze, index_cleanup on) outbox.delivery";
    run(client, vacuum).await;
    let mut counts = Vec::new();
    for n in 0..=CLAIMS {
        let touched = measure().await;
        // The first call plans every statement in the functions and reads the catalogs for it.
        if n > 0 {
            counts.push(touched);
        }
        // Not measured here: dead index entries of what was just delivered, and whether vacuum has been around.
        run(client, vacuum).await;
    }
    counts.sort_unstable();
    counts[CLAIMS / 2]
}

/// Pages that a claim of 100 touches; each is delivered before the next.
async fn pages(client: &Client, arguments: &str) -> i64 {
    median(client, async || {
        let touched = claim_pages(client, arguments).await;
        client.query(DELIVER, &[]).await.unwrap();
        touched
    })
    .await
}

fn assert_within_a_tenth(what: &str, before: i64, after: i64) {
    println!("{what}: a call for 100 touched {before} pages before, {after} after");
    assert!((after - before).abs() * 10 < before, "{what}: {before} pages before, {after} after");
}

/// Rows straight into the tables: a million through `enqueue_many` would only take longer. `columns` are SQL
/// expressions over `i`: tenant, lane, sequence, due time, priority.
async fn load(client: &Client, rows: i32, tenant: &str, lane: &str, sequence: &str, due: &str, priority: &str) {
    let sql = format!(
        "with m as materialized (select i, encode(int8send((((date_part('epoch', now()) * 1000)::int8 - 1000 - i / 1000) << 16) | (7 << 12) | i % 1000) \
                || substring(uuid_send(gen_random_uuid()) from 9), 'hex')::uuid as id from generate_series(1, {rows}) i), \
         w as (insert into outbox.message (id, occurred_at, priority, content_bytes, namespace, topic, payload, tenant_id, lane, sequence_id) \
               select id, now(), {priority}, 1, 'default', 't', '1', {tenant}, {lane}, {sequence} from m) \
         insert into outbox.delivery (message_id, occurred_at, due_at, priority, size_bytes, sink, tenant_id, lane, \
         sequence_id) select id, now(), {due}, {priority}, 1, 'default', {tenant}, {lane}, {sequence} from m"
    );
    run(client, &sql).await;
}

/// Proves H3: the plans are index scans on an empty, a freshly loaded and never analyzed, and a million-row table.
#[tokio::test]
async fn heavy_claims_use_the_intended_indexes() {
    let (database, client) = quiet().await;
    assert_intended_indexes_on_empty(&client).await;
    enqueue_plain(&client, 10_000).await;
    enqueue_lanes(&client, 1000, 10).await;
    assert_eq!(
        number(&client, "select count(*) from pg_stats where schemaname = 'outbox' and tablename = 'delivery'").await,
        0
    );
    assert_intended_indexes(&client, "loaded, never analyzed").await;
    load(&client, MILLION / 2, "null", "null", "null::int8", "now()", "0").await;
    load(&client, MILLION / 2, "null", "'x' || i % 5000", "i", "now()", "0").await;
    assert_intended_indexes(&client, "a million rows, never analyzed").await;
    run(&client, "analyze").await;
    assert_intended_indexes(&client, "a million rows, analyzed").await;
    // A new session plans anew, now with statistics.
    let fresh = database.connect().await;
    assert_intended_indexes(&fresh, "a million rows, analyzed, new session").await;
}

async fn assert_intended_indexes_on_empty(client: &Client) {
    let scans = scans(client, "").await;
    assert!(scans.contains_key("delivery_due"), "{scans:?}");
    assert!(!scans.contains_key("seq delivery"), "{scans:?}");
    for call in HOLDERS_CALLS {
        holder_pages(client, call, "empty").await;
    }
}

/// A history of so many delivered messages.
async fn deliver(client: &Client, rows: i32) {
    load(client, rows, "null", "null", "null::int8", "now()", "-50").await;
    run(
        client,
        "insert into outbox.attempt (message_id, claimed_at, completed_at, attempt_no, state, sink, worker_id) \
             select message_id, now(), now(), 1, 'DISPATCHED', sink, 'w' from outbox.delivery where priority = -50; \
             delete from outbox.delivery where priority = -50",
    )
    .await;
    run(client, "vacuum outbox.delivery").await;
}

/// Proves H3, P3: a million delivered messages in history cost a claim nothing.
#[tokio::test]
async fn heavy_slow_history_costs_nothing() {
    let (_database, client) = quiet().await;
    load(&client, BASE, "null", "null", "null::int8", "now()", "0").await;
    let before = pages(&client, "").await;
    deliver(&client, MILLION).await;
    assert_within_a_tenth("a million delivered", before, pages(&client, "").await);
}

/// Proves H3: a million delivered messages and a million that wait cost the calls of a holder nothing.
#[tokio::test]
async fn heavy_slow_a_holders_calls_cost_no_more_with_a_million() {
    let (_database, client) = quiet().await;
    let mut before = Vec::new();
    for (rows, when) in [(BASE, "little"), (MILLION, "a million")] {
        load(&client, rows, "null", "null", "null::int8", "now()", "0").await;
        deliver(&client, rows).await;
        let mut counts = Vec::new();
        for call in HOLDERS_CALLS {
            counts.push(median(&client, async || holder_pages(&client, call, when).await).await);
        }
        for ((call, before), after) in HOLDERS_CALLS.iter().zip(&before).zip(&counts) {
            assert_within_a_tenth(call, *before, *after);
        }
        before = counts;
    }
}

/// Proves H3: a million deliveries not yet due, most at higher priorities than what is due, are not walked over.
#[tokio::test]
async fn heavy_slow_not_yet_due_costs_nothing() {
    let (_database, client) = quiet().await;
    load(&client, BASE, "null", "null", "null::int8", "now()", "0").await;
    let before = pages(&client, "").await;
    load(&client, MILLION, "null", "null", "null::int8", "now() + interval '1 hour'", "i % 10").await;
    assert_within_a_tenth("a million not yet due", before, pages(&client, "").await);
}

/// Proves H1, H3: a claim of one tenant does not read a million of other tenants'.
#[tokio::test]
async fn heavy_slow_other_tenants_cost_nothing() {
    let (_database, client) = quiet().await;
    let ours = "'tenant-1'";
    load(&client, BASE, ours, "null", "null::int8", "now()", "0").await;
    let filter = format!(", tenant_id => {ours}");
    let before = pages(&client, &filter).await;
    let others = "'tenant-1-' || i % 1000";
    load(&client, MILLION, others, "null", "null::int8", "now() - interval '1 day'", "0").await;
    assert_within_a_tenth("a million of other tenants", before, pages(&client, &filter).await);
}

/// Proves H3: one blocked lane of a million is one hop.
#[tokio::test]
async fn heavy_slow_a_blocked_lane_costs_nothing() {
    let (_database, client) = quiet().await;
    load(&client, BASE, "null", "'l' || i % 10000", "i", "now()", "0").await;
    let before = pages(&client, "").await;
    load(
        &client,
        MILLION,
        "null",
        "'a-blocked'",
        "i",
        "case when i = 1 then now() + interval '1 hour' else now() end",
        "0",
    )
    .await;
    assert_within_a_tenth("a blocked lane of a million", before, pages(&client, "").await);
}

/// Proves H3: a worker that remembers how far it got does not step over what was delivered since the last vacuum.
#[tokio::test]
async fn heavy_delivered_since_the_vacuum_costs_nothing_from_a_watermark() {
    let (_database, client) = quiet().await;
    let due = "now() - interval '1 hour' + i * interval '1 millisecond'";
    load(&client, BASE, "null", "null", "null::int8", due, "0").await;
    let mut touched = Vec::new();
    for round in 0..80 {
        // The first call plans every statement in the functions and reads the catalogs for it.
        if round == 1 || round == 79 {
            let reach = "select min(due_at)::text from outbox.delivery";
            let reach: String = client.query_one(reach, &[]).await.unwrap().get(0);
            touched.push(claim_pages(&client, &format!(", due_from => '{reach}'")).await);
        } else {
            client.query("select from outbox.claim('w', 1000, 60)", &[]).await.unwrap();
        }
        client.query(DELIVER, &[]).await.unwrap();
    }
    assert_within_a_tenth("80,000 delivered since the vacuum", touched[0], touched[1]);
}

/// Proves H3: a hundred thousand lanes cost what ten thousand cost.
#[tokio::test]
async fn heavy_slow_many_lanes_cost_nothing() {
    let (_database, client) = quiet().await;
    load(&client, BASE, "null", "'l' || lpad((i % 10000)::text, 6, '0')", "i", "now()", "0").await;
    let before = pages(&client, "").await;
    load(&client, MILLION, "null", "'m' || lpad((i % 98000)::text, 6, '0')", "i", "now()", "0").await;
    assert_within_a_tenth("a hundred thousand lanes", before, pages(&client, "").await);
}
