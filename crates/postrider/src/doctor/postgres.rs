//! Looks at a PostgreSQL outbox from end to end: server, sessions, replication, tables, partitions, schema, rights. Each
//! look is one query under `sql/postgres/statements/doctor.sql`; one that is refused becomes a finding of its own and stops no other.

use std::time::{Duration, SystemTime};

use tokio_postgres::Row;
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::doctor::{Finding, Level, Limits, backlog, drift, grants, kept, kept_how_long, locks, server};
use crate::error::Error;
use crate::inspect::enqueued_at;
use crate::store::Queue as _;
use crate::store::postgres::PostgresStore;
use crate::store::postgres::statement::sql;
use crate::text::{counted, seconds, short_span};

/// Dead rows of the hot table before anything is said about them: autovacuum begins at 500.
const MANY_DEAD_ROWS: i64 = 10_000;
/// Messages in the default partition are counted to here: more says no more.
const MAX_REST_ROWS: i64 = 1_000;
/// A partition outlives the retention by so many widths before anything is said.
const PRUNE_SLACK_WIDTHS: f64 = 2.0;

/// Looks at everything.
pub async fn postgres(store: &PostgresStore, limits: &Limits) -> Vec<Finding> {
    let mut findings = server::server(store, limits).await;
    let (drifted, current) = drift::schema(store).await;
    findings.extend(drifted);
    for (check, looked) in [
        ("old_transaction", sessions(store, limits).await),
        ("prepared_transaction", prepared(store, limits).await),
        ("locks", locks::locks(store, limits).await),
        ("replication", server::replication(store).await),
    ] {
        findings.extend(looked.unwrap_or_else(|error| vec![Finding::unseen(check, &error)]));
    }
    findings.push(listening(store).await);
    if !current {
        // Tables and functions are not what this build knows: whatever it asked would be answered wrongly.
        return findings;
    }
    for (check, looked) in [
        ("tables", tables(store).await),
        ("partitions", partitions(store).await),
        ("grants", grants::grants(store).await),
    ] {
        findings.extend(looked.unwrap_or_else(|error| vec![Finding::unseen(check, &error)]));
    }
    findings.extend(backlog::backlog(store, limits).await);
    findings
}

/// A warning at the limit, and worse at twelve times the limit.
fn by_age(age_seconds: f64, limit: Duration) -> Level {
    if age_seconds >= limit.as_secs_f64() * 12.0 { Level::Bad } else { Level::Warning }
}

async fn sessions(store: &PostgresStore, limits: &Limits) -> Result<Vec<Finding>, Error> {
    let sql = sql!("doctor", "sessions");
    let limit = limits.old_transaction;
    let rows = store.ask(sql, &[(&limit.as_secs_f64(), Type::FLOAT8)]).await?;
    let Some(row) = rows.first() else {
        let seen = format!("no transaction is older than {}", short_span(limit));
        return Ok(vec![Finding::ok("old_transaction", seen)]);
    };
    let (pid, age, found): (i32, f64, i64) = (row.try_get("pid")?, row.try_get("age_seconds")?, row.try_get("found")?);
    let text = |name: &str| Ok::<_, Error>(row.try_get::<_, Option<String>>(name)?.unwrap_or_default());
    let seen = format!(
        "{} older than {}; the oldest is {} old, {}: process {pid} of {} ({})",
        counted(found, "transaction"),
        short_span(limit),
        short_span(seconds(age)),
        text("state")?,
        text("usename")?,
        text("application_name")?,
    );
    let why = "no row that died since it began can be removed from the hot table, so every claim reads more and more";
    let fix = format!(
        "select pg_terminate_backend({pid}); against the next one: \
         alter database … set idle_in_transaction_session_timeout = '1min'"
    );
    Ok(vec![Finding::new("old_transaction", by_age(age, limit), seen, why).fix(fix)])
}

async fn prepared(store: &PostgresStore, limits: &Limits) -> Result<Vec<Finding>, Error> {
    let sql = sql!("doctor", "prepared");
    let limit = limits.old_transaction;
    let rows = store.ask(sql, &[(&limit.as_secs_f64(), Type::FLOAT8)]).await?;
    let Some(row) = rows.first() else {
        return Ok(vec![Finding::ok("prepared_transaction", "no prepared transaction was left behind")]);
    };
    let (gid, owner, age): (String, String, f64) =
        (row.try_get("gid")?, row.try_get("owner")?, row.try_get("age_seconds")?);
    let found: i64 = row.try_get("found")?;
    let seen = format!(
        "{} left behind; the oldest, {gid:?} of {owner}, is {} old",
        counted(found, "prepared transaction"),
        short_span(seconds(age))
    );
    let why = "it keeps dead rows and its locks until somebody ends it, whoever restarts";
    let fix = format!("rollback prepared '{}' (or commit prepared)", gid.replace('\'', "''"));
    Ok(vec![Finding::new("prepared_transaction", by_age(age, limit), seen, why).fix(fix)])
}

async fn listening(store: &PostgresStore) -> Finding {
    match store.listen().await {
        Ok(_) => Finding::ok("listen", "LISTEN works: relays hear at once that something is due"),
        Err(error) => {
            let seen = format!("LISTEN does not work: {}", error.in_short());
            Finding::new(
                "listen",
                Level::Warning,
                seen,
                "relays poll instead, so delivery starts later and costs queries",
            )
            .fix("connect relays directly, or through a pooler in session mode")
        }
    }
}

async fn tables(store: &PostgresStore) -> Result<Vec<Finding>, Error> {
    let schema = store.schema().quoted();
    let sql = sql!("doctor", "tables");
    let rows = store.ask(sql, &[(&schema, Type::TEXT)]).await?;
    let mut findings = Vec::new();
    for row in &*rows {
        let name: String = row.try_get("name")?;
        if row.try_get("autovacuum_is_off")? {
            let why = "dead rows are never removed: claims get slower until the outbox stands still";
            findings.push(
                Finding::new("autovacuum", Level::Bad, format!("autovacuum is off for {schema}.{name}"), why)
                    .fix(format!("alter table {schema}.{name} reset (autovacuum_enabled)")),
            );
        }
        if row.try_get("is_unlogged")? {
            let why = "an unlogged table is empty after a crash: what it held is lost";
            findings.push(
                Finding::new("unlogged", Level::Bad, format!("{schema}.{name} is unlogged"), why)
                    .fix(format!("alter table {schema}.{name} set logged")),
            );
        }
        if name == "delivery" {
            findings.push(dead_rows(&schema, row.try_get("live_rows")?, row.try_get("dead_rows")?));
        }
    }
    Ok(findings)
}

/// Of the hot table. Some are always there; what counts is that they are more than what lives.
fn dead_rows(schema: &str, live: i64, dead: i64) -> Finding {
    let seen = format!("{schema}.delivery has {} and {}", counted(live, "row"), counted(dead, "dead one"));
    if dead < MANY_DEAD_ROWS || dead < live {
        return Finding::ok("dead_rows", seen);
    }
    let why = "every claim reads past them: autovacuum does not keep up, or something old holds them";
    Finding::new("dead_rows", Level::Warning, seen, why).fix(format!("vacuum (verbose, analyze) {schema}.delivery"))
}

struct Partitions {
    /// `None`: for ever.
    retention_seconds: Option<f64>,
    width_seconds: f64,
    /// `None`: for ever.
    dedupe_seconds: Option<f64>,
    wanted_ahead: i32,
    rest_rows: i64,
    /// From and to of each, in order.
    spans: Vec<(SystemTime, SystemTime)>,
}

async fn partitions(store: &PostgresStore) -> Result<Vec<Finding>, Error> {
    let settings = sql!("doctor", "settings");
    let bounds = sql!("doctor", "partitions");
    let parent = format!("{}.message", store.schema().quoted());
    let settings = store.ask(settings, &[(&MAX_REST_ROWS, Type::INT8)]).await?;
    let spans = store.ask(bounds, &[(&parent, Type::TEXT)]).await?;
    let Some(row) = settings.first() else { return Ok(Vec::new()) };
    let span = |row: &Row| {
        let (from, to): (Option<Uuid>, Option<Uuid>) = (row.try_get("id_from")?, row.try_get("id_to")?);
        Ok::<_, Error>(from.zip(to).map(|(from, to)| (enqueued_at(from), enqueued_at(to))))
    };
    let found = Partitions {
        retention_seconds: row.try_get("retention_seconds")?,
        width_seconds: row.try_get("partition_width_seconds")?,
        dedupe_seconds: row.try_get("dedupe_window_seconds")?,
        wanted_ahead: row.try_get("partitions_ahead")?,
        rest_rows: row.try_get("rest_rows")?,
        spans: spans.iter().map(span).collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect(),
    };
    let now = crate::inspect::Inspect::now(store).await?;
    Ok(judge_partitions(&found, now, &store.schema().quoted()))
}

/// The partition of now and those that follow it without a hole. One of next year, behind a hole, is of no use.
fn in_a_row(spans: &[(SystemTime, SystemTime)], now: SystemTime) -> usize {
    let mut until = now;
    let reached = |(from, to): &&(SystemTime, SystemTime)| {
        let follows = *from <= until && until < *to;
        until = if follows { *to } else { until };
        follows
    };
    spans.iter().filter(reached).count()
}

fn judge_partitions(found: &Partitions, now: SystemTime, schema: &str) -> Vec<Finding> {
    let make = format!("select {schema}.make_partitions(); a relay that runs does so by itself");
    let in_a_row = in_a_row(&found.spans, now);
    let (covered, ahead) = (in_a_row > 0, in_a_row.saturating_sub(1));
    let wanted = usize::try_from(found.wanted_ahead).unwrap_or(0);
    let mut findings = Vec::new();
    let why = "messages go to the default partition, which is pruned row by row instead of at once";
    findings.push(match (covered, ahead) {
        (false, _) => {
            Finding::new("partitions", Level::Bad, "there is no partition for the messages of now", why).fix(make)
        }
        (true, 0) => Finding::new("partitions", Level::Bad, "no partition is ready for what comes next", why).fix(make),
        (true, ahead) if ahead < wanted => {
            let seen = format!("{ahead} of {wanted} partitions ahead of time are there");
            Finding::new("partitions", Level::Warning, seen, why).fix(make)
        }
        (true, ahead) => Finding::ok("partitions", format!("{ahead} partitions stand ready")),
    });
    if found.rest_rows > 0 {
        let more = if found.rest_rows >= MAX_REST_ROWS { " or more" } else { "" };
        let seen =
            format!("{}{more} in the default partition {schema}.message_rest", counted(found.rest_rows, "message"));
        let why = "no partition was ready when they came; their time of day gets none until they are pruned";
        let fix =
            format!("nothing to mend: they are pruned after the retention. See that {schema}.make_partitions() runs");
        findings.push(Finding::new("default_partition", Level::Warning, seen, why).fix(fix));
    }
    let slack = found.retention_seconds.map_or(f64::INFINITY, |kept| kept + PRUNE_SLACK_WIDTHS * found.width_seconds);
    let oldest =
        found.spans.first().and_then(|(_, to)| now.duration_since(*to).ok()).map_or(0.0, |age| age.as_secs_f64());
    findings.push(if oldest > slack {
        let seen = format!(
            "the oldest partition ended {} ago; the retention is {}",
            short_span(seconds(oldest)),
            kept(found.retention_seconds)
        );
        let why = "nobody prunes, or something in it is undelivered, or ended lately, and keeps all of it";
        Finding::new("retention", Level::Warning, seen, why)
    } else {
        Finding::ok("retention", kept_how_long(found.retention_seconds, found.dedupe_seconds))
    });
    let for_ever = |seconds: Option<f64>| seconds.unwrap_or(f64::INFINITY);
    if for_ever(found.dedupe_seconds) < for_ever(found.retention_seconds) {
        let seen = format!(
            "dedupe keys are kept for {}, history for {}",
            kept(found.dedupe_seconds),
            kept(found.retention_seconds)
        );
        let why = "a message that is still in the store can be enqueued a second time";
        let fix = format!("update {schema}.setting set dedupe_window = retention");
        findings.push(Finding::new("dedupe_window", Level::Warning, seen, why).fix(fix));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 86_400;

    fn found(days: &[u64]) -> Partitions {
        let at = |day: u64| SystemTime::UNIX_EPOCH + Duration::from_secs(day * DAY);
        Partitions {
            retention_seconds: Some(7.0 * 86_400.0),
            width_seconds: 86_400.0,
            dedupe_seconds: Some(30.0 * 86_400.0),
            wanted_ahead: 2,
            rest_rows: 0,
            spans: days.iter().map(|day| (at(*day), at(day + 1))).collect(),
        }
    }

    fn levels(found: &Partitions) -> Vec<(&'static str, Level)> {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(100 * DAY + 1);
        let judged = judge_partitions(found, now, "outbox");
        judged.iter().filter(|one| one.level > Level::Ok).map(|one| (one.check, one.level)).collect()
    }

    #[test]
    fn partitions_are_judged_by_what_comes_and_by_what_stays() {
        assert_eq!(levels(&found(&[99, 100, 101, 102])), []);
        assert_eq!(levels(&found(&[100, 101])), [("partitions", Level::Warning)]);
        assert_eq!(levels(&found(&[99, 100])), [("partitions", Level::Bad)]);
        assert_eq!(levels(&found(&[98, 99])), [("partitions", Level::Bad)]);
        assert_eq!(levels(&found(&[100, 200, 201])), [("partitions", Level::Bad)]);
        assert_eq!(levels(&found(&[100, 101, 200])), [("partitions", Level::Warning)]);
        assert_eq!(levels(&found(&[89, 100, 101, 102])), [("retention", Level::Warning)]);
        assert_eq!(levels(&found(&[91, 100, 101, 102])), []);
        let rest = Partitions { rest_rows: 3, dedupe_seconds: Some(60.0), ..found(&[100, 101, 102]) };
        assert_eq!(levels(&rest), [("default_partition", Level::Warning), ("dedupe_window", Level::Warning)]);
        let archive = Partitions { retention_seconds: None, ..found(&[1, 100, 101, 102]) };
        assert_eq!(levels(&archive), [("dedupe_window", Level::Warning)], "what is kept for ever is never late");
        assert_eq!(levels(&Partitions { dedupe_seconds: None, ..archive }), []);
        assert_eq!(
            kept_how_long(Some(7.0 * 86_400.0), None),
            "history is kept for 7d after its delivery ended, dedupe keys for ever"
        );
    }

    #[test]
    fn dead_rows_count_when_they_outnumber_the_living() {
        for (live, dead, level) in [
            (0, MANY_DEAD_ROWS - 1, Level::Ok),
            (10, MANY_DEAD_ROWS, Level::Warning),
            (2 * MANY_DEAD_ROWS, MANY_DEAD_ROWS, Level::Ok),
        ] {
            assert_eq!(dead_rows("outbox", live, dead).level, level, "{live} and {dead}");
        }
    }
}
