//! The first thing the page shows: one database with its sinks and relays, and what was measured over time.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::{Extension, Json};
use postrider::Sample;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::access::Caller;
use super::error::{Answer, ApiError};
use super::input::{Asked, Time};
use super::sinks::{self, AttemptCounts, RelayItem, SinkItem};
use super::state::Admin;
use super::sync::AnyQuery;
use crate::config::admin::Role;

/// Samples of an hour, unless something else was asked for.
const DEFAULT_WITHIN_SECONDS: u64 = 3_600;
/// Samples of a week, at most.
const MAX_WITHIN_SECONDS: u64 = 7 * 86_400;

#[derive(Serialize, ToSchema)]
pub(super) struct OverviewDocument {
    /// By the store's clock.
    now: Time,
    database: String,
    databases: Vec<String>,
    /// What the database is called; without a password.
    store: String,
    version: &'static str,
    admin: AdminItem,
    sinks: Vec<SinkItem>,
    relays: Vec<RelayItem>,
}

#[derive(Serialize, ToSchema)]
struct AdminItem {
    /// Whether the endpoints for operators are there.
    enabled: bool,
    /// What the caller's token may do: `none`, `read` or `operate`.
    role: &'static str,
}

/// One database with its sinks and relays
#[utoipa::path(get, path = "/api/v1/overview", tag = "overview", params(AnyQuery),
    responses((status = 200, body = OverviewDocument)))]
pub(super) async fn overview(
    State(admin): State<Arc<Admin>>,
    Extension(caller): Extension<Caller>,
    Asked(query): Asked<AnyQuery>,
) -> Answer<OverviewDocument> {
    let database = admin.database(query.database.as_deref())?;
    let store = &database.store;
    let (now, sinks, relays) =
        tokio::try_join!(database.ask(store.now()), database.sinks(), database.ask(store.relays()))?;
    let role = match caller.role {
        None => "none",
        Some(Role::Read) => "read",
        Some(Role::Operate) => "operate",
    };
    Ok(Json(OverviewDocument {
        now: Time(now),
        database: database.name.clone(),
        databases: admin.databases.iter().map(|database| database.name.clone()).collect(),
        store: database.place.clone(),
        version: env!("CARGO_PKG_VERSION"),
        admin: AdminItem { enabled: admin.access.enabled, role },
        sinks: sinks::joined(sinks, &relays),
        relays: relays.into_iter().map(RelayItem::from).collect(),
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

#[derive(Serialize, ToSchema)]
pub(super) struct SamplesDocument {
    samples: Vec<SampleItem>,
}

/// How one sink stood at the end of one interval, and what happened in it.
#[derive(Serialize, ToSchema)]
struct SampleItem {
    /// The end of the interval.
    at: Time,
    /// How long it was.
    seconds: f64,
    sink: String,
    pending: i64,
    due: i64,
    leased: i64,
    expired: i64,
    dead: i64,
    parked_lanes: i64,
    oldest_due_age_seconds: f64,
    attempts: AttemptCounts,
    /// From enqueue to delivery, for half of what was delivered.
    latency_p50_ms: Option<f64>,
    /// The same for 99 of 100.
    latency_p99_ms: Option<f64>,
}

/// What was measured lately, by time and sink
#[utoipa::path(get, path = "/api/v1/samples", tag = "overview", params(SamplesQuery),
    responses((status = 200, body = SamplesDocument)))]
pub(super) async fn samples(
    State(admin): State<Arc<Admin>>,
    Asked(query): Asked<SamplesQuery>,
) -> Answer<SamplesDocument> {
    let database = admin.database(query.database.as_deref())?;
    let within = query.within_seconds.unwrap_or(DEFAULT_WITHIN_SECONDS);
    if !(1..=MAX_WITHIN_SECONDS).contains(&within) {
        return Err(ApiError::invalid(format!("within_seconds must be from 1 to {MAX_WITHIN_SECONDS}")));
    }
    let samples = database.ask(database.store.samples(Duration::from_secs(within))).await?;
    Ok(Json(SamplesDocument { samples: samples.into_iter().map(SampleItem::from).collect() }))
}

impl From<Sample> for SampleItem {
    fn from(sample: Sample) -> Self {
        Self {
            at: Time(sample.at),
            seconds: sample.seconds,
            sink: sample.sink,
            pending: sample.pending,
            due: sample.due,
            leased: sample.leased,
            expired: sample.expired,
            dead: sample.dead,
            parked_lanes: sample.parked_lanes,
            oldest_due_age_seconds: sample.oldest_due_age_seconds,
            attempts: sample.attempts.into(),
            latency_p50_ms: sample.latency_p50_ms,
            latency_p99_ms: sample.latency_p99_ms,
        }
    }
}
