//! Receive inside a `tokio_postgres::Transaction`. Types are given with the query, so it is one round trip and leaves
//! no prepared statement behind: right through a pooler in transaction mode too.

use tokio_postgres::Transaction;
use tokio_postgres::types::{ToSql, Type};

use super::{Columns, Event, Inbox, Receive};
use crate::error::Error;

impl Receive for &Transaction<'_> {
    async fn note(self, inbox: &Inbox, events: &[Event]) -> Result<Vec<bool>, Error> {
        let columns = Columns::from_events(events);
        let parameters: [(&(dyn ToSql + Sync), Type); 5] = [
            (&columns.event_id, Type::UUID_ARRAY),
            (&columns.tenant_id, Type::UUID_ARRAY),
            (&columns.source, Type::TEXT_ARRAY),
            (&columns.lane, Type::TEXT_ARRAY),
            (&columns.sequence_id, Type::INT8_ARRAY),
        ];
        let rows = self.query_typed(&inbox.sql(), &parameters).await?;
        rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }
}
