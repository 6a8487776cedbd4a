//! What operators did, newest first, as the store wrote it down with each action.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use postrider::inspect::{AuditRecord, Page, PageRequest};

use super::error::Answer;
use super::input::{PageQuery, Parameters};
use super::state::Admin;

/// Of one page, however many are asked for: an action by ids names each of them.
const MAX_ENTRIES: u32 = 100;

/// What operators did, newest first
#[utoipa::path(get, path = "/api/v1/audit", tag = "overview", params(PageQuery),
    responses((status = 200, body = Page<AuditRecord>)))]
pub(super) async fn list(
    State(admin): State<Arc<Admin>>,
    Parameters(query): Parameters<PageQuery>,
) -> Answer<Page<AuditRecord>> {
    let database = query.of(&admin)?;
    let asked = query.page();
    let page = PageRequest { limit: asked.limit.min(MAX_ENTRIES), ..asked };
    database.ask(database.store.audit(&page)).await.map(Json)
}
