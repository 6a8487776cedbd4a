//! Read-only questions about an outbox: how it stands, which messages are where, the whole story of one. Asked by the
//! command line and the relay's gauges, answered by each store under `store/`. Nothing here writes.

use std::time::SystemTime;

use async_trait::async_trait;
use serde_json::value::RawValue;
use uuid::Uuid;

use crate::error::Error;
use crate::store::Route;

/// What can be asked of every store.
#[async_trait]
pub trait Inspect: Send + Sync {
    /// The store's clock, for ages: the reader's own may be off.
    async fn now(&self) -> Result<SystemTime, Error>;

    /// How every sink stands, by name.
    async fn status(&self) -> Result<Vec<SinkStatus>, Error>;

    /// Messages, newest first.
    async fn list(&self, filter: &ListFilter) -> Result<Vec<MessageSummary>, Error>;

    /// One message with its deliveries and attempts; `None` if it is not in the store.
    async fn show(&self, message_id: Uuid) -> Result<Option<MessageDetail>, Error>;

    /// Which new messages go where, in the order of namespace, topic and sink. What no route takes goes to the sink
    /// `default`.
    async fn routes(&self) -> Result<Vec<Route>, Error>;
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

/// Which messages to list.
#[derive(Debug, Clone, PartialEq)]
pub struct ListFilter {
    /// In this state.
    pub state: Option<ListState>,
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
