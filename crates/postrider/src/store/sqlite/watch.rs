//! What relays report and measure in SQLite, and the facts that explain a message. Called by the store's traits, one
//! function for each method.
//!
//! A sample is read without the write lock, for it reads the whole queue, and written in a moment if nobody else has
//! measured meanwhile. It ends `sample_lag_seconds` ago: an attempt has its time a moment before its transaction commits,
//! and must not fall between two samples. The same moment is what a caller may be early by.

use std::time::Duration;

use rusqlite::{Row, ToSql, Transaction};
use uuid::Uuid;

use super::SqliteStore;
use super::inspect::show;
use super::session::Session;
use super::statement::{all, execute, first, micros, sql, time};
use crate::error::Error;
use crate::explain::{self, Facts, LaneHead};
use crate::inspect::{Explanation, RelayRecord, RelayReport, Sample};

/// Samples past their retention that go with one measurement, at most.
const PRUNE_BATCH: u32 = 1_000;
const MICROS_PER_SECOND: f64 = 1e6;

pub(super) fn report(session: &mut Session, report: &RelayReport) -> Result<(), Error> {
    // Names, numbers and durations: nothing in it can fail to be JSON.
    let sinks = serde_json::to_string(&report.sinks).unwrap_or_else(|_| "[]".to_owned());
    session.write(|tx, now| {
        execute(tx, sql!("watch", "forget_relays"), &[(":now", &now), (":worker_id", &report.worker_id)])?;
        let said: [(&str, &dyn ToSql); 5] = [
            (":worker_id", &report.worker_id),
            (":now", &now),
            (":every_us", &micros(report.every)),
            (":version", &report.version),
            (":sinks", &sinks),
        ];
        execute(tx, sql!("watch", "report"), &said)?;
        Ok(())
    })
}

pub(super) fn sign_off(session: &mut Session, worker_id: &str) -> Result<(), Error> {
    session.write(|tx, _| {
        execute(tx, sql!("watch", "sign_off"), &[(":worker_id", &worker_id)])?;
        Ok(())
    })
}

/// What was read, to be written if `last_at` is still the last.
struct Measurement {
    last_at: Option<i64>,
    at: i64,
    seconds: f64,
    lines: Vec<Line>,
}

/// One sink of a sample, and when its last success and failure were.
struct Line {
    sample: Sample,
    last_success_at: Option<i64>,
    last_error_at: Option<i64>,
}

pub(super) async fn measure(store: &SqliteStore) -> Result<bool, Error> {
    let read = store.reader.run(|session| session.read(take)).await?;
    let Some(measurement) = read else { return Ok(false) };
    store.write(move |session| session.write(|tx, now| write_down(tx, &measurement, now))).await
}

/// `None`: it is too early.
fn take(tx: &Transaction<'_>, now: i64) -> Result<Option<Measurement>, Error> {
    let times = |row: &Row<'_>| {
        Ok((row.get::<_, Option<i64>>(0)?, row.get::<_, i64>(1)?, row.get::<_, i64>(2)?, row.get::<_, i64>(3)?))
    };
    let Some((last_at, every, lag, reach)) = first(tx, sql!("watch", "sample_times"), &[(":now", &now)], times)? else {
        return Ok(None);
    };
    let at = now - lag;
    if last_at.is_some_and(|last| last > at - (every - lag)) {
        return Ok(None);
    }
    let from = last_at.map_or(at - reach, |last| last.max(at - reach));
    let lines = all(tx, sql!("watch", "measure"), &[(":from", &from), (":to", &at)], |row| {
        Ok(Line {
            sample: sample(row, at, 0.0)?,
            last_success_at: row.get("last_success_at")?,
            last_error_at: row.get("last_error_at")?,
        })
    })?;
    Ok(Some(Measurement { last_at, at, seconds: in_seconds(at - from), lines }))
}

/// False: somebody else measured while this one was reading.
fn write_down(tx: &Transaction<'_>, measurement: &Measurement, now: i64) -> Result<bool, Error> {
    let last_at: Option<i64> = first(tx, sql!("watch", "last_sample"), &[(":now", &now)], |row| row.get(0))?.flatten();
    if last_at != measurement.last_at {
        return Ok(false);
    }
    for Line { sample, last_success_at, last_error_at } in &measurement.lines {
        let [dispatched, retryable, failed, zombie_requeue] = &sample.attempts;
        let line: [(&str, &dyn ToSql); 18] = [
            (":at", &measurement.at),
            (":sink", &sample.sink),
            (":seconds", &measurement.seconds),
            (":pending", &sample.pending),
            (":due", &sample.due),
            (":leased", &sample.leased),
            (":expired", &sample.expired),
            (":dead", &sample.dead),
            (":parked_lanes", &sample.parked_lanes),
            (":oldest_due_age_seconds", &sample.oldest_due_age_seconds),
            (":dispatched", dispatched),
            (":retryable", retryable),
            (":failed", failed),
            (":zombie_requeue", zombie_requeue),
            (":latency_p50_ms", &sample.latency_p50_ms),
            (":latency_p99_ms", &sample.latency_p99_ms),
            (":last_success_at", last_success_at),
            (":last_error_at", last_error_at),
        ];
        execute(tx, sql!("watch", "add_sample"), &line)?;
    }
    execute(
        tx,
        sql!("watch", "prune_samples"),
        &[(":at", &measurement.at), (":now", &now), (":batch_size", &PRUNE_BATCH)],
    )?;
    Ok(true)
}

pub(super) fn samples(tx: &Transaction<'_>, now: i64, within: Duration) -> Result<Vec<Sample>, Error> {
    let since = now.saturating_sub(micros(within));
    all(tx, sql!("watch", "samples"), &[(":since", &since)], |row| sample(row, row.get("at")?, row.get("seconds")?))
}

fn sample(row: &Row<'_>, at: i64, seconds: f64) -> rusqlite::Result<Sample> {
    Ok(Sample {
        at: time(at),
        seconds,
        sink: row.get("sink")?,
        pending: row.get("pending")?,
        due: row.get("due")?,
        leased: row.get("leased")?,
        expired: row.get("expired")?,
        dead: row.get("dead")?,
        parked_lanes: row.get("parked_lanes")?,
        oldest_due_age_seconds: row.get("oldest_due_age_seconds")?,
        attempts: [row.get("dispatched")?, row.get("retryable")?, row.get("failed")?, row.get("zombie_requeue")?],
        latency_p50_ms: row.get("latency_p50_ms")?,
        latency_p99_ms: row.get("latency_p99_ms")?,
    })
}

pub(super) fn relays(tx: &Transaction<'_>) -> Result<Vec<RelayRecord>, Error> {
    all(tx, sql!("watch", "relays"), &[], |row| {
        Ok(RelayRecord {
            report: RelayReport {
                worker_id: row.get("worker_id")?,
                version: row.get("version")?,
                every: Duration::try_from_secs_f64(row.get("every_seconds")?).unwrap_or_default(),
                sinks: RelayReport::sinks_from(&row.get::<_, String>("sinks")?),
            },
            started_at: time(row.get("started_at")?),
            reported_at: time(row.get("reported_at")?),
            silent: row.get("silent")?,
        })
    })
}

pub(super) fn explain(tx: &Transaction<'_>, now: i64, message_id: Uuid) -> Result<Option<Explanation>, Error> {
    let Some(detail) = show(tx, message_id)? else { return Ok(None) };
    let paused = all(tx, sql!("list", "paused_sinks"), &[], |row| row.get(0))?;
    let mut heads = Vec::new();
    for delivery in detail.deliveries.iter().filter(|_| detail.lane.is_some()) {
        let which: [(&str, &dyn ToSql); 2] = [(":sink", &delivery.sink), (":lane", &detail.lane)];
        heads.extend(first(tx, sql!("list", "lane_head"), &which, lane_head)?);
    }
    let relays = relays(tx)?;
    Ok(Some(explain::explain(&Facts { now: time(now), detail, paused, heads, relays })))
}

fn lane_head(row: &Row<'_>) -> rusqlite::Result<LaneHead> {
    Ok(LaneHead {
        sink: row.get("sink")?,
        message_id: row.get("message_id")?,
        sequence_id: row.get("sequence_id")?,
        due_at: row.get::<_, Option<i64>>("due_at")?.map(time),
        claimed_by: row.get("claimed_by")?,
        lease_expires_at: row.get::<_, Option<i64>>("lease_expires_at")?.map(time),
        error_code: row.get("error_code")?,
        error_message: row.get("error_message")?,
    })
}

fn in_seconds(micros: i64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "an interval of at most hours")]
    let micros = micros as f64;
    micros / MICROS_PER_SECOND
}
