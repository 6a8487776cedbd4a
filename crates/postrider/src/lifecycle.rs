//! The words of a delivery's life, between a claim and its recorded outcome. Shared by every store and the relay; no
//! file here decides anything: the database does.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use uuid::Uuid;

/// Proof of a lease. Every later write carries it; a token that is no longer the row's changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct LeaseToken(pub Uuid);

impl LeaseToken {
    /// A new one, which nobody can guess.
    #[must_use]
    pub fn random() -> Self {
        Self(Uuid::new_v4())
    }
}

/// How an attempt ended. The worker sets the first three, the database the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum AttemptState {
    /// Delivered.
    Dispatched,
    /// Failed; to be tried again.
    Retryable,
    /// Failed for good.
    Failed,
    /// The lease ran out before an outcome was reported.
    ZombieRequeue,
    /// An operator cancelled the delivery.
    Cancelled,
}

impl AttemptState {
    /// The word used in SQL, JSON and metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Dispatched => "DISPATCHED",
            Self::Retryable => "RETRYABLE",
            Self::Failed => "FAILED",
            Self::ZombieRequeue => "ZOMBIE_REQUEUE",
            Self::Cancelled => "CANCELLED",
        }
    }
}

/// What to claim.
#[derive(Debug, Clone, PartialEq)]
pub struct Claim {
    /// Who claims; stands beside every lease and attempt.
    pub worker_id: String,
    /// Which sink's deliveries.
    pub sink: String,
    /// At most this many.
    pub batch_size: u32,
    /// How long the lease lasts.
    pub lease: Duration,
    /// Deliveries that had this many attempts are dead, not claimed.
    pub max_attempts: u32,
    /// Only this tenant's.
    pub tenant_id: Option<Uuid>,
    /// At most this many of one lane at once.
    pub lane_run: u32,
    /// Where to begin to look among messages without a lane: those due before are not seen. Saves a store with old
    /// traces in front from walking over them; `None` looks from the beginning.
    pub due_from: Option<SystemTime>,
    /// Look at every lane, however many are blocked: an empty answer then means that nothing is due. Otherwise a claim
    /// may stop after some thousand blocked lanes and the next one goes on from there.
    pub thorough: bool,
    /// At most this many bytes of content and headers, as they are sent; but the first message however large it is.
    pub max_bytes: Option<u64>,
    /// The token of the lease, so that a claim whose answer is lost can be abandoned; the store makes one if `None`.
    pub lease_token: Option<LeaseToken>,
    /// Whether headers and content come with the messages. Without, [`crate::Queue::content`] brings those of one
    /// message, so that one that cannot be read is found.
    pub with_content: bool,
}

impl Claim {
    /// A claim with the defaults: sink `default`, 100 messages, 120 seconds, 10 attempts.
    #[must_use]
    pub fn new(worker_id: impl Into<String>) -> Self {
        Self {
            worker_id: worker_id.into(),
            sink: "default".to_owned(),
            batch_size: 100,
            lease: Duration::from_mins(2),
            max_attempts: 10,
            tenant_id: None,
            lane_run: 100,
            due_from: None,
            thorough: false,
            max_bytes: None,
            lease_token: None,
            with_content: true,
        }
    }
}

/// The content of a claimed message, as it was enqueued.
#[derive(Debug, Clone)]
pub enum Content {
    /// A JSON payload, not parsed.
    Json(Box<RawValue>),
    /// Opaque bytes.
    Bytes(Vec<u8>),
}

/// The part of a message that may be large.
#[derive(Debug, Clone)]
pub struct Parcel {
    /// Its headers.
    pub headers: BTreeMap<String, String>,
    /// Its payload or body.
    pub content: Content,
}

/// A claimed message: what the producer said, and the lease it is held under.
#[derive(Debug, Clone)]
pub struct Claimed {
    /// The message's id; stable over retries.
    pub message_id: Uuid,
    /// The sink it is claimed for.
    pub sink: String,
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
    /// Its headers.
    pub headers: BTreeMap<String, String>,
    /// Its payload or body.
    pub content: Content,
    /// The type of the content, if the producer said.
    pub content_type: Option<String>,
    /// When what it tells happened.
    pub occurred_at: SystemTime,
    /// Since when it is due.
    pub due_at: SystemTime,
    /// The number of this attempt; counts for ever.
    pub attempt_no: i32,
    /// Attempts since the last redrive, this one included: the budget used.
    pub attempt_count: i32,
    /// How many of the two attempts before this one ended because their lease ran out: 2 means that it was in the hands
    /// of workers that died, twice in a row.
    pub lost_leases: i32,
    /// The lease's token.
    pub lease_token: LeaseToken,
    /// When it was claimed, by the database's clock.
    pub claimed_at: SystemTime,
    /// When the lease ends, by the database's clock.
    pub lease_expires_at: SystemTime,
}

impl Claimed {
    /// Headers and content as they are sent, in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        let headers: usize = self.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
        headers + self.content.as_bytes().len()
    }

    /// Decodes the content as JSON.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_slice(self.content.as_bytes())
    }
}

impl Content {
    /// The content as it is to be sent: JSON text, or the bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Json(json) => json.get().as_bytes(),
            Self::Bytes(bytes) => bytes,
        }
    }
}

/// Why an attempt failed. Codes are for machines, the message is for people.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Failure {
    /// A short stable code: `TIMEOUT`, `INVALID_PAYLOAD`, `HTTP_503`.
    pub error_code: Option<String>,
    /// What happened; cut at 4,000 characters.
    pub error_message: Option<String>,
    /// What the destination answered, or the first part of it; cut at 8,192 characters.
    pub answer: Option<String>,
}

impl Failure {
    /// A failure with a code and a message.
    #[must_use]
    pub fn new(error_code: impl Into<String>, error_message: impl Into<String>) -> Self {
        Self { error_code: Some(error_code.into()), error_message: Some(error_message.into()), answer: None }
    }
}

/// How a worker says an attempt ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Delivered: the delivery ends.
    Dispatched,
    /// Failed; due again after the delay, or dead if this was the last attempt.
    Retryable {
        /// How long to wait.
        retry_after: Duration,
        /// Why.
        failure: Failure,
    },
    /// Failed for good: the delivery is dead.
    Failed(Failure),
}

impl Outcome {
    /// The state that the attempt is recorded with.
    #[must_use]
    pub fn state(&self) -> AttemptState {
        match self {
            Self::Dispatched => AttemptState::Dispatched,
            Self::Retryable { .. } => AttemptState::Retryable,
            Self::Failed(_) => AttemptState::Failed,
        }
    }

    /// Why it failed, if it did.
    #[must_use]
    pub fn failure(&self) -> Option<&Failure> {
        match self {
            Self::Dispatched => None,
            Self::Retryable { failure, .. } | Self::Failed(failure) => Some(failure),
        }
    }
}

/// One outcome to record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Completion {
    /// Which message.
    pub message_id: Uuid,
    /// The lease it is held under.
    pub lease_token: LeaseToken,
    /// How it ended.
    pub outcome: Outcome,
    /// The destination's reference, such as an offset or a receipt number.
    pub reference: Option<String>,
    /// The destination's code, such as an HTTP status.
    pub code: Option<String>,
    /// How long the sink took.
    pub latency: Option<Duration>,
}

impl Completion {
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    pub(crate) fn latency_ms(&self) -> Option<i32> {
        self.latency.map(|latency| i32::try_from(latency.as_millis()).unwrap_or(i32::MAX))
    }

    /// An outcome of a claimed message, without reference, code or latency.
    #[must_use]
    pub fn new(claimed: &Claimed, outcome: Outcome) -> Self {
        Self {
            message_id: claimed.message_id,
            lease_token: claimed.lease_token,
            outcome,
            reference: None,
            code: None,
            latency: None,
        }
    }
}

/// An outcome that was recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Completed {
    /// Which message.
    pub message_id: Uuid,
    /// For which sink.
    pub sink: String,
    /// The attempt it closed.
    pub attempt_no: i32,
    /// Whether the delivery is now dead.
    pub dead: bool,
}
