//! Receive inside a sqlx transaction: the statement of every PostgreSQL driver.

use ::sqlx::{PgConnection, Postgres, Row as _, Transaction};

use super::{Batch, Receive};
use crate::enqueue::sqlx::fetch_all;
use crate::error::Error;

impl Receive for &mut PgConnection {
    async fn receive(self, batch: &Batch<'_>) -> Result<Vec<bool>, Error> {
        let rows = fetch_all(self, batch.postgres()).await?;
        rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }
}

impl Receive for &mut Transaction<'_, Postgres> {
    async fn receive(self, batch: &Batch<'_>) -> Result<Vec<bool>, Error> {
        (&mut **self).receive(batch).await
    }
}
