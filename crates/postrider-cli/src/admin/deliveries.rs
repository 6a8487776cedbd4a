//! Pending deliveries: taken back, or made due at once, by filter and in batches like the actions on dead letters.

use std::sync::Arc;

use axum::extract::State;
use axum::{Extension, Json};
use postrider::DeliveryFilter;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::access::Caller;
use super::actions;
use super::error::{Answer, ApiError};
use super::input::{Asked, Sent};
use super::state::Admin;
use super::sync::AnyQuery;
use crate::bulk::{Bulk, Counted};

/// Which deliveries; everything that is given must hold.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
struct DeliveryFilterBody {
    /// Of these messages.
    #[schema(max_items = 10_000)]
    message_ids: Option<Vec<Uuid>>,
    sink: Option<String>,
    namespace: Option<String>,
    topic: Option<String>,
    tenant_id: Option<Uuid>,
    lane: Option<String>,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct DeliveriesBody {
    /// Which; an empty one is every pending delivery.
    filter: DeliveryFilterBody,
    /// Only count.
    #[serde(default)]
    dry_run: bool,
}

#[derive(Serialize, ToSchema)]
pub(super) struct DeliveriesDocument {
    /// How many there were of this kind.
    matching: u64,
    /// How many were changed.
    affected: u64,
    /// How many are left because one request does not take more.
    remaining: u64,
    /// Of a cancel: held by workers, and left alone.
    leased: u64,
    /// Messages that were named and have no such delivery.
    missing: Vec<Uuid>,
    dry_run: bool,
}

/// Pending deliveries are taken back: they are never handed out, and their lanes go on
#[utoipa::path(post, path = "/api/v1/cancel", tag = "messages", params(AnyQuery), request_body = DeliveriesBody,
    responses((status = 200, body = DeliveriesDocument)))]
pub(super) async fn cancel(
    State(admin): State<Arc<Admin>>,
    Extension(caller): Extension<Caller>,
    Asked(query): Asked<AnyQuery>,
    Sent(body): Sent<DeliveriesBody>,
) -> Answer<DeliveriesDocument> {
    act(&admin, &caller, &query, Bulk::Cancel, body).await
}

/// What waits for a retry, or for its time, becomes due at once
#[utoipa::path(post, path = "/api/v1/retry-now", tag = "messages", params(AnyQuery), request_body = DeliveriesBody,
    responses((status = 200, body = DeliveriesDocument)))]
pub(super) async fn retry_now(
    State(admin): State<Arc<Admin>>,
    Extension(caller): Extension<Caller>,
    Asked(query): Asked<AnyQuery>,
    Sent(body): Sent<DeliveriesBody>,
) -> Answer<DeliveriesDocument> {
    act(&admin, &caller, &query, Bulk::RetryNow, body).await
}

async fn act(
    admin: &Admin,
    caller: &Caller,
    query: &AnyQuery,
    bulk: fn(DeliveryFilter) -> Bulk,
    DeliveriesBody { filter, dry_run }: DeliveriesBody,
) -> Answer<DeliveriesDocument> {
    let database = admin.database(query.database.as_deref())?;
    let bulk = bulk(filter.check()?);
    let done = actions::until_done(database, &caller.actor(), &bulk, dry_run).await?;
    let Counted { matching, leased, missing } = done.counted;
    let (affected, remaining) = (done.affected, done.remaining);
    Ok(Json(DeliveriesDocument { matching, affected, remaining, leased, missing, dry_run }))
}

impl DeliveryFilterBody {
    fn check(self) -> Result<DeliveryFilter, ApiError> {
        actions::check_ids(self.message_ids.as_ref())?;
        let Self { message_ids, sink, namespace, topic, tenant_id, lane } = self;
        Ok(DeliveryFilter { message_ids, sink, namespace, topic, tenant_id, lane })
    }
}
