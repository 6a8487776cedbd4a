//! A line of the outbox with everything an edge site's operators know it by: holder, lease, budget, last error, size.
//! Asked for by id, so that it costs what the asked messages cost; the stores answer in `store/*/entries.rs`.

use std::time::SystemTime;

use uuid::Uuid;

/// One delivery of a message that has not ended, or a message of which nothing is left to deliver.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// The message.
    pub message_id: Uuid,
    /// The sink; `None` if nothing is left to deliver.
    pub sink: Option<String>,
    /// `pending`, `leased`, `dead`, `delivered` or `discarded`.
    pub state: String,
    /// Its topic.
    pub topic: String,
    /// Its tenant.
    pub tenant_id: Option<Uuid>,
    /// Its priority.
    pub priority: i32,
    /// When what it tells happened.
    pub occurred_at: SystemTime,
    /// When it is due, for a delivery that is not dead.
    pub due_at: Option<SystemTime>,
    /// Who holds it.
    pub claimed_by: Option<String>,
    /// Since when.
    pub claimed_at: Option<SystemTime>,
    /// Until when.
    pub lease_expires_at: Option<SystemTime>,
    /// Attempts since the last redrive; all of them, if nothing is left to deliver.
    pub attempt_count: i32,
    /// When the last attempt ended.
    pub last_attempt_at: Option<SystemTime>,
    /// The code of the last failure.
    pub error_code: Option<String>,
    /// The message of the last failure.
    pub error_message: Option<String>,
    /// When it died.
    pub died_at: Option<SystemTime>,
    /// Why: `FAILED` or `ATTEMPTS_EXHAUSTED`.
    pub reason: Option<String>,
    /// The size of its payload or body.
    pub payload_size_bytes: i64,
}
