//! Read-only questions about an outbox: how it stands, which messages are where, the whole story of one. Asked by the
//! command line and the relay's gauges, answered by each store under `store/`. Nothing here writes.

mod entry;
mod lane;
mod named;
mod sink_state;
mod waiting;
mod watched;

use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use serde::Serialize;
use serde_json::value::RawValue;
use uuid::Uuid;

pub use self::entry::Entry;
pub use self::lane::{LaneFilter, LaneState, LaneStatus};
pub use self::named::{
    IdTail, MAX_IDS_LOOKED_AT, MAX_KEY_TOPICS, MAX_NAMED, MIN_ID_TAIL_DIGITS, NotAnIdTail, enqueued_at,
};
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) use self::named::{Named, just_after};
pub use self::sink_state::{SinkService, SinkState};
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) use self::waiting::LONGEST_LEASE;
pub use self::waiting::{DeliveryFilter, FutureTimes, OpenCount, ReplayCount};
pub use self::watched::{Explanation, Reason, RelayRecord, RelayReport, Sample, SinkReport};
use crate::error::Error;
use crate::json;
use crate::operate::Replay;
use crate::store::{OnDead, Pruned, Route};

/// What can be asked of every store.
#[async_trait]
pub trait Inspect: Send + Sync {
    /// The store's clock, for ages: the reader's own may be off.
    async fn now(&self) -> Result<SystemTime, Error>;

    /// How every sink stands, by name.
    async fn status(&self) -> Result<Vec<SinkStatus>, Error>;

    /// Messages, newest first. Looks at [`MAX_LOOKED_AT`] messages at most: an answer shorter than the limit may have
    /// more behind it, and [`Page::next`] says where to go on.
    ///
    /// With [`ListFilter::id_tail`] it looks at everything that is undelivered or dead, and at [`MAX_IDS_LOOKED_AT`] ids of
    /// history; with [`ListFilter::dedupe_key`] it looks the key up. Either finds [`MAX_NAMED`] messages at most.
    async fn list(&self, filter: &ListFilter) -> Result<Page<MessageSummary>, Error>;

    /// One message with its deliveries and attempts; `None` if it is not in the store.
    async fn show(&self, message_id: Uuid) -> Result<Option<MessageDetail>, Error>;

    /// These messages in the order given, without their content: each delivery that has not ended, or one line for
    /// a message of which nothing is left to deliver. What is not in the store is left out.
    async fn entries(&self, message_ids: &[Uuid]) -> Result<Vec<Entry>, Error>;

    /// Which new messages go where, in the order of namespace, topic and sink. What no route takes goes to the sink
    /// `default`.
    async fn routes(&self) -> Result<Vec<Route>, Error>;

    /// Lanes with something to deliver, those that wait for a person first, then those whose head failed, then the
    /// deepest.
    async fn lanes(&self, filter: &LaneFilter) -> Result<Vec<LaneStatus>, Error>;

    /// Dead letters, newest first.
    async fn dead_letters(&self, filter: &DeadFilter, page: &DeadPage) -> Result<Vec<DeadLetter>, Error>;

    /// Dead letters by sink, topic, reason and error code: the largest groups first, at most [`MAX_DEAD_GROUPS`].
    async fn dead_groups(&self, filter: &DeadFilter) -> Result<Vec<DeadGroup>, Error>;

    /// How many dead letters there are of this kind: what a redrive or a discard would take.
    async fn count_dead(&self, filter: &DeadFilter) -> Result<u64, Error>;

    /// Which of the messages that the filter names have no dead letter that it means.
    async fn not_dead(&self, filter: &DeadFilter) -> Result<Vec<Uuid>, Error>;

    /// How many deliveries of this kind are open: what [`crate::Action::Cancel`] and [`crate::Action::RetryNow`] would take.
    async fn count_open(&self, filter: &DeliveryFilter) -> Result<OpenCount, Error>;

    /// Which of the messages that the filter names have no open delivery that it means.
    async fn not_open(&self, filter: &DeliveryFilter) -> Result<Vec<Uuid>, Error>;

    /// What a step of this replay would take. [`crate::ErrorKind::NoSuchSink`] as for the replay itself.
    async fn count_replay(&self, replay: &Replay) -> Result<ReplayCount, Error>;

    /// How many leases [`crate::Action::UnclaimStuck`] would end.
    async fn count_stale(&self, older_than: Duration) -> Result<u64, Error>;

    /// What [`crate::Action::Prune`] would take.
    async fn prunable(&self, older_than: Option<Duration>) -> Result<Pruned, Error>;

    /// What has a time later than the store's clock, by more than the tolerance.
    async fn future_times(&self, tolerance: Duration) -> Result<FutureTimes, Error>;

    /// What was measured since then, by time and sink: see [`crate::Queue::measure`].
    async fn samples(&self, within: Duration) -> Result<Vec<Sample>, Error>;

    /// The relays that reported lately, by name: see [`crate::Queue::report`].
    async fn relays(&self) -> Result<Vec<RelayRecord>, Error>;

    /// What operators did, newest first, before this entry if one is named.
    async fn audit(&self, before: Option<i64>, limit: u32) -> Result<Vec<AuditRecord>, Error>;

    /// Why a message is not delivered, for each sink, and what to do; `None` if it is not in the store.
    async fn explain(&self, message_id: Uuid) -> Result<Option<Explanation>, Error>;
}

/// Messages of history, or open deliveries whose message has to be asked, that one call of [`Inspect::list`] looks at:
/// a moment's work, whatever the filter.
pub const MAX_LOOKED_AT: u32 = 10_000;

/// Lines of one page of [`Inspect::list`] or [`Inspect::lanes`]; a larger limit is taken for this one.
pub const MAX_PAGE: u32 = 10_000;

/// Groups of dead letters that are told; more help nobody.
pub const MAX_DEAD_GROUPS: u32 = 100;

/// Which dead letters. Everything that is given must hold; nothing given is every dead letter.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct DeadFilter {
    /// These messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_ids: Option<Vec<Uuid>>,
    /// Of this sink.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sink: Option<String>,
    /// Of this namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Of this topic; `*` stands for any characters, as in a route.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topic: Option<String>,
    /// Of this tenant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant_id: Option<Uuid>,
    /// In this lane.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lane: Option<String>,
    /// For this reason: `FAILED` or `ATTEMPTS_EXHAUSTED`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// With this code; an empty one means those without any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_code: Option<String>,
    /// Dead since this time or later.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "json::time_if_given")]
    pub died_from: Option<SystemTime>,
    /// Dead before this time.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "json::time_if_given")]
    pub died_to: Option<SystemTime>,
}

/// Which page of dead letters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadPage {
    /// After this one in the order of the listing: the last of the page before, with its sink.
    pub after: Option<(SystemTime, Uuid, String)>,
    /// At most this many.
    pub limit: u32,
}

/// A dead letter.
#[derive(Debug, Clone, PartialEq)]
pub struct DeadLetter {
    /// The message.
    pub message_id: Uuid,
    /// The sink.
    pub sink: String,
    /// When it died.
    pub died_at: SystemTime,
    /// `FAILED` or `ATTEMPTS_EXHAUSTED`.
    pub reason: String,
    /// The code of the last failure.
    pub error_code: Option<String>,
    /// The message of the last failure.
    pub error_message: Option<String>,
    /// Attempts so far.
    pub attempt_no: i32,
    /// Attempts since the last redrive.
    pub attempt_count: i32,
    /// Whether its lane waits for it.
    pub parked: bool,
    /// Its namespace.
    pub namespace: String,
    /// Its topic.
    pub topic: String,
    /// Its tenant.
    pub tenant_id: Option<Uuid>,
    /// Its lane.
    pub lane: Option<String>,
    /// Its number in the lane.
    pub sequence_id: Option<i64>,
    /// When what it tells happened.
    pub occurred_at: SystemTime,
    /// The size of its payload or body.
    pub payload_size_bytes: i64,
}

/// Dead letters of one kind.
#[derive(Debug, Clone, PartialEq)]
pub struct DeadGroup {
    /// The sink.
    pub sink: String,
    /// The topic.
    pub topic: String,
    /// `FAILED` or `ATTEMPTS_EXHAUSTED`.
    pub reason: String,
    /// The code of the last failure.
    pub error_code: Option<String>,
    /// How many.
    pub count: i64,
    /// When the first of them died.
    pub first_died_at: SystemTime,
    /// When the last of them died.
    pub last_died_at: SystemTime,
    /// The message of the newest one's last failure.
    pub error_message: Option<String>,
}

/// One thing an operator did.
#[derive(Debug, Clone)]
pub struct AuditRecord {
    /// Its number; later ones are higher.
    pub id: i64,
    /// When.
    pub at: SystemTime,
    /// Who, as the caller says; the login, if nobody was named.
    pub actor: String,
    /// The login that did it, as the server knows it. `None`: the store has no logins (SQLite).
    pub db_user: Option<String>,
    /// What: the name of an [`crate::Action`].
    pub action: String,
    /// The action, as JSON.
    pub detail: Box<RawValue>,
    /// How many deliveries it changed.
    pub affected: i64,
}

/// How one sink stands.
#[derive(Debug, Clone, PartialEq)]
pub struct SinkStatus {
    /// The sink.
    pub sink: String,
    /// Whether an operator paused it.
    pub paused: bool,
    /// What a dead lane head does to its lane.
    pub on_dead: OnDead,
    /// Waiting, due or not.
    pub pending: i64,
    /// Waiting and due; what waits behind a parked or waiting lane head is not due.
    pub due: i64,
    /// Held by workers.
    pub leased: i64,
    /// Held under a lease that ended.
    pub expired: i64,
    /// Dead letters.
    pub dead: i64,
    /// Lanes that wait for a person.
    pub parked_lanes: i64,
    /// How long the oldest due delivery has been due.
    pub oldest_due_age_seconds: f64,
    /// How far back the next three look: the setting `status_window`.
    pub recent_seconds: f64,
    /// Attempts of that time, by outcome: dispatched, retryable, failed, zombie.
    pub recent: [i64; 4],
    /// The last success of that time.
    pub last_success_at: Option<SystemTime>,
    /// The last failure of that time.
    pub last_error_at: Option<SystemTime>,
}

/// Where a message stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListState {
    /// Waiting.
    Pending,
    /// Held by a worker.
    Leased,
    /// Dead.
    Dead,
    /// Ended well everywhere.
    Delivered,
    /// Nothing is left to deliver, and an operator gave it up for a sink that never had it: discarded, or cancelled.
    Discarded,
}

impl ListState {
    /// The word used in SQL and JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Leased => "leased",
            Self::Dead => "dead",
            Self::Delivered => "delivered",
            Self::Discarded => "discarded",
        }
    }
}

/// A page of a listing.
#[derive(Debug, Clone, PartialEq)]
pub struct Page<T> {
    /// Its lines.
    pub items: Vec<T>,
    /// To be given as `before` for the next page; `None` if this was the last.
    pub next: Option<Uuid>,
}

impl Page<MessageSummary> {
    /// A page that is full may have another behind it; one that is not goes on where the looking ended, if it did.
    pub(crate) fn of(items: Vec<MessageSummary>, limit: u32, look_on: Option<Uuid>) -> Self {
        let full = items.len() >= usize::try_from(limit).unwrap_or(usize::MAX);
        let last = items.last().filter(|_| full).map(|last| last.message_id);
        Self { next: last.or(look_on), items }
    }

    /// What was found by its id or its key. If as many messages were found as may be, it goes on before the last one.
    pub(crate) fn of_named(items: Vec<MessageSummary>, found: usize, look_on: Option<Uuid>) -> Self {
        let full = found >= MAX_NAMED as usize;
        let last = items.last().filter(|_| full).map(|last| last.message_id);
        Self { next: last.or(look_on), items }
    }
}

impl ListFilter {
    /// The ids that are meant, the lowest and the first that is no longer meant: an id carries the time it was made.
    pub(crate) fn ids(&self) -> (Uuid, Uuid) {
        let from = self.from.map_or(Uuid::nil(), id_floor);
        let to = self.to.map_or(Uuid::max(), id_floor);
        (from, self.before.map_or(to, |before| before.min(to)))
    }

    /// The topic, if it is one and not a pattern.
    pub(crate) fn one_topic(&self) -> Option<&str> {
        self.topic.as_deref().filter(|topic| !topic.contains('*'))
    }
}

/// The lowest id of a message that was enqueued in this millisecond, or later.
pub(crate) fn id_floor(time: SystemTime) -> Uuid {
    const MILLIS_BITS: u32 = 48;
    let millis = time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_millis());
    Uuid::from_u128(millis.min((1 << MILLIS_BITS) - 1) << (u128::BITS - MILLIS_BITS))
}

/// Which messages to list.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ListFilter {
    /// In this state.
    pub state: Option<ListState>,
    /// With this id, or with an id that ends so.
    pub id_tail: Option<IdTail>,
    /// With this dedupe key, while its dedupe window lasts. Namespace and topic, if both are given without `*`, make it
    /// one look; else the keys of up to [`MAX_KEY_TOPICS`] topics are looked up.
    pub dedupe_key: Option<String>,
    /// Of this namespace.
    pub namespace: Option<String>,
    /// Enqueued at this time or later.
    pub from: Option<SystemTime>,
    /// Enqueued before this time.
    pub to: Option<SystemTime>,
    /// Of this topic; `*` stands for any characters, as in a route.
    pub topic: Option<String>,
    /// Of this tenant.
    pub tenant_id: Option<Uuid>,
    /// In this lane.
    pub lane: Option<String>,
    /// For this sink.
    pub sink: Option<String>,
    /// Enqueued before this one: for the next page.
    pub before: Option<Uuid>,
    /// At most this many, and the other deliveries of the last message: a page ends between two messages.
    pub limit: u32,
}

/// One line of a listing: a message and one of its deliveries.
#[derive(Debug, Clone, PartialEq)]
pub struct MessageSummary {
    /// The message.
    pub message_id: Uuid,
    /// When it was enqueued.
    pub enqueued_at: SystemTime,
    /// Its namespace.
    pub namespace: String,
    /// Its topic.
    pub topic: String,
    /// Its lane.
    pub lane: Option<String>,
    /// Its number in the lane.
    pub sequence_id: Option<i64>,
    /// The sink, unless nothing is left to deliver.
    pub sink: Option<String>,
    /// Where it stands.
    pub state: String,
    /// Attempts so far, for a delivery that has not ended.
    pub attempt_no: Option<i32>,
    /// When it is due, for a pending delivery.
    pub due_at: Option<SystemTime>,
}

/// The whole story of one message.
#[derive(Debug, Clone)]
pub struct MessageDetail {
    /// The message.
    pub message_id: Uuid,
    /// When it was enqueued.
    pub enqueued_at: SystemTime,
    /// When what it tells happened.
    pub occurred_at: SystemTime,
    /// Its namespace.
    pub namespace: String,
    /// Its topic.
    pub topic: String,
    /// Its tenant.
    pub tenant_id: Option<Uuid>,
    /// Its lane.
    pub lane: Option<String>,
    /// Its number in the lane.
    pub sequence_id: Option<i64>,
    /// Its dedupe key.
    pub dedupe_key: Option<String>,
    /// Its priority.
    pub priority: i32,
    /// Its content type.
    pub content_type: Option<String>,
    /// Its headers, as JSON.
    pub headers: Option<Box<RawValue>>,
    /// Its payload, as JSON.
    pub payload: Option<Box<RawValue>>,
    /// Its body.
    pub body: Option<Vec<u8>>,
    /// Deliveries that have not ended well.
    pub deliveries: Vec<DeliveryRecord>,
    /// Every attempt, oldest first.
    pub attempts: Vec<AttemptRecord>,
}

/// One delivery that has not ended well.
#[derive(Debug, Clone, PartialEq)]
pub struct DeliveryRecord {
    /// The sink.
    pub sink: String,
    /// `pending`, `leased` or `dead`.
    pub state: String,
    /// When it is due.
    pub due_at: Option<SystemTime>,
    /// Attempts so far.
    pub attempt_no: i32,
    /// Attempts since the last redrive.
    pub attempt_count: i32,
    /// Most attempts since the last redrive, as the last claim said; `None` before the first claim, and for the dead.
    pub max_attempts: Option<i32>,
    /// Who holds it.
    pub claimed_by: Option<String>,
    /// Until when.
    pub lease_expires_at: Option<SystemTime>,
}

/// One attempt.
#[derive(Debug, Clone, PartialEq)]
pub struct AttemptRecord {
    /// The sink.
    pub sink: String,
    /// Its number.
    pub attempt_no: i32,
    /// How it ended.
    pub state: String,
    /// Who tried.
    pub worker_id: String,
    /// When it was claimed.
    pub claimed_at: SystemTime,
    /// When the outcome was recorded.
    pub completed_at: SystemTime,
    /// How long the sink took.
    pub latency_ms: Option<i32>,
    /// The destination's code.
    pub code: Option<String>,
    /// The destination's reference.
    pub reference: Option<String>,
    /// The error's code.
    pub error_code: Option<String>,
    /// The error's message.
    pub error_message: Option<String>,
    /// The first part of what the destination answered, if the attempt failed.
    pub answer: Option<String>,
}
