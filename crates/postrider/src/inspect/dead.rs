//! Dead letters, one by one and in groups. What is meant by which filter is in `filter.rs`.

use std::time::SystemTime;

use serde::Serialize;
use uuid::Uuid;

use crate::json;
#[cfg(feature = "openapi")]
use crate::json::Time;
use crate::record::records;
use crate::words::words;

/// Groups of dead letters that are told; more help nobody.
pub const MAX_DEAD_GROUPS: u32 = 100;

words! {
    /// Why nobody tries a delivery again by itself.
    pub enum DeadReason {
        /// The sink refused it for good.
        Failed = "FAILED",
        /// It failed as often as it may.
        AttemptsExhausted = "ATTEMPTS_EXHAUSTED",
    }
}

/// A dead letter.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct DeadLetter {
    /// The message.
    pub message_id: Uuid,
    /// The sink.
    pub sink: String,
    /// When it died.
    #[serde(serialize_with = "json::time")]
    #[cfg_attr(feature = "openapi", schema(value_type = Time))]
    pub died_at: SystemTime,
    /// Why.
    pub reason: DeadReason,
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
    pub tenant_id: Option<String>,
    /// Its lane.
    pub lane: Option<String>,
    /// Its number in the lane.
    pub sequence_id: Option<i64>,
    /// When what it tells happened.
    #[serde(serialize_with = "json::time")]
    #[cfg_attr(feature = "openapi", schema(value_type = Time))]
    pub occurred_at: SystemTime,
    /// The size of its payload or body.
    pub payload_size_bytes: i64,
}

/// Dead letters of one kind.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DeadGroup {
    /// The sink.
    pub sink: String,
    /// The topic.
    pub topic: String,
    /// Why.
    pub reason: DeadReason,
    /// The code of the last failure.
    pub error_code: Option<String>,
    /// How many.
    pub count: i64,
    /// When the first of them died.
    #[serde(serialize_with = "json::time")]
    #[cfg_attr(feature = "openapi", schema(value_type = Time))]
    pub first_died_at: SystemTime,
    /// When the last of them died.
    #[serde(serialize_with = "json::time")]
    #[cfg_attr(feature = "openapi", schema(value_type = Time))]
    pub last_died_at: SystemTime,
    /// The message of the newest one's last failure.
    pub error_message: Option<String>,
}

records! {
    DeadLetter(row) {
        message_id, sink, died_at, reason, error_code, error_message, attempt_no, attempt_count, parked, namespace, topic,
        tenant_id, lane, sequence_id, occurred_at, payload_size_bytes,
    }
    DeadGroup(row) {
        sink, topic, reason, error_code, count, first_died_at, last_died_at, error_message,
    }
}
