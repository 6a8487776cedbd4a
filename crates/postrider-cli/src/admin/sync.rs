//! The endpoints that edge sites know, with their names and their JSON: how the outbox stands, its lines, a push to the
//! relay, and for operators the dead letters and what to do about them. What they say in their words is asked of the
//! store in ours.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::extract::State;
use axum::{Extension, Json};
use postrider::inspect::{DeadFilter, DeadReason, DeliveryState, Entry, ListFilter, PageRequest, SinkStatus, rfc3339};
use postrider::operate::Action;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use super::access::Caller;
use super::bulk;
use super::error::{Answer, ApiError};
use super::input::{Body, DatabaseQuery, Limit, Parameters};
use super::state::{Admin, Served};
use crate::bulk::Bulk;

/// The longest age that can be asked about: ten years.
const MAX_AGE_SECONDS: u64 = 10 * 366 * 86_400;

#[derive(Serialize, ToSchema)]
pub(super) struct StateDocument {
    pending_count: i64,
    claimed_count: i64,
    dlq_count: i64,
    /// How long ago the oldest that is not delivered yet occurred, whatever it waits for; 0 if nothing is pending.
    oldest_pending_age_seconds: u64,
    #[schema(format = DateTime)]
    last_success_at: Option<String>,
    #[schema(format = DateTime)]
    last_error_at: Option<String>,
}

/// How the outbox stands, over all sinks
#[utoipa::path(get, path = "/api/v1/sync/state", tag = "sync", params(DatabaseQuery),
    responses((status = 200, body = StateDocument)))]
pub(super) async fn state(
    State(admin): State<Arc<Admin>>,
    Parameters(query): Parameters<DatabaseQuery>,
) -> Answer<StateDocument> {
    let database = admin.database(query.database.as_deref())?;
    let sinks = database.sinks().await?;
    let latest = |time: fn(&SinkStatus) -> Option<SystemTime>| sinks.iter().filter_map(time).max().map(rfc3339);
    let oldest = sinks.iter().map(|sink| sink.oldest_pending_age_seconds).fold(0.0, f64::max);
    Ok(Json(StateDocument {
        pending_count: sinks.iter().map(|sink| sink.pending).sum(),
        claimed_count: sinks.iter().map(|sink| sink.leased).sum(),
        dlq_count: sinks.iter().map(|sink| sink.dead).sum(),
        oldest_pending_age_seconds: Duration::try_from_secs_f64(oldest).unwrap_or_default().as_secs(),
        last_success_at: latest(|sink| sink.last_success_at),
        last_error_at: latest(|sink| sink.last_error_at),
    }))
}

/// The states of a line, in an edge site's words.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum EdgeStatus {
    #[default]
    Pending,
    Claimed,
    /// The same as claimed: what is claimed is being sent.
    Sending,
    Acked,
    Dlq,
}

impl EdgeStatus {
    fn state(self) -> DeliveryState {
        match self {
            Self::Pending => DeliveryState::Pending,
            Self::Claimed | Self::Sending => DeliveryState::Leased,
            Self::Acked => DeliveryState::Delivered,
            Self::Dlq => DeliveryState::Dead,
        }
    }
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct OutboxQuery {
    /// Which database; the first if it is left out.
    database: Option<String>,
    /// In this state.
    #[serde(default)]
    #[param(inline, required = false, default = "pending")]
    status: EdgeStatus,
    /// At most this many.
    #[serde(default)]
    #[param(value_type = u32, required = false, minimum = 1, maximum = 1000, default = 100)]
    limit: Limit,
}

#[derive(Serialize, ToSchema)]
pub(super) struct OutboxDocument {
    items: Vec<OutboxItem>,
}

/// A line of the outbox.
#[derive(Serialize, ToSchema)]
struct OutboxItem {
    id: Uuid,
    tenant_id: Option<String>,
    event_type: String,
    status: EdgeStatus,
    priority: i32,
    #[schema(format = DateTime)]
    occurred_at: String,
    #[schema(format = DateTime)]
    next_attempt_at: Option<String>,
    claimed_by: Option<String>,
    #[schema(format = DateTime)]
    claimed_at: Option<String>,
    #[schema(format = DateTime)]
    lease_expires_at: Option<String>,
    attempt_count: i32,
    #[schema(format = DateTime)]
    last_attempt_at: Option<String>,
    last_error_code: Option<String>,
    last_error_message: Option<String>,
    #[schema(format = DateTime)]
    failed_at: Option<String>,
    dlq_reason: Option<DeadReason>,
    payload_size_bytes: i64,
    /// Where it goes; null if nothing is left to deliver.
    sink: Option<String>,
}

/// Lines of the outbox in one state, newest first
#[utoipa::path(get, path = "/api/v1/sync/outbox", tag = "sync", params(OutboxQuery),
    responses((status = 200, body = OutboxDocument)))]
pub(super) async fn outbox(
    State(admin): State<Arc<Admin>>,
    Parameters(query): Parameters<OutboxQuery>,
) -> Answer<OutboxDocument> {
    let database = admin.database(query.database.as_deref())?;
    lines(database, query.status, query.limit).await
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct DlqQuery {
    /// Which database; the first if it is left out.
    database: Option<String>,
    /// At most this many.
    #[serde(default)]
    #[param(value_type = u32, required = false, minimum = 1, maximum = 1000, default = 100)]
    limit: Limit,
}

/// Dead letters, newest first
#[utoipa::path(get, path = "/api/v1/sync/dlq", tag = "sync", params(DlqQuery),
    responses((status = 200, body = OutboxDocument)))]
pub(super) async fn dlq(
    State(admin): State<Arc<Admin>>,
    Parameters(query): Parameters<DlqQuery>,
) -> Answer<OutboxDocument> {
    let database = admin.database(query.database.as_deref())?;
    lines(database, EdgeStatus::Dlq, query.limit).await
}

async fn lines(database: &Served, status: EdgeStatus, Limit(limit): Limit) -> Answer<OutboxDocument> {
    let filter = ListFilter { state: Some(status.state()), ..ListFilter::default() };
    let page = database.ask(database.store.list(&filter, &PageRequest::first(limit))).await?;
    let mut ids: Vec<Uuid> = page.items.iter().map(|line| line.message_id).collect();
    ids.dedup();
    let entries = database.ask(database.store.entries(&ids)).await?;
    // A line may have gone on between the two questions; a message may have other lines that were not asked for.
    let asked = entries.into_iter().filter(|entry| entry.state == status.state());
    let most = usize::try_from(limit).unwrap_or(usize::MAX);
    Ok(Json(OutboxDocument { items: asked.take(most).map(|entry| item(entry, status)).collect() }))
}

fn item(entry: Entry, status: EdgeStatus) -> OutboxItem {
    OutboxItem {
        id: entry.message_id,
        tenant_id: entry.tenant_id,
        event_type: entry.topic,
        status,
        priority: entry.priority,
        occurred_at: rfc3339(entry.occurred_at),
        next_attempt_at: entry.due_at.map(rfc3339),
        claimed_by: entry.claimed_by,
        claimed_at: entry.claimed_at.map(rfc3339),
        lease_expires_at: entry.lease_expires_at.map(rfc3339),
        attempt_count: entry.attempt_count,
        last_attempt_at: entry.last_attempt_at.map(rfc3339),
        last_error_code: entry.error_code,
        last_error_message: entry.error_message,
        failed_at: entry.died_at.map(rfc3339),
        dlq_reason: entry.reason,
        payload_size_bytes: entry.payload_size_bytes,
        sink: entry.sink,
    }
}

#[derive(Serialize, ToSchema)]
pub(super) struct TriggerDocument {
    triggered: bool,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
}

/// Have this process's relay look at once for what is due
#[utoipa::path(post, path = "/api/v1/sync/trigger", tag = "sync", params(DatabaseQuery),
    responses((status = 200, body = TriggerDocument)))]
pub(super) async fn trigger(
    State(admin): State<Arc<Admin>>,
    Parameters(query): Parameters<DatabaseQuery>,
) -> Answer<TriggerDocument> {
    let database = admin.database(query.database.as_deref())?;
    let reason = match &database.relay {
        None => Some("this process delivers nothing: it only serves the API"),
        Some(_) if admin.stopping.is_cancelled() => Some("stopping"),
        Some(relay) => {
            relay.wake();
            None
        }
    };
    Ok(Json(TriggerDocument { triggered: reason.is_none(), reason }))
}

/// At least one of the two. With `allDlq` it is every dead letter, and `ids` are not looked at.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RedriveBody {
    /// These messages.
    #[schema(max_items = 10_000, value_type = Option<Vec<Uuid>>)]
    ids: Option<Vec<String>>,
    /// Every dead letter.
    #[serde(rename = "allDlq", default)]
    all_dlq: bool,
}

fn message_id(id: &str) -> Result<Uuid, ApiError> {
    id.parse().map_err(|_| ApiError::invalid("an id of `ids` is not a UUID"))
}

#[derive(Serialize, ToSchema)]
pub(super) struct RedriveDocument {
    redriven: u64,
    /// Dead letters that are left because one request does not take more.
    remaining: u64,
}

/// Dead letters become pending again, with a new attempt budget
#[utoipa::path(post, path = "/api/v1/sync/redrive", tag = "sync", params(DatabaseQuery), request_body = RedriveBody,
    responses((status = 200, body = RedriveDocument)))]
pub(super) async fn redrive(
    State(admin): State<Arc<Admin>>,
    Extension(caller): Extension<Caller>,
    Parameters(query): Parameters<DatabaseQuery>,
    Body(body): Body<RedriveBody>,
) -> Answer<RedriveDocument> {
    let database = admin.database(query.database.as_deref())?;
    let message_ids = match (body.ids, body.all_dlq) {
        (_, true) => None,
        (Some(ids), false) => Some(ids.iter().map(|id| message_id(id)).collect::<Result<_, _>>()?),
        (None, false) => return Err(ApiError::invalid("give {\"ids\": [...]} or {\"allDlq\": true}")),
    };
    let bulk = Bulk::Redrive(DeadFilter { message_ids, ..DeadFilter::default() });
    let done = bulk::act(database, &caller, bulk, false).await?;
    Ok(Json(RedriveDocument { redriven: done.affected, remaining: done.remaining }))
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct UnclaimBody {
    /// What has not ended is taken only with `live`, and only if it was taken at least so long ago. A lease that has ended is
    /// freed whatever its age.
    #[schema(maximum = 316_224_000)]
    older_than_seconds: u64,
    /// Also leases that have not ended. Their workers lose them, and what they hold may be delivered twice.
    #[serde(default)]
    live: bool,
    /// Only count.
    #[serde(default)]
    dry_run: bool,
}

#[derive(Serialize, ToSchema)]
pub(super) struct UnclaimDocument {
    unclaimed: u64,
    /// Before that: leases that have ended.
    ended: u64,
    /// Before that: leases that live, and were taken so long ago or in the future. Only `live` takes them.
    live: u64,
}

/// What is held under a lease that has ended becomes pending again
#[utoipa::path(post, path = "/api/v1/sync/unclaim-stuck", tag = "sync", params(DatabaseQuery), request_body = UnclaimBody,
    responses((status = 200, body = UnclaimDocument)))]
pub(super) async fn unclaim_stuck(
    State(admin): State<Arc<Admin>>,
    Extension(caller): Extension<Caller>,
    Parameters(query): Parameters<DatabaseQuery>,
    Body(UnclaimBody { older_than_seconds, live, dry_run }): Body<UnclaimBody>,
) -> Answer<UnclaimDocument> {
    let database = admin.database(query.database.as_deref())?;
    if older_than_seconds > MAX_AGE_SECONDS {
        return Err(ApiError::invalid(format!("olderThanSeconds must be at most {MAX_AGE_SECONDS}")));
    }
    let older_than = Duration::from_secs(older_than_seconds);
    let ended = database.ask(database.store.count_stale(older_than, false)).await?;
    let alive = database.ask(database.store.count_stale(older_than, true)).await?.saturating_sub(ended);
    let unclaimed = if dry_run {
        0
    } else {
        database.operate(&caller.actor(), &Action::UnclaimStuck { older_than, live }).await?.affected
    };
    Ok(Json(UnclaimDocument { unclaimed, ended, live: alive }))
}
