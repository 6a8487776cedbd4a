//! Enqueue inside a sqlx transaction. The statement is not kept by name (`persistent(false)`): through a pooler in
//! transaction mode a name would be looked for on another server connection.

use ::sqlx::postgres::{PgArguments, PgRow};
use ::sqlx::query::Query;
use ::sqlx::{AssertSqlSafe, PgConnection, Postgres, Row, Transaction};

use super::{Batch, Enqueue, Enqueued, PostgresArray, Statement};
use crate::error::Error;

impl Enqueue for &mut PgConnection {
    async fn write(self, batch: &Batch<'_>) -> Result<Vec<Enqueued>, Error> {
        let rows = fetch_all(self, batch.postgres()?).await?;
        rows.iter().map(|row| Ok(Enqueued::new(row.try_get(0)?, row.try_get(1)?, row.try_get(2)?))).collect()
    }
}

impl Enqueue for &mut Transaction<'_, Postgres> {
    async fn write(self, batch: &Batch<'_>) -> Result<Vec<Enqueued>, Error> {
        (&mut **self).write(batch).await
    }
}

pub(crate) async fn fetch_all(
    connection: &mut PgConnection,
    statement: Statement<PostgresArray<'_>>,
) -> Result<Vec<PgRow>, Error> {
    // The text holds nothing but our own words and the checked, quoted schema name.
    let query = ::sqlx::query(AssertSqlSafe(statement.sql.into_owned())).persistent(false);
    Ok(statement.parameters.into_iter().fold(query, bind).fetch_all(connection).await?)
}

fn bind<'q>(query: Query<'q, Postgres, PgArguments>, array: PostgresArray<'_>) -> Query<'q, Postgres, PgArguments> {
    match array {
        PostgresArray::Text(texts) => query.bind(texts),
        PostgresArray::Uuid(ids) => query.bind(ids),
        PostgresArray::Integer(numbers) => query.bind(numbers),
        PostgresArray::BigInteger(numbers) => query.bind(numbers),
        PostgresArray::Bytes(bytes) => query.bind(bytes),
    }
}
