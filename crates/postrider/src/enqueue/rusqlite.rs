//! Enqueue inside a rusqlite transaction: plain functions, since rusqlite's calls block. Also what the SQLite store
//! itself enqueues with.

use rusqlite::types::{ToSqlOutput, Value, ValueRef};
use rusqlite::{Connection, ToSql, params_from_iter};

use super::{Batch, Enqueued, SqliteAnswer, SqliteInsert, SqliteValue, check_many};
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
    tx.execute_batch(Batch::SQLITE_BEGIN)?;
    match work() {
        Ok(done) => {
            tx.execute_batch(Batch::SQLITE_KEEP)?;
            Ok(done)
        }
        Err(error) => {
            drop(tx.execute_batch(Batch::SQLITE_UNDO));
            Err(error)
        }
    }
}

fn write(tx: &Connection, message: &Message) -> Result<Enqueued, Error> {
    let SqliteInsert { insert, answer } = SqliteInsert::new(message)?;
    tx.prepare_cached(&insert.sql)?.execute(params_from_iter(insert.parameters))?;
    match answer {
        SqliteAnswer::Known(enqueued) => Ok(enqueued),
        SqliteAnswer::Ask(ask) => {
            Ok(tx.prepare_cached(&ask.sql)?.query_row(params_from_iter(ask.parameters), |answer| {
                Ok(Enqueued::new(answer.get(0)?, answer.get(1)?, answer.get(2)?))
            })?)
        }
    }
}

impl ToSql for SqliteValue<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match self {
            Self::Null => ToSqlOutput::Owned(Value::Null),
            Self::Integer(number) => ToSqlOutput::Owned(Value::Integer(*number)),
            Self::Text(text) => ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes())),
            Self::Blob(bytes) => ToSqlOutput::Borrowed(ValueRef::Blob(bytes)),
        })
    }
}
