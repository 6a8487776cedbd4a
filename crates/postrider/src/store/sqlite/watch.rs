//! What relays measure in SQLite. Called by the store. A sample is read without the write lock, for it reads the whole queue, and written in a moment if nobody else has
//! measured meanwhile. It ends `sample_lag_seconds` ago: an attempt has its time a moment before its transaction commits,
//! and must not fall between two samples. The same moment is what a caller may be early by.

use std::time::SystemTime;

use rusqlite::{ToSql, Transaction};

use super::SqliteStore;
use super::statement::{all, execute, first, micros_of, sql, value};
use crate::error::Error;
use crate::inspect::{AttemptCounts, Sample};
use crate::record::records;

/// Samples past their retention that go with one measurement, at most.
const PRUNE_BATCH: u32 = 1_000;

/// What was read, to be written if `last_at` is still the last.
struct Measurement {
    last_at: Option<i64>,
    at: i64,
    lines: Vec<Line>,
}

/// One sink of a sample, and when its last success and failure were.
struct Line {
    sample: Sample,
    last_success_at: Option<SystemTime>,
    last_error_at: Option<SystemTime>,
}

/// When samples are taken, in microseconds.
struct Times {
    last_at: Option<i64>,
    every_us: i64,
    lag_us: i64,
    reach_us: i64,
}

records! {
    Line(row) { sample: crate::store::row::FromRow::from_row(row)?, last_success_at, last_error_at }
    Times(row) { last_at, every_us, lag_us, reach_us }
}

pub(super) async fn measure(store: &SqliteStore) -> Result<bool, Error> {
    let read = store.read(take).await?;
    let Some(measurement) = read else { return Ok(false) };
    store.write(move |tx, now| write_down(tx, &measurement, now)).await
}

/// `None`: it is too early.
fn take(tx: &Transaction<'_>, now: i64) -> Result<Option<Measurement>, Error> {
    let times = first::<Times>(tx, sql!("watch", "sample_times"), &[(":now", &now)])?;
    let Some(Times { last_at, every_us, lag_us, reach_us }) = times else { return Ok(None) };
    let at = now - lag_us;
    if last_at.is_some_and(|last| last > at - (every_us - lag_us)) {
        return Ok(None);
    }
    let from = last_at.map_or(at - reach_us, |last| last.max(at - reach_us));
    let lines = all(tx, sql!("watch", "measure"), &[(":last_at", &last_at), (":from", &from), (":to", &at)])?;
    Ok(Some(Measurement { last_at, at, lines }))
}

/// False: somebody else measured while this one was reading.
fn write_down(tx: &Transaction<'_>, measurement: &Measurement, now: i64) -> Result<bool, Error> {
    let last_at: Option<i64> = value(tx, sql!("watch", "last_sample"), &[(":now", &now)])?.flatten();
    if last_at != measurement.last_at {
        return Ok(false);
    }
    for Line { sample, last_success_at, last_error_at } in &measurement.lines {
        let AttemptCounts { dispatched, retryable, failed, zombie_requeue } = &sample.attempts;
        let line: [(&str, &dyn ToSql); 19] = [
            (":at", &measurement.at),
            (":sink", &sample.sink),
            (":seconds", &sample.seconds),
            (":pending", &sample.pending),
            (":due", &sample.due),
            (":leased", &sample.leased),
            (":expired", &sample.expired),
            (":dead", &sample.dead),
            (":parked_lanes", &sample.parked_lanes),
            (":oldest_pending_age_seconds", &sample.oldest_pending_age_seconds),
            (":oldest_due_age_seconds", &sample.oldest_due_age_seconds),
            (":dispatched", dispatched),
            (":retryable", retryable),
            (":failed", failed),
            (":zombie_requeue", zombie_requeue),
            (":latency_p50_ms", &sample.latency_p50_ms),
            (":latency_p99_ms", &sample.latency_p99_ms),
            (":last_success_at", &last_success_at.map(micros_of)),
            (":last_error_at", &last_error_at.map(micros_of)),
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
