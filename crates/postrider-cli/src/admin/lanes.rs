//! Lanes: which have something to deliver and what each is doing, and the action to go on without a dead head.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use postrider::inspect::{LaneFilter, LaneStatus, Page};
use postrider::operate::{Action, Done};
use serde::Deserialize;
use utoipa::ToSchema;

use super::error::{Answer, ApiError};
use super::input::{Body, DatabaseQuery, Filtered, OnDatabase, PageQuery};
use super::state::Admin;

/// Lanes with something to deliver: first those that wait for a person, then those whose head failed, then the deepest
#[utoipa::path(get, path = "/api/v1/lanes", tag = "lanes", params(PageQuery, LaneFilter),
    responses((status = 200, body = Page<LaneStatus>)))]
pub(super) async fn list(
    State(admin): State<Arc<Admin>>,
    Filtered(query, filter): Filtered<PageQuery, LaneFilter>,
) -> Answer<Page<LaneStatus>> {
    let database = query.of(&admin)?;
    database.ask(database.store.lanes(&filter, &query.page())).await.map(Json)
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SkipBody {
    sink: String,
    lane: String,
}

/// A parked lane goes on without its dead head, which stays a dead letter
#[utoipa::path(post, path = "/api/v1/lanes/skip", tag = "lanes", params(DatabaseQuery), request_body = SkipBody,
    responses((status = 200, body = Done)))]
pub(super) async fn skip(on: OnDatabase, Body(SkipBody { sink, lane }): Body<SkipBody>) -> Answer<Done> {
    let done = on.operate(&on.caller.actor(), &Action::Skip { sink, lane }).await?;
    if done.affected == 0 {
        return Err(ApiError::not_found("no lane of that name is parked for that sink")
            .hint("GET /api/v1/lanes?state=parked lists those that are"));
    }
    Ok(Json(done))
}
