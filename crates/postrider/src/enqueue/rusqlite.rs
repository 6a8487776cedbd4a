//! Enqueue inside a rusqlite transaction: plain functions, since rusqlite's calls block. Also what the SQLite store
//! itself enqueues with.

use rusqlite::{Connection, params};

use super::sqlite::{BEGIN, ENQUEUE, ENQUEUED, KEEP, Parameters, UNDO};
use super::{Enqueued, check_many};
use crate::error::Error;
use crate::message::Message;

/// Writes one message in the caller's transaction: both commit or neither does.
///
/// `tx` is a `rusqlite::Transaction`, best begun as `Immediate`: one that reads first and writes later can be refused
/// as busy. (It derefs to the connection that is asked for; on a connection without a transaction, the message is
/// written at once.) The tables are made by [`crate::SqliteStore::open`] or [`crate::sqlite::migrate`].
pub fn enqueue(tx: &Connection, message: &Message) -> Result<Enqueued, Error> {
    message.check()?;
    undo_on_error(tx, || write(tx, message))
}

/// Writes up to [`crate::MAX_BATCH_MESSAGES`] messages in the caller's transaction, all or none. One result for each
/// message, in the same order.
pub fn enqueue_many(tx: &Connection, messages: &[Message]) -> Result<Vec<Enqueued>, Error> {
    check_many(messages)?;
    if messages.is_empty() {
        return Ok(Vec::new());
    }
    undo_on_error(tx, || messages.iter().map(|message| write(tx, message)).collect())
}

fn undo_on_error<T>(tx: &Connection, work: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    tx.execute_batch(BEGIN)?;
    match work() {
        Ok(done) => {
            tx.execute_batch(KEEP)?;
            Ok(done)
        }
        Err(error) => {
            // Some errors (a full disk) have rolled back everything already, the savepoint with it.
            drop(tx.execute_batch(UNDO));
            Err(error)
        }
    }
}

fn write(tx: &Connection, message: &Message) -> Result<Enqueued, Error> {
    let row = Parameters::from_message(message)?;
    tx.prepare_cached(ENQUEUE)?.execute(params![
        row.message_id,
        row.topic,
        row.payload,
        row.namespace,
        row.tenant_id,
        row.lane,
        row.dedupe_key,
        row.priority,
        row.headers,
        row.due_at,
        row.occurred_at,
        row.body,
        row.content_type,
        row.delay_us,
    ])?;
    if let Some(enqueued) = row.certain_answer() {
        return Ok(enqueued);
    }
    let enqueued = tx
        .prepare_cached(ENQUEUED)?
        .query_row(params![row.message_id, row.namespace, row.topic, row.tenant_id, row.dedupe_key], |answer| {
            Ok(Enqueued { message_id: answer.get(0)?, sequence_id: answer.get(1)?, created: answer.get(2)? })
        })?;
    Ok(enqueued)
}
