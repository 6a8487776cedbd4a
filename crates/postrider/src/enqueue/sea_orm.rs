//! Enqueue inside a SeaORM transaction on PostgreSQL. SeaORM panics at a NULL inside an array, so each array is bound as a
//! text. SeaORM prepares every statement by name; a pooler in transaction mode must know how to keep such names.

use std::sync::Arc;

use ::sea_orm::{ConnectionTrait, DatabaseTransaction, DbBackend, DbErr, QueryResult, RuntimeErr, Value};

use super::{Batch, Enqueue, Enqueued, PostgresArray, Statement};
use crate::error::Error;

impl Enqueue for &DatabaseTransaction {
    async fn write(self, batch: &Batch<'_>) -> Result<Vec<Enqueued>, Error> {
        let enqueued = |row: &QueryResult| {
            Ok(Enqueued::new(row.try_get_by_index(0)?, row.try_get_by_index(1)?, row.try_get_by_index(2)?))
        };
        query_all(self, batch.postgres()?, enqueued).await
    }
}

pub(crate) async fn query_all<T>(
    tx: &DatabaseTransaction,
    statement: Statement<PostgresArray<'_>>,
    read: impl Fn(&QueryResult) -> Result<T, DbErr>,
) -> Result<Vec<T>, Error> {
    let literals = statement.parameters.iter().map(|array| Value::from(array.literal()));
    let statement = ::sea_orm::Statement::from_sql_and_values(DbBackend::Postgres, statement.sql, literals);
    let rows = tx.query_all_raw(statement).await.map_err(driver_error)?;
    rows.iter().map(read).collect::<Result<_, _>>().map_err(driver_error)
}

fn driver_error(error: DbErr) -> Error {
    match error {
        DbErr::Query(RuntimeErr::SqlxError(inner)) => {
            Arc::try_unwrap(inner).map_or_else(Error::from_driver, Error::from)
        }
        other => Error::from_driver(other),
    }
}
