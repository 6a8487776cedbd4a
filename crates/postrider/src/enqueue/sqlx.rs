//! Enqueue inside a sqlx transaction. The statement is not kept by name (`persistent(false)`): through a pooler in
//! transaction mode a name would be looked for on another server connection.

use ::sqlx::{AssertSqlSafe, PgConnection, Postgres, Row, Transaction};

use super::{Columns, Enqueue, Enqueued, Outbox};
use crate::error::Error;
use crate::message::Message;

impl Enqueue for &mut PgConnection {
    async fn write(self, outbox: &Outbox, messages: &[Message]) -> Result<Vec<Enqueued>, Error> {
        let columns = Columns::from_messages(messages)?;
        // The text holds nothing but our own words and the checked, quoted schema name.
        let query = ::sqlx::query(AssertSqlSafe(outbox.sql()))
            .persistent(false)
            .bind(columns.topic)
            .bind(columns.payload)
            .bind(columns.namespace)
            .bind(columns.tenant_id)
            .bind(columns.lane)
            .bind(columns.dedupe_key)
            .bind(columns.priority)
            .bind(columns.headers)
            .bind(columns.due_at)
            .bind(columns.occurred_at)
            .bind(columns.body)
            .bind(columns.content_type)
            .bind(columns.delay_seconds);
        let rows = query.fetch_all(self).await?;
        rows.iter()
            .map(|row| {
                Ok(Enqueued { message_id: row.try_get(0)?, sequence_id: row.try_get(1)?, created: row.try_get(2)? })
            })
            .collect()
    }
}

impl Enqueue for &mut Transaction<'_, Postgres> {
    async fn write(self, outbox: &Outbox, messages: &[Message]) -> Result<Vec<Enqueued>, Error> {
        (&mut **self).write(outbox, messages).await
    }
}
