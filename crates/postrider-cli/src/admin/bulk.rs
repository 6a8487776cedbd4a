//! Actions on many: redrive, discard, cancel, retry now and replay, by filter, and the routes applied to what is pending.
//! Counted and carried out as in `crate::bulk`, batch by batch until nothing is left or a bound is met, which the answer
//! says. Each batch is a transaction and an entry of the audit of its own.

use std::time::{Duration, Instant};

use async_trait::async_trait;
use axum::Json;
use postrider::inspect::{DeadFilter, DeliveryFilter, rfc3339};
use postrider::operate::{Action, Done, MAX_PER_ACTION, Replay};
use serde::Deserialize;
use utoipa::ToSchema;

use super::access::Caller;
use super::error::{Answer, ApiError};
use super::input::{Body, DatabaseQuery, OnDatabase};
use super::state::Served;
use crate::bulk::{self, ActionReport, Bulk, Operator};

/// After this long no further batch is begun: whoever wants more asks again.
const ACTION_TIME: Duration = Duration::from_secs(20);

/// Which, and whether to act.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct BulkBody<F> {
    /// Which; an empty one is all of them.
    filter: F,
    /// Only count.
    #[serde(default)]
    dry_run: bool,
}

/// Dead letters become pending again, with a new attempt budget
#[utoipa::path(post, path = "/api/v1/dead-letters/redrive", tag = "dead letters", params(DatabaseQuery),
    request_body = BulkBody<DeadFilter>, responses((status = 200, body = ActionReport)))]
pub(super) async fn redrive(on: OnDatabase, Body(body): Body<BulkBody<DeadFilter>>) -> Answer<ActionReport> {
    act(&on, &on.caller, Bulk::Redrive(body.filter), body.dry_run).await.map(Json)
}

/// Dead letters are given up for good
#[utoipa::path(post, path = "/api/v1/dead-letters/discard", tag = "dead letters", params(DatabaseQuery),
    request_body = BulkBody<DeadFilter>, responses((status = 200, body = ActionReport)))]
pub(super) async fn discard(on: OnDatabase, Body(body): Body<BulkBody<DeadFilter>>) -> Answer<ActionReport> {
    act(&on, &on.caller, Bulk::Discard(body.filter), body.dry_run).await.map(Json)
}

/// Pending deliveries are taken back: they are never handed out, and their lanes go on
#[utoipa::path(post, path = "/api/v1/cancel", tag = "messages", params(DatabaseQuery),
    request_body = BulkBody<DeliveryFilter>, responses((status = 200, body = ActionReport)))]
pub(super) async fn cancel(on: OnDatabase, Body(body): Body<BulkBody<DeliveryFilter>>) -> Answer<ActionReport> {
    act(&on, &on.caller, Bulk::Cancel(body.filter), body.dry_run).await.map(Json)
}

/// What waits for a retry, or for its time, becomes due at once
#[utoipa::path(post, path = "/api/v1/retry-now", tag = "messages", params(DatabaseQuery),
    request_body = BulkBody<DeliveryFilter>, responses((status = 200, body = ActionReport)))]
pub(super) async fn retry_now(on: OnDatabase, Body(body): Body<BulkBody<DeliveryFilter>>) -> Answer<ActionReport> {
    act(&on, &on.caller, Bulk::RetryNow(body.filter), body.dry_run).await.map(Json)
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ApplyBody {
    /// Only count.
    #[serde(default)]
    dry_run: bool,
}

/// Pending deliveries go to the sinks that the routes name now
#[utoipa::path(post, path = "/api/v1/routes/apply", tag = "sinks", params(DatabaseQuery), request_body = ApplyBody,
    responses((status = 200, body = ActionReport)))]
pub(super) async fn apply_routes(on: OnDatabase, Body(body): Body<ApplyBody>) -> Answer<ActionReport> {
    act(&on, &on.caller, Bulk::ApplyRoutes, body.dry_run).await.map(Json)
}

/// All of this kind, in batches; in a dry run none.
pub(super) async fn act(
    database: &Served,
    caller: &Caller,
    bulk: Bulk,
    dry_run: bool,
) -> Result<ActionReport, ApiError> {
    let bulk = bulk.dead_by(database.ask(database.store.now()).await?);
    let report = database.ask(bulk.count(&*database.store)).await?;
    if dry_run {
        return Ok(report);
    }
    let (remote, begun) = (Remote::new(database, caller), Instant::now());
    let mut in_time = true;
    let done = bulk.in_batches(report.matching, &remote, |_| {
        in_time = begun.elapsed() < ACTION_TIME;
        in_time
    });
    let affected = done.await.map_err(|(before, error)| error.after(before, bulk.done()))?;
    let remaining = if in_time { 0 } else { report.matching.saturating_sub(affected) };
    Ok(report.acted(affected, remaining))
}

/// A caller of the API, at a database.
struct Remote<'a> {
    database: &'a Served,
    actor: String,
}

impl<'a> Remote<'a> {
    fn new(database: &'a Served, caller: &Caller) -> Self {
        Self { database, actor: caller.actor() }
    }
}

#[async_trait]
impl Operator for Remote<'_> {
    type Error = ApiError;

    async fn operate(&self, action: &Action) -> Result<Done, ApiError> {
        self.database.operate(&self.actor, action).await
    }
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ReplayBody {
    /// What to replay.
    #[serde(flatten)]
    replay: Replay,
    /// Only count.
    #[serde(default)]
    dry_run: bool,
}

/// Deliver again what was delivered: messages that are named, or those that were enqueued in a span of time
#[utoipa::path(post, path = "/api/v1/replay", tag = "messages", params(DatabaseQuery), request_body = ReplayBody,
    responses((status = 200, body = ActionReport)))]
pub(super) async fn replay(
    on: OnDatabase,
    Body(ReplayBody { mut replay, dry_run }): Body<ReplayBody>,
) -> Answer<ActionReport> {
    let begun = Instant::now();
    replay.at_most = MAX_PER_ACTION;
    if replay.from.zip(replay.to).is_some_and(|(from, to)| from >= to) {
        return Err(ApiError::invalid("from must be before to"));
    }
    let missing = on.ask(bulk::not_in_store(&*on.store, &replay)).await?;
    if dry_run {
        let in_time = || begun.elapsed() < ACTION_TIME;
        let counted = on.ask(bulk::count_replay(&*on.store, &replay, in_time)).await?;
        return Ok(Json(ActionReport { missing, ..counted }));
    }
    let remote = Remote::new(&on, &on.caller);
    let done = bulk::replay(replay, &remote, |_| begun.elapsed() < ACTION_TIME).await;
    let done = done.map_err(|(before, error)| error.after(before, "replayed"))?;
    Ok(Json(ActionReport {
        matching: done.affected,
        affected: done.affected,
        missing,
        more: done.next.is_some(),
        next: done.next,
        paced_until: done.paced_until.filter(|_| done.next.is_some()).map(rfc3339),
        ..ActionReport::default()
    }))
}
