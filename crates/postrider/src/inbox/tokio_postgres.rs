//! Receive inside a `tokio_postgres::Transaction`. Types are given with the query, so it is one round trip and leaves
//! no prepared statement behind: right through a pooler in transaction mode too.

use tokio_postgres::Transaction;

use super::{Batch, Receive};
use crate::enqueue::tokio_postgres::parameters;
use crate::error::Error;

impl Receive for &Transaction<'_> {
    async fn receive(self, batch: &Batch<'_>) -> Result<Vec<bool>, Error> {
        let statement = batch.postgres();
        let rows = self.query_typed(&statement.sql, &parameters(&statement.parameters)).await?;
        rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }
}
