//! How a test looks at the outbox through whatever connection the application has: one statement without parameters, which
//! answers with one text a row. One implementation for each driver.

use crate::error::Error;
use crate::schema::Schema;

/// A question about the outbox: what to run, in PostgreSQL or in SQLite. It has no parameters, and answers with one text a row.
#[derive(Debug, Clone)]
pub struct Question {
    postgres: String,
    sqlite: &'static str,
}

impl Question {
    pub(super) fn new(postgres: &str, sqlite: &'static str, schema: &Schema) -> Self {
        Self { postgres: postgres.replace(":\"schema\"", &schema.quoted()), sqlite }
    }

    /// For PostgreSQL.
    #[must_use]
    pub fn postgres(&self) -> &str {
        &self.postgres
    }

    /// For SQLite.
    #[must_use]
    pub fn sqlite(&self) -> &'static str {
        self.sqlite
    }
}

/// A transaction or a connection that a test can look through. For another driver, implement it for a type of your own.
pub trait Look {
    /// The texts that the question is answered with, in their order.
    fn look(self, question: Question) -> impl Future<Output = Result<Vec<String>, Error>> + Send;
}

#[cfg(feature = "tokio-postgres")]
mod by_tokio_postgres {
    use tokio_postgres::{Client, Row, Transaction};

    use super::{Error, Look, Question};

    fn texts(rows: &[Row]) -> Result<Vec<String>, Error> {
        rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }

    impl Look for &Transaction<'_> {
        async fn look(self, question: Question) -> Result<Vec<String>, Error> {
            texts(&self.query_typed(question.postgres(), &[]).await?)
        }
    }

    impl Look for &Client {
        async fn look(self, question: Question) -> Result<Vec<String>, Error> {
            texts(&self.query_typed(question.postgres(), &[]).await?)
        }
    }
}

#[cfg(feature = "sqlx")]
mod by_sqlx {
    use sqlx::{PgConnection, Postgres, Row as _, Transaction};

    use super::{Error, Look, Question};
    use crate::enqueue::{Statement, sqlx::fetch_all};

    impl Look for &mut PgConnection {
        async fn look(self, question: Question) -> Result<Vec<String>, Error> {
            let rows = fetch_all(self, Statement::new(question.postgres, Vec::new())).await?;
            rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
        }
    }

    impl Look for &mut Transaction<'_, Postgres> {
        async fn look(self, question: Question) -> Result<Vec<String>, Error> {
            (&mut **self).look(question).await
        }
    }
}

#[cfg(feature = "sqlx-sqlite")]
mod by_sqlx_sqlite {
    use sqlx::{Row as _, Sqlite, SqliteConnection, Transaction};

    use super::{Error, Look, Question};
    use crate::enqueue::{Statement, sqlx_sqlite::query};

    impl Look for &mut SqliteConnection {
        async fn look(self, question: Question) -> Result<Vec<String>, Error> {
            let rows = query(Statement::new(question.sqlite(), Vec::new())).fetch_all(self).await?;
            rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
        }
    }

    impl Look for &mut Transaction<'_, Sqlite> {
        async fn look(self, question: Question) -> Result<Vec<String>, Error> {
            (&mut **self).look(question).await
        }
    }
}

#[cfg(feature = "sea-orm")]
mod by_sea_orm {
    use sea_orm::DatabaseTransaction;

    use super::{Error, Look, Question};
    use crate::enqueue::{Statement, sea_orm::query_all};

    impl Look for &DatabaseTransaction {
        async fn look(self, question: Question) -> Result<Vec<String>, Error> {
            query_all(self, Statement::new(question.postgres, Vec::new()), |row| row.try_get_by_index(0)).await
        }
    }
}

#[cfg(feature = "diesel-async")]
mod by_diesel_async {
    use diesel::deserialize::QueryableByName;
    use diesel::sql_types::Text;
    use diesel_async::AsyncPgConnection;

    use super::{Error, Look, Question};
    use crate::enqueue::{Statement, diesel_async::load};

    /// The name that PostgreSQL gives to the column.
    #[derive(QueryableByName)]
    struct Answer {
        #[diesel(sql_type = Text)]
        jsonb_build_object: String,
    }

    impl Look for &mut AsyncPgConnection {
        async fn look(self, question: Question) -> Result<Vec<String>, Error> {
            let rows: Vec<Answer> = load(self, Statement::new(question.postgres, Vec::new())).await?;
            Ok(rows.into_iter().map(|row| row.jsonb_build_object).collect())
        }
    }
}

#[cfg(feature = "sqlite")]
mod by_rusqlite {
    use std::future::{Ready, ready};

    use rusqlite::Connection;

    use super::{Error, Look, Question};
    use crate::store::sqlite::statement::values;

    impl Look for &Connection {
        // The connection must not go into the future: no other thread may have it.
        #[expect(refining_impl_trait, reason = "nobody names the type")]
        fn look(self, question: Question) -> Ready<Result<Vec<String>, Error>> {
            ready(values(self, question.sqlite(), &[]))
        }
    }
}
