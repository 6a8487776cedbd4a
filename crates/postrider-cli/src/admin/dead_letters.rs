//! Dead letters: looked through by filter, and counted in groups. What is done to them is in `bulk.rs`.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use postrider::inspect::{DeadFilter, DeadGroup, DeadLetter, Page};

use super::error::Answer;
use super::input::{DatabaseQuery, Filtered, PageQuery};
use super::state::Admin;

/// Dead letters, newest first
#[utoipa::path(get, path = "/api/v1/dead-letters", tag = "dead letters", params(PageQuery, DeadFilter),
    responses((status = 200, body = Page<DeadLetter>)))]
pub(super) async fn list(
    State(admin): State<Arc<Admin>>,
    Filtered(query, filter): Filtered<PageQuery, DeadFilter>,
) -> Answer<Page<DeadLetter>> {
    let (database, page) = (query.of(&admin)?, query.page());
    database.ask(database.store.dead_letters(&filter, &page)).await.map(Json)
}

/// Dead letters by sink, topic, reason and error code, the largest groups first
#[utoipa::path(get, path = "/api/v1/dead-letters/groups", tag = "dead letters",
    params(DatabaseQuery, DeadFilter), responses((status = 200, body = Page<DeadGroup>)))]
pub(super) async fn groups(
    State(admin): State<Arc<Admin>>,
    Filtered(query, filter): Filtered<DatabaseQuery, DeadFilter>,
) -> Answer<Page<DeadGroup>> {
    let database = query.of(&admin)?;
    database.ask(database.store.dead_groups(&filter)).await.map(Page::whole).map(Json)
}
