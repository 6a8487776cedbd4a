//! Delivers again what was delivered, by id or by a span of time, batch by batch in the order of enqueueing, as fast as was
//! asked for. A dry run counts by looking at the same messages.

use std::collections::HashSet;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Instant;

use axum::extract::State;
use axum::{Extension, Json};
use postrider::{Action, MAX_PER_ACTION, Replay};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::access::Caller;
use super::actions::{self, ACTION_TIME};
use super::error::{Answer, ApiError};
use super::input::{Asked, Sent, Time};
use super::state::{Admin, Served};
use super::sync::AnyQuery;

/// Messages a second, at most.
const MAX_PER_SECOND: u32 = 1_000_000;

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ReplayBody {
    /// To this sink.
    sink: String,
    /// These messages; then without a span of time.
    #[schema(max_items = 10_000)]
    message_ids: Option<Vec<Uuid>>,
    /// Enqueued at this time or later.
    from: Option<Time>,
    /// Enqueued before this time.
    to: Option<Time>,
    /// Only of this namespace.
    namespace: Option<String>,
    /// Only of this topic.
    topic: Option<String>,
    /// Also what was never delivered to the sink.
    #[serde(default)]
    include_never_delivered: bool,
    /// At most this many a second.
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 1_000_000)]
    per_second: Option<NonZeroU32>,
    /// Only after this message: the `next` of the request before.
    after: Option<Uuid>,
    /// The first is due then, or now if that is over: the `paced_until` of the request before.
    paced_from: Option<Time>,
    /// Only count.
    #[serde(default)]
    dry_run: bool,
}

#[derive(Serialize, ToSchema)]
pub(super) struct ReplayDocument {
    /// How many there are; as many as were found, if `more`.
    matching: u64,
    /// How many are delivered again.
    affected: u64,
    /// Of a dry run: how many were never delivered to the sink. They are part of `matching` only with
    /// `include_never_delivered`.
    never_delivered: Option<u64>,
    /// Messages that were named and are not in the store.
    missing: Vec<Uuid>,
    /// There are more, which one request does not take.
    more: bool,
    /// For `after`, to go on.
    next: Option<Uuid>,
    /// For `paced_from`, to go on.
    paced_until: Option<Time>,
    dry_run: bool,
}

impl ReplayDocument {
    fn new(dry_run: bool) -> Self {
        Self {
            matching: 0,
            affected: 0,
            never_delivered: None,
            missing: Vec::new(),
            more: false,
            next: None,
            paced_until: None,
            dry_run,
        }
    }
}

/// Deliver again what was delivered: messages that are named, or those that were enqueued in a span of time
#[utoipa::path(post, path = "/api/v1/replay", tag = "messages", params(AnyQuery), request_body = ReplayBody,
    responses((status = 200, body = ReplayDocument)))]
pub(super) async fn replay(
    State(admin): State<Arc<Admin>>,
    Extension(caller): Extension<Caller>,
    Asked(query): Asked<AnyQuery>,
    Sent(body): Sent<ReplayBody>,
) -> Answer<ReplayDocument> {
    let database = admin.database(query.database.as_deref())?;
    actions::check_ids(body.message_ids.as_ref())?;
    match (&body.message_ids, body.from, body.to) {
        (Some(_), None, None) => {}
        (None, Some(Time(from)), Some(Time(to))) if from < to => {}
        (None, Some(_), Some(_)) => return Err(ApiError::invalid("from must be before to")),
        _ => return Err(ApiError::invalid("give message_ids, or from and to")),
    }
    if body.per_second.is_some_and(|rate| rate.get() > MAX_PER_SECOND) {
        return Err(ApiError::invalid(format!("per_second must be from 1 to {MAX_PER_SECOND}")));
    }
    let missing = match &body.message_ids {
        Some(ids) => not_in_store(database, ids).await?,
        None => Vec::new(),
    };
    let (dry_run, wanted) = (body.dry_run, body.replay());
    let answer = if dry_run { count(database, wanted).await? } else { again(database, &caller, wanted).await? };
    Ok(Json(ReplayDocument { missing, ..answer }))
}

impl ReplayBody {
    fn replay(self) -> Replay {
        Replay {
            sink: self.sink,
            message_ids: self.message_ids,
            from: self.from.map(|Time(time)| time),
            to: self.to.map(|Time(time)| time),
            namespace: self.namespace,
            topic: self.topic,
            include_never_delivered: self.include_never_delivered,
            per_second: self.per_second,
            paced_from: self.paced_from.map(|Time(time)| time),
            after: self.after,
            at_most: MAX_PER_ACTION,
        }
    }
}

async fn again(database: &Served, caller: &Caller, mut wanted: Replay) -> Result<ReplayDocument, ApiError> {
    let begun = Instant::now();
    let mut affected = 0;
    loop {
        let batch = database.operate(&caller.actor(), &Action::Replay(wanted.clone())).await;
        let batch = batch.map_err(|error| error.after(affected, "replayed"))?;
        affected += batch.affected;
        if batch.next.is_none() || begun.elapsed() >= ACTION_TIME {
            let more = batch.next.is_some();
            let paced_until = batch.paced_until.filter(|_| more).map(Time);
            let next = batch.next;
            return Ok(ReplayDocument {
                affected,
                matching: affected,
                more,
                next,
                paced_until,
                ..ReplayDocument::new(false)
            });
        }
        (wanted.after, wanted.paced_from) = (batch.next, batch.paced_until);
    }
}

/// Step by step, as the replay itself would go.
async fn count(database: &Served, mut wanted: Replay) -> Result<ReplayDocument, ApiError> {
    let begun = Instant::now();
    let mut counted = ReplayDocument { never_delivered: Some(0), ..ReplayDocument::new(true) };
    loop {
        let step = database.ask(database.store.count_replay(&wanted)).await?;
        counted.matching += step.delivered + if wanted.include_never_delivered { step.never_delivered } else { 0 };
        counted.never_delivered = counted.never_delivered.map(|so_far| so_far + step.never_delivered);
        counted.more = step.next.is_some();
        if !counted.more || begun.elapsed() >= ACTION_TIME {
            return Ok(counted);
        }
        wanted.after = step.next;
    }
}

/// Which of these messages are not in the store.
async fn not_in_store(database: &Served, message_ids: &[Uuid]) -> Result<Vec<Uuid>, ApiError> {
    let found = database.ask(database.store.entries(message_ids)).await?;
    let found: HashSet<Uuid> = found.iter().map(|entry| entry.message_id).collect();
    Ok(message_ids.iter().copied().filter(|id| !found.contains(id)).collect())
}
