//! Receive inside a sqlx transaction. The statement is not kept by name (`persistent(false)`): through a pooler in
//! transaction mode a name would be looked for on another server connection.

use ::sqlx::{AssertSqlSafe, PgConnection, Postgres, Row as _, Transaction};

use super::{Columns, Event, Inbox, Receive};
use crate::error::Error;

impl Receive for &mut PgConnection {
    async fn note(self, inbox: &Inbox, events: &[Event]) -> Result<Vec<bool>, Error> {
        let columns = Columns::from_events(events);
        // The text holds nothing but our own words and the checked, quoted schema name.
        let rows = ::sqlx::query(AssertSqlSafe(inbox.sql()))
            .persistent(false)
            .bind(columns.event_id)
            .bind(columns.tenant_id)
            .bind(columns.source)
            .bind(columns.lane)
            .bind(columns.sequence_id)
            .fetch_all(self)
            .await?;
        rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }
}

impl Receive for &mut Transaction<'_, Postgres> {
    async fn note(self, inbox: &Inbox, events: &[Event]) -> Result<Vec<bool>, Error> {
        (&mut **self).note(inbox, events).await
    }
}
