//! Delivers again what was delivered in a span of time, batch by batch in the order of enqueueing, as fast as was asked
//! for. A dry run counts by looking at the same messages.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Instant;

use axum::extract::State;
use axum::{Extension, Json};
use postrider::{Action, ListFilter, MAX_PER_ACTION, ReplayAction};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::access::Caller;
use super::actions::ACTION_TIME;
use super::error::{Answer, ApiError};
use super::input::{Asked, MAX_LIMIT, Sent, Time};
use super::state::{Admin, Served};
use super::sync::AnyQuery;

/// Messages a second, at most.
const MAX_PER_SECOND: u32 = 1_000_000;

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ReplayBody {
    /// To this sink.
    sink: String,
    /// Enqueued at this time or later.
    from: Time,
    /// Enqueued before this time.
    to: Time,
    /// Only of this namespace.
    namespace: Option<String>,
    /// Only of this topic.
    topic: Option<String>,
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
    /// There are more, which one request does not take.
    more: bool,
    /// For `after`, to go on.
    next: Option<Uuid>,
    /// For `paced_from`, to go on.
    paced_until: Option<Time>,
    dry_run: bool,
}

/// Deliver again what was enqueued in a span of time
#[utoipa::path(post, path = "/api/v1/replay", tag = "messages", params(AnyQuery), request_body = ReplayBody,
    responses((status = 200, body = ReplayDocument)))]
pub(super) async fn replay(
    State(admin): State<Arc<Admin>>,
    Extension(caller): Extension<Caller>,
    Asked(query): Asked<AnyQuery>,
    Sent(body): Sent<ReplayBody>,
) -> Answer<ReplayDocument> {
    let database = admin.database(query.database.as_deref())?;
    if body.from.0 >= body.to.0 {
        return Err(ApiError::invalid("from must be before to"));
    }
    if body.per_second.is_some_and(|rate| rate.get() > MAX_PER_SECOND) {
        return Err(ApiError::invalid(format!("per_second must be from 1 to {MAX_PER_SECOND}")));
    }
    let answer = if body.dry_run { count(database, body).await } else { again(database, &caller, body).await };
    answer.map(Json)
}

async fn again(database: &Served, caller: &Caller, body: ReplayBody) -> Result<ReplayDocument, ApiError> {
    let mut action = ReplayAction {
        sink: body.sink,
        from: body.from.0,
        to: body.to.0,
        namespace: body.namespace,
        topic: body.topic,
        per_second: body.per_second,
        paced_from: body.paced_from.map(|Time(time)| time),
        after: body.after,
        at_most: MAX_PER_ACTION,
    };
    let begun = Instant::now();
    let mut affected = 0;
    loop {
        let batch = database.operate(&caller.actor(), &Action::Replay(action.clone())).await;
        let batch = batch.map_err(|error| error.after(affected, "replayed"))?;
        affected += batch.affected;
        if batch.next.is_none() || begun.elapsed() >= ACTION_TIME {
            let (more, next) = (batch.next.is_some(), batch.next);
            let paced_until = batch.paced_until.filter(|_| more).map(Time);
            return Ok(ReplayDocument { matching: affected, affected, more, next, paced_until, dry_run: false });
        }
        (action.after, action.paced_from) = (batch.next, batch.paced_until);
    }
}

/// A message has a line for each sink where it has not ended; it would be replayed if none of them is this sink's.
async fn count(database: &Served, body: ReplayBody) -> Result<ReplayDocument, ApiError> {
    let mut filter = ListFilter {
        namespace: body.namespace,
        topic: body.topic,
        from: Some(body.from.0),
        to: Some(body.to.0),
        limit: MAX_LIMIT,
        ..ListFilter::default()
    };
    let begun = Instant::now();
    let mut matching = 0;
    loop {
        let page = database.ask(database.store.list(&filter)).await?;
        // A page ends between two messages, so each message's lines are side by side.
        for lines in page.items.chunk_by(|one, other| one.message_id == other.message_id) {
            let id = lines.first().map(|line| line.message_id);
            let is_open = lines.iter().any(|line| line.sink.as_deref() == Some(body.sink.as_str()));
            matching += u64::from(!is_open && (body.after.is_none() || id > body.after));
        }
        filter.before = page.next;
        let more = page.next.is_some() && (body.after.is_none() || page.next > body.after);
        if !more || begun.elapsed() >= ACTION_TIME {
            return Ok(ReplayDocument { matching, affected: 0, more, next: None, paced_until: None, dry_run: true });
        }
    }
}
