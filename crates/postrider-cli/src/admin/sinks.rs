//! Sinks as the store and the relays see them together, the relays themselves, and the routes; and the actions to pause and
//! to resume a sink. `overview.rs` shows the same sinks beside everything else.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::{Extension, Json};
use postrider::{Action, RelayRecord, Route, SinkReport, SinkService, SinkState, SinkStatus};
use serde::Serialize;
use utoipa::ToSchema;

use super::access::Caller;
use super::error::{Answer, ApiError};
use super::input::{Asked, Time};
use super::state::{Admin, Served};
use super::sync::AnyQuery;

#[derive(Serialize, ToSchema)]
pub(super) struct SinksDocument {
    items: Vec<SinkItem>,
}

/// How one sink stands.
#[derive(Serialize, ToSchema)]
pub(super) struct SinkItem {
    sink: String,
    /// `running`, `paused`, `unserved` (no relay that is alive delivers to it), `breaker_open` or `half_open`.
    state: &'static str,
    paused: bool,
    /// What a dead lane head does: `park` or `skip`.
    on_dead: &'static str,
    pending: i64,
    due: i64,
    leased: i64,
    expired: i64,
    dead: i64,
    parked_lanes: i64,
    oldest_due_age_seconds: f64,
    /// How far back `recent` and the last success and failure look.
    recent_seconds: f64,
    recent: AttemptCounts,
    last_success_at: Option<Time>,
    last_error_at: Option<Time>,
    /// Relays that are alive and deliver to it.
    relays: usize,
    /// How many of them have the breaker open.
    open: usize,
    /// How old what the relays say is: the oldest of their last reports.
    reported_at: Option<Time>,
    /// What it is, as its relays say: `http`, `kafka`; null if none delivers to it.
    kind: Option<String>,
    /// The worst of its relays': `closed`, `half_open` or `open`; null if none delivers to it.
    breaker: Option<&'static str>,
    /// The last failure that opened a breaker or kept it open.
    last_error: Option<String>,
    /// Messages that its relays hold.
    held: u64,
    /// Most messages a second, all relays together, if each has a limit.
    rate: Option<u32>,
}

/// Attempts, by outcome.
#[derive(Serialize, ToSchema)]
pub(super) struct AttemptCounts {
    dispatched: i64,
    retryable: i64,
    failed: i64,
    zombie_requeue: i64,
}

impl From<[i64; 4]> for AttemptCounts {
    fn from([dispatched, retryable, failed, zombie_requeue]: [i64; 4]) -> Self {
        Self { dispatched, retryable, failed, zombie_requeue }
    }
}

#[derive(Serialize, ToSchema)]
pub(super) struct RelaysDocument {
    items: Vec<RelayItem>,
}

/// A relay as it last reported.
#[derive(Serialize, ToSchema)]
pub(super) struct RelayItem {
    worker_id: String,
    version: String,
    started_at: Time,
    reported_at: Time,
    /// How often it reports.
    every_seconds: f64,
    /// Whether it is late with its next report.
    silent: bool,
    sinks: Vec<RelaySinkItem>,
}

/// What a relay says about one of its sinks.
#[derive(Serialize, ToSchema)]
struct RelaySinkItem {
    sink: String,
    kind: String,
    breaker: String,
    /// For how much longer nothing is sent to it.
    open_for_seconds: Option<f64>,
    held: u64,
    rate: Option<u32>,
    /// The last failure since the breaker was last closed.
    last_error: Option<String>,
}

impl From<RelayRecord> for RelayItem {
    fn from(relay: RelayRecord) -> Self {
        let sink = |sink: SinkReport| RelaySinkItem {
            sink: sink.sink,
            kind: sink.kind,
            breaker: sink.breaker,
            open_for_seconds: sink.open_for.map(|left| left.as_secs_f64()),
            held: sink.held,
            rate: sink.rate,
            last_error: sink.last_error,
        };
        Self {
            worker_id: relay.report.worker_id,
            version: relay.report.version,
            started_at: Time(relay.started_at),
            reported_at: Time(relay.reported_at),
            every_seconds: relay.report.every.as_secs_f64(),
            silent: relay.silent,
            sinks: relay.report.sinks.into_iter().map(sink).collect(),
        }
    }
}

/// What the store knows of each sink, with what the relays that are heard of say about it.
pub(super) fn joined(sinks: Vec<SinkStatus>, relays: &[RelayRecord]) -> Vec<SinkItem> {
    let item = |status: SinkStatus| {
        let service = SinkService::of(&status.sink, relays);
        SinkItem {
            state: SinkState::of(&status, &service).as_str(),
            paused: status.paused,
            on_dead: status.on_dead.as_str(),
            pending: status.pending,
            due: status.due,
            leased: status.leased,
            expired: status.expired,
            dead: status.dead,
            parked_lanes: status.parked_lanes,
            oldest_due_age_seconds: status.oldest_due_age_seconds,
            recent_seconds: status.recent_seconds,
            recent: status.recent.into(),
            last_success_at: status.last_success_at.map(Time),
            last_error_at: status.last_error_at.map(Time),
            relays: service.relays,
            open: service.open,
            reported_at: service.reported_at.map(Time),
            kind: service.kind,
            breaker: service.breaker,
            last_error: service.last_error,
            held: service.held,
            rate: service.rate,
            sink: status.sink,
        }
    };
    sinks.into_iter().map(item).collect()
}

/// How each sink stands
#[utoipa::path(get, path = "/api/v1/sinks", tag = "sinks", params(AnyQuery),
    responses((status = 200, body = SinksDocument)))]
pub(super) async fn list(State(admin): State<Arc<Admin>>, Asked(query): Asked<AnyQuery>) -> Answer<SinksDocument> {
    let database = admin.database(query.database.as_deref())?;
    let relays = database.ask(database.store.relays()).await?;
    let sinks = database.sinks().await?;
    Ok(Json(SinksDocument { items: joined(sinks, &relays) }))
}

/// The relays that reported in the last 24 hours
#[utoipa::path(get, path = "/api/v1/relays", tag = "sinks", params(AnyQuery),
    responses((status = 200, body = RelaysDocument)))]
pub(super) async fn relays(State(admin): State<Arc<Admin>>, Asked(query): Asked<AnyQuery>) -> Answer<RelaysDocument> {
    let database = admin.database(query.database.as_deref())?;
    let relays = database.ask(database.store.relays()).await?;
    Ok(Json(RelaysDocument { items: relays.into_iter().map(RelayItem::from).collect() }))
}

#[derive(Serialize, ToSchema)]
pub(super) struct RoutesDocument {
    items: Vec<RouteItem>,
}

/// Which new messages go to a sink; in the patterns `*` stands for any characters.
#[derive(Serialize, ToSchema)]
struct RouteItem {
    namespace: String,
    topic: String,
    sink: String,
}

/// Which new messages go where
#[utoipa::path(get, path = "/api/v1/routes", tag = "sinks", params(AnyQuery),
    responses((status = 200, body = RoutesDocument)))]
pub(super) async fn routes(State(admin): State<Arc<Admin>>, Asked(query): Asked<AnyQuery>) -> Answer<RoutesDocument> {
    let database = admin.database(query.database.as_deref())?;
    let routes = database.ask(database.store.routes()).await?;
    let item = |Route { sink, topic, namespace }| RouteItem { namespace, topic, sink };
    Ok(Json(RoutesDocument { items: routes.into_iter().map(item).collect() }))
}

#[derive(Serialize, ToSchema)]
pub(super) struct PausedDocument {
    sink: String,
    paused: bool,
}

/// A sink's messages wait
#[utoipa::path(post, path = "/api/v1/sinks/{sink}/pause", tag = "sinks",
    params(("sink" = String, Path, description = "The sink."), AnyQuery),
    responses((status = 200, body = PausedDocument)))]
pub(super) async fn pause(
    State(admin): State<Arc<Admin>>,
    Extension(caller): Extension<Caller>,
    Path(sink): Path<String>,
    Asked(query): Asked<AnyQuery>,
) -> Answer<PausedDocument> {
    let database = admin.database(query.database.as_deref())?;
    known(database, &sink).await?;
    database.operate(&caller.actor(), &Action::Pause { sink: sink.clone() }).await?;
    Ok(Json(PausedDocument { sink, paused: true }))
}

/// A sink's messages go on
#[utoipa::path(post, path = "/api/v1/sinks/{sink}/resume", tag = "sinks",
    params(("sink" = String, Path, description = "The sink."), AnyQuery),
    responses((status = 200, body = PausedDocument)))]
pub(super) async fn resume(
    State(admin): State<Arc<Admin>>,
    Extension(caller): Extension<Caller>,
    Path(sink): Path<String>,
    Asked(query): Asked<AnyQuery>,
) -> Answer<PausedDocument> {
    let database = admin.database(query.database.as_deref())?;
    known(database, &sink).await?;
    database.operate(&caller.actor(), &Action::Resume { sink: sink.clone() }).await?;
    Ok(Json(PausedDocument { sink, paused: false }))
}

/// A name that is mistyped pauses nothing, and nobody would notice.
async fn known(database: &Served, sink: &str) -> Result<(), ApiError> {
    let sinks = database.ask(database.store.status()).await?;
    let relays = database.ask(database.store.relays()).await?;
    let told = relays.iter().flat_map(|relay| &relay.report.sinks).map(|report| report.sink.as_str());
    if sinks.iter().map(|status| status.sink.as_str()).chain(told).any(|name| name == sink) {
        return Ok(());
    }
    Err(ApiError::not_found("there is no sink of that name").hint("GET /api/v1/sinks lists them"))
}
