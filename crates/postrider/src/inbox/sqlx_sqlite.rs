//! Receive inside a sqlx transaction on SQLite: the statement of every SQLite driver.

use ::sqlx::{Sqlite, SqliteConnection, Transaction};

use super::{Batch, Receive};
use crate::enqueue::sqlx_sqlite::query;
use crate::error::Error;

impl Receive for &mut SqliteConnection {
    async fn receive(self, batch: &Batch<'_>) -> Result<Vec<bool>, Error> {
        let mut answers = Vec::new();
        for statement in batch.sqlite() {
            answers.push(query(statement).execute(&mut *self).await?.rows_affected() == 1);
        }
        Ok(answers)
    }
}

impl Receive for &mut Transaction<'_, Sqlite> {
    async fn receive(self, batch: &Batch<'_>) -> Result<Vec<bool>, Error> {
        (&mut **self).receive(batch).await
    }
}
