//! Enqueue inside a `tokio_postgres::Transaction`. Types are given with the query, so it is one round trip and leaves
//! no prepared statement behind: right through a pooler in transaction mode too.

use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{GenericClient, Transaction};

use super::{Columns, Enqueue, Enqueued, Outbox};
use crate::error::Error;
use crate::message::Message;

impl Enqueue for &Transaction<'_> {
    async fn write(self, outbox: &Outbox, messages: &[Message]) -> Result<Vec<Enqueued>, Error> {
        write(self, &outbox.sql(), Columns::from_messages(messages)?).await
    }
}

/// On a connection without a transaction, the one statement is a transaction of its own.
pub(crate) async fn write(
    client: &(impl GenericClient + Sync),
    sql: &str,
    columns: Columns<'_>,
) -> Result<Vec<Enqueued>, Error> {
    let parameters: [(&(dyn ToSql + Sync), Type); 13] = [
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
    ];
    let rows = client.query_typed(sql, &parameters).await?;
    rows.iter()
        .map(|row| Ok(Enqueued { message_id: row.try_get(0)?, sequence_id: row.try_get(1)?, created: row.try_get(2)? }))
        .collect()
}
