//! Enqueue inside a diesel-async transaction on PostgreSQL. Diesel tells the SQLSTATE of few errors, so what the database
//! refuses is mostly a driver's error here, with its message as the source. It prepares every statement by name; a pooler in
//! transaction mode must know how to keep such names.

use ::diesel_async::{AsyncPgConnection, RunQueryDsl};
use diesel::deserialize::QueryableByName;
use diesel::pg::Pg;
use diesel::result::{DatabaseErrorKind, Error as DieselError};
use diesel::sql_types::{Array, BigInt, Bool, Bytea, Integer, Nullable, Text, Uuid};

use super::{Batch, Enqueue, Enqueued, PostgresArray, Statement};
use crate::error::Error;

impl Enqueue for &mut AsyncPgConnection {
    async fn write(self, batch: &Batch<'_>) -> Result<Vec<Enqueued>, Error> {
        let rows: Vec<EnqueuedRow> = load(self, batch.postgres()?).await?;
        Ok(rows.into_iter().map(|row| Enqueued::new(row.message_id, row.sequence_id, row.created)).collect())
    }
}

#[derive(QueryableByName)]
struct EnqueuedRow {
    #[diesel(sql_type = Uuid)]
    message_id: uuid::Uuid,
    #[diesel(sql_type = Nullable<BigInt>)]
    sequence_id: Option<i64>,
    #[diesel(sql_type = Bool)]
    created: bool,
}

pub(crate) async fn load<R: QueryableByName<Pg> + Send + 'static>(
    connection: &mut AsyncPgConnection,
    statement: Statement<PostgresArray<'_>>,
) -> Result<Vec<R>, Error> {
    let query = diesel::sql_query(statement.sql).into_boxed::<Pg>();
    let query = statement.parameters.into_iter().fold(query, |query, array| match array {
        PostgresArray::Text(texts) => query.bind::<Nullable<Array<Nullable<Text>>>, _>(texts),
        PostgresArray::Uuid(ids) => query.bind::<Nullable<Array<Nullable<Uuid>>>, _>(ids),
        PostgresArray::Integer(numbers) => query.bind::<Nullable<Array<Nullable<Integer>>>, _>(numbers),
        PostgresArray::BigInteger(numbers) => query.bind::<Nullable<Array<Nullable<BigInt>>>, _>(numbers),
        PostgresArray::Bytes(bytes) => query.bind::<Nullable<Array<Nullable<Bytea>>>, _>(bytes),
    });
    query.load(connection).await.map_err(driver_error)
}

fn driver_error(error: DieselError) -> Error {
    let DieselError::DatabaseError(kind, said) = &error else { return Error::from_driver(error) };
    let sqlstate = match kind {
        DatabaseErrorKind::CheckViolation => "23514",
        DatabaseErrorKind::ReadOnlyTransaction => "25006",
        _ => return Error::from_driver(error),
    };
    let (message, hint) = (said.message().to_owned(), said.hint().map(str::to_owned));
    Error::from_sqlstate(sqlstate, &message, hint.as_deref(), error)
}
