//! Read-only questions about an outbox: how it stands, which messages are where, the whole story of one. Asked by the command
//! line, the admin API and the relay's gauges, answered by each store under `store/`. The records are what the command line's
//! `--json` and the admin API print, field by field. Nothing here writes.

mod count;
mod dead;
mod filter;
mod lane;
mod message;
mod named;
mod page;
mod relay;
mod sink;

use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use serde::Serialize;
use serde_json::value::RawValue;
use uuid::Uuid;

#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) use self::count::LONGEST_LEASE;
pub use self::count::{FutureTimes, OpenCount, ReplayCount, RouteChanges};
pub use self::dead::{DeadGroup, DeadLetter, DeadReason, MAX_DEAD_GROUPS};
pub use self::filter::{DeadFilter, DeliveryFilter, LaneFilter, ListFilter};
pub use self::lane::{LaneState, LaneStatus};
pub use self::message::{AttemptRecord, DeliveryRecord, DeliveryState, Entry, MessageDetail, MessageSummary};
pub use self::named::{
    IdTail, MAX_IDS_LOOKED_AT, MAX_KEY_TOPICS, MAX_NAMED, MIN_ID_TAIL_DIGITS, NotAnIdTail, enqueued_at,
};
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) use self::named::{Named, just_after};
pub use self::page::{Cursor, Page, PageRequest};
pub use self::relay::{RelayRecord, RelayReport, SinkReport};
pub use self::sink::{AttemptCounts, Sample, SinkOverview, SinkService, SinkState, SinkStatus};
use crate::error::Error;
use crate::explain::Explanation;
use crate::json;
#[cfg(feature = "openapi")]
use crate::json::Time;
pub use crate::json::rfc3339;
use crate::operate::{ActionName, Replay};
use crate::record::records;
use crate::store::{Pruned, Route};
pub use crate::words::UnknownWord;

/// What can be asked of every store.
#[async_trait]
pub trait Inspect: Send + Sync {
    /// The store's clock, for ages: the reader's own may be off.
    async fn now(&self) -> Result<SystemTime, Error>;

    /// How every sink stands, by name.
    async fn status(&self) -> Result<Vec<SinkStatus>, Error>;

    /// Messages, newest first. Looks at [`MAX_LOOKED_AT`] messages at most: an answer shorter than the limit may have
    /// more behind it, and [`Page::next`] says where to go on.
    ///
    /// With [`ListFilter::id`] it looks at everything that is undelivered or dead, and at [`MAX_IDS_LOOKED_AT`] ids of
    /// history; with [`ListFilter::dedupe_key`] it looks the key up. Either finds [`MAX_NAMED`] messages at most.
    async fn list(&self, filter: &ListFilter, page: &PageRequest) -> Result<Page<MessageSummary>, Error>;

    /// One message with its deliveries and attempts; `None` if it is not in the store.
    async fn show(&self, message_id: Uuid) -> Result<Option<MessageDetail>, Error>;

    /// These messages in the order given, without their content: each delivery that has not ended, or one line for
    /// a message of which nothing is left to deliver. What is not in the store is left out.
    async fn entries(&self, message_ids: &[Uuid]) -> Result<Vec<Entry>, Error>;

    /// Which new messages go where, in the order of namespace, topic and sink. What no route takes goes to the sink
    /// `default`.
    async fn routes(&self) -> Result<Vec<Route>, Error>;

    /// Lanes with something to deliver, those that wait for a person first, then those whose head failed, then the
    /// deepest.
    async fn lanes(&self, filter: &LaneFilter, page: &PageRequest) -> Result<Page<LaneStatus>, Error>;

    /// Dead letters, newest first.
    async fn dead_letters(&self, filter: &DeadFilter, page: &PageRequest) -> Result<Page<DeadLetter>, Error>;

    /// Dead letters by sink, topic, reason and error code: the largest groups first, at most [`MAX_DEAD_GROUPS`].
    async fn dead_groups(&self, filter: &DeadFilter) -> Result<Vec<DeadGroup>, Error>;

    /// How many dead letters there are of this kind: what a redrive or a discard would take.
    async fn count_dead(&self, filter: &DeadFilter) -> Result<u64, Error>;

    /// Which of the messages that the filter names have no dead letter that it means.
    async fn not_dead(&self, filter: &DeadFilter) -> Result<Vec<Uuid>, Error>;

    /// How many deliveries of this kind are open: what [`crate::operate::Action::Cancel`] and [`crate::operate::Action::RetryNow`] would take.
    async fn count_open(&self, filter: &DeliveryFilter) -> Result<OpenCount, Error>;

    /// Which of the messages that the filter names have no open delivery that it means.
    async fn not_open(&self, filter: &DeliveryFilter) -> Result<Vec<Uuid>, Error>;

    /// What a step of this replay would take. [`crate::ErrorKind::NoSuchSink`] as for the replay itself.
    async fn count_replay(&self, replay: &Replay) -> Result<ReplayCount, Error>;

    /// What [`crate::operate::Action::ApplyRoutes`] would add and remove.
    async fn count_route_changes(&self) -> Result<RouteChanges, Error>;

    /// How many leases [`crate::operate::Action::UnclaimStuck`] would end.
    async fn count_stale(&self, older_than: Duration, live: bool) -> Result<u64, Error>;

    /// What [`crate::operate::Action::Prune`] would take.
    async fn prunable(&self, older_than: Option<Duration>) -> Result<Pruned, Error>;

    /// What has a time later than the store's clock, by more than the tolerance.
    async fn future_times(&self, tolerance: Duration) -> Result<FutureTimes, Error>;

    /// What was measured since then, by time and sink: see [`crate::Queue::measure`].
    async fn samples(&self, within: Duration) -> Result<Vec<Sample>, Error>;

    /// The relays that reported lately, by name: see [`crate::Queue::report`].
    async fn relays(&self) -> Result<Vec<RelayRecord>, Error>;

    /// What operators did, newest first.
    async fn audit(&self, page: &PageRequest) -> Result<Page<AuditRecord>, Error>;

    /// Why a message is not delivered, for each sink; `None` if it is not in the store.
    async fn explain(&self, message_id: Uuid) -> Result<Option<Explanation>, Error>;
}

/// What has been due for longer than this is late: the doctor warns, and an explanation points at the relays.
pub const LATE: Duration = Duration::from_mins(5);

/// Messages of history, or open deliveries whose message has to be asked, that one call of [`Inspect::list`] looks at:
/// a moment's work, whatever the filter.
pub const MAX_LOOKED_AT: u32 = 10_000;

/// Lines of one page of [`Inspect::list`] or [`Inspect::lanes`]; a larger limit is taken for this one.
pub const MAX_PAGE: u32 = 10_000;

/// One thing an operator did.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct AuditRecord {
    /// Its number; later ones are higher.
    pub id: i64,
    /// When.
    #[serde(serialize_with = "json::time")]
    #[cfg_attr(feature = "openapi", schema(value_type = Time))]
    pub at: SystemTime,
    /// Who, as the caller says; the login, if nobody was named.
    #[cfg_attr(feature = "openapi", schema(example = "ops@192.0.2.7"))]
    pub actor: String,
    /// The login that did it, as the server knows it. `None`: the store has no logins (SQLite).
    pub db_user: Option<String>,
    /// What.
    pub action: ActionName,
    /// What was asked for.
    #[cfg_attr(feature = "openapi", schema(value_type = Value))]
    pub detail: Box<RawValue>,
    /// How many deliveries it changed.
    pub affected: i64,
}

records! { AuditRecord(row) { id, at, actor, db_user, action, detail, affected } }

#[cfg(any(feature = "postgres", feature = "sqlite"))]
/// The lowest id of a message that was enqueued in this millisecond, or later.
pub(crate) fn id_floor(time: SystemTime) -> Uuid {
    const MILLIS_BITS: u32 = 48;
    let millis = time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_millis());
    Uuid::from_u128(millis.min((1 << MILLIS_BITS) - 1) << (u128::BITS - MILLIS_BITS))
}
