//! Makes what waits for its time due at once, in batches like the actions on dead letters.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::State;
use axum::{Extension, Json};
use postrider::{Action, MAX_PER_ACTION, WaitingFilter};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::access::Caller;
use super::actions::ACTION_TIME;
use super::error::{Answer, ApiError};
use super::input::{Asked, Sent};
use super::state::Admin;
use super::sync::AnyQuery;

/// Which; everything that is given must hold, and nothing given is everything that waits.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RetryBody {
    /// These messages.
    #[schema(max_items = 10_000)]
    message_ids: Option<Vec<Uuid>>,
    /// Of this sink.
    sink: Option<String>,
    /// Only count.
    #[serde(default)]
    dry_run: bool,
}

#[derive(Serialize, ToSchema)]
pub(super) struct RetryDocument {
    /// What waited when the request came.
    matching: u64,
    affected: u64,
    /// What is left because one request does not take more.
    remaining: u64,
    dry_run: bool,
}

/// What waits for a retry, or for its time, becomes due at once
#[utoipa::path(post, path = "/api/v1/retry-now", tag = "messages", params(AnyQuery), request_body = RetryBody,
    responses((status = 200, body = RetryDocument)))]
pub(super) async fn retry_now(
    State(admin): State<Arc<Admin>>,
    Extension(caller): Extension<Caller>,
    Asked(query): Asked<AnyQuery>,
    Sent(RetryBody { message_ids, sink, dry_run }): Sent<RetryBody>,
) -> Answer<RetryDocument> {
    let database = admin.database(query.database.as_deref())?;
    if message_ids.as_ref().is_some_and(|ids| ids.len() > MAX_PER_ACTION as usize) {
        return Err(ApiError::invalid(format!("more than {MAX_PER_ACTION} message_ids in one request")));
    }
    let which = WaitingFilter { message_ids, sink };
    let matching = database.ask(database.store.count_waiting(&which)).await?;
    let (begun, mut affected) = (Instant::now(), 0);
    while !dry_run && affected < matching && begun.elapsed() < ACTION_TIME {
        let at_most = u32::try_from(matching - affected).unwrap_or(MAX_PER_ACTION).min(MAX_PER_ACTION);
        let action = Action::RetryNow { which: which.clone(), at_most };
        let done = database.operate(&caller.actor(), &action).await;
        let batch = done.map_err(|error| error.after(affected, "made due"))?.affected;
        affected += batch;
        if batch == 0 {
            return Ok(Json(RetryDocument { matching, affected, remaining: 0, dry_run }));
        }
    }
    Ok(Json(RetryDocument { matching, affected, remaining: matching.saturating_sub(affected), dry_run }))
}
