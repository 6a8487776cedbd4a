//! Enqueue inside a `tokio_postgres::Transaction`. Types are given with the query, so it is one round trip and leaves
//! no prepared statement behind: right through a pooler in transaction mode too.

use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Row, Transaction};

use super::{Columns, Enqueue, Enqueued, Outbox};
use crate::error::Error;
use crate::message::Message;

impl Enqueue for &Transaction<'_> {
    async fn write(self, outbox: &Outbox, messages: &[Message]) -> Result<Vec<Enqueued>, Error> {
        let columns = Columns::from_messages(messages)?;
        let rows = self.query_typed(&outbox.sql(), &parameters(&columns)).await?;
        rows.iter().map(enqueued).collect()
    }
}

/// The parameters of [`Outbox::sql`], $1 to $13.
pub(crate) fn parameters<'a>(columns: &'a Columns<'_>) -> [(&'a (dyn ToSql + Sync), Type); 13] {
    [
        (&columns.topic, Type::TEXT_ARRAY),
        (&columns.payload, Type::TEXT_ARRAY),
        (&columns.namespace, Type::TEXT_ARRAY),
        (&columns.tenant_id, Type::UUID_ARRAY),
        (&columns.lane, Type::TEXT_ARRAY),
        (&columns.dedupe_key, Type::TEXT_ARRAY),
        (&columns.priority, Type::INT4_ARRAY),
        (&columns.headers, Type::TEXT_ARRAY),
        (&columns.due_at, Type::TEXT_ARRAY),
        (&columns.occurred_at, Type::TEXT_ARRAY),
        (&columns.body, Type::BYTEA_ARRAY),
        (&columns.content_type, Type::TEXT_ARRAY),
        (&columns.delay_seconds, Type::TEXT_ARRAY),
    ]
}

/// A row of its answer.
pub(crate) fn enqueued(row: &Row) -> Result<Enqueued, Error> {
    Ok(Enqueued { message_id: row.try_get(0)?, sequence_id: row.try_get(1)?, created: row.try_get(2)? })
}
