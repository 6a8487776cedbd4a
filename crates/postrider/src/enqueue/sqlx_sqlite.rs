//! Enqueue inside a sqlx transaction on SQLite. The statements are those of every SQLite driver; only binding and
//! running them is here.

use ::sqlx::query::Query;
use ::sqlx::sqlite::SqliteArguments;
use ::sqlx::{AssertSqlSafe, Executor as _, Row as _, Sqlite, SqliteConnection, Transaction};

use super::{Batch, Enqueue, Enqueued, SqliteAnswer, SqliteInsert, SqliteValue, Statement};
use crate::error::Error;

impl Enqueue for &mut SqliteConnection {
    async fn write(self, batch: &Batch<'_>) -> Result<Vec<Enqueued>, Error> {
        self.execute(Batch::SQLITE_BEGIN).await?;
        match write_all(self, batch).await {
            Ok(enqueued) => {
                self.execute(Batch::SQLITE_KEEP).await?;
                Ok(enqueued)
            }
            Err(error) => {
                drop(::sqlx::raw_sql(Batch::SQLITE_UNDO).execute(self).await);
                Err(error)
            }
        }
    }
}

impl Enqueue for &mut Transaction<'_, Sqlite> {
    async fn write(self, batch: &Batch<'_>) -> Result<Vec<Enqueued>, Error> {
        (&mut **self).write(batch).await
    }
}

async fn write_all(connection: &mut SqliteConnection, batch: &Batch<'_>) -> Result<Vec<Enqueued>, Error> {
    let mut enqueued = Vec::new();
    for one in batch.sqlite() {
        let SqliteInsert { insert, answer } = one?;
        query(insert).execute(&mut *connection).await?;
        enqueued.push(match answer {
            SqliteAnswer::Known(enqueued) => enqueued,
            SqliteAnswer::Ask(ask) => {
                let row = query(ask).fetch_one(&mut *connection).await?;
                Enqueued::new(row.try_get(0)?, row.try_get(1)?, row.try_get(2)?)
            }
        });
    }
    Ok(enqueued)
}

pub(crate) fn query(statement: Statement<SqliteValue<'_>>) -> Query<'static, Sqlite, SqliteArguments> {
    // The text holds nothing but our own words.
    let query = ::sqlx::query(AssertSqlSafe(statement.sql.into_owned()));
    statement.parameters.into_iter().fold(query, |query, value| match value {
        SqliteValue::Null => query.bind(None::<i64>),
        SqliteValue::Integer(number) => query.bind(number),
        SqliteValue::Text(text) => query.bind(text.into_owned()),
        SqliteValue::Blob(bytes) => query.bind(bytes.into_owned()),
    })
}
