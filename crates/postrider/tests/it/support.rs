//! What the tests share: enqueue, claim and complete in one line each, through plain SQL on a plain connection, so that
//! a test reads like the contract. No assertion lives here.

use std::time::Duration;

use postrider::{Schema, migrate};
use postrider_testkit::{Cluster, Database};
use tokio::task::JoinHandle;
use tokio_postgres::{Client, Row};
use uuid::Uuid;

/// A claimed message, as far as tests look at it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) id: Uuid,
    pub(crate) token: Uuid,
    pub(crate) topic: String,
    pub(crate) lane: Option<String>,
    pub(crate) sequence: Option<i64>,
    pub(crate) attempt_no: i32,
    pub(crate) attempt_count: i32,
}

impl Held {
    fn from_row(row: &Row) -> Self {
        Self {
            id: row.get("message_id"),
            token: row.get("lease_token"),
            topic: row.get("topic"),
            lane: row.get("lane"),
            sequence: row.get("sequence_id"),
            attempt_no: row.get("attempt_no"),
            attempt_count: row.get("attempt_count"),
        }
    }
}

/// A fresh, migrated database and one connection to it.
pub(crate) async fn fresh() -> (Database, Client) {
    let database = postrider_testkit::database().await;
    let client = database.connect().await;
    (database, client)
}

/// The same, and a connection that fails rather than waits for a lock.
pub(crate) async fn with_impatient() -> (Database, Client, Client) {
    let (database, client) = fresh().await;
    let impatient = database.connect().await;
    run(&impatient, "set lock_timeout = '1ms'").await;
    (database, client, impatient)
}

/// A fresh database with the group roles, and a superuser's connection.
pub(crate) async fn with_roles() -> (Database, Client) {
    let (database, mut admin) = fresh().await;
    migrate::roles(&mut admin, &Schema::default(), &Schema::default()).await.unwrap();
    (database, admin)
}

/// The name of the login role in `group` that `login` makes: roles belong to the server, which tests may share.
pub(crate) fn login_name(database: &Database, group: &str) -> String {
    format!("login_{}_{group}", database.name())
}

/// A login role of this database's own that is in `group` (in none if empty), logged in.
pub(crate) async fn login(database: &Database, admin: &Client, group: &str) -> Client {
    let name = login_name(database, group);
    run(admin, &format!("create role \"{name}\" login")).await;
    if !group.is_empty() {
        run(admin, &format!("grant \"{group}\" to \"{name}\"")).await;
    }
    database.connect_as(&name).await
}

/// Runs statements that must go well.
pub(crate) async fn run(client: &Client, sql: &str) {
    client.batch_execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
}

/// A server for a million rows, whose autovacuum does not run while something is measured.
pub(crate) async fn quiet_cluster() -> Cluster {
    Cluster::start_with(&[
        ("autovacuum", "off"),
        ("max_wal_size", "8GB"),
        ("synchronous_commit", "off"),
        ("shared_buffers", "512MB"),
    ])
    .await
}

/// Enqueues with the given arguments of `outbox.enqueue` (SQL text after `payload`), returning the id.
pub(crate) async fn enqueue(client: &Client, topic: &str, arguments: &str) -> Uuid {
    let sql = format!("select message_id from outbox.enqueue(topic => '{topic}', payload => '1'{arguments})");
    client.query_one(&sql, &[]).await.expect("enqueue").get(0)
}

/// Enqueues `count` messages without a lane in one statement.
pub(crate) async fn enqueue_plain(client: &Client, count: i32) {
    let sql = "select count(*) from outbox.enqueue_many(topic => array_fill('t'::text, array[$1::int4]), \
               payload => array_fill('1'::jsonb, array[$1]))";
    client.query_one(sql, &[&count]).await.expect("enqueue_many");
}

/// Enqueues `per_lane` messages in each of `lanes` lanes (`lane-00000` …), in one statement.
pub(crate) async fn enqueue_lanes(client: &Client, lanes: i32, per_lane: i32) {
    let sql = "with m as (select array_agg('lane-' || lpad(l::text, 5, '0') order by n, l) as lane \
                          from generate_series(0, $1::int4 - 1) l, generate_series(1, $2::int4) n) \
               select count(*) from m, outbox.enqueue_many(topic => array_fill('t'::text, array[$1 * $2]), \
               payload => array_fill('1'::jsonb, array[$1 * $2]), lane => m.lane)";
    client.query_one(sql, &[&lanes, &per_lane]).await.expect("enqueue_many");
}

/// A pair of partitions of the first day of 2020, with nothing in them. They belong to the owner of the outbox, like all.
pub(crate) async fn partitions_of_2020(client: &Client) {
    for table in ["message", "attempt"] {
        let old = format!(
            "create table outbox.{table}_20200101_00 partition of outbox.{table} for values from \
             (outbox.message_id_floor('2020-01-01 00:00+00')) to (outbox.message_id_floor('2020-01-02 00:00+00'))"
        );
        run(client, &old).await;
        let given = format!(
            "do $$ begin execute format('alter table outbox.{table}_20200101_00 owner to %s', \
             (select n.nspowner::regrole from pg_namespace n where n.nspname = 'outbox')); end $$"
        );
        run(client, &given).await;
    }
}

/// Claims for `worker` with a lease of 60 seconds; `more` is further SQL arguments.
pub(crate) async fn claim_with(client: &Client, worker: &str, batch: i32, more: &str) -> Vec<Held> {
    let sql = format!("select * from outbox.claim(worker_id => $1, batch_size => $2{more})");
    let sql = if more.contains("lease_seconds") { sql } else { sql.replace("$2", "$2, lease_seconds => 60") };
    client.query(&sql, &[&worker, &batch]).await.expect("claim").iter().map(Held::from_row).collect()
}

/// Claims for `worker` with a lease of 60 seconds.
pub(crate) async fn claim(client: &Client, worker: &str, batch: i32) -> Vec<Held> {
    claim_with(client, worker, batch, "").await
}

/// Claims with a lease so short that it has ended when this returns.
pub(crate) async fn claim_expired(client: &Client, worker: &str, batch: i32) -> Vec<Held> {
    let held = claim_with(client, worker, batch, ", lease_seconds => 0.001").await;
    client.query("select pg_sleep(0.01)", &[]).await.expect("the lease ends by the database's clock");
    held
}

/// Completes one message; the error is the caller's to look at.
pub(crate) async fn complete(
    client: &Client,
    worker: &str,
    held: &Held,
    state: &str,
) -> Result<i32, tokio_postgres::Error> {
    let sql = "select outbox.complete(message_id => $1, lease_token => $2, worker_id => $3, state => $4)";
    Ok(client.query_one(sql, &[&held.id, &held.token, &worker, &state]).await?.get(0))
}

/// Marks everything held under the first one's token as delivered.
pub(crate) async fn mark_delivered(client: &Client, held: &[Held]) -> i32 {
    let Some(first) = held.first() else { return 0 };
    let ids: Vec<Uuid> = held.iter().map(|held| held.id).collect();
    client
        .query_one("select outbox.mark_delivered($1, $2)", &[&first.token, &ids])
        .await
        .expect("mark_delivered")
        .get(0)
}

/// Their numbers in their lanes.
pub(crate) fn numbers(held: &[Held]) -> Vec<i64> {
    held.iter().filter_map(|held| held.sequence).collect()
}

/// A dead letter without a lane, a number of times.
pub(crate) async fn dead(client: &Client, count: i32) {
    enqueue_plain(client, count).await;
    for held in claim(client, "w", count).await {
        complete(client, "w", &held, "FAILED").await.unwrap();
    }
}

/// The attempts of a message, oldest first, as `number STATE`.
pub(crate) async fn attempts(client: &Client, id: Uuid) -> Vec<String> {
    let sql = "select attempt_no || ' ' || state from outbox.attempts where message_id = $1 order by sink, attempt_no";
    client.query(sql, &[&id]).await.expect("attempts").iter().map(|row| row.get(0)).collect()
}

/// One number.
pub(crate) async fn number(client: &Client, sql: &str) -> i64 {
    let row = client.query_one(&format!("select ({sql})::int8"), &[]).await.expect(sql);
    row.get::<_, Option<i64>>(0).unwrap_or(-1)
}

/// The SQLSTATE of a failed statement.
pub(crate) fn sqlstate(error: &tokio_postgres::Error) -> &str {
    error.code().map_or("none", |code| code.code())
}

/// Runs one statement that returns one number on its own connection, in the background; or its SQLSTATE.
pub(crate) fn in_background(client: Client, sql: &str) -> JoinHandle<Result<i64, String>> {
    let sql = format!("select ({sql})::int8");
    tokio::spawn(async move {
        let row = client.query_one(&sql, &[]).await.map_err(|error| sqlstate(&error).to_owned())?;
        Ok(row.get(0))
    })
}

/// A race: `second` comes while `client` is in a transaction, has to wait, and ends after that one's `ending`.
pub(crate) async fn waits(database: &Database, client: &Client, second: &str, ending: &str) -> Result<i64, String> {
    let waiting = in_background(database.connect().await, second);
    until_blocked(&database.connect().await, 1).await;
    run(client, ending).await;
    waiting.await.unwrap()
}

/// Waits until another backend of this database waits for a lock: the explicit "now it is blocked" of a race.
pub(crate) async fn until_blocked(client: &Client, waiters: i64) {
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    let sql = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
    while number(client, sql).await < waiters {
        assert!(std::time::Instant::now() < deadline, "nobody waits for a lock");
        tokio::task::yield_now().await;
    }
}

/// Runs a statement and returns its SQLSTATE, `00000` if it went well.
pub(crate) async fn try_sql(client: &Client, sql: &str) -> String {
    match client.batch_execute(sql).await {
        Ok(()) => "00000".to_owned(),
        Err(error) => sqlstate(&error).to_owned(),
    }
}

/// The first column of every row, as text.
pub(crate) async fn texts(client: &Client, sql: &str) -> Vec<String> {
    client.query(sql, &[]).await.expect(sql).iter().map(|row| row.get(0)).collect()
}

/// Every table of the schema (partitions through their parents) with the number and a hash of its rows: equal before
/// and after means that nothing was written. Sleepers are left out: they are not the outbox's content.
pub(crate) async fn contents(client: &Client, schema: &str) -> Vec<String> {
    let sql = format!(
        "select c.relname::text from pg_class c where c.relnamespace = '\"{schema}\"'::regnamespace \
         and c.relkind in ('r', 'p') and not c.relispartition and c.relname <> 'sleeper' order by 1"
    );
    let mut contents = Vec::new();
    for table in texts(client, &sql).await {
        let sql = format!(
            "select '{table} ' || count(*) || ' ' || coalesce(md5(string_agg(t::text, ';' order by t::text)), '') \
             from \"{schema}\".{table} t"
        );
        contents.extend(texts(client, &sql).await);
    }
    contents
}
