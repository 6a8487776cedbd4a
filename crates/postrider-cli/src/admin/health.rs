//! Whether the process is alive, and whether it can work: for supervisors and load balancers, open to everybody. Liveness
//! never asks the store: a database that is away is no reason to restart.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;
use utoipa::ToSchema;

use super::state::Admin;
use crate::{humane, output, telemetry};

/// How long each store may take to say that it is there.
const READY_TIMEOUT: Duration = Duration::from_secs(2);
/// Anybody may ask, so one at a time does: no more than one connection of a store is used for it.
static READY: Semaphore = Semaphore::const_new(1);

/// The media type that Prometheus asks for.
const EXPOSITION: &str = "text/plain; version=0.0.4; charset=utf-8";

#[derive(Serialize, ToSchema)]
pub(super) struct HealthDocument {
    #[schema(example = "ok")]
    status: &'static str,
}

#[derive(Serialize, ToSchema)]
pub(super) struct ReadyDocument {
    /// `ready` or `not_ready`.
    #[schema(example = "ready")]
    status: &'static str,
    /// Which database does not answer or takes no writes, and why; or `stopping`.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

/// Whether the process is alive
#[utoipa::path(get, path = "/api/health", tag = "health", responses((status = 200, body = HealthDocument)))]
pub(super) async fn health() -> Json<HealthDocument> {
    Json(HealthDocument { status: "ok" })
}

/// Whether it can work: every database answers and takes writes, and nobody asked it to stop
#[utoipa::path(get, path = "/api/ready", tag = "health",
    responses((status = 200, body = ReadyDocument), (status = 503, body = ReadyDocument)))]
pub(super) async fn ready(State(admin): State<Arc<Admin>>) -> Response {
    match unready(&admin).await {
        None => Json(ReadyDocument { status: "ready", reason: None }).into_response(),
        reason => {
            let document = ReadyDocument { status: "not_ready", reason };
            (StatusCode::SERVICE_UNAVAILABLE, Json(document)).into_response()
        }
    }
}

/// What this process has counted, for Prometheus
#[utoipa::path(get, path = "/metrics", tag = "health",
    responses((status = 200, body = String, content_type = "text/plain")))]
pub(super) async fn metrics() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, EXPOSITION)], telemetry::render())
}

/// Why it is not ready; all databases are asked at once.
async fn unready(admin: &Admin) -> Option<String> {
    if admin.stopping.is_cancelled() {
        return Some("stopping".to_owned());
    }
    // It is never closed; if it were, nobody would have to wait.
    let _turn = READY.acquire().await;
    let mut asked = JoinSet::new();
    for database in &admin.databases {
        let (name, store) = (database.name.clone(), Arc::clone(&database.store));
        asked.spawn(async move {
            let why = match timeout(READY_TIMEOUT, store.can_write()).await {
                Ok(Ok(())) => return None,
                Ok(Err(error)) => output::printable(&error.in_short()),
                Err(_) => format!("no answer in {}", humane::span(READY_TIMEOUT)),
            };
            Some(format!("database {name:?}: {why}"))
        });
    }
    let mut reasons: Vec<String> = asked.join_all().await.into_iter().flatten().collect();
    reasons.sort();
    (!reasons.is_empty()).then(|| reasons.join("; "))
}
