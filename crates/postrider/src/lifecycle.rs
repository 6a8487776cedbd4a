//! The words of a delivery's life, between a claim and its recorded outcome. Shared by every store and the relay; no
//! file here decides anything: the database does.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use uuid::Uuid;

use crate::record::{records, setters};
use crate::words::words;

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

words! {
    /// How an attempt ended. The worker sets the first three, the database the others.
    pub enum AttemptState {
        /// Delivered.
        Dispatched = "DISPATCHED",
        /// Failed; to be tried again.
        Retryable = "RETRYABLE",
        /// Failed for good.
        Failed = "FAILED",
        /// The lease ran out before an outcome was reported.
        ZombieRequeue = "ZOMBIE_REQUEUE",
        /// An operator cancelled the delivery.
        Cancelled = "CANCELLED",
    }
}

/// What to claim.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
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
    pub tenant_id: Option<String>,
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

setters! { Claim:
    worker_id: String, sink: String, batch_size: u32, lease: Duration, max_attempts: u32, tenant_id: Option<String>,
    lane_run: u32, due_from: Option<SystemTime>, thorough: bool, max_bytes: Option<u64>,
    lease_token: Option<LeaseToken>, with_content: bool,
}

/// The content of a claimed message, as it was enqueued.
#[derive(Debug, Clone)]
pub enum Content {
    /// A JSON payload, not parsed.
    Json(Box<RawValue>),
    /// Opaque bytes.
    Bytes(Vec<u8>),
}

/// Headers and content of a message that was claimed without them: see [`crate::Queue::content`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ClaimedContent {
    /// The producer's headers.
    pub headers: BTreeMap<String, String>,
    /// The payload or the body.
    pub content: Content,
}

impl ClaimedContent {
    /// For a store of your own.
    #[must_use]
    pub fn new(headers: BTreeMap<String, String>, content: Content) -> Self {
        Self { headers, content }
    }
}

/// A claimed message: what the producer said, and the lease it is held under.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Claimed {
    /// The same over all retries: receivers deduplicate by it.
    pub message_id: Uuid,
    /// The sink it is claimed for.
    pub sink: String,
    /// `default` unless the producer gave one.
    pub namespace: String,
    /// What happened, such as `order.placed`.
    pub topic: String,
    /// The tenant, if the producer gave one.
    pub tenant_id: Option<String>,
    /// The lane, if the message is to be delivered in order.
    pub lane: Option<String>,
    /// The number in the lane, from 1; `None` without a lane.
    pub sequence_id: Option<i64>,
    /// The dedupe key, if the producer gave one.
    pub dedupe_key: Option<String>,
    /// -100 to 100; has no meaning in a lane.
    pub priority: i32,
    /// The producer's headers; empty if the claim asked for no content.
    pub headers: BTreeMap<String, String>,
    /// The payload or the body; JSON `null` if the claim asked for no content.
    pub content: Content,
    /// The type of the content, if the producer gave one.
    pub content_type: Option<String>,
    /// When the event happened: the producer's time, or when the message was enqueued.
    pub occurred_at: SystemTime,
    /// Since when it is due.
    pub due_at: SystemTime,
    /// The number of this attempt, from 1. It never resets.
    pub attempt_no: i32,
    /// Attempts since the last redrive, this one included. Compared with `max_attempts`.
    pub attempt_count: i32,
    /// How many of the two attempts before this one ended because their lease ran out: 2 means that it was in the hands
    /// of workers that died, twice in a row.
    pub lost_leases: i32,
    /// Proves the lease.
    pub lease_token: LeaseToken,
    /// When it was claimed, by the database's clock.
    pub claimed_at: SystemTime,
    /// When the lease ends, by the database's clock.
    pub lease_expires_at: SystemTime,
}

impl Claimed {
    /// A message for the sink `default`, at its first attempt and without a lane: for a store of your own, and for tests of
    /// a sink. Set the other fields as needed.
    #[must_use]
    pub fn new(topic: impl Into<String>, content: Content) -> Self {
        let now = SystemTime::now();
        Self {
            message_id: Uuid::now_v7(),
            sink: "default".to_owned(),
            namespace: "default".to_owned(),
            topic: topic.into(),
            tenant_id: None,
            lane: None,
            sequence_id: None,
            dedupe_key: None,
            priority: 0,
            headers: BTreeMap::new(),
            content,
            content_type: None,
            occurred_at: now,
            due_at: now,
            attempt_no: 1,
            attempt_count: 1,
            lost_leases: 0,
            lease_token: LeaseToken::random(),
            claimed_at: now,
            lease_expires_at: now + Duration::from_mins(2),
        }
    }

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
#[non_exhaustive]
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

setters! { Failure: answer: Option<String> }

/// How a worker says an attempt ended. Every store must know them all, so this is not `non_exhaustive`.
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
#[non_exhaustive]
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

setters! { Completion: reference: Option<String>, code: Option<String>, latency: Option<Duration> }

/// An outcome that was recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
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

records! {
    Claimed(row) {
        message_id, sink, namespace, topic, tenant_id, lane, sequence_id, dedupe_key, priority,
        headers: crate::store::row::headers(row)?, content: crate::store::row::content(row)?,
        content_type, occurred_at, due_at, attempt_no, attempt_count, lost_leases,
        lease_token: LeaseToken(row.read("lease_token")?), claimed_at, lease_expires_at,
    }
    ClaimedContent(row) { headers: crate::store::row::headers(row)?, content: crate::store::row::content(row)? }
    Completed(row) { message_id, sink, attempt_no, dead }
}

impl Completed {
    /// For a store of your own.
    #[must_use]
    pub fn new(message_id: Uuid, sink: impl Into<String>, attempt_no: i32, dead: bool) -> Self {
        Self { message_id, sink: sink.into(), attempt_no, dead }
    }
}
