//! What operators did, newest first, as the store wrote it down with each action.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use postrider::inspect::{AuditRecord, Cursor, Page, PageRequest};
use serde::Deserialize;
use utoipa::IntoParams;

use super::error::Answer;
use super::input::{Limit, Parameters};
use super::state::Admin;

/// Of one page: an action by ids names each of them.
const MAX_ENTRIES: u32 = 100;

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct AuditQuery {
    /// Which database; the first if it is left out.
    database: Option<String>,
    /// The `next` of the page before.
    #[param(value_type = Option<String>)]
    after: Option<Cursor>,
    /// At most this many.
    #[serde(default)]
    #[param(value_type = u32, required = false, minimum = 1, maximum = 100, default = 100)]
    limit: Limit<MAX_ENTRIES>,
}

/// What operators did, newest first
#[utoipa::path(get, path = "/api/v1/audit", tag = "overview", params(AuditQuery),
    responses((status = 200, body = Page<AuditRecord>)))]
pub(super) async fn list(
    State(admin): State<Arc<Admin>>,
    Parameters(query): Parameters<AuditQuery>,
) -> Answer<Page<AuditRecord>> {
    let database = admin.database(query.database.as_deref())?;
    let page = PageRequest { after: query.after, limit: query.limit.0 };
    database.ask(database.store.audit(&page)).await.map(Json)
}
