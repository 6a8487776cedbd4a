//! What an operator's action would take: open deliveries and messages to replay. And times that no clock can have written
//! yet. Asked by operators and the doctor.

use serde::Serialize;
use uuid::Uuid;

use crate::record::records;

/// The longest lease that a claim or a renewal gives.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) const LONGEST_LEASE: std::time::Duration = std::time::Duration::from_hours(24);

/// How many deliveries of a kind are open. A dead lane head is none of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct OpenCount {
    /// Pending, due or not: what [`crate::Action::Cancel`] takes.
    pub pending: u64,
    /// Pending and not due yet: what [`crate::Action::RetryNow`] takes.
    pub waiting: u64,
    /// Held by workers: both leave them alone.
    pub leased: u64,
}

/// What one step of [`crate::Action::Replay`] would take.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ReplayCount {
    /// Messages that were delivered to the sink before.
    pub delivered: u64,
    /// Messages that were not: meant only with `include_never_delivered`.
    pub never_delivered: u64,
    /// Where the next step goes on, if there may be more.
    pub next: Option<Uuid>,
}

/// What [`crate::Action::ApplyRoutes`] would do, in as many steps as it takes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RouteChanges {
    /// Deliveries to sinks that the routes name and that never had the message.
    pub added: u64,
    /// Deliveries to sinks that no route names.
    pub removed: u64,
}

/// What has a time from the future of the store's clock: the clock was ahead, or was set back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FutureTimes {
    /// Leases that were taken later than now, or that end later than any lease can.
    pub leases: u64,
    /// Reports of relays.
    pub reports: u64,
    /// Samples.
    pub samples: u64,
}

records! {
    OpenCount(row) { pending, waiting, leased }
    RouteChanges(row) { added, removed }
    FutureTimes(row) { leases, reports, samples }
}
