//! Messages: searched, shown with all that happened to them, explained, and enqueued by hand. A payload is passed on as it
//! was written, number by number.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use jiff::Timestamp;
use postrider::inspect::{ListFilter, MessageDetail, MessageSummary, Page};
use postrider::{Enqueued, Message};
use serde::Deserialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;
use uuid::Uuid;

use super::error::{Answer, ApiError};
use super::input::{self, Body, DatabaseQuery, Filtered, OnDatabase, PageQuery};
use super::state::Admin;
use crate::advice::Explained;
use crate::maybe::Maybe as _;

/// Messages, newest first
#[utoipa::path(get, path = "/api/v1/messages", tag = "messages", params(PageQuery, ListFilter),
    responses((status = 200, body = Page<MessageSummary>)))]
pub(super) async fn list(
    State(admin): State<Arc<Admin>>,
    Filtered(query, filter): Filtered<PageQuery, ListFilter>,
) -> Answer<Page<MessageSummary>> {
    let (database, page) = (query.of(&admin)?, query.page());
    if filter.dedupe_key.as_deref() == Some("") {
        return Err(ApiError::invalid("dedupe_key must not be empty"));
    }
    database.ask(database.store.list(&filter, &page)).await.map(Json)
}

/// One message with its content, its deliveries and every attempt
#[utoipa::path(get, path = "/api/v1/messages/{id}", tag = "messages",
    params(("id" = Uuid, Path, description = "The message."), DatabaseQuery),
    responses((status = 200, body = MessageDetail)))]
pub(super) async fn show(on: OnDatabase, Path(id): Path<String>) -> Answer<MessageDetail> {
    let id = input::id(&id)?;
    let message = on.ask(on.store.show(id)).await?.ok_or_else(|| no_message(id))?;
    Ok(Json(message))
}

/// Why a message is where it is, for each sink, and what to do
#[utoipa::path(get, path = "/api/v1/messages/{id}/explain", tag = "messages",
    params(("id" = Uuid, Path, description = "The message."), DatabaseQuery),
    responses((status = 200, body = Explained)))]
pub(super) async fn explain(on: OnDatabase, Path(id): Path<String>) -> Answer<Explained> {
    let id = input::id(&id)?;
    let explained = on.ask(on.store.explain(id)).await?.ok_or_else(|| no_message(id))?;
    Ok(Json(Explained::new(explained)))
}

fn no_message(id: Uuid) -> ApiError {
    ApiError::not_found(format!("there is no message {id}"))
        .hint("it was never enqueued here, or is pruned already; is it in another database?")
}

/// A message to enqueue.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct EnqueueBody {
    topic: String,
    /// Any JSON.
    #[schema(value_type = Value)]
    payload: Box<RawValue>,
    namespace: Option<String>,
    tenant_id: Option<String>,
    lane: Option<String>,
    dedupe_key: Option<String>,
    #[schema(minimum = -100, maximum = 100)]
    priority: Option<i32>,
    headers: Option<BTreeMap<String, String>>,
    /// Not before this time.
    #[schema(value_type = Option<String>, format = DateTime)]
    due_at: Option<Timestamp>,
}

/// Enqueue one message, in a transaction of its own
#[utoipa::path(post, path = "/api/v1/messages", tag = "messages", params(DatabaseQuery), request_body = EnqueueBody,
    responses((status = 201, body = Enqueued)))]
pub(super) async fn enqueue(
    on: OnDatabase,
    Body(body): Body<EnqueueBody>,
) -> Result<(StatusCode, Json<Enqueued>), ApiError> {
    let enqueued = on.enqueue(&on.caller.actor(), &body.message()?).await?;
    Ok((StatusCode::CREATED, Json(enqueued)))
}

impl EnqueueBody {
    fn message(self) -> Result<Message, ApiError> {
        let mut message = Message::json(self.topic, &self.payload)
            .map_err(postrider::Error::from)?
            .maybe(self.namespace, Message::namespace)
            .maybe(self.tenant_id, Message::tenant)
            .maybe(self.lane, Message::lane)
            .maybe(self.dedupe_key, Message::dedupe_key)
            .maybe(self.priority, Message::priority)
            .maybe(self.due_at.map(SystemTime::from), Message::due_at);
        message =
            self.headers.into_iter().flatten().fold(message, |message, (name, value)| message.header(name, value));
        message.check().map_err(postrider::Error::from)?;
        Ok(message)
    }
}
