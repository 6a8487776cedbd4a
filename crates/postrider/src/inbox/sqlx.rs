//! Receive inside a sqlx transaction: the statement of every PostgreSQL driver.

use ::sqlx::{PgConnection, Postgres, Row as _, Transaction};

use super::{Arrivals, Receive};
use crate::enqueue::sqlx::fetch_all;
use crate::error::Error;

impl Receive for &mut PgConnection {
    async fn note(self, arrivals: &Arrivals<'_>) -> Result<Vec<bool>, Error> {
        let rows = fetch_all(self, arrivals.postgres()).await?;
        rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }
}

impl Receive for &mut Transaction<'_, Postgres> {
    async fn note(self, arrivals: &Arrivals<'_>) -> Result<Vec<bool>, Error> {
        (&mut **self).note(arrivals).await
    }
}
