//! Receive inside a sqlx transaction on SQLite. The statement is that of every SQLite driver; only binding and running
//! it is here.

use ::sqlx::{Sqlite, SqliteConnection, Transaction};

use super::{Event, Inbox, Receive, SQLITE_RECEIVE};
use crate::error::Error;

impl Receive for &mut SqliteConnection {
    async fn note(self, _inbox: &Inbox, events: &[Event]) -> Result<Vec<bool>, Error> {
        let mut answers = Vec::with_capacity(events.len());
        for event in events {
            let done = ::sqlx::query(SQLITE_RECEIVE)
                .bind(event.id)
                .bind(event.tenant_id)
                .bind(&event.source)
                .bind(event.lane_name())
                .bind(event.sequence_id())
                .execute(&mut *self)
                .await?;
            answers.push(done.rows_affected() == 1);
        }
        Ok(answers)
    }
}

impl Receive for &mut Transaction<'_, Sqlite> {
    async fn note(self, inbox: &Inbox, events: &[Event]) -> Result<Vec<bool>, Error> {
        (&mut **self).note(inbox, events).await
    }
}
