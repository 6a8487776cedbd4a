//! The first thing the page shows: one database with its sinks and relays, and what was measured over time.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::{Extension, Json};
use postrider::inspect::{Page, RelayRecord, Sample, SinkOverview, rfc3339};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::access::Caller;
use super::error::{Answer, ApiError};
use super::input::{DatabaseQuery, Parameters};
use super::state::Admin;
use crate::config::admin::Role;

/// Samples of an hour, unless something else was asked for.
const DEFAULT_WITHIN_SECONDS: u64 = 3_600;
/// Samples of a week, at most.
const MAX_WITHIN_SECONDS: u64 = 7 * 86_400;

#[derive(Serialize, ToSchema)]
pub(super) struct OverviewDocument {
    /// By the store's clock.
    #[schema(format = DateTime)]
    now: String,
    database: String,
    databases: Vec<String>,
    /// What the database is called; without a password.
    store: String,
    version: &'static str,
    admin: AdminItem,
    sinks: Vec<SinkOverview>,
    relays: Vec<RelayRecord>,
}

#[derive(Serialize, ToSchema)]
struct AdminItem {
    /// Whether the endpoints for operators are there.
    enabled: bool,
    /// What the caller's token may do: `none`, `read` or `operate`.
    role: &'static str,
}

/// One database with its sinks and relays
#[utoipa::path(get, path = "/api/v1/overview", tag = "overview", params(DatabaseQuery),
    responses((status = 200, body = OverviewDocument)))]
pub(super) async fn overview(
    State(admin): State<Arc<Admin>>,
    Extension(caller): Extension<Caller>,
    Parameters(query): Parameters<DatabaseQuery>,
) -> Answer<OverviewDocument> {
    let database = query.of(&admin)?;
    let store = &database.store;
    let (now, sinks, relays) =
        tokio::try_join!(database.ask(store.now()), database.sinks(), database.ask(store.relays()))?;
    let role = match caller.role {
        None => "none",
        Some(Role::Read) => "read",
        Some(Role::Operate) => "operate",
    };
    Ok(Json(OverviewDocument {
        now: rfc3339(now),
        database: database.name.clone(),
        databases: admin.databases.iter().map(|database| database.name.clone()).collect(),
        store: database.place.clone(),
        version: env!("CARGO_PKG_VERSION"),
        admin: AdminItem { enabled: admin.access.enabled, role },
        sinks: SinkOverview::all(sinks, Some(&relays)),
        relays,
    }))
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct SamplesQuery {
    /// Which database; the first if it is left out.
    database: Option<String>,
    /// Of the last seconds.
    #[param(minimum = 1, maximum = 604_800, default = 3600)]
    within_seconds: Option<u64>,
}

/// What was measured lately, by time and sink
#[utoipa::path(get, path = "/api/v1/samples", tag = "overview", params(SamplesQuery),
    responses((status = 200, body = Page<Sample>)))]
pub(super) async fn samples(
    State(admin): State<Arc<Admin>>,
    Parameters(query): Parameters<SamplesQuery>,
) -> Answer<Page<Sample>> {
    let database = admin.database(query.database.as_deref())?;
    let within = query.within_seconds.unwrap_or(DEFAULT_WITHIN_SECONDS);
    if !(1..=MAX_WITHIN_SECONDS).contains(&within) {
        return Err(ApiError::invalid(format!("within_seconds must be from 1 to {MAX_WITHIN_SECONDS}")));
    }
    database.ask(database.store.samples(Duration::from_secs(within))).await.map(Page::whole).map(Json)
}
