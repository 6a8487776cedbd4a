//! What an operator can do, as values that every store understands. A store carries an action out and writes it down in
//! the same transaction, with who asked for it and what it changed: see [`crate::Operate::operate`]. Nothing here decides.

#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) mod check;

use std::num::NonZeroU32;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

#[cfg(any(feature = "postgres", feature = "sqlite"))]
use crate::inspect::id_floor;
use crate::inspect::{DeadFilter, DeliveryFilter};
use crate::json;
use crate::store::{OnDead, Route};
use crate::words::words;

pub use crate::store::{Operate, Pruned};

/// Dead letters, deliveries or messages that one action changes, at most: whoever wants more asks again.
pub const MAX_PER_ACTION: u32 = 10_000;

/// What an operator wants done. Without what is null, its JSON is the detail of the audit's entry.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "action", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Action {
    /// dead → pending, with a new attempt budget, the oldest first.
    Redrive {
        /// Which.
        #[serde(flatten)]
        which: DeadFilter,
        /// At most this many.
        at_most: u32,
    },
    /// dead → gone, the oldest first.
    Discard {
        /// Which.
        #[serde(flatten)]
        which: DeadFilter,
        /// At most this many.
        at_most: u32,
    },
    /// pending, due later → pending, due now: what is due next first. Scheduled messages come early.
    RetryNow {
        /// Which.
        #[serde(flatten)]
        which: DeliveryFilter,
        /// At most this many.
        at_most: u32,
    },
    /// pending → gone, with an attempt `CANCELLED`: what is due next first. Its lane goes on without it. What a worker holds,
    /// and a dead lane head, is left alone.
    Cancel {
        /// Which.
        #[serde(flatten)]
        which: DeliveryFilter,
        /// At most this many.
        at_most: u32,
    },
    /// A parked lane goes on without its dead head, which stays a dead letter.
    Skip {
        /// The sink.
        sink: String,
        /// The lane.
        lane: String,
    },
    /// delivered → pending again, in the order of their ids. What is pending or dead for the sink is left alone.
    /// [`crate::ErrorKind::NoSuchSink`]: nobody has ever heard of the sink.
    Replay(Replay),
    /// A sink's messages wait.
    Pause {
        /// The sink.
        sink: String,
    },
    /// A sink's messages go on.
    Resume {
        /// The sink.
        sink: String,
    },
    /// What a dead lane head does to its lane, from now on.
    #[serde(rename = "configure_sink")]
    SetOnDead {
        /// The sink.
        sink: String,
        /// What it does.
        on_dead: OnDead,
    },
    /// leased, lease ended → pending or dead.
    UnclaimStuck {
        /// Of the leases that live: how long ago they were taken, at least. One that has ended is freed whatever its age.
        #[serde(rename = "older_than_seconds", with = "json::seconds")]
        older_than: Duration,
        /// Also leases that live and were taken that long ago, or in the future. Their workers lose them.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        live: bool,
    },
    /// History whose delivery ended longer ago than this goes; the store's retention if `None`. In a store that deletes row by row at most
    /// [`MAX_PER_ACTION`] messages and as many dedupe keys go at once.
    Prune {
        /// Older than this.
        #[serde(rename = "older_than_seconds", with = "json::seconds_option")]
        older_than: Option<Duration>,
    },
    /// New messages go to a sink.
    AddRoute {
        /// Which, and where.
        #[serde(flatten)]
        route: Route,
    },
    /// New messages no longer go to a sink.
    RemoveRoute {
        /// Which, and where.
        #[serde(flatten)]
        route: Route,
    },
    /// pending → pending at the sinks that today's routes name, the front of each lane first. A sink that never had the
    /// message gets it. A delivery whose sink no route names goes if it never had an attempt and another sink has the
    /// message. What is leased, parked or dead is left alone, and so is what stands behind it in its lane.
    ApplyRoutes {
        /// At most this many pending deliveries are looked after.
        at_most: u32,
    },
}

/// What to replay: messages that are named, or those that were enqueued in a span of time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Replay {
    /// To this sink.
    pub sink: String,
    /// These messages; then without a span of time.
    #[cfg_attr(feature = "openapi", schema(max_items = 10_000))]
    pub message_ids: Option<Vec<Uuid>>,
    /// Enqueued at this time or later.
    #[serde(default, with = "json::given_time")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<json::Time>))]
    pub from: Option<SystemTime>,
    /// Enqueued before this time.
    #[serde(default, with = "json::given_time")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<json::Time>))]
    pub to: Option<SystemTime>,
    /// Only of this namespace.
    pub namespace: Option<String>,
    /// Only of this topic; `*` stands for any characters, as in a route.
    pub topic: Option<String>,
    /// Also what was never delivered to the sink: because no route sent it there, or because somebody gave it up.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub include_never_delivered: bool,
    /// At most this many a second: they become due one after the other. In a lane, what was enqueued meanwhile waits for
    /// them.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u32>, minimum = 1, maximum = 1_000_000))]
    pub per_second: Option<NonZeroU32>,
    /// The first is due then, or now if that is over: [`Done::paced_until`] of the action before this one.
    #[serde(default, with = "json::given_time")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<json::Time>))]
    pub paced_from: Option<SystemTime>,
    /// Only after this message: [`Done::next`] of the action before this one.
    pub after: Option<Uuid>,
    /// At most this many messages are looked at.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(ignore))]
    pub at_most: u32,
}

/// What an action did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Done {
    /// Deliveries that were changed; for a prune, partitions and rows; for a sink or a route, 1 or 0.
    pub affected: u64,
    /// For a replay that met its limit, whatever it changed: where the next action goes on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<Uuid>,
    /// For a replay at a rate: when the first one of the next action is due.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "json::time_option")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<json::Time>))]
    pub paced_until: Option<SystemTime>,
}

#[cfg(any(feature = "postgres", feature = "sqlite"))]
impl Replay {
    /// The ids that are meant, the lowest and the first that is no longer meant: an id carries the time it was made.
    pub(crate) fn ids(&self) -> (Uuid, Uuid) {
        (self.from.map_or(Uuid::nil(), id_floor), self.to.map_or(Uuid::max(), id_floor))
    }
}

words! {
    /// What an operator did, in one word of the audit: an [`Action`], or [`Operate::enqueue_as`].
    #[non_exhaustive]
    pub enum ActionName {
        Redrive = "redrive",
        Discard = "discard",
        RetryNow = "retry_now",
        Cancel = "cancel",
        Skip = "skip",
        Replay = "replay",
        Pause = "pause",
        Resume = "resume",
        ConfigureSink = "configure_sink",
        UnclaimStuck = "unclaim_stuck",
        Prune = "prune",
        AddRoute = "add_route",
        RemoveRoute = "remove_route",
        ApplyRoutes = "apply_routes",
        Enqueue = "enqueue",
    }
}

impl Action {
    /// The word used in the audit, the API and the command line.
    #[must_use]
    pub fn name(&self) -> ActionName {
        match self {
            Self::Redrive { .. } => ActionName::Redrive,
            Self::Discard { .. } => ActionName::Discard,
            Self::RetryNow { .. } => ActionName::RetryNow,
            Self::Cancel { .. } => ActionName::Cancel,
            Self::Skip { .. } => ActionName::Skip,
            Self::Replay(_) => ActionName::Replay,
            Self::Pause { .. } => ActionName::Pause,
            Self::Resume { .. } => ActionName::Resume,
            Self::SetOnDead { .. } => ActionName::ConfigureSink,
            Self::UnclaimStuck { .. } => ActionName::UnclaimStuck,
            Self::Prune { .. } => ActionName::Prune,
            Self::AddRoute { .. } => ActionName::AddRoute,
            Self::RemoveRoute { .. } => ActionName::RemoveRoute,
            Self::ApplyRoutes { .. } => ActionName::ApplyRoutes,
        }
    }
}
