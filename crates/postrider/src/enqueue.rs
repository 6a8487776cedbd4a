//! Writes messages inside the caller's own transaction: both commit or neither does. The rules live in SQL, in the
//! function `enqueue_many` of PostgreSQL and the view `outbox_enqueue` of SQLite; this file checks what can be checked
//! first and hands messages to the caller's driver (one file for each under `enqueue/`). It opens no connection and
//! starts no transaction.

#[cfg(feature = "sqlite")]
pub(crate) mod rusqlite;
#[cfg(any(feature = "sqlite", feature = "sqlx-sqlite"))]
mod sqlite;
#[cfg(feature = "sqlx")]
mod sqlx;
#[cfg(feature = "sqlx-sqlite")]
mod sqlx_sqlite;
#[cfg(feature = "tokio-postgres")]
pub(crate) mod tokio_postgres;

#[cfg(any(feature = "tokio-postgres", feature = "sqlx"))]
use std::time::SystemTime;

use uuid::Uuid;

use crate::error::Error;
#[cfg(any(feature = "tokio-postgres", feature = "sqlx", feature = "sqlite", feature = "sqlx-sqlite"))]
use crate::error::InvalidMessage;
use crate::message::Message;
#[cfg(any(feature = "tokio-postgres", feature = "sqlx"))]
use crate::message::{Body, Due};
use crate::schema::Schema;

/// Most messages in one call: they are one statement, so that its locks are taken in one order.
pub const MAX_BATCH_MESSAGES: usize = 10_000;

/// What became of an enqueued message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Enqueued {
    /// The message's id; the first message's if the dedupe key was known.
    pub message_id: Uuid,
    /// Its number in its lane.
    pub sequence_id: Option<i64>,
    /// False if the dedupe key was known: nothing was written.
    pub created: bool,
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
    /// `&mut sqlx::Transaction<Postgres>` or `&mut sqlx::PgConnection` with a transaction open, the same of `Sqlite`. For
    /// rusqlite there is a plain function, `postrider::sqlite::enqueue`.
    pub async fn enqueue<E: Enqueue>(&self, tx: E, message: &Message) -> Result<Enqueued, Error> {
        message.check()?;
        only(tx.write(self, std::slice::from_ref(message)).await?)
    }

    /// Writes up to [`MAX_BATCH_MESSAGES`] messages in the caller's transaction, in one round trip. One result for
    /// each message, in the same order.
    pub async fn enqueue_many<E: Enqueue>(&self, tx: E, messages: &[Message]) -> Result<Vec<Enqueued>, Error> {
        check_many(messages)?;
        if messages.is_empty() {
            return Ok(Vec::new());
        }
        tx.write(self, messages).await
    }

    /// The PostgreSQL statement, for drivers that have no adapter here. Thirteen array parameters, one element per message, in
    /// the order of `enqueue_many`: topic, payload (JSON text), namespace, tenant id, lane, dedupe key, priority,
    /// headers (JSON text), due at (RFC 3339 text), occurred at, body, content type, delay in seconds (text).
    #[must_use]
    pub fn sql(&self) -> String {
        format!(
            "select message_id, sequence_id, created from {}.enqueue_many(topic => $1::text[], \
             payload => $2::text[]::jsonb[], namespace => $3::text[], tenant_id => $4::uuid[], lane => $5::text[], \
             dedupe_key => $6::text[], priority => $7::int4[], headers => $8::text[]::jsonb[], \
             due_at => $9::text[]::timestamptz[], occurred_at => $10::text[]::timestamptz[], body => $11::bytea[], \
             content_type => $12::text[], delay_seconds => $13::text[]::numeric[]) order by ordinal",
            self.schema.quoted()
        )
    }
}

/// The answer to one message: every driver answers with one row per message, or fails.
pub(crate) fn only(mut answers: Vec<Enqueued>) -> Result<Enqueued, Error> {
    answers.pop().ok_or_else(|| Error::Refused { message: "enqueue returned no row".to_owned(), hint: None })
}

/// What can be checked about a batch before the database is asked.
pub(crate) fn check_many(messages: &[Message]) -> Result<(), Error> {
    if messages.len() > MAX_BATCH_MESSAGES {
        return Err(Error::BatchTooLarge { count: messages.len(), max: MAX_BATCH_MESSAGES });
    }
    for (index, message) in messages.iter().enumerate() {
        message.check().map_err(|source| Error::InvalidBatch { index, source })?;
    }
    Ok(())
}

/// A transaction that messages can be written in. Implemented here for each supported driver, and nowhere else.
pub trait Enqueue: sealed::Sealed {
    #[doc(hidden)]
    fn write(self, outbox: &Outbox, messages: &[Message]) -> impl Future<Output = Result<Vec<Enqueued>, Error>> + Send;
}

pub(crate) mod sealed {
    pub trait Sealed {}
    #[cfg(feature = "tokio-postgres")]
    impl Sealed for &tokio_postgres::Transaction<'_> {}
    #[cfg(feature = "sqlx")]
    impl Sealed for &mut sqlx::PgConnection {}
    #[cfg(feature = "sqlx")]
    impl Sealed for &mut sqlx::Transaction<'_, sqlx::Postgres> {}
    #[cfg(feature = "sqlx-sqlite")]
    impl Sealed for &mut sqlx::SqliteConnection {}
    #[cfg(feature = "sqlx-sqlite")]
    impl Sealed for &mut sqlx::Transaction<'_, sqlx::Sqlite> {}
}

/// Messages turned by ninety degrees: one array for each parameter of `enqueue_many`.
#[cfg(any(feature = "tokio-postgres", feature = "sqlx"))]
#[derive(Debug, Default)]
pub(crate) struct Columns<'a> {
    pub(crate) topic: Vec<&'a str>,
    pub(crate) payload: Vec<Option<&'a str>>,
    pub(crate) namespace: Vec<Option<&'a str>>,
    pub(crate) tenant_id: Vec<Option<Uuid>>,
    pub(crate) lane: Vec<Option<&'a str>>,
    /// Absent as a whole when no message has a key: the function then skips the dedupe table.
    pub(crate) dedupe_key: Option<Vec<Option<&'a str>>>,
    pub(crate) priority: Vec<i32>,
    pub(crate) headers: Vec<Option<String>>,
    pub(crate) due_at: Vec<Option<String>>,
    pub(crate) occurred_at: Vec<Option<String>>,
    pub(crate) body: Vec<Option<&'a [u8]>>,
    pub(crate) content_type: Vec<Option<&'a str>>,
    pub(crate) delay_seconds: Vec<Option<String>>,
}

#[cfg(any(feature = "tokio-postgres", feature = "sqlx"))]
impl<'a> Columns<'a> {
    pub(crate) fn from_messages(messages: &'a [Message]) -> Result<Self, InvalidMessage> {
        let mut columns = Self::default();
        let keyed = messages.iter().any(|message| message.dedupe_key.is_some());
        columns.dedupe_key = keyed.then(|| messages.iter().map(|message| message.dedupe_key.as_deref()).collect());
        for message in messages {
            let (payload, body) = match &message.content {
                Body::Json(json) => (Some(json.as_str()), None),
                Body::Bytes(bytes) => (None, Some(bytes.as_slice())),
            };
            let (due_at, delay) = match message.due {
                Due::Now => (None, None),
                Due::After(delay) => (None, Some(format!("{}.{:06}", delay.as_secs(), delay.subsec_micros()))),
                Due::At(time) => (Some(rfc3339("due_at", time)?), None),
            };
            columns.topic.push(&message.topic);
            columns.payload.push(payload);
            columns.namespace.push(message.namespace.as_deref());
            columns.tenant_id.push(message.tenant_id);
            columns.lane.push(message.lane.as_deref());
            columns.priority.push(message.priority);
            columns.headers.push(headers_json(message)?);
            columns.due_at.push(due_at);
            columns.occurred_at.push(message.occurred_at.map(|time| rfc3339("occurred_at", time)).transpose()?);
            columns.body.push(body);
            columns.content_type.push(message.content_type.as_deref());
            columns.delay_seconds.push(delay);
        }
        Ok(columns)
    }
}

#[cfg(any(feature = "tokio-postgres", feature = "sqlx", feature = "sqlite", feature = "sqlx-sqlite"))]
fn headers_json(message: &Message) -> Result<Option<String>, InvalidMessage> {
    if message.headers.is_empty() {
        return Ok(None);
    }
    serde_json::to_string(&message.headers)
        .map(Some)
        .map_err(|error| InvalidMessage::NotJson { reason: error.to_string() })
}

#[cfg(any(feature = "tokio-postgres", feature = "sqlx"))]
fn rfc3339(field: &'static str, time: SystemTime) -> Result<String, InvalidMessage> {
    jiff::Timestamp::try_from(time)
        .map(|timestamp| timestamp.to_string())
        .map_err(|_| InvalidMessage::TimeOutOfRange { field })
}
