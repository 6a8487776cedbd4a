//! Writes messages inside the caller's own transaction: both commit or neither does. The rules live in SQL, in the
//! function `enqueue_many` of PostgreSQL and the view `outbox_enqueue` of SQLite; this file checks what can be checked
//! first and hands a [`Batch`] to the caller's driver (one file for each under `enqueue/`, or a user's own [`Enqueue`]). It
//! opens no connection and starts no transaction.

pub(crate) mod columns;
#[cfg(feature = "diesel-async")]
pub(crate) mod diesel_async;
#[cfg(feature = "sqlite")]
pub(crate) mod rusqlite;
#[cfg(feature = "sea-orm")]
pub(crate) mod sea_orm;
#[cfg(feature = "sqlx")]
pub(crate) mod sqlx;
#[cfg(feature = "sqlx-sqlite")]
pub(crate) mod sqlx_sqlite;
mod statement;
#[cfg(feature = "tokio-postgres")]
pub(crate) mod tokio_postgres;

use uuid::Uuid;

pub use self::statement::{Batch, PostgresArray, SqliteAnswer, SqliteInsert, SqliteValue, Statement};
use crate::error::{Cause, Error};
use crate::message::Message;
use crate::schema::Schema;

/// Most messages in one call: they are one statement, so that its locks are taken in one order.
pub const MAX_BATCH_MESSAGES: usize = 10_000;

/// What became of an enqueued message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct Enqueued {
    /// The message's id; the first message's if the dedupe key was known.
    pub message_id: Uuid,
    /// Its number in its lane.
    pub sequence_id: Option<i64>,
    /// False if the dedupe key was known: nothing was written.
    pub created: bool,
}

impl Enqueued {
    /// For an adapter: a row of the statement's answer.
    #[must_use]
    pub fn new(message_id: Uuid, sequence_id: Option<i64>, created: bool) -> Self {
        Self { message_id, sequence_id, created }
    }
}

/// A producer's handle: which schema the outbox is in. (In SQLite it is in the application's own file, and the schema's
/// name has no meaning.)
#[derive(Debug, Clone, Default)]
pub struct Outbox {
    schema: Schema,
}

impl Outbox {
    /// An outbox in another schema than `outbox`.
    #[must_use]
    pub fn new(schema: Schema) -> Self {
        Self { schema }
    }

    /// Writes one message in the caller's transaction.
    ///
    /// `tx` is what the driver calls a transaction: `&tokio_postgres::Transaction` (deadpool's derefs to it),
    /// `&mut sqlx::Transaction<Postgres>` or `&mut sqlx::PgConnection` with a transaction open, the same of `Sqlite`,
    /// `&sea_orm::DatabaseTransaction` on PostgreSQL, or the `&mut diesel_async::AsyncPgConnection` that its `transaction`
    /// hands out. For rusqlite there is a plain function, `postrider::sqlite::enqueue`.
    pub async fn enqueue<E: Enqueue>(&self, tx: E, message: &Message) -> Result<Enqueued, Error> {
        message.check()?;
        only(tx.write(&Batch::new(&self.schema, std::slice::from_ref(message))).await?)
    }

    /// Writes up to [`MAX_BATCH_MESSAGES`] messages in the caller's transaction, in one round trip. One result for
    /// each message, in the same order.
    pub async fn enqueue_many<E: Enqueue>(&self, tx: E, messages: &[Message]) -> Result<Vec<Enqueued>, Error> {
        check_many(messages)?;
        if messages.is_empty() {
            return Ok(Vec::new());
        }
        tx.write(&Batch::new(&self.schema, messages)).await
    }
}

/// The answer to one message: every driver answers with one row per message, or fails.
pub(crate) fn only(mut answers: Vec<Enqueued>) -> Result<Enqueued, Error> {
    answers
        .pop()
        .ok_or_else(|| Error::from(Cause::Refused { message: "enqueue returned no row".to_owned(), hint: None }))
}

/// What can be checked about a batch before the database is asked.
pub(crate) fn check_many(messages: &[Message]) -> Result<(), Error> {
    if messages.len() > MAX_BATCH_MESSAGES {
        return Err(Error::from(Cause::BatchTooLarge { count: messages.len(), max: MAX_BATCH_MESSAGES }));
    }
    for (index, message) in messages.iter().enumerate() {
        message.check().map_err(|source| Error::from(Cause::InvalidBatch { index, source }))?;
    }
    Ok(())
}

/// A transaction that messages can be written in. Implemented here for each supported driver. For another driver, implement
/// it for a type of your own: run the statement that [`Batch`] hands out, and read its rows.
///
/// The rules: everything goes through the transaction that the caller gave, in which the caller's own rows are written; all
/// messages are written or none; one [`Enqueued`] for each message, in their order. Messages are checked before this is
/// called, and there is at least one. An error of the driver becomes [`Error::from_driver`], or
/// [`Error::from_sqlstate`] where the driver tells the SQLSTATE.
///
/// ```
/// # mod some_driver {
/// #     #[derive(Debug)] pub struct Failed;
/// #     impl std::fmt::Display for Failed { fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { Ok(()) } }
/// #     impl std::error::Error for Failed {}
/// #     pub struct Transaction;
/// #     pub struct Query;
/// #     impl Query { pub fn bind<T>(self, _: T) -> Self { self } }
/// #     impl Transaction {
/// #         pub fn query(&mut self, _: &str) -> Query { Query }
/// #         pub async fn rows(&mut self, _: Query) -> Result<Vec<(uuid::Uuid, Option<i64>, bool)>, Failed> { Ok(vec![]) }
/// #     }
/// # }
/// use postrider::enqueue::{Batch, PostgresArray};
/// use postrider::{Enqueue, Enqueued, Error};
///
/// struct Mine<'a>(&'a mut some_driver::Transaction);
///
/// impl Enqueue for Mine<'_> {
///     async fn write(self, batch: &Batch<'_>) -> Result<Vec<Enqueued>, Error> {
///         let statement = batch.postgres()?;
///         let mut query = self.0.query(&statement.sql);
///         for array in statement.parameters {
///             query = match array {
///                 PostgresArray::Text(texts) => query.bind(texts),
///                 PostgresArray::Uuid(ids) => query.bind(ids),
///                 PostgresArray::Integer(numbers) => query.bind(numbers),
///                 PostgresArray::BigInteger(numbers) => query.bind(numbers),
///                 PostgresArray::Bytes(bytes) => query.bind(bytes),
///             };
///         }
///         let rows = self.0.rows(query).await.map_err(Error::from_driver)?;
///         Ok(rows.into_iter().map(|(id, sequence_id, created)| Enqueued::new(id, sequence_id, created)).collect())
///     }
/// }
/// ```
pub trait Enqueue {
    /// Writes the messages of the batch.
    fn write(self, batch: &Batch<'_>) -> impl Future<Output = Result<Vec<Enqueued>, Error>> + Send;
}
