//! The HTTP interface: `POST /tenants/{tenant}/contacts` with an email address, an external id, or both. Called by clients;
//! `main.rs` and the tests serve it. It holds no rule about identities: those are in `resolve.rs` and in the tables.

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::json;
use sqlx::PgPool;

use crate::resolve::{Identity, TenantId, Unresolved, resolve};

/// The longest identity, in bytes; the table has the same limit.
const MOST_VALUE_BYTES: usize = 320;

#[derive(Debug, Deserialize)]
struct Request {
    email: Option<String>,
    external_id: Option<String>,
}

/// The service, on this database.
pub fn router(pool: PgPool) -> Router {
    Router::new().route("/tenants/{tenant}/contacts", post(answer)).with_state(pool)
}

async fn answer(State(pool): State<PgPool>, Path(tenant): Path<TenantId>, Json(request): Json<Request>) -> Response {
    let values = [request.email.as_deref(), request.external_id.as_deref()];
    if values == [None, None] || values.into_iter().flatten().any(|it| it.is_empty() || it.len() > MOST_VALUE_BYTES) {
        return refuse(StatusCode::BAD_REQUEST, "give an email, an external_id or both, of 1 to 320 bytes");
    }
    let identities: Vec<Identity> = [request.email.map(Identity::Email), request.external_id.map(Identity::ExternalId)]
        .into_iter()
        .flatten()
        .collect();
    match resolve(&pool, tenant, &identities).await {
        Ok(resolved) => {
            let status = if resolved.created { StatusCode::CREATED } else { StatusCode::OK };
            (status, Json(json!({ "contact_id": resolved.contact_id, "added": resolved.added }))).into_response()
        }
        Err(error @ Unresolved::SeveralContacts(_)) => refuse(StatusCode::CONFLICT, &error.to_string()),
        Err(error) => {
            // The client may try again; the cause is for the log alone.
            eprintln!("a request failed: {error:?}");
            refuse(StatusCode::SERVICE_UNAVAILABLE, &error.to_string())
        }
    }
}

fn refuse(status: StatusCode, why: &str) -> Response {
    (status, Json(json!({ "error": why }))).into_response()
}
