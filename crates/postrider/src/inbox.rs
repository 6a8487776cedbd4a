//! Tells an event that comes for the first time from one that comes again, inside the consumer's own transaction: what
//! the event does and that it was received commit together, or neither does. The rules live in SQL, in the function
//! `receive_many` of PostgreSQL and the statement `receive` in `inbox.sql` of SQLite; this file checks what can be checked first and
//! hands events to the caller's driver (one file for each under `inbox/`). It opens no connection and starts no
//! transaction.

#[cfg(feature = "diesel-async")]
mod diesel_async;
#[cfg(feature = "sqlite")]
pub(crate) mod rusqlite;
#[cfg(feature = "sea-orm")]
mod sea_orm;
#[cfg(feature = "sqlite")]
mod span;
#[cfg(feature = "sqlx")]
mod sqlx;
#[cfg(feature = "sqlx-sqlite")]
mod sqlx_sqlite;
#[cfg(feature = "tokio-postgres")]
mod tokio_postgres;

use uuid::Uuid;

use crate::enqueue::{MAX_BATCH_MESSAGES, PostgresArray, SqliteValue, Statement};
use crate::error::{Cause, Error, InvalidMessage};
use crate::message::{check_name, limit};
use crate::schema::Schema;
use crate::statement::named;

/// What every SQLite driver runs, once for each event.
const SQLITE_RECEIVE: &str = named!("sqlite", "inbox", "receive");

/// What arrives: somebody's message, known by its id and its tenant.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Event {
    pub(crate) id: Uuid,
    pub(crate) tenant_id: Option<String>,
    pub(crate) source: String,
    pub(crate) place: Option<(String, i64)>,
}

impl Event {
    /// The id that the sender gave to it, the same over all attempts.
    #[must_use]
    pub fn new(event_id: Uuid) -> Self {
        Self { id: event_id, tenant_id: None, source: String::new(), place: None }
    }

    /// The tenant it belongs to: 1 to 255 bytes. The same id with another tenant, or with none, is another event.
    #[must_use]
    pub fn tenant(mut self, tenant_id: impl Into<String>) -> Self {
        self.tenant_id = Some(tenant_id.into());
        self
    }

    /// Who numbers the lanes: two senders with lanes of the same name need two sources.
    #[must_use]
    pub fn source(mut self, source: impl Into<String>) -> Self {
        self.source = source.into();
        self
    }

    /// Its lane and its number there: then it is recognised even after its row was pruned.
    #[must_use]
    pub fn lane(mut self, lane: impl Into<String>, sequence_id: i64) -> Self {
        self.place = Some((lane.into(), sequence_id));
        self
    }

    /// Checks every rule that can be checked without the database. Receiving does this by itself.
    pub fn check(&self) -> Result<(), InvalidMessage> {
        if let Some(tenant_id) = &self.tenant_id {
            check_name("tenant_id", tenant_id, limit::NAME_BYTES)?;
        }
        if !self.source.is_empty() {
            check_name("source", &self.source, limit::NAME_BYTES)?;
        }
        if let Some((lane, sequence_id)) = &self.place {
            check_name("lane", lane, limit::NAME_BYTES)?;
            if *sequence_id < 1 {
                return Err(InvalidMessage::Sequence { sequence_id: *sequence_id });
            }
        }
        Ok(())
    }

    fn lane_name(&self) -> Option<&str> {
        self.place.as_ref().map(|(lane, _)| lane.as_str())
    }

    fn sequence_id(&self) -> Option<i64> {
        self.place.as_ref().map(|(_, sequence_id)| *sequence_id)
    }
}

/// A consumer's handle: which schema the inbox is in, the outbox's own. (In SQLite it is in the application's own file,
/// and the schema's name has no meaning.)
#[derive(Debug, Clone, Default)]
pub struct Inbox {
    schema: Schema,
}

impl Inbox {
    /// An inbox in another schema than `outbox`.
    #[must_use]
    pub fn new(schema: Schema) -> Self {
        Self { schema }
    }

    /// Notes in the caller's transaction that an event was received: true the first time, false again.
    ///
    /// `tx` is what the driver calls a transaction, as for [`crate::Outbox::enqueue`]. For rusqlite there is a plain
    /// function, `postrider::sqlite::receive`. While another transaction that received the same event is open, this
    /// waits: false if that one commits, true if it rolls back.
    pub async fn receive<R: Receive>(&self, tx: R, event: &Event) -> Result<bool, Error> {
        event.check()?;
        let answers = tx.receive(&Batch { schema: &self.schema, events: std::slice::from_ref(event) }).await?;
        // Every driver answers once for each event, or fails.
        answers
            .first()
            .copied()
            .ok_or_else(|| Error::from(Cause::Refused { message: "receive returned no row".to_owned(), hint: None }))
    }

    /// The same for up to [`MAX_BATCH_MESSAGES`] events, in one round trip to PostgreSQL. One answer for each, in the same
    /// order; an event named twice is first once. Batches that name the same events in another order do not deadlock; two
    /// calls in one transaction may.
    pub async fn receive_many<R: Receive>(&self, tx: R, events: &[Event]) -> Result<Vec<bool>, Error> {
        check_many(events)?;
        if events.is_empty() {
            return Ok(Vec::new());
        }
        tx.receive(&Batch { schema: &self.schema, events }).await
    }
}

/// What can be checked about a batch before the database is asked.
pub(crate) fn check_many(events: &[Event]) -> Result<(), Error> {
    if events.len() > MAX_BATCH_MESSAGES {
        return Err(Error::from(Cause::BatchTooLarge { count: events.len(), max: MAX_BATCH_MESSAGES }));
    }
    for (index, event) in events.iter().enumerate() {
        event.check().map_err(|source| Error::from(Cause::InvalidBatch { index, source }))?;
    }
    Ok(())
}

/// A transaction that events can be received in. Implemented here for each supported driver; for another one, do as with
/// [`crate::Enqueue`].
pub trait Receive {
    /// Receives the events, in the caller's transaction: true for each that came for the first time, in their order.
    fn receive(self, batch: &Batch<'_>) -> impl Future<Output = Result<Vec<bool>, Error>> + Send;
}

/// Events that were checked and are to be received: what [`Receive`] is given. There is at least one.
#[derive(Debug, Clone, Copy)]
pub struct Batch<'a> {
    schema: &'a Schema,
    events: &'a [Event],
}

impl<'a> Batch<'a> {
    /// For PostgreSQL: one statement for all events. It answers with one row for each, in their order: a bool, true the
    /// first time.
    #[must_use]
    pub fn postgres(&self) -> Statement<PostgresArray<'a>> {
        let sql = format!(
            "select first from {}.receive_many(event_id => $1::uuid[], tenant_id => $2::text[], source => $3::text[], \
             lane => $4::text[], sequence_id => $5::int8[]) order by ordinal",
            self.schema.quoted()
        );
        // Absent as a whole when no event has a lane: the function then asks no lane.
        let numbered = self.events.iter().any(|event| event.place.is_some());
        let all = self.events.iter();
        let arrays = vec![
            PostgresArray::Uuid(Some(all.clone().map(|event| Some(event.id)).collect())),
            PostgresArray::Text(Some(all.clone().map(|event| event.tenant_id.as_deref().map(Into::into)).collect())),
            PostgresArray::Text(Some(all.clone().map(|event| Some(event.source.as_str().into())).collect())),
            PostgresArray::Text(numbered.then(|| all.clone().map(|event| event.lane_name().map(Into::into)).collect())),
            PostgresArray::BigInteger(numbered.then(|| all.map(Event::sequence_id).collect())),
        ];
        Statement::new(sql, arrays)
    }

    /// For SQLite: one statement for each event, in their order. One row written means that it came for the first time.
    pub fn sqlite(&self) -> impl Iterator<Item = Statement<SqliteValue<'a>>> + use<'a> {
        self.events.iter().map(sqlite)
    }
}

pub(crate) fn sqlite(event: &Event) -> Statement<SqliteValue<'_>> {
    let values = [
        event.id.into(),
        event.tenant_id.as_deref().into(),
        event.source.as_str().into(),
        event.lane_name().into(),
        event.sequence_id().into(),
    ];
    Statement::new(SQLITE_RECEIVE, values.into())
}
