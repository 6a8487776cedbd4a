//! `postrider doctor` on real databases: each finding that can be provoked is provoked.

use std::collections::BTreeMap;

use postrider_testkit::{Cluster, Database, PgBouncer, database};
use serde_json::Value;

use crate::support::{Outbox, Ran, command, finish, outboxes, run, run_at, sql};

/// What was found: the worst level and the words of each check.
struct Found {
    code: i32,
    findings: BTreeMap<String, Vec<Value>>,
}

impl Found {
    fn of(ran: &Ran) -> Self {
        assert_eq!(ran.stderr, "", "{}", ran.stdout);
        let document: Value = serde_json::from_str(&ran.stdout).unwrap();
        let mut findings: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        for finding in document["findings"].as_array().unwrap() {
            findings.entry(finding["check"].as_str().unwrap().to_owned()).or_default().push(finding.clone());
        }
        Self { code: ran.code, findings }
    }

    /// The one finding of a check that is not `ok`.
    #[track_caller]
    fn trouble(&self, check: &str) -> (&str, &str, &str) {
        let all = self.findings.get(check).unwrap_or_else(|| panic!("{check} was not looked at"));
        let finding = all.iter().find(|finding| finding["level"] != "ok").unwrap_or_else(|| panic!("{check}: {all:?}"));
        assert!(!finding["why"].as_str().unwrap().is_empty());
        (
            finding["level"].as_str().unwrap(),
            finding["seen"].as_str().unwrap(),
            finding["fix"].as_str().unwrap_or_default(),
        )
    }

    #[track_caller]
    fn is_ok(&self, check: &str) {
        let all = self.findings.get(check).unwrap_or_else(|| panic!("{check} was not looked at"));
        assert!(all.iter().all(|finding| finding["level"] == "ok"), "{check}: {all:?}");
    }
}

fn doctor(database: &Database, args: &[&str]) -> Found {
    Found::of(&run(database, &[&["doctor", "--json"], args].concat()))
}

const CHECKS: [&str; 24] = [
    "version",
    "durability",
    "autovacuum",
    "clock",
    "isolation",
    "schema",
    "functions",
    "old_transaction",
    "prepared_transaction",
    "locks",
    "replication",
    "listen",
    "dead_rows",
    "partitions",
    "retention",
    "grants",
    "dead_letters",
    "parked_lanes",
    "stuck_leases",
    "late",
    "relays",
    "breakers",
    "failing",
    "future_times",
];

#[tokio::test]
async fn a_healthy_database_is_well() {
    let database = database().await;
    let found = doctor(&database, &[]);
    for check in CHECKS.iter().filter(|check| **check != "relays") {
        found.is_ok(check);
    }
    assert_eq!(found.trouble("relays").0, "note", "nobody delivers yet");
    assert_eq!((found.findings.len(), found.code), (CHECKS.len(), 0));
    let said = run(&database, &["doctor", "--strict"]).ok();
    assert!(said.contains("\n  ✓ functions: ") && said.ends_with("\nall is well\n"), "{said}");
}

#[tokio::test]
async fn an_old_transaction_is_found_and_named() {
    let database = database().await;
    let mut client = database.connect().await;
    let transaction = client.transaction().await.unwrap();
    let row = transaction.query_one("select pg_backend_pid(), pg_current_xact_id()::text", &[]).await.unwrap();
    let pid: i32 = row.get(0);
    let found = doctor(&database, &["--old-transaction", "0s"]);
    let (level, seen, fix) = found.trouble("old_transaction");
    assert_eq!((level, found.code), ("bad", 8));
    assert!(seen.contains("idle in transaction") && seen.contains(&format!("process {pid} ")), "{seen}");
    assert!(fix.contains(&format!("pg_terminate_backend({pid})")), "{fix}");
    doctor(&database, &["--old-transaction", "1h"]).is_ok("old_transaction");
    transaction.rollback().await.unwrap();
    doctor(&database, &["--old-transaction", "0s"]).is_ok("old_transaction");
}

#[tokio::test]
async fn prepared_transactions_slots_and_settings_are_found() {
    let settings = [("max_prepared_transactions", "5"), ("synchronous_commit", "off"), ("autovacuum", "off")];
    let database = Cluster::start_with(&settings).await.database().await;
    let found = doctor(&database, &[]);
    assert_eq!(found.trouble("durability").0, "warning");
    let (level, seen, fix) = found.trouble("autovacuum");
    assert_eq!((level, found.code), ("bad", 8));
    assert!(seen.contains("whole server") && fix.contains("set autovacuum = on"), "{seen}: {fix}");

    sql(&database, "begin; select pg_current_xact_id(); prepare transaction 'it''s mine'").await;
    sql(&database, "select pg_create_physical_replication_slot('old_standby', true)").await;
    let found = doctor(&database, &["--old-transaction", "0s"]);
    let (level, seen, fix) = found.trouble("prepared_transaction");
    assert_eq!(level, "bad");
    assert!(seen.contains("it's mine") && fix.contains("rollback prepared 'it''s mine'"), "{seen}: {fix}");
    let (level, seen, fix) = found.trouble("replication");
    assert_eq!(level, "warning");
    assert!(seen.contains("\"old_standby\" is used by nobody"), "{seen}");
    assert!(fix.contains("pg_drop_replication_slot('old_standby')"), "{fix}");

    sql(&database, "rollback prepared 'it''s mine'").await;
    sql(&database, "select pg_drop_replication_slot('old_standby')").await;
    let found = doctor(&database, &["--old-transaction", "0s"]);
    found.is_ok("prepared_transaction");
    found.is_ok("replication");
}

#[tokio::test]
async fn another_isolation_than_read_committed_is_found() {
    let database = database().await;
    let name = database.name();
    sql(&database, &format!("alter database {name} set default_transaction_isolation = 'repeatable read'")).await;
    let found = doctor(&database, &[]);
    let (level, seen, fix) = found.trouble("isolation");
    assert!(level == "warning" && seen.contains("\"repeatable read\""), "{seen}");
    assert!(fix.contains("read committed"), "{fix}");
}

#[tokio::test]
async fn tables_that_cannot_be_trusted_are_found() {
    let database = database().await;
    sql(&database, "alter table outbox.delivery set (autovacuum_enabled = false)").await;
    sql(&database, "alter table outbox.dead_letter set unlogged").await;
    let many = "select count(*) from outbox.enqueue_many(array_fill('t'::text, array[6000]), array_fill('1'::jsonb, array[6000]))";
    sql(&database, many).await;
    for _ in 0..2 {
        sql(&database, "update outbox.delivery set priority = priority + 1").await;
    }
    let dead = "select n_dead_tup >= 10000 from pg_stat_user_tables where relid = 'outbox.delivery'::regclass";
    // A session hands its counts over when it ends, or some time later.
    for _ in 0..600 {
        if sql(&database, dead).await == "t" {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    let found = doctor(&database, &["--late", "0s"]);
    let (level, seen, fix) = found.trouble("autovacuum");
    assert_eq!((level, seen), ("bad", "autovacuum is off for \"outbox\".delivery"));
    sql(&database, fix).await;
    let (level, seen, fix) = found.trouble("unlogged");
    assert_eq!((level, seen), ("bad", "\"outbox\".dead_letter is unlogged"));
    sql(&database, fix).await;
    let (level, _, fix) = found.trouble("dead_rows");
    assert_eq!(level, "warning");
    sql(&database, fix).await;
    assert_eq!(found.trouble("late").0, "warning");
    let found = doctor(&database, &[]);
    found.is_ok("autovacuum");
    assert!(!found.findings.contains_key("unlogged"));
}

#[tokio::test]
async fn partitions_that_are_missing_or_stay_too_long_are_found() {
    let database = database().await;
    let drop_ahead = "do $$ declare p record; begin for p in select suffix from outbox.partition_bounds() loop \
                      execute format('drop table outbox.message%s, outbox.attempt%s', p.suffix, p.suffix); end loop; end $$";
    sql(&database, drop_ahead).await;
    run(&database, &["enqueue", "--topic", "t", "--payload", "1"]).ok();
    let old = "create table outbox.message_20200101_00 partition of outbox.message for values from \
               (outbox.message_id_floor('2020-01-01 00:00+00')) to (outbox.message_id_floor('2020-01-02 00:00+00'))";
    sql(&database, old).await;
    sql(&database, "update outbox.setting set dedupe_window = '1 day'").await;
    let found = doctor(&database, &[]);
    let (level, seen, fix) = found.trouble("partitions");
    assert_eq!((level, seen), ("bad", "there is no partition for the messages of now"));
    assert!(fix.contains("make_partitions()"), "{fix}");
    let (level, seen, _) = found.trouble("default_partition");
    assert!(level == "warning" && seen.starts_with("1 message in the default partition"), "{seen}");
    assert_eq!(found.trouble("retention").0, "warning");
    assert_eq!(found.trouble("dedupe_window").0, "warning");
    sql(&database, "select outbox.make_partitions()").await;
    let found = doctor(&database, &[]);
    // The day that has a message in the default partition keeps it there; the days to come are ready.
    assert!(found.findings["partitions"][0]["seen"] != "no partition is ready for what comes next", "they were made");
}

#[tokio::test]
async fn a_schema_that_is_not_this_builds_is_found() {
    let database = database().await;
    sql(&database, "create function outbox.mine() returns integer language sql as 'select 1'").await;
    let found = doctor(&database, &[]);
    let (level, seen, _) = found.trouble("functions");
    assert_eq!((level, seen), ("warning", "not the outbox's own: mine"));
    sql(&database, "drop function outbox.mine()").await;

    let altered = "create or replace function outbox.schema_version() returns integer language sql stable \
                   as 'select max(version) from outbox.migration -- mine'";
    sql(&database, altered).await;
    let found = doctor(&database, &[]);
    let (level, seen, fix) = found.trouble("functions");
    assert_eq!((level, seen, found.code), ("bad", "altered by hand: schema_version", 8));
    let (by_sql, by_command) = fix.split_once("; postrider ").unwrap();
    sql(&database, by_sql).await;
    run(&database, &by_command.split(' ').collect::<Vec<_>>()).ok();
    doctor(&database, &[]).is_ok("functions");

    sql(&database, "update outbox.setting set functions_hash = 'another'").await;
    let found = doctor(&database, &[]);
    assert_eq!(found.trouble("functions").1, "functions and views were installed by another build");

    let empty = Cluster::start().await.empty_database().await;
    let found = doctor(&empty, &[]);
    let (level, _, fix) = found.trouble("schema");
    assert_eq!((level, fix, found.code), ("bad", "postrider migrate up", 8));
    assert!(!found.findings.contains_key("grants"), "what is not there is not asked");
}

#[tokio::test]
async fn a_right_that_was_revoked_is_found() {
    let database = Cluster::start().await.database().await;
    run(&database, &["migrate", "roles", "--prefix", "shop"]).ok();
    sql(&database, "create role worker login in role shop_relay; create role nobody login").await;
    let found = Found::of(&run_at(&database.url_as("worker"), &["doctor", "--json"]));
    assert_eq!(found.findings["grants"][0]["seen"], "this role may run relays");
    let revoke = "revoke execute on function outbox.claim(text, integer, numeric, text, integer, text, integer, \
                  timestamptz, integer, bigint, uuid, boolean) from shop_relay";
    sql(&database, revoke).await;
    let found = Found::of(&run_at(&database.url_as("worker"), &["doctor", "--json"]));
    // The group's name stands in a table that a relay may not read; that it can do no work is seen all the same.
    let (level, _, fix) = found.trouble("grants");
    assert_eq!((level, found.code), ("bad", 8));
    assert!(fix.contains("postrider migrate roles"), "{fix}");
    sql(&database, "grant shop_operator to worker").await;
    let found = Found::of(&run_at(&database.url_as("worker"), &["doctor", "--json"]));
    assert_eq!(found.trouble("grants").1, "a member of shop_relay may not call claim");
    run(&database, &["migrate", "roles", "--prefix", "shop"]).ok();
    Found::of(&run_at(&database.url_as("worker"), &["doctor", "--json"])).is_ok("grants");

    let found = Found::of(&run_at(&database.url_as("nobody"), &["doctor", "--json"]));
    assert_eq!(found.trouble("schema").0, "note", "who may not look is told so: {:?}", found.findings["schema"]);
}

#[tokio::test]
async fn a_pooler_in_transaction_mode_cannot_listen() {
    let database = database().await;
    let pooler = PgBouncer::start(&database).await;
    let found = Found::of(&run_at(&pooler.url(), &["doctor", "--json"]));
    let (level, seen, _) = found.trouble("listen");
    assert!(level == "warning" && seen.starts_with("LISTEN does not work"), "{seen}");
}

#[tokio::test]
async fn what_waits_for_a_person_is_found_in_both_stores() {
    for Outbox { url, .. } in &outboxes().await {
        for (topic, lane) in [("bad.news", None), ("bad.lane", Some("customer-7"))] {
            let args = ["enqueue", "--topic", topic, "--payload", "1"];
            run_at(url, &[&args[..], &lane.map_or(vec![], |lane| vec!["--lane", lane])].concat()).ok();
        }
        run_at(url, &["enqueue", "--topic", "good.news", "--payload", "1"]).ok();
        kill(url);
        let found = Found::of(&run_at(url, &["doctor", "--json"]));
        let (level, seen, fix) = found.trouble("dead_letters");
        assert!(level == "warning" && seen.starts_with("3 dead letters (default)"), "{seen}");
        assert!(fix.starts_with("postrider dlq groups"), "{fix}");
        assert!(found.trouble("parked_lanes").1.starts_with("1 lane parked"));
        assert_eq!(found.code, 0, "a warning is no failure");
        assert_eq!(run_at(url, &["doctor", "--strict"]).code, 8);
    }
}

/// Delivers to an address where nobody answers, once: what is due is dead then.
fn kill(url: &str) {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut drain = command(&["drain", "--cloud-url", &format!("http://{closed}/"), "--max-attempts", "1"]);
    drain.env("DATABASE_URL", url);
    let ran = finish(drain, b"");
    assert_eq!(ran.code, 0, "{}", ran.stderr);
}

#[tokio::test]
async fn an_sqlite_file_is_looked_at_before_it_is_opened() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("outbox.db");
    let url = format!("sqlite:{}", file.display());
    assert_eq!(run_at(&url, &["doctor"]).code, 6, "there is no file");
    assert_eq!(run_at(&url, &["drain"]).code, 0);
    let set_mode = |mode: &str| {
        assert!(std::process::Command::new("chmod").arg(mode).arg(&file).status().unwrap().success());
    };
    set_mode("600");
    let found = Found::of(&run_at(&url, &["doctor", "--json"]));
    for check in ["version", "integrity", "journal", "permissions", "log", "disk"] {
        found.is_ok(check);
    }
    set_mode("644");
    assert_eq!(Found::of(&run_at(&url, &["doctor", "--json"])).trouble("permissions").0, "note");
    set_mode("666");
    assert_eq!(Found::of(&run_at(&url, &["doctor", "--json"])).trouble("permissions").0, "bad");
    set_mode("600");

    let connection = rusqlite::Connection::open(&file).unwrap();
    connection.pragma_update(None, "journal_mode", "delete").unwrap();
    drop(connection);
    assert_eq!(Found::of(&run_at(&url, &["doctor", "--json"])).trouble("journal").0, "warning");
}
