//! How a delivery ends in SQLite, well or badly: outcomes are recorded, a lease that ran out is closed, and what is out of
//! attempts becomes a dead letter. An outcome is fenced: only a row that still holds the token, and whose lease has not
//! ended by SQLite's clock, is changed. Called by the store, and inside the transactions of claim and repair.

use std::time::Duration;

use rusqlite::{ToSql, Transaction};
use uuid::Uuid;

use super::statement::{all, execute, first, micros, sql, value};
use crate::error::Error;
use crate::lifecycle::{AttemptState, Completed, Completion, Outcome};
use crate::statement::without_nul;

pub(super) fn complete(
    tx: &Transaction<'_>,
    worker_id: &str,
    completions: &[Completion],
    now: i64,
) -> Result<Vec<Completed>, Error> {
    let completed = completions.iter().map(|completion| complete_one(tx, worker_id, completion, now));
    completed.filter_map(Result::transpose).collect()
}

/// `None`: the lease is lost.
fn complete_one(
    tx: &Transaction<'_>,
    worker_id: &str,
    completion: &Completion,
    now: i64,
) -> Result<Option<Completed>, Error> {
    let id = completion.message_id;
    let fence: [(&str, &dyn ToSql); 4] =
        [(":message_id", &id), (":lease_token", &completion.lease_token.0), (":now", &now), (":worker_id", &worker_id)];
    let held = first::<(String, i32, bool)>(tx, sql!("complete", "held"), &fence)?;
    let Some((sink, attempt_no, is_spent)) = held else { return Ok(None) };

    let failure = completion.outcome.failure();
    let said = Said {
        state: completion.outcome.state().as_str(),
        latency_ms: completion.latency_ms(),
        code: without_nul(completion.code.as_deref()),
        reference: without_nul(completion.reference.as_deref()),
        error_code: failure.and_then(|failure| without_nul(failure.error_code.as_deref())),
        error_message: failure.and_then(|failure| without_nul(failure.error_message.as_deref())),
        answer: failure.and_then(|failure| without_nul(failure.answer.as_deref())),
    };
    record(tx, id, &sink, &said, now)?;
    let delivery: [(&str, &dyn ToSql); 2] = [(":message_id", &id), (":sink", &sink)];
    let dead = match &completion.outcome {
        Outcome::Dispatched => {
            execute(tx, sql!("complete", "end"), &delivery)?;
            false
        }
        Outcome::Retryable { retry_after, .. } if !is_spent => {
            let again: [(&str, &dyn ToSql); 4] =
                [(":message_id", &id), (":sink", &sink), (":now", &now), (":retry_after_us", &micros(*retry_after))];
            execute(tx, sql!("complete", "retry"), &again)?;
            false
        }
        Outcome::Retryable { .. } => {
            bury(tx, id, &sink, "ATTEMPTS_EXHAUSTED", now)?;
            true
        }
        Outcome::Failed(_) => {
            bury(tx, id, &sink, "FAILED", now)?;
            true
        }
    };
    Ok(Some(Completed { message_id: id, sink, attempt_no, dead }))
}

/// What is written down about an attempt.
#[derive(Default)]
struct Said {
    state: &'static str,
    latency_ms: Option<i32>,
    code: Option<String>,
    reference: Option<String>,
    error_code: Option<String>,
    error_message: Option<String>,
    answer: Option<String>,
}

fn record(tx: &Transaction<'_>, message_id: Uuid, sink: &str, said: &Said, now: i64) -> Result<(), Error> {
    let attempt: [(&str, &dyn ToSql); 10] = [
        (":message_id", &message_id),
        (":sink", &sink),
        (":now", &now),
        (":state", &said.state),
        (":latency_ms", &said.latency_ms),
        (":code", &said.code),
        (":reference", &said.reference),
        (":error_code", &said.error_code),
        (":error_message", &said.error_message),
        (":answer", &said.answer),
    ];
    execute(tx, sql!("complete", "record"), &attempt).map(drop)
}

/// What was open about a delivery.
pub(super) struct Settled {
    /// A lease that had ended was recorded.
    pub(super) closed: bool,
    /// It was out of attempts, and is dead now.
    pub(super) buried: bool,
}

/// Closes what is open about a delivery before it is leased anew or freed. `max_attempts` `None`: the limit it was last
/// claimed with.
pub(super) fn settle(
    tx: &Transaction<'_>,
    message_id: Uuid,
    sink: &str,
    max_attempts: Option<u32>,
    now: i64,
) -> Result<Settled, Error> {
    let delivery: [(&str, &dyn ToSql); 3] = [(":message_id", &message_id), (":sink", &sink), (":now", &now)];
    let closed = execute(tx, sql!("complete", "settle"), &delivery)? > 0;
    let limit: [(&str, &dyn ToSql); 3] =
        [(":message_id", &message_id), (":sink", &sink), (":max_attempts", &max_attempts)];
    let buried = value::<Option<bool>>(tx, sql!("complete", "is_spent"), &limit)?.flatten() == Some(true);
    if buried {
        bury(tx, message_id, sink, "ATTEMPTS_EXHAUSTED", now)?;
    }
    Ok(Settled { closed, buried })
}

/// Ends a lease that was just taken on a message that cannot be read: FAILED, and dead.
pub(super) fn unreadable(
    tx: &Transaction<'_>,
    message_id: Uuid,
    sink: &str,
    reason: &str,
    now: i64,
) -> Result<(), Error> {
    let said = Said {
        state: AttemptState::Failed.as_str(),
        error_code: Some("UNREADABLE".to_owned()),
        error_message: Some(format!("the message cannot be read: {reason}")),
        ..Said::default()
    };
    record(tx, message_id, sink, &said, now)?;
    bury(tx, message_id, sink, "FAILED", now)
}

/// Makes a delivery a dead letter, with the error of its last attempt.
fn bury(tx: &Transaction<'_>, message_id: Uuid, sink: &str, reason: &str, now: i64) -> Result<(), Error> {
    let letter: [(&str, &dyn ToSql); 4] =
        [(":message_id", &message_id), (":sink", &sink), (":now", &now), (":reason", &reason)];
    let delivery: [(&str, &dyn ToSql); 2] = [(":message_id", &message_id), (":sink", &sink)];
    let parks = value::<bool>(tx, sql!("complete", "bury"), &letter)?;
    let what = if parks == Some(true) { sql!("complete", "park") } else { sql!("complete", "end") };
    execute(tx, what, &delivery).map(drop)
}

/// A negative limit is none.
const NO_LIMIT: i64 = -1;

/// Ends leases that ended at least `older_than` ago, and with `live` those taken that long ago; how many.
pub(super) fn end_stale(
    tx: &Transaction<'_>,
    now: i64,
    batch_size: Option<u32>,
    (older_than, live): (Duration, bool),
) -> Result<u64, Error> {
    let until = now.saturating_sub(micros(older_than));
    let batch_size = batch_size.map_or(NO_LIMIT, i64::from);
    let which: [(&str, &dyn ToSql); 4] =
        [(":now", &now), (":until", &until), (":live", &live), (":batch_size", &batch_size)];
    let stale: Vec<(Uuid, String)> = all(tx, sql!("lease", "stale"), &which)?;
    let mut ended = 0;
    for (id, sink) in stale {
        let settled = settle(tx, id, &sink, None, now)?;
        execute(tx, sql!("lease", "end"), &[(":message_id", &id), (":sink", &sink)])?;
        ended += u64::from(settled.closed);
    }
    Ok(ended)
}
