//! Reads the lines of the outbox that `Inspect::entries` is asked for, from SQLite, message by message in one read
//! transaction. Nothing here writes.

use rusqlite::{Row, Transaction};
use uuid::Uuid;

use super::statement::{all, sql, time};
use crate::error::Error;
use crate::inspect::Entry;

pub(super) fn entries(tx: &Transaction<'_>, message_ids: &[Uuid]) -> Result<Vec<Entry>, Error> {
    let mut entries = Vec::with_capacity(message_ids.len());
    for message_id in message_ids {
        entries.extend(all(tx, sql!("list", "entries"), &[(":message_id", message_id)], entry)?);
    }
    Ok(entries)
}

fn entry(row: &Row<'_>) -> rusqlite::Result<Entry> {
    let moment = |column: &str| row.get::<_, Option<i64>>(column).map(|at| at.map(time));
    Ok(Entry {
        message_id: row.get("message_id")?,
        sink: row.get("sink")?,
        state: row.get("state")?,
        topic: row.get("topic")?,
        tenant_id: row.get("tenant_id")?,
        priority: row.get("priority")?,
        occurred_at: time(row.get("occurred_at")?),
        due_at: moment("due_at")?,
        claimed_by: row.get("claimed_by")?,
        claimed_at: moment("claimed_at")?,
        lease_expires_at: moment("lease_expires_at")?,
        attempt_count: row.get("attempt_count")?,
        last_attempt_at: moment("last_attempt_at")?,
        error_code: row.get("error_code")?,
        error_message: row.get("error_message")?,
        died_at: moment("died_at")?,
        reason: row.get("reason")?,
        payload_size_bytes: row.get("payload_size_bytes")?,
    })
}
