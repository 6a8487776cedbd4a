//! Why a message is where it is, for each sink: the records of [`crate::Inspect::explain`]. What is the case is decided in
//! `explain/case.rs` from facts that a store has gathered. Which command helps is not said here: [`Reason::remedy`] names what
//! to do, and the command line turns it into words.

#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod case;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod words;

use serde::Serialize;
use uuid::Uuid;

#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) use self::case::{Facts, explain};
use crate::words::words;

/// Why a message is where it is.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Explanation {
    /// The message.
    pub message_id: Uuid,
    /// For each sink that has or had to do with it.
    pub deliveries: Vec<Reason>,
}

/// Why one delivery is where it is.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct Reason {
    /// The sink.
    pub sink: String,
    /// What is the case, for programs.
    pub code: ReasonCode,
    /// What is the case, for people.
    pub why: String,
    /// The message that has to go first, if it waits behind one.
    pub behind: Option<Uuid>,
    /// Its lane, if it has one.
    pub lane: Option<String>,
    /// What to do about it.
    #[serde(skip)]
    pub remedy: Remedy,
}

words! {
    /// What is the case with a delivery.
    #[non_exhaustive]
    pub enum ReasonCode {
        /// The sink has it.
        Delivered = "DELIVERED",
        /// An operator gave it up after it failed.
        Discarded = "DISCARDED",
        /// An operator cancelled it.
        Cancelled = "CANCELLED",
        /// Nobody tries it again by itself.
        Dead = "DEAD",
        /// A worker holds it.
        Leased = "LEASED",
        /// A worker held it until its lease ended.
        LeaseExpired = "LEASE_EXPIRED",
        /// It was scheduled for later.
        NotDue = "NOT_DUE",
        /// It failed and is tried again later.
        RetryLater = "RETRY_LATER",
        /// Another message of its lane goes first.
        BehindLaneHead = "BEHIND_LANE_HEAD",
        /// The head of its lane is dead.
        LaneParked = "LANE_PARKED",
        /// An operator paused the sink.
        SinkPaused = "SINK_PAUSED",
        /// The destination kept failing: every relay waits before it tries again.
        BreakerOpen = "BREAKER_OPEN",
        /// No relay delivers to the sink.
        NoRelay = "NO_RELAY",
        /// The relay of the sink has stopped reporting.
        RelaySilent = "RELAY_SILENT",
        /// It can be claimed.
        Due = "DUE",
    }
}

/// What a person can do about a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Remedy {
    /// Nothing has to be done.
    Nothing,
    /// Redrive it or discard it.
    Redrive,
    /// The same, or let its lane go on without it.
    RedriveOrSkip,
    /// Redrive the head of its lane, or let the lane go on without it.
    RedriveHead,
    /// Look at the process that holds it.
    LookAtHolder,
    /// A relay takes it over by itself.
    TakenOver,
    /// Start a relay, which takes it over.
    StartToTakeOver,
    /// Resume the sink.
    Resume,
    /// Retry it now, if the cause is mended.
    RetryNow,
    /// See what the head of its lane waits for.
    ExplainHead,
    /// Start a relay that serves the sink.
    StartRelay,
    /// Start the silent relay again.
    RestartRelay,
    /// Repair the destination.
    RepairDestination,
    /// See why the relays do not keep up.
    LookAtRelays,
}
