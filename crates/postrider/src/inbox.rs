//! Tells an event that comes for the first time from one that comes again, inside the consumer's own transaction: what
//! the event does and that it was received commit together, or neither does. The rules live in SQL, in the function
//! `receive_many` of PostgreSQL and the statement `receive` in `inbox.sql` of SQLite; this file checks what can be checked first and
//! hands events to the caller's driver (one file for each under `inbox/`). It opens no connection and starts no
//! transaction.

#[cfg(feature = "sqlite")]
pub(crate) mod rusqlite;
#[cfg(feature = "sqlite")]
mod span;
#[cfg(feature = "sqlx")]
mod sqlx;
#[cfg(feature = "sqlx-sqlite")]
mod sqlx_sqlite;
#[cfg(feature = "tokio-postgres")]
mod tokio_postgres;

use uuid::Uuid;

use crate::enqueue::MAX_BATCH_MESSAGES;
use crate::error::{Error, InvalidMessage};
use crate::message::{check_name, limit};
use crate::schema::Schema;
use crate::statement::named;

/// The statement that every SQLite driver runs, once for each event: five parameters, and one row written means that
/// the event came for the first time. See `docs/inbox.md`.
pub const SQLITE_RECEIVE: &str = named!("sqlite", "inbox", "receive");

/// What arrives: somebody's message, known by its id and its tenant.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Event {
    pub(crate) id: Uuid,
    pub(crate) tenant_id: Option<Uuid>,
    pub(crate) source: String,
    pub(crate) place: Option<(String, i64)>,
}

impl Event {
    /// The id that the sender gave to it, the same over all attempts.
    #[must_use]
    pub fn new(event_id: Uuid) -> Self {
        Self { id: event_id, tenant_id: None, source: String::new(), place: None }
    }

    /// The tenant it belongs to. The same id with another tenant, or with none, is another event.
    #[must_use]
    pub fn tenant(mut self, tenant_id: Uuid) -> Self {
        self.tenant_id = Some(tenant_id);
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

    #[cfg(any(feature = "tokio-postgres", feature = "sqlx", feature = "sqlite", feature = "sqlx-sqlite"))]
    fn lane_name(&self) -> Option<&str> {
        self.place.as_ref().map(|(lane, _)| lane.as_str())
    }

    #[cfg(any(feature = "tokio-postgres", feature = "sqlx", feature = "sqlite", feature = "sqlx-sqlite"))]
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
        let answers = tx.note(self, std::slice::from_ref(event)).await?;
        // Every driver answers once for each event, or fails.
        answers
            .first()
            .copied()
            .ok_or_else(|| Error::Refused { message: "receive returned no row".to_owned(), hint: None })
    }

    /// The same for up to [`MAX_BATCH_MESSAGES`] events, in one round trip to PostgreSQL. One answer for each, in the same
    /// order; an event named twice is first once. Batches that name the same events in another order do not deadlock; two
    /// calls in one transaction may.
    pub async fn receive_many<R: Receive>(&self, tx: R, events: &[Event]) -> Result<Vec<bool>, Error> {
        check_many(events)?;
        if events.is_empty() {
            return Ok(Vec::new());
        }
        tx.note(self, events).await
    }

    /// The PostgreSQL statement, for drivers that have no adapter here. Five array parameters, one element per event:
    /// event id, tenant id, source, lane, number in the lane. One row for each, in the same order.
    #[must_use]
    pub fn sql(&self) -> String {
        format!(
            "select first from {}.receive_many(event_id => $1::uuid[], tenant_id => $2::uuid[], source => $3::text[], \
             lane => $4::text[], sequence_id => $5::int8[]) order by ordinal",
            self.schema.quoted()
        )
    }
}

/// What can be checked about a batch before the database is asked.
pub(crate) fn check_many(events: &[Event]) -> Result<(), Error> {
    if events.len() > MAX_BATCH_MESSAGES {
        return Err(Error::BatchTooLarge { count: events.len(), max: MAX_BATCH_MESSAGES });
    }
    for (index, event) in events.iter().enumerate() {
        event.check().map_err(|source| Error::InvalidBatch { index, source })?;
    }
    Ok(())
}

/// A transaction that events can be received in. Implemented here for each supported driver, and nowhere else.
pub trait Receive: crate::enqueue::sealed::Sealed {
    #[doc(hidden)]
    fn note(self, inbox: &Inbox, events: &[Event]) -> impl Future<Output = Result<Vec<bool>, Error>> + Send;
}

/// Events turned by ninety degrees: one array for each parameter of `receive_many`.
#[cfg(any(feature = "tokio-postgres", feature = "sqlx"))]
#[derive(Debug)]
struct Columns<'a> {
    event_id: Vec<Uuid>,
    tenant_id: Vec<Option<Uuid>>,
    source: Vec<&'a str>,
    /// Absent as a whole when no event has a lane: the function then asks no lane.
    lane: Option<Vec<Option<&'a str>>>,
    sequence_id: Option<Vec<Option<i64>>>,
}

#[cfg(any(feature = "tokio-postgres", feature = "sqlx"))]
impl<'a> Columns<'a> {
    fn from_events(events: &'a [Event]) -> Self {
        let numbered = events.iter().any(|event| event.place.is_some());
        Self {
            event_id: events.iter().map(|event| event.id).collect(),
            tenant_id: events.iter().map(|event| event.tenant_id).collect(),
            source: events.iter().map(|event| event.source.as_str()).collect(),
            lane: numbered.then(|| events.iter().map(Event::lane_name).collect()),
            sequence_id: numbered.then(|| events.iter().map(Event::sequence_id).collect()),
        }
    }
}
