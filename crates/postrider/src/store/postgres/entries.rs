//! Reads the lines of the outbox that `Inspect::entries` is asked for, from PostgreSQL, in one query. Nothing here writes.

use tokio_postgres::Row;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::PostgresStore;
use crate::error::Error;
use crate::inspect::Entry;

const ENTRIES: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/sql/postgres/statements/entries.sql"));

pub(super) async fn entries(store: &PostgresStore, message_ids: &[Uuid]) -> Result<Vec<Entry>, Error> {
    let rows = store.ask(ENTRIES, &[(&message_ids, Type::UUID_ARRAY)]).await?;
    rows.iter().map(entry).collect()
}

fn entry(row: &Row) -> Result<Entry, Error> {
    Ok(Entry {
        message_id: row.try_get("message_id")?,
        sink: row.try_get("sink")?,
        state: row.try_get("state")?,
        topic: row.try_get("topic")?,
        tenant_id: row.try_get("tenant_id")?,
        priority: row.try_get("priority")?,
        occurred_at: row.try_get("occurred_at")?,
        due_at: row.try_get("due_at")?,
        claimed_by: row.try_get("claimed_by")?,
        claimed_at: row.try_get("claimed_at")?,
        lease_expires_at: row.try_get("lease_expires_at")?,
        attempt_count: row.try_get("attempt_count")?,
        last_attempt_at: row.try_get("last_attempt_at")?,
        error_code: row.try_get("error_code")?,
        error_message: row.try_get("error_message")?,
        died_at: row.try_get("died_at")?,
        reason: row.try_get("reason")?,
        payload_size_bytes: row.try_get("payload_size_bytes")?,
    })
}
