//! Lanes: which have something to deliver and what each is doing, and the action to go on without a dead head.

use std::sync::Arc;

use axum::extract::State;
use axum::{Extension, Json};
use postrider::{Action, LaneFilter, LaneState, LaneStatus};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use super::access::Caller;
use super::error::{Answer, ApiError};
use super::input::{Asked, Limit, Sent, Time};
use super::state::Admin;
use super::sync::AnyQuery;

/// What a lane is doing.
#[derive(Clone, Copy, Debug, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum LaneWord {
    Parked,
    Waiting,
    Leased,
    Due,
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct LaneQuery {
    /// Which database; the first if it is left out.
    database: Option<String>,
    /// For this sink.
    sink: Option<String>,
    /// This lane.
    lane: Option<String>,
    /// In this state.
    #[param(inline)]
    state: Option<LaneWord>,
    /// At most this many.
    #[serde(default)]
    #[param(value_type = u32, required = false, minimum = 1, maximum = 1000, default = 100)]
    limit: Limit,
}

#[derive(Serialize, ToSchema)]
pub(super) struct LanesDocument {
    items: Vec<LaneItem>,
}

/// One lane, for one sink.
#[derive(Serialize, ToSchema)]
struct LaneItem {
    sink: String,
    lane: String,
    state: &'static str,
    depth: i64,
    head_sequence_id: i64,
    head_message_id: Uuid,
    /// Null if it is dead.
    head_due_at: Option<Time>,
    head_attempt_count: i32,
    head_error_code: Option<String>,
    head_error_message: Option<String>,
}

/// Lanes with something to deliver: first those that wait for a person, then those whose head failed, then the deepest
#[utoipa::path(get, path = "/api/v1/lanes", tag = "lanes", params(LaneQuery),
    responses((status = 200, body = LanesDocument)))]
pub(super) async fn list(State(admin): State<Arc<Admin>>, Asked(query): Asked<LaneQuery>) -> Answer<LanesDocument> {
    let database = admin.database(query.database.as_deref())?;
    let state = query.state.map(|state| match state {
        LaneWord::Parked => LaneState::Parked,
        LaneWord::Waiting => LaneState::Waiting,
        LaneWord::Leased => LaneState::Leased,
        LaneWord::Due => LaneState::Due,
    });
    let filter = LaneFilter { sink: query.sink, lane: query.lane, state, limit: query.limit.0 };
    let lanes = database.ask(database.store.lanes(&filter)).await?;
    Ok(Json(LanesDocument { items: lanes.into_iter().map(LaneItem::from).collect() }))
}

impl From<LaneStatus> for LaneItem {
    fn from(lane: LaneStatus) -> Self {
        Self {
            sink: lane.sink,
            lane: lane.lane,
            state: lane.state.as_str(),
            depth: lane.depth,
            head_sequence_id: lane.head_sequence_id,
            head_message_id: lane.head_message_id,
            head_due_at: lane.head_due_at.map(Time),
            head_attempt_count: lane.head_attempt_count,
            head_error_code: lane.head_error_code,
            head_error_message: lane.head_error_message,
        }
    }
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SkipBody {
    sink: String,
    lane: String,
}

#[derive(Serialize, ToSchema)]
pub(super) struct SkipDocument {
    skipped: bool,
}

/// A parked lane goes on without its dead head, which stays a dead letter
#[utoipa::path(post, path = "/api/v1/lanes/skip", tag = "lanes", params(AnyQuery), request_body = SkipBody,
    responses((status = 200, body = SkipDocument)))]
pub(super) async fn skip(
    State(admin): State<Arc<Admin>>,
    Extension(caller): Extension<Caller>,
    Asked(query): Asked<AnyQuery>,
    Sent(SkipBody { sink, lane }): Sent<SkipBody>,
) -> Answer<SkipDocument> {
    let database = admin.database(query.database.as_deref())?;
    let done = database.operate(&caller.actor(), &Action::Skip { sink, lane }).await?;
    if done.affected == 0 {
        return Err(ApiError::not_found("no lane of that name is parked for that sink")
            .hint("GET /api/v1/lanes?state=parked lists those that are"));
    }
    Ok(Json(SkipDocument { skipped: true }))
}
