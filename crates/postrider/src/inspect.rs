//! Read-only questions about an outbox: how it stands, which messages are where, the whole story of one. Asked by the
//! command line and the relay's gauges, answered by each store under `store/`. Nothing here writes.

use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use uuid::Uuid;

use crate::error::Error;
use crate::json;
use crate::store::Route;

/// What can be asked of every store.
#[async_trait]
pub trait Inspect: Send + Sync {
    /// The store's clock, for ages: the reader's own may be off.
    async fn now(&self) -> Result<SystemTime, Error>;

    /// How every sink stands, by name.
    async fn status(&self) -> Result<Vec<SinkStatus>, Error>;

    /// Messages, newest first. Looks at a bounded number of messages: an answer shorter than the limit may have more
    /// behind it, and [`Page::next`] says where to go on.
    async fn list(&self, filter: &ListFilter) -> Result<Page<MessageSummary>, Error>;

    /// One message with its deliveries and attempts; `None` if it is not in the store.
    async fn show(&self, message_id: Uuid) -> Result<Option<MessageDetail>, Error>;

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

    /// What was measured since then, by time and sink: see [`crate::Store::measure`].
    async fn samples(&self, within: Duration) -> Result<Vec<Sample>, Error>;

    /// The relays that reported lately, by name: see [`crate::Store::report`].
    async fn relays(&self) -> Result<Vec<RelayRecord>, Error>;

    /// What operators did, newest first, before this entry if one is named.
    async fn audit(&self, before: Option<i64>, limit: u32) -> Result<Vec<AuditRecord>, Error>;

    /// Why a message is not delivered, for each sink, and what to do; `None` if it is not in the store.
    async fn explain(&self, message_id: Uuid) -> Result<Option<Explanation>, Error>;
}

/// Groups of dead letters that are told; more help nobody.
pub const MAX_DEAD_GROUPS: u32 = 100;

/// Which lanes to list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LaneFilter {
    /// For this sink.
    pub sink: Option<String>,
    /// This lane.
    pub lane: Option<String>,
    /// In this state: `parked`, `waiting`, `leased` or `due`.
    pub state: Option<LaneState>,
    /// At most this many.
    pub limit: u32,
}

/// What a lane is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LaneState {
    /// Its head is dead: it waits for a person.
    Parked,
    /// Its head is due later, for it failed or was scheduled.
    Waiting,
    /// A worker holds its head.
    Leased,
    /// Its head can be claimed.
    Due,
}

impl LaneState {
    /// The word used in SQL and JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Parked => "parked",
            Self::Waiting => "waiting",
            Self::Leased => "leased",
            Self::Due => "due",
        }
    }
}

/// How one lane stands for one sink.
#[derive(Debug, Clone, PartialEq)]
pub struct LaneStatus {
    /// The sink.
    pub sink: String,
    /// The lane.
    pub lane: String,
    /// What it is doing.
    pub state: LaneState,
    /// Deliveries in it, the head included.
    pub depth: i64,
    /// The head's number.
    pub head_sequence_id: i64,
    /// The head.
    pub head_message_id: Uuid,
    /// When the head is due; `None` if it is dead.
    pub head_due_at: Option<SystemTime>,
    /// Attempts of the head since its last redrive.
    pub head_attempt_count: i32,
    /// The code of the head's last failure.
    pub head_error_code: Option<String>,
    /// The message of the head's last failure.
    pub head_error_message: Option<String>,
}

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
    /// Of this topic.
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
    /// With this code.
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

/// How one sink stood at the end of one interval, and what happened in it.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// The end of the interval.
    pub at: SystemTime,
    /// How long it was.
    pub seconds: f64,
    /// The sink.
    pub sink: String,
    /// Waiting, due or not.
    pub pending: i64,
    /// Waiting and due.
    pub due: i64,
    /// Held by workers.
    pub leased: i64,
    /// Held under a lease that ended.
    pub expired: i64,
    /// Dead letters.
    pub dead: i64,
    /// Lanes that wait for a person.
    pub parked_lanes: i64,
    /// How long the oldest due delivery has been due; what waits behind a parked or waiting lane head is not due.
    pub oldest_due_age_seconds: f64,
    /// Attempts of the interval, by outcome: dispatched, retryable, failed, zombie.
    pub attempts: [i64; 4],
    /// From enqueue to delivery, for half of what was delivered in the interval; `None` if nothing was.
    pub latency_p50_ms: Option<f64>,
    /// The same for 99 of 100.
    pub latency_p99_ms: Option<f64>,
}

/// A relay as it last reported.
#[derive(Debug, Clone, PartialEq)]
pub struct RelayRecord {
    /// What it said.
    pub report: RelayReport,
    /// When it first reported.
    pub started_at: SystemTime,
    /// When it last reported.
    pub reported_at: SystemTime,
    /// Whether it is late with its next report: it has stopped without a word, or cannot reach the store.
    pub silent: bool,
}

/// What a relay says about itself now and then.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RelayReport {
    /// Who it is.
    pub worker_id: String,
    /// The version of its program.
    pub version: String,
    /// How often it reports.
    pub every: Duration,
    /// The sinks it delivers to.
    pub sinks: Vec<SinkReport>,
}

/// What a relay says about one of its sinks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SinkReport {
    /// The sink.
    pub sink: String,
    /// What it is: `http`, `kafka`, `handler`.
    pub kind: String,
    /// `closed`, `open` or `half_open`.
    pub breaker: String,
    /// For how much longer it is left alone, while the breaker is open.
    pub open_for: Option<Duration>,
    /// Messages claimed and not yet ended.
    pub held: u64,
    /// Most messages a second, if there is a limit.
    pub rate: Option<u32>,
}

/// One thing an operator did.
#[derive(Debug, Clone)]
pub struct AuditRecord {
    /// Its number; later ones are higher.
    pub id: i64,
    /// When.
    pub at: SystemTime,
    /// Who.
    pub actor: String,
    /// What: the word of an [`crate::Order`].
    pub action: String,
    /// The order, as JSON.
    pub detail: Box<RawValue>,
    /// How many deliveries it changed.
    pub affected: i64,
}

/// Why a message is where it is.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Explanation {
    /// The message.
    pub message_id: Uuid,
    /// For each sink that has or had to do with it.
    pub deliveries: Vec<Reason>,
}

/// Why one delivery is where it is, and what to do.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Reason {
    /// The sink.
    pub sink: String,
    /// A stable code, see `explain.rs`: `DELIVERED`, `DEAD`, `LEASED`, `LEASE_EXPIRED`, `NOT_DUE`, `RETRY_LATER`,
    /// `BEHIND_LANE_HEAD`, `LANE_PARKED`, `SINK_PAUSED`, `BREAKER_OPEN`, `NO_RELAY`, `RELAY_SILENT`, `DUE`, `DISCARDED`.
    pub code: &'static str,
    /// What is the case, for people.
    pub why: String,
    /// What to do; empty if there is nothing to do.
    pub advice: String,
    /// The message that has to go first, if it waits behind one.
    pub behind: Option<Uuid>,
}

/// How one sink stands.
#[derive(Debug, Clone, PartialEq)]
pub struct SinkStatus {
    /// The sink.
    pub sink: String,
    /// Whether an operator paused it.
    pub paused: bool,
    /// Waiting, due or not.
    pub pending: i64,
    /// Waiting and due.
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
    /// Attempts of the last minutes, by outcome: dispatched, retryable, failed, zombie.
    pub recent: [i64; 4],
    /// The last success of the last minutes.
    pub last_success_at: Option<SystemTime>,
    /// The last failure of the last minutes.
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
    /// A page that is full may have another behind it.
    pub(crate) fn of(items: Vec<MessageSummary>, limit: u32) -> Self {
        let full = items.len() >= usize::try_from(limit).unwrap_or(usize::MAX);
        let next = items.last().filter(|_| full).map(|last| last.message_id);
        Self { items, next }
    }
}

/// Which messages to list.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ListFilter {
    /// In this state.
    pub state: Option<ListState>,
    /// Of this namespace.
    pub namespace: Option<String>,
    /// Enqueued at this time or later.
    pub from: Option<SystemTime>,
    /// Enqueued before this time.
    pub to: Option<SystemTime>,
    /// Of this topic.
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
    /// The sink, unless it was delivered everywhere.
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
}
