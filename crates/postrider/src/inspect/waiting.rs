//! Deliveries that wait for their time, and times that no clock can have written yet. Asked by operators and the doctor.

use serde::Serialize;
use uuid::Uuid;

/// The longest lease that a claim or a renewal gives.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) const LONGEST_LEASE: std::time::Duration = std::time::Duration::from_hours(24);

/// Which deliveries that wait for their time. Everything that is given must hold; nothing given is every one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct WaitingFilter {
    /// Of these messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_ids: Option<Vec<Uuid>>,
    /// Of this sink.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sink: Option<String>,
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
