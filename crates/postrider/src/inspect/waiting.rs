//! What an operator's action would take: open deliveries, messages to replay, history to prune. And times that no clock can
//! have written yet. Asked by operators and the doctor.

use serde::Serialize;
use uuid::Uuid;

/// The longest lease that a claim or a renewal gives.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) const LONGEST_LEASE: std::time::Duration = std::time::Duration::from_hours(24);

/// Which open deliveries. Everything that is given must hold; nothing given is every one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct DeliveryFilter {
    /// Of these messages.
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
}

/// How many deliveries of a kind are open. A dead lane head is none of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OpenCount {
    /// Pending, due or not: what [`crate::Action::Cancel`] takes.
    pub pending: u64,
    /// Pending and not due yet: what [`crate::Action::RetryNow`] takes.
    pub waiting: u64,
    /// Held by workers: both leave them alone.
    pub leased: u64,
}

/// What one step of [`crate::Action::Replay`] would take.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReplayCount {
    /// Messages that were delivered to the sink before.
    pub delivered: u64,
    /// Messages that were not: meant only with `include_never_delivered`.
    pub never_delivered: u64,
    /// Where the next step goes on, if there may be more.
    pub next: Option<Uuid>,
}

/// What has a time from the future of the store's clock: the clock was ahead, or was set back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FutureTimes {
    /// Leases that were taken later than now, or that end later than any lease can.
    pub leases: u64,
    /// Reports of relays.
    pub reports: u64,
    /// Samples.
    pub samples: u64,
}
