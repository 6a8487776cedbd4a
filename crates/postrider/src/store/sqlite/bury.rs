//! How a delivery's life ends badly: a lease that ran out is recorded, and what is out of attempts becomes a dead letter.
//! Called inside the transactions of claim, complete and repair.

use rusqlite::{ToSql, Transaction};
use uuid::Uuid;

use super::statement::{execute, first, sql};
use crate::error::Error;

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
    let buried =
        first(tx, sql!("complete", "is_spent"), &limit, |row| row.get::<_, Option<bool>>(0))?.flatten() == Some(true);
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
    cause: &rusqlite::Error,
    now: i64,
) -> Result<(), Error> {
    let nothing: Option<String> = None;
    let words = format!("the message cannot be read: {cause}");
    let attempt: [(&str, &dyn ToSql); 10] = [
        (":message_id", &message_id),
        (":sink", &sink),
        (":state", &"FAILED"),
        (":now", &now),
        (":latency_ms", &None::<i64>),
        (":code", &nothing),
        (":reference", &nothing),
        (":error_code", &"UNREADABLE"),
        (":error_message", &words),
        (":answer", &nothing),
    ];
    execute(tx, sql!("complete", "record"), &attempt)?;
    bury(tx, message_id, sink, "FAILED", now)
}

/// Makes a delivery a dead letter, with the error of its last attempt.
pub(super) fn bury(tx: &Transaction<'_>, message_id: Uuid, sink: &str, reason: &str, now: i64) -> Result<(), Error> {
    let letter: [(&str, &dyn ToSql); 4] =
        [(":message_id", &message_id), (":sink", &sink), (":now", &now), (":reason", &reason)];
    let delivery: [(&str, &dyn ToSql); 2] = [(":message_id", &message_id), (":sink", &sink)];
    let parks = first(tx, sql!("complete", "bury"), &letter, |row| row.get::<_, bool>(0))?;
    let what = if parks == Some(true) { sql!("complete", "park") } else { sql!("complete", "end") };
    execute(tx, what, &delivery)?;
    Ok(())
}
