//! What operators did, newest first, as the store wrote it down with each action.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use postrider::AuditRecord;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::{IntoParams, ToSchema};

use super::error::Answer;
use super::input::{Asked, Limit, Time};
use super::state::Admin;

/// Of one page: an action by ids names each of them.
const MAX_ENTRIES: u32 = 100;

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct AuditQuery {
    /// Which database; the first if it is left out.
    database: Option<String>,
    /// Before this entry: the `next` of the page before.
    before: Option<i64>,
    /// At most this many.
    #[serde(default)]
    #[param(value_type = u32, required = false, minimum = 1, maximum = 100, default = 100)]
    limit: Limit<MAX_ENTRIES>,
}

#[derive(Serialize, ToSchema)]
pub(super) struct AuditDocument {
    items: Vec<AuditItem>,
    /// For `before`; null if this was the last page.
    next: Option<i64>,
}

/// One thing an operator did.
#[derive(Serialize, ToSchema)]
struct AuditItem {
    id: i64,
    at: Time,
    /// Who, as the caller says; the login if nobody was named.
    #[schema(example = "ops@192.0.2.7")]
    actor: String,
    /// The login that did it, as the server knows it; null in SQLite, which has no logins.
    db_user: Option<String>,
    #[schema(example = "redrive")]
    action: String,
    /// What was asked for.
    #[schema(value_type = Value)]
    detail: Box<RawValue>,
    /// How many deliveries it changed.
    affected: i64,
}

/// What operators did, newest first
#[utoipa::path(get, path = "/api/v1/audit", tag = "overview", params(AuditQuery),
    responses((status = 200, body = AuditDocument)))]
pub(super) async fn list(State(admin): State<Arc<Admin>>, Asked(query): Asked<AuditQuery>) -> Answer<AuditDocument> {
    let database = admin.database(query.database.as_deref())?;
    let Limit(limit) = query.limit;
    let records = database.ask(database.store.audit(query.before, limit)).await?;
    let full = records.len() >= usize::try_from(limit).unwrap_or(usize::MAX);
    let next = records.last().filter(|_| full).map(|last| last.id);
    Ok(Json(AuditDocument { items: records.into_iter().map(AuditItem::from).collect(), next }))
}

impl From<AuditRecord> for AuditItem {
    fn from(record: AuditRecord) -> Self {
        Self {
            id: record.id,
            at: Time(record.at),
            actor: record.actor,
            db_user: record.db_user,
            action: record.action,
            detail: record.detail,
            affected: record.affected,
        }
    }
}
