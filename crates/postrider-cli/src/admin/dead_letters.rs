//! Dead letters: looked through by filter, counted in groups, and put back or thrown away by the same filter. The
//! listing's cursor is opaque to callers.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::extract::State;
use axum::{Extension, Json};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use postrider::{DeadFilter, DeadGroup, DeadLetter, DeadPage};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use super::access::Caller;
use super::actions;
use super::error::{Answer, ApiError};
use super::input::{Asked, Limit, Sent, Time};
use super::state::Admin;
use super::sync::AnyQuery;
use crate::bulk::{Bulk, Counted};

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct DeadQuery {
    /// Which database; the first if it is left out.
    database: Option<String>,
    /// Of this sink.
    sink: Option<String>,
    /// Of this namespace.
    namespace: Option<String>,
    /// Of this topic.
    topic: Option<String>,
    /// Of this tenant.
    tenant_id: Option<Uuid>,
    /// In this lane.
    lane: Option<String>,
    /// For this reason: `FAILED` or `ATTEMPTS_EXHAUSTED`.
    reason: Option<String>,
    /// With this code; an empty one means those without any.
    error_code: Option<String>,
    /// Dead since this time or later.
    #[param(value_type = Option<String>, format = DateTime)]
    from: Option<Time>,
    /// Died before this time.
    #[param(value_type = Option<String>, format = DateTime)]
    to: Option<Time>,
    /// The `next` of the page before.
    after: Option<String>,
    /// At most this many.
    #[serde(default)]
    #[param(value_type = u32, required = false, minimum = 1, maximum = 1000, default = 100)]
    limit: Limit,
}

/// The same, without a page: groups are not paged.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct GroupQuery {
    /// Which database; the first if it is left out.
    database: Option<String>,
    /// Of this sink.
    sink: Option<String>,
    /// Of this namespace.
    namespace: Option<String>,
    /// Of this topic.
    topic: Option<String>,
    /// Of this tenant.
    tenant_id: Option<Uuid>,
    /// In this lane.
    lane: Option<String>,
    /// For this reason: `FAILED` or `ATTEMPTS_EXHAUSTED`.
    reason: Option<String>,
    /// With this code; an empty one means those without any.
    error_code: Option<String>,
    /// Dead since this time or later.
    #[param(value_type = Option<String>, format = DateTime)]
    from: Option<Time>,
    /// Died before this time.
    #[param(value_type = Option<String>, format = DateTime)]
    to: Option<Time>,
}

/// Which dead letters; everything that is given must hold.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
struct FilterBody {
    /// These messages.
    #[schema(max_items = 10_000)]
    message_ids: Option<Vec<Uuid>>,
    sink: Option<String>,
    namespace: Option<String>,
    topic: Option<String>,
    tenant_id: Option<Uuid>,
    lane: Option<String>,
    /// `FAILED` or `ATTEMPTS_EXHAUSTED`.
    reason: Option<String>,
    /// An empty one means those without any.
    error_code: Option<String>,
    /// Dead since this time or later.
    from: Option<Time>,
    /// Died before this time.
    to: Option<Time>,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ActBody {
    /// Which; an empty one is every dead letter.
    filter: FilterBody,
    /// Only count.
    #[serde(default)]
    dry_run: bool,
}

#[derive(Serialize, ToSchema)]
pub(super) struct ActDocument {
    /// How many there were of this kind.
    matching: u64,
    /// How many were changed.
    affected: u64,
    /// How many are left because one request does not take more.
    remaining: u64,
    /// Messages that were named and have no such dead letter.
    missing: Vec<Uuid>,
    dry_run: bool,
    /// Of a dry run: those were counted that died before. As `filter.to` of the action, it means the same ones.
    to: Option<Time>,
}

#[derive(Serialize, ToSchema)]
pub(super) struct DeadLettersDocument {
    items: Vec<DeadLetterItem>,
    /// For `after`; null if this was the last page.
    next: Option<String>,
}

#[derive(Serialize, ToSchema)]
struct DeadLetterItem {
    message_id: Uuid,
    sink: String,
    died_at: Time,
    reason: String,
    error_code: Option<String>,
    error_message: Option<String>,
    attempt_no: i32,
    attempt_count: i32,
    /// Whether its lane waits for it.
    parked: bool,
    namespace: String,
    topic: String,
    tenant_id: Option<Uuid>,
    lane: Option<String>,
    sequence_id: Option<i64>,
    occurred_at: Time,
    payload_size_bytes: i64,
}

#[derive(Serialize, ToSchema)]
pub(super) struct DeadGroupsDocument {
    items: Vec<DeadGroupItem>,
}

#[derive(Serialize, ToSchema)]
struct DeadGroupItem {
    sink: String,
    topic: String,
    reason: String,
    error_code: Option<String>,
    count: i64,
    first_died_at: Time,
    last_died_at: Time,
    /// Of the newest one.
    error_message: Option<String>,
}

/// Dead letters, newest first
#[utoipa::path(get, path = "/api/v1/dead-letters", tag = "dead letters", params(DeadQuery),
    responses((status = 200, body = DeadLettersDocument)))]
pub(super) async fn list(
    State(admin): State<Arc<Admin>>,
    Asked(query): Asked<DeadQuery>,
) -> Answer<DeadLettersDocument> {
    let database = admin.database(query.database.as_deref())?;
    let Limit(limit) = query.limit;
    let after = query.after.as_deref().map(read_cursor).transpose()?;
    let filter = DeadFilter {
        message_ids: None,
        sink: query.sink,
        namespace: query.namespace,
        topic: query.topic,
        tenant_id: query.tenant_id,
        lane: query.lane,
        reason: query.reason,
        error_code: query.error_code,
        died_from: query.from.map(|Time(time)| time),
        died_to: query.to.map(|Time(time)| time),
    };
    let letters = database.ask(database.store.dead_letters(&filter, &DeadPage { after, limit })).await?;
    let full = letters.len() >= usize::try_from(limit).unwrap_or(usize::MAX);
    let next = letters.last().filter(|_| full).map(cursor);
    Ok(Json(DeadLettersDocument { items: letters.into_iter().map(DeadLetterItem::from).collect(), next }))
}

/// Dead letters by sink, topic, reason and error code, the largest groups first
#[utoipa::path(get, path = "/api/v1/dead-letters/groups", tag = "dead letters", params(GroupQuery),
    responses((status = 200, body = DeadGroupsDocument)))]
pub(super) async fn groups(
    State(admin): State<Arc<Admin>>,
    Asked(query): Asked<GroupQuery>,
) -> Answer<DeadGroupsDocument> {
    let database = admin.database(query.database.as_deref())?;
    let filter = DeadFilter {
        message_ids: None,
        sink: query.sink,
        namespace: query.namespace,
        topic: query.topic,
        tenant_id: query.tenant_id,
        lane: query.lane,
        reason: query.reason,
        error_code: query.error_code,
        died_from: query.from.map(|Time(time)| time),
        died_to: query.to.map(|Time(time)| time),
    };
    let groups = database.ask(database.store.dead_groups(&filter)).await?;
    Ok(Json(DeadGroupsDocument { items: groups.into_iter().map(DeadGroupItem::from).collect() }))
}

/// Dead letters become pending again, with a new attempt budget
#[utoipa::path(post, path = "/api/v1/dead-letters/redrive", tag = "dead letters", params(AnyQuery),
    request_body = ActBody, responses((status = 200, body = ActDocument)))]
pub(super) async fn redrive(
    State(admin): State<Arc<Admin>>,
    Extension(caller): Extension<Caller>,
    Asked(query): Asked<AnyQuery>,
    Sent(body): Sent<ActBody>,
) -> Answer<ActDocument> {
    act(&admin, &caller, &query, Bulk::Redrive, body).await
}

/// Dead letters are given up for good
#[utoipa::path(post, path = "/api/v1/dead-letters/discard", tag = "dead letters", params(AnyQuery),
    request_body = ActBody, responses((status = 200, body = ActDocument)))]
pub(super) async fn discard(
    State(admin): State<Arc<Admin>>,
    Extension(caller): Extension<Caller>,
    Asked(query): Asked<AnyQuery>,
    Sent(body): Sent<ActBody>,
) -> Answer<ActDocument> {
    act(&admin, &caller, &query, Bulk::Discard, body).await
}

async fn act(
    admin: &Admin,
    caller: &Caller,
    query: &AnyQuery,
    bulk: fn(DeadFilter) -> Bulk,
    ActBody { filter, dry_run }: ActBody,
) -> Answer<ActDocument> {
    let database = admin.database(query.database.as_deref())?;
    let bulk = actions::dead_by_now(database, bulk(filter.check()?)).await?;
    let done = actions::until_done(database, &caller.actor(), &bulk, dry_run).await?;
    let to = match bulk {
        Bulk::Redrive(which) | Bulk::Discard(which) if dry_run => which.died_to.map(Time::from),
        _ => None,
    };
    let Counted { matching, missing, .. } = done.counted;
    Ok(Json(ActDocument { matching, affected: done.affected, remaining: done.remaining, missing, dry_run, to }))
}

impl FilterBody {
    fn check(self) -> Result<DeadFilter, ApiError> {
        actions::check_ids(self.message_ids.as_ref())?;
        Ok(DeadFilter {
            message_ids: self.message_ids,
            sink: self.sink,
            namespace: self.namespace,
            topic: self.topic,
            tenant_id: self.tenant_id,
            lane: self.lane,
            reason: self.reason,
            error_code: self.error_code,
            died_from: self.from.map(|Time(time)| time),
            died_to: self.to.map(|Time(time)| time),
        })
    }
}

/// Where a page ended: microseconds, message and sink.
fn cursor(last: &DeadLetter) -> String {
    let micros = last.died_at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_micros();
    URL_SAFE_NO_PAD.encode(format!("{micros}/{}/{}", last.message_id, last.sink))
}

fn read_cursor(text: &str) -> Result<(SystemTime, Uuid, String), ApiError> {
    let read = || {
        let text = String::from_utf8(URL_SAFE_NO_PAD.decode(text).ok()?).ok()?;
        let mut parts = text.splitn(3, '/');
        let micros = Duration::from_micros(parts.next()?.parse().ok()?);
        let id = parts.next()?.parse().ok()?;
        Some((SystemTime::UNIX_EPOCH.checked_add(micros)?, id, parts.next()?.to_owned()))
    };
    read().ok_or_else(|| ApiError::invalid("after is not the `next` of another page"))
}

impl From<DeadLetter> for DeadLetterItem {
    fn from(letter: DeadLetter) -> Self {
        Self {
            message_id: letter.message_id,
            sink: letter.sink,
            died_at: Time(letter.died_at),
            reason: letter.reason,
            error_code: letter.error_code,
            error_message: letter.error_message,
            attempt_no: letter.attempt_no,
            attempt_count: letter.attempt_count,
            parked: letter.parked,
            namespace: letter.namespace,
            topic: letter.topic,
            tenant_id: letter.tenant_id,
            lane: letter.lane,
            sequence_id: letter.sequence_id,
            occurred_at: Time(letter.occurred_at),
            payload_size_bytes: letter.payload_size_bytes,
        }
    }
}

impl From<DeadGroup> for DeadGroupItem {
    fn from(group: DeadGroup) -> Self {
        Self {
            sink: group.sink,
            topic: group.topic,
            reason: group.reason,
            error_code: group.error_code,
            count: group.count,
            first_died_at: Time(group.first_died_at),
            last_died_at: Time(group.last_died_at),
            error_message: group.error_message,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_as_it_was_written() {
        let at = SystemTime::UNIX_EPOCH + Duration::from_micros(1_700_000_000_123_456);
        let id = Uuid::from_u128(7);
        let text = URL_SAFE_NO_PAD.encode(format!("1700000000123456/{id}/a/b"));
        assert_eq!(read_cursor(&text).unwrap(), (at, id, "a/b".to_owned()));
        for wrong in ["", "!", "AAAA", &URL_SAFE_NO_PAD.encode("1/2/3"), &URL_SAFE_NO_PAD.encode(format!("1/{id}"))] {
            assert!(read_cursor(wrong).is_err(), "{wrong}");
        }
    }
}
