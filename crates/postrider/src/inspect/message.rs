//! Messages as people look at them: a line of a listing, the whole story of one, its deliveries and attempts. Read by the
//! stores in `store/row.rs`; printed as they are by the command line and the admin API.

use std::time::SystemTime;

use serde::Serialize;
use serde_json::value::RawValue;
use uuid::Uuid;

use super::DeadReason;
use crate::json;
#[cfg(feature = "openapi")]
use crate::json::Time;
use crate::lifecycle::AttemptState;
use crate::record::records;
use crate::words::words;

words! {
    /// Where a delivery stands, or a message of which nothing is left to deliver.
    pub enum DeliveryState {
        /// Waiting.
        Pending = "pending",
        /// Held by a worker.
        Leased = "leased",
        /// Dead.
        Dead = "dead",
        /// Ended well everywhere.
        Delivered = "delivered",
        /// Nothing is left to deliver, and an operator gave it up for a sink that never had it: discarded, or cancelled.
        Discarded = "discarded",
    }
}

/// One line of a listing: a message and one of its deliveries.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct MessageSummary {
    /// The message.
    pub message_id: Uuid,
    /// When it was enqueued.
    #[serde(serialize_with = "json::time")]
    #[cfg_attr(feature = "openapi", schema(value_type = Time))]
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
    pub state: DeliveryState,
    /// Attempts so far, for a delivery that has not ended.
    pub attempt_no: Option<i32>,
    /// When it is due, for a pending delivery.
    #[serde(serialize_with = "json::time_option")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Time>))]
    pub due_at: Option<SystemTime>,
}

/// The whole story of one message.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct MessageDetail {
    /// The message.
    pub message_id: Uuid,
    /// When it was enqueued.
    #[serde(serialize_with = "json::time")]
    #[cfg_attr(feature = "openapi", schema(value_type = Time))]
    pub enqueued_at: SystemTime,
    /// When what it tells happened.
    #[serde(serialize_with = "json::time")]
    #[cfg_attr(feature = "openapi", schema(value_type = Time))]
    pub occurred_at: SystemTime,
    /// Its namespace.
    pub namespace: String,
    /// Its topic.
    pub topic: String,
    /// Its tenant.
    pub tenant_id: Option<String>,
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
    /// Its headers.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<std::collections::HashMap<String, String>>))]
    pub headers: Option<Box<RawValue>>,
    /// Its payload, as it was written; null if it has a body instead.
    #[cfg_attr(feature = "openapi", schema(value_type = Value))]
    pub payload: Option<Box<RawValue>>,
    /// Its body, in base64; null if it has a payload instead.
    #[serde(serialize_with = "json::base64_option")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub body: Option<Vec<u8>>,
    /// Deliveries that have not ended well.
    pub deliveries: Vec<DeliveryRecord>,
    /// Every attempt, oldest first.
    pub attempts: Vec<AttemptRecord>,
}

/// One delivery that has not ended well.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct DeliveryRecord {
    /// The sink.
    pub sink: String,
    /// Where it stands: `pending`, `leased` or `dead`.
    pub state: DeliveryState,
    /// When it is due.
    #[serde(serialize_with = "json::time_option")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Time>))]
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
    #[serde(serialize_with = "json::time_option")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Time>))]
    pub lease_expires_at: Option<SystemTime>,
}

/// One attempt.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct AttemptRecord {
    /// The sink.
    pub sink: String,
    /// Its number.
    pub attempt_no: i32,
    /// How it ended.
    pub state: AttemptState,
    /// Who tried.
    pub worker_id: String,
    /// When it was claimed.
    #[serde(serialize_with = "json::time")]
    #[cfg_attr(feature = "openapi", schema(value_type = Time))]
    pub claimed_at: SystemTime,
    /// When the outcome was recorded.
    #[serde(serialize_with = "json::time")]
    #[cfg_attr(feature = "openapi", schema(value_type = Time))]
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

/// One delivery of a message that has not ended, or a message of which nothing is left to deliver.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct Entry {
    /// The message.
    pub message_id: Uuid,
    /// The sink; `None` if nothing is left to deliver.
    pub sink: Option<String>,
    /// Where it stands.
    pub state: DeliveryState,
    /// Its topic.
    pub topic: String,
    /// Its tenant.
    pub tenant_id: Option<String>,
    /// Its priority.
    pub priority: i32,
    /// When what it tells happened.
    #[serde(serialize_with = "json::time")]
    #[cfg_attr(feature = "openapi", schema(value_type = Time))]
    pub occurred_at: SystemTime,
    /// When it is due, for a delivery that is not dead.
    #[serde(serialize_with = "json::time_option")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Time>))]
    pub due_at: Option<SystemTime>,
    /// Who holds it.
    pub claimed_by: Option<String>,
    /// Since when.
    #[serde(serialize_with = "json::time_option")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Time>))]
    pub claimed_at: Option<SystemTime>,
    /// Until when.
    #[serde(serialize_with = "json::time_option")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Time>))]
    pub lease_expires_at: Option<SystemTime>,
    /// Attempts since the last redrive; all of them, if nothing is left to deliver.
    pub attempt_count: i32,
    /// When the last attempt ended.
    #[serde(serialize_with = "json::time_option")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Time>))]
    pub last_attempt_at: Option<SystemTime>,
    /// The code of the last failure.
    pub error_code: Option<String>,
    /// The message of the last failure.
    pub error_message: Option<String>,
    /// When it died.
    #[serde(serialize_with = "json::time_option")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Time>))]
    pub died_at: Option<SystemTime>,
    /// Why.
    pub reason: Option<DeadReason>,
    /// The size of its payload or body.
    pub payload_size_bytes: i64,
}

records! {
    MessageSummary(row) {
        message_id, enqueued_at, namespace, topic, lane, sequence_id, sink, state, attempt_no, due_at,
    }
    MessageDetail(row) {
        message_id, enqueued_at, occurred_at, namespace, topic, tenant_id, lane, sequence_id, dedupe_key, priority,
        content_type, headers, payload, body, deliveries: Vec::new(), attempts: Vec::new(),
    }
    DeliveryRecord(row) {
        sink, state, due_at, attempt_no, attempt_count, max_attempts, claimed_by, lease_expires_at,
    }
    AttemptRecord(row) {
        sink, attempt_no, state, worker_id, claimed_at, completed_at, latency_ms, code, reference, error_code,
        error_message, answer,
    }
    Entry(row) {
        message_id, sink, state, topic, tenant_id, priority, occurred_at, due_at, claimed_by, claimed_at,
        lease_expires_at, attempt_count, last_attempt_at, error_code, error_message, died_at, reason,
        payload_size_bytes,
    }
}
