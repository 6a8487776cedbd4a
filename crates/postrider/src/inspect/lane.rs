//! Lanes as an operator sees them: see [`crate::Inspect::lanes`]. What a lane is doing is decided by each store's view.

use std::time::SystemTime;

use serde::Serialize;
use uuid::Uuid;

use crate::json;
#[cfg(feature = "openapi")]
use crate::json::Time;
use crate::record::records;
use crate::words::words;

words! {
    /// What a lane is doing.
    pub enum LaneState {
        /// Its head is dead: it waits for a person.
        Parked = "parked",
        /// Its head is due later, for it failed or was scheduled.
        Waiting = "waiting",
        /// A worker holds its head.
        Leased = "leased",
        /// Its head can be claimed.
        Due = "due",
    }
}

/// How one lane stands for one sink.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
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
    #[serde(serialize_with = "json::time_option")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Time>))]
    pub head_due_at: Option<SystemTime>,
    /// Attempts of the head since its last redrive.
    pub head_attempt_count: i32,
    /// Whether one of them failed.
    pub head_failed: bool,
    /// The code of the head's last failure.
    pub head_error_code: Option<String>,
    /// The message of the head's last failure.
    pub head_error_message: Option<String>,
}

records! {
    LaneStatus(row) {
        sink, lane, state, depth, head_sequence_id, head_message_id, head_due_at, head_attempt_count, head_failed,
        head_error_code, head_error_message,
    }
}
