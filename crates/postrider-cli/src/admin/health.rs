//! Whether the process is alive, and whether it can work: for supervisors and load balancers, open to everybody. Liveness
//! never asks the store: a database that is away is no reason to restart. Why it cannot work is for those who may look.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use utoipa::ToSchema;

use super::state::Admin;
use crate::{format, output, telemetry};

/// How long each store may take to say that it is there.
const READY_TIMEOUT: Duration = Duration::from_secs(2);

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
    /// Why it is not: `DATABASE_UNAVAILABLE` or `STOPPING`.
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'static str>,
    /// For those who may look: which database does not answer or takes no writes, and why; or `stopping`.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

/// Why it cannot work.
#[derive(Clone)]
struct Unready {
    code: &'static str,
    reason: String,
}

/// The last answer. Anybody may ask, so one at a time asks the stores, over one connection of each; whoever came before it
/// began shares what it found.
#[derive(Default)]
pub(super) struct Readiness(Mutex<Option<(Instant, Option<Unready>)>>);

/// Whether the process is alive
#[utoipa::path(get, path = "/api/health", tag = "health", responses((status = 200, body = HealthDocument)))]
pub(super) async fn health() -> Json<HealthDocument> {
    Json(HealthDocument { status: "ok" })
}

/// Whether it can work: every database answers and takes writes, and nobody asked it to stop
#[utoipa::path(get, path = "/api/ready", tag = "health",
    responses((status = 200, body = ReadyDocument), (status = 503, body = ReadyDocument)))]
pub(super) async fn ready(State(admin): State<Arc<Admin>>, request: Request) -> Response {
    let (parts, _) = request.into_parts();
    match unready(&admin).await {
        None => Json(ReadyDocument { status: "ready", code: None, reason: None }).into_response(),
        Some(Unready { code, reason }) => {
            let reason = admin.access.may_look(&parts).then_some(reason);
            let document = ReadyDocument { status: "not_ready", code: Some(code), reason };
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

/// Why it is not ready.
async fn unready(admin: &Admin) -> Option<Unready> {
    if admin.stopping.is_cancelled() {
        return Some(Unready { code: "STOPPING", reason: "stopping".to_owned() });
    }
    let came = Instant::now();
    let mut last = admin.readiness.0.lock().await;
    if let Some((begun, found)) = last.as_ref()
        && *begun >= came
    {
        return found.clone();
    }
    let begun = Instant::now();
    let found = ask(admin).await;
    *last = Some((begun, found.clone()));
    found
}

/// Asks all databases at once.
async fn ask(admin: &Admin) -> Option<Unready> {
    let mut asked = JoinSet::new();
    for database in &admin.databases {
        let (name, store) = (database.name.clone(), Arc::clone(&database.store));
        asked.spawn(async move {
            let why = match timeout(READY_TIMEOUT, store.can_write()).await {
                Ok(Ok(())) => return None,
                Ok(Err(error)) => output::printable(&error.in_short()),
                Err(_) => format!("no answer in {}", format::span(READY_TIMEOUT)),
            };
            Some(format!("database {name:?}: {why}"))
        });
    }
    let mut reasons: Vec<String> = asked.join_all().await.into_iter().flatten().collect();
    reasons.sort();
    (!reasons.is_empty()).then(|| Unready { code: "DATABASE_UNAVAILABLE", reason: reasons.join("; ") })
}
