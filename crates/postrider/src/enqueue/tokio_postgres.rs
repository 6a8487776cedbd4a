//! Enqueue inside a `tokio_postgres::Transaction`. Types are given with the query, so it is one round trip and leaves
//! no prepared statement behind: right through a pooler in transaction mode too.

use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Row, Transaction};

use super::{Batch, Enqueue, Enqueued, PostgresArray};
use crate::error::Error;

impl Enqueue for &Transaction<'_> {
    async fn write(self, batch: &Batch<'_>) -> Result<Vec<Enqueued>, Error> {
        let statement = batch.postgres()?;
        let rows = self.query_typed(&statement.sql, &parameters(&statement.parameters)).await?;
        rows.iter().map(enqueued).collect()
    }
}

pub(crate) fn parameters<'a>(arrays: &'a [PostgresArray<'_>]) -> Vec<(&'a (dyn ToSql + Sync), Type)> {
    let parameter = |array: &'a PostgresArray<'_>| -> (&'a (dyn ToSql + Sync), Type) {
        match array {
            PostgresArray::Text(texts) => (texts, Type::TEXT_ARRAY),
            PostgresArray::Uuid(ids) => (ids, Type::UUID_ARRAY),
            PostgresArray::Integer(numbers) => (numbers, Type::INT4_ARRAY),
            PostgresArray::BigInteger(numbers) => (numbers, Type::INT8_ARRAY),
            PostgresArray::Bytes(bytes) => (bytes, Type::BYTEA_ARRAY),
        }
    };
    arrays.iter().map(parameter).collect()
}

/// A row of the answer to [`Batch::postgres`].
pub(crate) fn enqueued(row: &Row) -> Result<Enqueued, Error> {
    Ok(Enqueued::new(row.try_get(0)?, row.try_get(1)?, row.try_get(2)?))
}
