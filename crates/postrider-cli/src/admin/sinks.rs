//! Sinks as the store and the relays see them together, the relays themselves, and the routes; and the actions to pause and
//! to resume a sink. `overview.rs` shows the same sinks beside everything else.

use axum::Json;
use axum::extract::Path;
use postrider::Route;
use postrider::inspect::{Page, RelayRecord, SinkOverview};
use postrider::operate::{Action, Done};

use super::error::{Answer, ApiError};
use super::input::{DatabaseQuery, OnDatabase};
use super::state::Served;

/// How each sink stands
#[utoipa::path(get, path = "/api/v1/sinks", tag = "sinks", params(DatabaseQuery),
    responses((status = 200, body = Page<SinkOverview>)))]
pub(super) async fn list(on: OnDatabase) -> Answer<Page<SinkOverview>> {
    let relays = on.ask(on.store.relays()).await?;
    let sinks = on.sinks().await?;
    Ok(Json(Page::whole(SinkOverview::all(sinks, Some(&relays)))))
}

/// The relays that reported in the last 24 hours
#[utoipa::path(get, path = "/api/v1/relays", tag = "sinks", params(DatabaseQuery),
    responses((status = 200, body = Page<RelayRecord>)))]
pub(super) async fn relays(on: OnDatabase) -> Answer<Page<RelayRecord>> {
    on.ask(on.store.relays()).await.map(Page::whole).map(Json)
}

/// Which new messages go where
#[utoipa::path(get, path = "/api/v1/routes", tag = "sinks", params(DatabaseQuery),
    responses((status = 200, body = Page<Route>)))]
pub(super) async fn routes(on: OnDatabase) -> Answer<Page<Route>> {
    on.ask(on.store.routes()).await.map(Page::whole).map(Json)
}

/// A sink's messages wait
#[utoipa::path(post, path = "/api/v1/sinks/{sink}/pause", tag = "sinks",
    params(("sink" = String, Path, description = "The sink."), DatabaseQuery),
    responses((status = 200, body = Done)))]
pub(super) async fn pause(on: OnDatabase, Path(sink): Path<String>) -> Answer<Done> {
    known(&on, &sink).await?.operate(&on.caller.actor(), &Action::Pause { sink }).await.map(Json)
}

/// A sink's messages go on
#[utoipa::path(post, path = "/api/v1/sinks/{sink}/resume", tag = "sinks",
    params(("sink" = String, Path, description = "The sink."), DatabaseQuery),
    responses((status = 200, body = Done)))]
pub(super) async fn resume(on: OnDatabase, Path(sink): Path<String>) -> Answer<Done> {
    known(&on, &sink).await?.operate(&on.caller.actor(), &Action::Resume { sink }).await.map(Json)
}

/// A name that is mistyped pauses nothing, and nobody would notice.
async fn known<'a>(database: &'a Served, sink: &str) -> Result<&'a Served, ApiError> {
    let sinks = database.ask(database.store.status()).await?;
    let relays = database.ask(database.store.relays()).await?;
    let told = relays.iter().flat_map(|relay| &relay.report.sinks).map(|report| report.sink.as_str());
    if sinks.iter().map(|status| status.sink.as_str()).chain(told).any(|name| name == sink) {
        return Ok(database);
    }
    Err(ApiError::not_found("there is no sink of that name").hint("GET /api/v1/sinks lists them"))
}
