//! One message as JSON: what the producer said, where it still has to go, every attempt. Made from the store's answer.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use postrider::{AttemptRecord, DeliveryRecord, MessageDetail};
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;
use uuid::Uuid;

use super::Time;

#[derive(Serialize, ToSchema)]
pub(crate) struct MessageDocument {
    message_id: Uuid,
    enqueued_at: Time,
    occurred_at: Time,
    namespace: String,
    topic: String,
    tenant_id: Option<Uuid>,
    lane: Option<String>,
    sequence_id: Option<i64>,
    dedupe_key: Option<String>,
    priority: i32,
    content_type: Option<String>,
    #[schema(value_type = Option<std::collections::HashMap<String, String>>)]
    headers: Option<Box<RawValue>>,
    /// JSON; null if it has a body instead.
    #[schema(value_type = Value)]
    payload: Option<Box<RawValue>>,
    /// Base64; null if it has a payload instead.
    body: Option<String>,
    /// Those that have not ended well.
    deliveries: Vec<DeliveryItem>,
    /// Oldest first.
    attempts: Vec<AttemptItem>,
}

#[derive(Serialize, ToSchema)]
struct DeliveryItem {
    sink: String,
    /// `pending`, `leased` or `dead`.
    state: String,
    due_at: Option<Time>,
    /// Attempts so far.
    attempt_no: i32,
    /// Attempts since the last redrive.
    attempt_count: i32,
    /// Most attempts since the last redrive; null before the first claim, and for what is dead.
    max_attempts: Option<i32>,
    claimed_by: Option<String>,
    lease_expires_at: Option<Time>,
}

#[derive(Serialize, ToSchema)]
struct AttemptItem {
    sink: String,
    attempt_no: i32,
    /// `DISPATCHED`, `RETRYABLE`, `FAILED`, `ZOMBIE_REQUEUE` or `CANCELLED`.
    state: String,
    worker_id: String,
    claimed_at: Time,
    completed_at: Time,
    latency_ms: Option<i32>,
    code: Option<String>,
    reference: Option<String>,
    error_code: Option<String>,
    error_message: Option<String>,
    /// The first part of what the destination answered, if the attempt failed.
    answer: Option<String>,
}

impl From<MessageDetail> for MessageDocument {
    fn from(message: MessageDetail) -> Self {
        Self {
            message_id: message.message_id,
            enqueued_at: Time(message.enqueued_at),
            occurred_at: Time(message.occurred_at),
            namespace: message.namespace,
            topic: message.topic,
            tenant_id: message.tenant_id,
            lane: message.lane,
            sequence_id: message.sequence_id,
            dedupe_key: message.dedupe_key,
            priority: message.priority,
            content_type: message.content_type,
            headers: message.headers,
            payload: message.payload,
            body: message.body.map(|body| STANDARD.encode(body)),
            deliveries: message.deliveries.into_iter().map(DeliveryItem::from).collect(),
            attempts: message.attempts.into_iter().map(AttemptItem::from).collect(),
        }
    }
}

impl From<DeliveryRecord> for DeliveryItem {
    fn from(delivery: DeliveryRecord) -> Self {
        Self {
            sink: delivery.sink,
            state: delivery.state,
            due_at: delivery.due_at.map(Time),
            attempt_no: delivery.attempt_no,
            attempt_count: delivery.attempt_count,
            max_attempts: delivery.max_attempts,
            claimed_by: delivery.claimed_by,
            lease_expires_at: delivery.lease_expires_at.map(Time),
        }
    }
}

impl From<AttemptRecord> for AttemptItem {
    fn from(attempt: AttemptRecord) -> Self {
        Self {
            sink: attempt.sink,
            attempt_no: attempt.attempt_no,
            state: attempt.state,
            worker_id: attempt.worker_id,
            claimed_at: Time(attempt.claimed_at),
            completed_at: Time(attempt.completed_at),
            latency_ms: attempt.latency_ms,
            code: attempt.code,
            reference: attempt.reference,
            error_code: attempt.error_code,
            error_message: attempt.error_message,
            answer: attempt.answer,
        }
    }
}
