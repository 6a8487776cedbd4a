//! The server itself: its version, how safe a commit is, its clock, and what replication keeps. Reads settings and
//! statistics that any role may see.

use std::time::{Duration, SystemTime};

use crate::doctor::{Finding, Level, Limits};
use crate::error::Error;
use crate::store::postgres::PostgresStore;
use crate::store::postgres::statement::sql;
use crate::text::counted;

/// The versions that the tests run on.
const OLDEST: i32 = 14;
const NEWEST: i32 = 18;

/// Transactions that a slot or a standby holds dead rows for.
const OLD_XMIN: i64 = 1_000_000;
const VERY_OLD_XMIN: i64 = 50_000_000;
/// Write-ahead log that is kept for a slot, in bytes.
const MUCH_LOG: i64 = 10 * 1024 * 1024 * 1024;

/// Version, settings and clock.
pub(super) async fn server(store: &PostgresStore, limits: &Limits) -> Vec<Finding> {
    let asked = SystemTime::now();
    let rows = store.ask(sql!("doctor", "server"), &[]).await;
    let took = asked.elapsed().unwrap_or_default();
    let rows = match rows {
        Ok(rows) => rows,
        Err(error) => {
            let seen = error.in_short();
            return vec![
                Finding::new("server", Level::Bad, seen, "nothing works without the database")
                    .fix("is it up, and is the URL right?"),
            ];
        }
    };
    let Some(row) = rows.first() else { return Vec::new() };
    let read = || -> Result<Vec<Finding>, Error> {
        let mut findings = vec![version(row.try_get("version")?, row.try_get("version_text")?)];
        if row.try_get("is_standby")? {
            findings.push(
                Finding::new("standby", Level::Bad, "this server is a standby", "nothing can be written to it")
                    .fix("connect to the primary (several hosts in the URL, with target_session_attrs=read-write)"),
            );
        }
        let setting = |name: &str| row.try_get::<_, String>(name);
        findings.extend(durability(&setting("fsync")?, &setting("full_page_writes")?, &setting("synchronous_commit")?));
        findings.extend(autovacuum(&setting("autovacuum")?, &setting("track_counts")?));
        findings.push(isolation(&setting("isolation")?));
        findings.push(clock(row.try_get("now")?, asked, took, limits.clock_skew));
        Ok(findings)
    };
    read().unwrap_or_else(|error| vec![Finding::unseen("server", &error)])
}

fn version(number: i32, text: &str) -> Finding {
    let seen = format!("PostgreSQL {}", text.split(' ').next().unwrap_or(text));
    match number / 10_000 {
        major if major < OLDEST => Finding::new("version", Level::Bad, seen, "the outbox needs PostgreSQL 14 or later")
            .fix("upgrade the server"),
        major if major > NEWEST => {
            Finding::new("version", Level::Note, seen, "this build was tested on PostgreSQL 14 to 18")
                .fix("is there a newer postrider?")
        }
        _ => Finding::ok("version", seen),
    }
}

fn durability(fsync: &str, full_page_writes: &str, synchronous_commit: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (name, value) in [("fsync", fsync), ("full_page_writes", full_page_writes)] {
        if value == "off" {
            let why = "after a crash of the machine the database may be damaged, and messages gone";
            findings.push(
                Finding::new("durability", Level::Bad, format!("{name} is off"), why)
                    .fix(format!("alter system set {name} = on; select pg_reload_conf()")),
            );
        }
    }
    if synchronous_commit == "off" {
        let why = "a commit of the last moments may be gone after a crash: a message with it, if its sender was told it is safe";
        findings.push(
            Finding::new("durability", Level::Warning, "synchronous_commit is off", why)
                .fix("alter system set synchronous_commit = on; select pg_reload_conf()"),
        );
    }
    if findings.is_empty() {
        findings.push(Finding::ok("durability", "a commit survives a crash of the machine"));
    }
    findings
}

fn autovacuum(autovacuum: &str, track_counts: &str) -> Vec<Finding> {
    let off = [("autovacuum", autovacuum), ("track_counts", track_counts)];
    let off: Vec<&str> = off.into_iter().filter(|(_, value)| *value == "off").map(|(name, _)| name).collect();
    if off.is_empty() {
        return vec![Finding::ok("autovacuum", "autovacuum is on")];
    }
    let why = "dead rows are never removed: claims get slower until the outbox stands still";
    let finding = |name: &&str| {
        Finding::new("autovacuum", Level::Bad, format!("{name} is off for the whole server"), why)
            .fix(format!("alter system set {name} = on; select pg_reload_conf()"))
    };
    off.iter().map(finding).collect()
}

fn isolation(level: &str) -> Finding {
    if level == "read committed" {
        return Finding::ok("isolation", "transactions are READ COMMITTED unless they say otherwise");
    }
    let seen = format!("the database's default_transaction_isolation is {level:?}");
    let why = "claim, prune, measure and replay need READ COMMITTED: called by hand they fail with 25001";
    Finding::new("isolation", Level::Warning, seen, why)
        .fix("alter database … set default_transaction_isolation = 'read committed', or begin isolation level read committed")
}

/// The database answered some time between the question and the answer: only what is beyond that is a difference.
fn clock(database: SystemTime, asked: SystemTime, took: Duration, limit: Duration) -> Finding {
    let ahead = database.duration_since(asked + took).unwrap_or_default();
    let behind = asked.duration_since(database).unwrap_or_default();
    let (skew, word) = if ahead > behind { (ahead, "ahead of") } else { (behind, "behind") };
    if skew <= limit {
        return Finding::ok("clock", "the clocks of this machine and of the database agree");
    }
    let seen = format!("the database's clock is {:.1} seconds {word} this machine's", skew.as_secs_f64());
    let why =
        "leases and due times are the database's own and stay right; logs, signatures and times that you give do not";
    Finding::new("clock", Level::Warning, seen, why).fix("does NTP run on both? (timedatectl, chronyc tracking)")
}

/// Slots and standbys.
pub(super) async fn replication(store: &PostgresStore) -> Result<Vec<Finding>, Error> {
    let rows = store.ask(sql!("doctor", "replication"), &[]).await?;
    let mut findings = Vec::new();
    for row in &*rows {
        let (name, kind): (String, String) = (row.try_get("name")?, row.try_get("kind")?);
        let (active, xmin_age): (bool, i64) = (row.try_get("active")?, row.try_get("xmin_age")?);
        findings.extend(holder(&name, &kind, active, xmin_age, row.try_get("kept_bytes")?));
    }
    if findings.is_empty() {
        findings.push(Finding::ok("replication", "no slot and no standby holds anything back"));
    }
    Ok(findings)
}

fn holder(name: &str, kind: &str, active: bool, xmin_age: i64, kept_bytes: i64) -> Vec<Finding> {
    let drop = format!("select pg_drop_replication_slot('{}') if nobody needs it any more", name.replace('\'', "''"));
    let mut findings = Vec::new();
    if xmin_age >= OLD_XMIN {
        let level = if xmin_age >= VERY_OLD_XMIN { Level::Bad } else { Level::Warning };
        let seen = format!("{kind} {name:?} holds dead rows of the last {}", counted(xmin_age, "transaction"));
        let why = "no row that died since can be removed from the hot table, so every claim reads more and more";
        let fix = if kind == "slot" {
            drop.clone()
        } else {
            "end the long query on the standby, or set hot_standby_feedback = off there".to_owned()
        };
        findings.push(Finding::new("replication", level, seen, why).fix(fix));
    }
    if kind == "slot" && (!active || kept_bytes >= MUCH_LOG) {
        let level = if kept_bytes >= MUCH_LOG { Level::Bad } else { Level::Warning };
        let state = if active { "lags" } else { "is used by nobody" };
        let mebibytes = kept_bytes / (1024 * 1024);
        let seen = format!("slot {name:?} {state}, and keeps {mebibytes} MiB of write-ahead log");
        findings.push(
            Finding::new("replication", level, seen, "the log grows until the disk is full and the server stops")
                .fix(drop),
        );
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn levels(findings: &[Finding]) -> Vec<Level> {
        findings.iter().map(|finding| finding.level).collect()
    }

    #[test]
    fn only_tested_versions_are_silent() {
        for (number, level) in
            [(130_022, Level::Bad), (140_000, Level::Ok), (180_003, Level::Ok), (190_000, Level::Note)]
        {
            assert_eq!(version(number, "x").level, level, "{number}");
        }
    }

    #[test]
    fn a_slow_answer_is_no_clock_skew() {
        let (asked, limit) = (SystemTime::UNIX_EPOCH + Duration::from_hours(1), Duration::from_secs(2));
        let seconds = Duration::from_secs;
        for (ahead, behind, took, level) in [
            (0, 0, 0, Level::Ok),
            (5, 0, 5, Level::Ok),
            (5, 0, 0, Level::Warning),
            (0, 5, 5, Level::Warning),
            (0, 1, 0, Level::Ok),
        ] {
            let (asked, database) = (asked + seconds(behind), asked + seconds(ahead));
            assert_eq!(clock(database, asked, seconds(took), limit).level, level, "{ahead} {behind} {took}");
        }
    }

    #[test]
    fn a_slot_is_judged_by_what_it_keeps() {
        assert_eq!(holder("s", "slot", true, 0, 1), []);
        assert_eq!(levels(&holder("s", "slot", false, 0, 0)), [Level::Warning]);
        assert_eq!(levels(&holder("s", "slot", true, 0, MUCH_LOG)), [Level::Bad]);
        assert_eq!(levels(&holder("s", "slot", true, OLD_XMIN, 0)), [Level::Warning]);
        assert_eq!(levels(&holder("s", "standby", true, VERY_OLD_XMIN, 0)), [Level::Bad]);
        assert_eq!(holder("s", "standby", true, 0, 0), []);
    }
}
