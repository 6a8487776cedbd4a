//! What the holder of a lease may do: complete, renew, release, abandon, read. Each is fenced: only a row that still holds the token, and
//! whose lease has not ended by SQLite's clock, is changed. Nothing here is updated by id alone.

use std::time::Duration;

use rusqlite::{ToSql, Transaction};
use uuid::Uuid;

use super::bury::bury;
use super::claim::{is_unreadable, read_parcel};
use super::session::Session;
use super::statement::{all, execute, first, micros, sql, text};
use crate::error::Error;
use crate::lifecycle::{Completed, Completion, LeaseToken, Outcome, Parcel};

pub(super) fn complete(
    session: &mut Session,
    worker_id: &str,
    completions: &[Completion],
) -> Result<Vec<Completed>, Error> {
    session.write(|tx, now| {
        let completed = completions.iter().map(|completion| complete_one(tx, worker_id, completion, now));
        completed.filter_map(Result::transpose).collect()
    })
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
    let held = first(tx, sql!("complete", "held"), &fence, |row| {
        Ok((row.get::<_, String>(0)?, row.get::<_, i32>(1)?, row.get::<_, bool>(2)?))
    })?;
    let Some((sink, attempt_no, is_spent)) = held else { return Ok(None) };

    record(tx, &sink, completion, now)?;
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

fn record(tx: &Transaction<'_>, sink: &str, completion: &Completion, now: i64) -> Result<(), Error> {
    let failure = completion.outcome.failure();
    let latency_ms = completion.latency.map(|latency| i32::try_from(latency.as_millis()).unwrap_or(i32::MAX));
    let attempt: [(&str, &dyn ToSql); 10] = [
        (":message_id", &completion.message_id),
        (":sink", &sink),
        (":now", &now),
        (":state", &completion.outcome.state().as_str()),
        (":latency_ms", &latency_ms),
        (":code", &text(completion.code.as_deref())),
        (":reference", &text(completion.reference.as_deref())),
        (":error_code", &failure.and_then(|failure| text(failure.error_code.as_deref()))),
        (":error_message", &failure.and_then(|failure| text(failure.error_message.as_deref()))),
        (":answer", &failure.and_then(|failure| text(failure.answer.as_deref()))),
    ];
    execute(tx, sql!("complete", "record"), &attempt)?;
    Ok(())
}

pub(super) fn renew(
    session: &mut Session,
    token: LeaseToken,
    message_ids: &[Uuid],
    lease: Duration,
) -> Result<Vec<Uuid>, Error> {
    session.write(|tx, now| {
        changed(message_ids, |id| {
            let terms: [(&str, &dyn ToSql); 4] =
                [(":message_id", id), (":lease_token", &token.0), (":now", &now), (":lease_us", &micros(lease))];
            execute(tx, sql!("lease", "renew"), &terms)
        })
    })
}

pub(super) fn release(session: &mut Session, token: LeaseToken, message_ids: &[Uuid]) -> Result<Vec<Uuid>, Error> {
    session.write(|tx, now| {
        changed(message_ids, |id| {
            let terms: [(&str, &dyn ToSql); 3] = [(":message_id", id), (":lease_token", &token.0), (":now", &now)];
            execute(tx, sql!("lease", "release"), &terms)
        })
    })
}

/// Takes back what a claim leased that nobody waits for. A claim that is still in front of the writer is not carried out, since
/// its caller has gone, and one that has just been committed stands before this.
pub(super) fn abandon(session: &mut Session, token: LeaseToken) -> Result<u64, Error> {
    let held: [(&str, &dyn ToSql); 1] = [(":lease_token", &token.0)];
    let ids: Vec<Uuid> = session.read(|tx, _| all(tx, sql!("lease", "held_under"), &held, |row| row.get(0)))?;
    if ids.is_empty() {
        return Ok(0);
    }
    Ok(release(session, token, &ids)?.len() as u64)
}

/// `None`: the message is not held under this token.
pub(super) fn content(session: &mut Session, token: LeaseToken, message_id: Uuid) -> Result<Option<Parcel>, Error> {
    session.read(|tx, now| {
        let fence: [(&str, &dyn ToSql); 3] = [(":message_id", &message_id), (":lease_token", &token.0), (":now", &now)];
        match first(tx, sql!("lease", "content"), &fence, read_parcel) {
            Err(Error::Sqlite(cause)) if is_unreadable(&cause) => Err(Error::Unreadable { reason: cause.to_string() }),
            other => other,
        }
    })
}

/// The ids for which something changed, each once.
fn changed(message_ids: &[Uuid], mut change: impl FnMut(&Uuid) -> Result<usize, Error>) -> Result<Vec<Uuid>, Error> {
    let mut named = message_ids.to_vec();
    named.sort_unstable();
    named.dedup();
    let mut changed = Vec::new();
    for id in named {
        if change(&id)? > 0 {
            changed.push(id);
        }
    }
    Ok(changed)
}
