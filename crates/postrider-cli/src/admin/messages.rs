//! Messages: searched, shown with all that happened to them, explained, and enqueued by hand. A payload is passed on as it
//! was written, number by number.

mod detail;

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::{Extension, Json};
use postrider::{Explanation, ListFilter, ListState, Message, MessageSummary, NotAnIdTail, enqueued_at};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

pub(super) use self::detail::MessageDocument;
use super::access::Caller;
use super::error::{Answer, ApiError};
use super::input::{self, Asked, Limit, Sent, Time};
use super::state::Admin;
use super::sync::AnyQuery;

/// Where a message stands.
#[derive(Clone, Copy, Debug, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum MessageState {
    Pending,
    Leased,
    Dead,
    Delivered,
    Discarded,
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct MessageQuery {
    /// Which database; the first if it is left out.
    database: Option<String>,
    /// In this state.
    #[param(inline)]
    state: Option<MessageState>,
    /// Of this namespace.
    namespace: Option<String>,
    /// Of this topic; `*` stands for any characters, as in a route.
    topic: Option<String>,
    /// With this id, or with an id that ends so: at least 4 hexadecimal digits. Looks at all that is undelivered or
    /// dead, and at the newest 100,000 messages.
    #[param(pattern = "^[0-9a-fA-F]{4,32}$")]
    id: Option<String>,
    /// With this dedupe key.
    #[param(min_length = 1)]
    dedupe_key: Option<String>,
    /// Of this tenant.
    tenant_id: Option<Uuid>,
    /// In this lane.
    lane: Option<String>,
    /// For this sink.
    sink: Option<String>,
    /// Enqueued at this time or later.
    #[param(value_type = Option<String>, format = DateTime)]
    from: Option<Time>,
    /// Enqueued before this time.
    #[param(value_type = Option<String>, format = DateTime)]
    to: Option<Time>,
    /// Enqueued before this message: the `next` of the page before.
    before: Option<Uuid>,
    /// At most this many.
    #[serde(default)]
    #[param(value_type = u32, required = false, minimum = 1, maximum = 1000, default = 100)]
    limit: Limit,
}

#[derive(Serialize, ToSchema)]
pub(super) struct MessagesDocument {
    items: Vec<MessageItem>,
    /// For `before`; null if this was the last page. A page may be short, or empty, and have another behind it: a search
    /// looks at a bounded number of messages.
    next: Option<Uuid>,
    /// How far back the search came, if it stopped before the end.
    searched_from: Option<Time>,
}

/// A message and one of its deliveries.
#[derive(Serialize, ToSchema)]
struct MessageItem {
    message_id: Uuid,
    enqueued_at: Time,
    namespace: String,
    topic: String,
    lane: Option<String>,
    sequence_id: Option<i64>,
    /// Null if nothing is left to deliver.
    sink: Option<String>,
    state: String,
    attempt_no: Option<i32>,
    due_at: Option<Time>,
}

/// Messages, newest first
#[utoipa::path(get, path = "/api/v1/messages", tag = "messages", params(MessageQuery),
    responses((status = 200, body = MessagesDocument)))]
pub(super) async fn list(
    State(admin): State<Arc<Admin>>,
    Asked(query): Asked<MessageQuery>,
) -> Answer<MessagesDocument> {
    let database = admin.database(query.database.as_deref())?;
    if query.dedupe_key.as_deref() == Some("") {
        return Err(ApiError::invalid("dedupe_key must not be empty"));
    }
    let filter = ListFilter {
        state: query.state.map(|state| match state {
            MessageState::Pending => ListState::Pending,
            MessageState::Leased => ListState::Leased,
            MessageState::Dead => ListState::Dead,
            MessageState::Delivered => ListState::Delivered,
            MessageState::Discarded => ListState::Discarded,
        }),
        id_tail: query
            .id
            .map(|id| id.parse())
            .transpose()
            .map_err(|wrong: NotAnIdTail| ApiError::invalid(format!("id: {wrong}")))?,
        dedupe_key: query.dedupe_key,
        namespace: query.namespace,
        from: query.from.map(|Time(time)| time),
        to: query.to.map(|Time(time)| time),
        topic: query.topic,
        tenant_id: query.tenant_id,
        lane: query.lane,
        sink: query.sink,
        before: query.before,
        limit: query.limit.0,
    };
    let page = database.ask(database.store.list(&filter)).await?;
    let searched_from = page.next.map(|id| Time(enqueued_at(id)));
    let items = page.items.into_iter().map(MessageItem::from).collect();
    Ok(Json(MessagesDocument { items, next: page.next, searched_from }))
}

impl From<MessageSummary> for MessageItem {
    fn from(line: MessageSummary) -> Self {
        Self {
            message_id: line.message_id,
            enqueued_at: Time(line.enqueued_at),
            namespace: line.namespace,
            topic: line.topic,
            lane: line.lane,
            sequence_id: line.sequence_id,
            sink: line.sink,
            state: line.state,
            attempt_no: line.attempt_no,
            due_at: line.due_at.map(Time),
        }
    }
}

/// One message with its content, its deliveries and every attempt
#[utoipa::path(get, path = "/api/v1/messages/{id}", tag = "messages",
    params(("id" = Uuid, Path, description = "The message."), AnyQuery),
    responses((status = 200, body = MessageDocument)))]
pub(super) async fn show(
    State(admin): State<Arc<Admin>>,
    Path(id): Path<String>,
    Asked(query): Asked<AnyQuery>,
) -> Answer<MessageDocument> {
    let (database, id) = (admin.database(query.database.as_deref())?, input::id(&id)?);
    let message = database.ask(database.store.show(id)).await?.ok_or_else(|| no_message(id))?;
    Ok(Json(MessageDocument::from(message)))
}

#[derive(Serialize, ToSchema)]
pub(super) struct ExplanationDocument {
    message_id: Uuid,
    deliveries: Vec<ReasonItem>,
}

/// Why one delivery is where it is.
#[derive(Serialize, ToSchema)]
struct ReasonItem {
    sink: String,
    #[schema(example = "LANE_PARKED")]
    code: &'static str,
    why: String,
    advice: String,
    /// The message that has to go first.
    behind: Option<Uuid>,
}

/// Why a message is where it is, for each sink, and what to do
#[utoipa::path(get, path = "/api/v1/messages/{id}/explain", tag = "messages",
    params(("id" = Uuid, Path, description = "The message."), AnyQuery),
    responses((status = 200, body = ExplanationDocument)))]
pub(super) async fn explain(
    State(admin): State<Arc<Admin>>,
    Path(id): Path<String>,
    Asked(query): Asked<AnyQuery>,
) -> Answer<ExplanationDocument> {
    let (database, id) = (admin.database(query.database.as_deref())?, input::id(&id)?);
    let explained = database.ask(database.store.explain(id)).await?.ok_or_else(|| no_message(id))?;
    let Explanation { message_id, deliveries } = explained;
    let deliveries = deliveries.into_iter().map(|reason| ReasonItem {
        sink: reason.sink,
        code: reason.code,
        why: reason.why,
        advice: reason.advice,
        behind: reason.behind,
    });
    Ok(Json(ExplanationDocument { message_id, deliveries: deliveries.collect() }))
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
    tenant_id: Option<Uuid>,
    lane: Option<String>,
    dedupe_key: Option<String>,
    #[schema(minimum = -100, maximum = 100)]
    priority: Option<i32>,
    headers: Option<BTreeMap<String, String>>,
    /// Not before this time.
    due_at: Option<Time>,
}

#[derive(Serialize, ToSchema)]
pub(super) struct EnqueuedDocument {
    message_id: Uuid,
    sequence_id: Option<i64>,
    /// False if the dedupe key was known: nothing was written, and this is the message that was.
    created: bool,
}

/// Enqueue one message, in a transaction of its own
#[utoipa::path(post, path = "/api/v1/messages", tag = "messages", params(AnyQuery), request_body = EnqueueBody,
    responses((status = 201, body = EnqueuedDocument)))]
pub(super) async fn enqueue(
    State(admin): State<Arc<Admin>>,
    Extension(caller): Extension<Caller>,
    Asked(query): Asked<AnyQuery>,
    Sent(body): Sent<EnqueueBody>,
) -> Result<(StatusCode, Json<EnqueuedDocument>), ApiError> {
    let database = admin.database(query.database.as_deref())?;
    let message = body.message()?;
    let enqueued = database.enqueue(&caller.actor(), &message).await?;
    let document = EnqueuedDocument {
        message_id: enqueued.message_id,
        sequence_id: enqueued.sequence_id,
        created: enqueued.created,
    };
    Ok((StatusCode::CREATED, Json(document)))
}

impl EnqueueBody {
    fn message(self) -> Result<Message, ApiError> {
        let mut message = Message::json(self.topic, &self.payload).map_err(postrider::Error::from)?;
        if let Some(namespace) = self.namespace {
            message = message.namespace(namespace);
        }
        if let Some(tenant) = self.tenant_id {
            message = message.tenant(tenant);
        }
        if let Some(lane) = self.lane {
            message = message.lane(lane);
        }
        if let Some(key) = self.dedupe_key {
            message = message.dedupe_key(key);
        }
        if let Some(priority) = self.priority {
            message = message.priority(priority);
        }
        if let Some(Time(due_at)) = self.due_at {
            message = message.due_at(due_at);
        }
        message =
            self.headers.into_iter().flatten().fold(message, |message, (name, value)| message.header(name, value));
        message.check().map_err(postrider::Error::from)?;
        Ok(message)
    }
}
