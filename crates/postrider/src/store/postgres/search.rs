//! Looks through the messages and lanes of an outbox in PostgreSQL, page by page and never at more than a bounded number.
//! Called by the store's `Inspect`. The filters are SQL's, in `find_messages.sql`, `find_ids.sql`,
//! `find_keys.sql` and `queries/lanes.sql`.

use tokio_postgres::Row;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::{PostgresStore, int};
use crate::error::Error;
use crate::inspect::{
    LaneFilter, LaneState, LaneStatus, ListFilter, ListState, MAX_IDS_LOOKED_AT, MAX_KEY_TOPICS, MAX_LOOKED_AT,
    MAX_NAMED, MAX_PAGE, MessageSummary, Named, Page, just_after,
};

pub(super) async fn list(store: &PostgresStore, filter: &ListFilter) -> Result<Page<MessageSummary>, Error> {
    let range = filter.ids();
    let Some(Named { ids, look_on }) = named(store, filter, range).await? else {
        return list_between(store, filter, range).await;
    };
    let mut found = Vec::new();
    for id in &ids {
        found.extend(list_between(store, filter, (*id, just_after(*id))).await?.items);
    }
    Ok(Page::of_named(found, ids.len(), look_on))
}

/// The messages that are named by the end of their id or by a dedupe key, newest first, and where the looking ended;
/// `None`: the filter names none.
async fn named(
    store: &PostgresStore,
    filter: &ListFilter,
    (id_from, id_before): (Uuid, Uuid),
) -> Result<Option<Named>, Error> {
    let meant =
        |id: &Uuid| (id_from..id_before).contains(id) && filter.id_tail.as_ref().is_none_or(|tail| tail.ends(*id));
    if let Some(key) = &filter.dedupe_key {
        let mut ids = with_key(store, filter, key).await?;
        ids.retain(meant);
        ids.sort_unstable_by(|one, other| other.cmp(one));
        ids.truncate(MAX_NAMED as usize);
        return Ok(Some(Named { ids, look_on: None }));
    }
    let Some(tail) = &filter.id_tail else { return Ok(None) };
    if let Some(id) = tail.whole() {
        return Ok(Some(Named { ids: vec![id].into_iter().filter(meant).collect(), look_on: None }));
    }
    let rows = store
        .ask(
            "select message_id, look_on from outbox.find_ids(id_tail => $1, id_from => $2, id_before => $3, \
             page_size => $4, look_at => $5)",
            &[
                (&tail.digits(), Type::TEXT),
                (&id_from, Type::UUID),
                (&id_before, Type::UUID),
                (&int(MAX_NAMED), Type::INT4),
                (&int(MAX_IDS_LOOKED_AT), Type::INT4),
            ],
        )
        .await?;
    let ids: Vec<Option<Uuid>> = rows.iter().map(|row| row.try_get("message_id")).collect::<Result<_, _>>()?;
    let look_on = rows.last().map(|row| row.try_get("look_on")).transpose()?.flatten();
    Ok(Some(Named { ids: ids.into_iter().flatten().collect(), look_on }))
}

async fn with_key(store: &PostgresStore, filter: &ListFilter, key: &str) -> Result<Vec<Uuid>, Error> {
    let rows = store
        .ask(
            "select f as message_id from outbox.find_keys(dedupe_key => $1, namespace => $2, topic => $3, \
             most_topics => $4) f",
            &[
                (&key, Type::TEXT),
                (&filter.namespace, Type::TEXT),
                (&filter.one_topic(), Type::TEXT),
                (&int(MAX_KEY_TOPICS), Type::INT4),
            ],
        )
        .await?;
    rows.iter().map(|row| Ok(row.try_get("message_id")?)).collect()
}

async fn list_between(
    store: &PostgresStore,
    filter: &ListFilter,
    (id_from, id_before): (Uuid, Uuid),
) -> Result<Page<MessageSummary>, Error> {
    let limit = filter.limit.clamp(1, MAX_PAGE);
    let rows = store
        .ask(
            "select message_id, enqueued_at, namespace, topic, lane, sequence_id, sink, state, attempt_no, due_at, look_on \
             from outbox.find_messages(state => $1, namespace => $2, topic => $3, tenant_id => $4, lane => $5, \
             sink => $6, id_from => $7, id_before => $8, page_size => $9, look_at => $10)",
            &[
                (&filter.state.map(ListState::as_str), Type::TEXT),
                (&filter.namespace, Type::TEXT),
                (&filter.topic, Type::TEXT),
                (&filter.tenant_id, Type::UUID),
                (&filter.lane, Type::TEXT),
                (&filter.sink, Type::TEXT),
                (&id_from, Type::UUID),
                (&id_before, Type::UUID),
                (&int(limit), Type::INT4),
                (&int(MAX_LOOKED_AT), Type::INT4),
            ],
        )
        .await?;
    // The row without a message, if there is one, is the last.
    let look_on = rows.last().map(|row| row.try_get("look_on")).transpose()?.flatten();
    let lines = if look_on.is_some() { &rows[..rows.len() - 1] } else { &rows[..] };
    let items = lines.iter().map(message_summary).collect::<Result<Vec<_>, _>>()?;
    Ok(Page::of(items, limit, look_on))
}

pub(super) async fn lanes(store: &PostgresStore, filter: &LaneFilter) -> Result<Vec<LaneStatus>, Error> {
    let rows = store
        .ask(
            include_str!("../../../sql/postgres/queries/lanes.sql"),
            &[
                (&filter.sink, Type::TEXT),
                (&filter.lane, Type::TEXT),
                (&filter.state.map(LaneState::as_str), Type::TEXT),
                (&i64::from(filter.limit.min(MAX_PAGE)), Type::INT8),
            ],
        )
        .await?;
    rows.iter().map(lane_status).collect()
}

fn message_summary(row: &Row) -> Result<MessageSummary, Error> {
    Ok(MessageSummary {
        message_id: row.try_get("message_id")?,
        enqueued_at: row.try_get("enqueued_at")?,
        namespace: row.try_get("namespace")?,
        topic: row.try_get("topic")?,
        lane: row.try_get("lane")?,
        sequence_id: row.try_get("sequence_id")?,
        sink: row.try_get("sink")?,
        state: row.try_get("state")?,
        attempt_no: row.try_get("attempt_no")?,
        due_at: row.try_get("due_at")?,
    })
}

fn lane_status(row: &Row) -> Result<LaneStatus, Error> {
    Ok(LaneStatus {
        sink: row.try_get("sink")?,
        lane: row.try_get("lane")?,
        state: LaneState::from_word(row.try_get("state")?),
        depth: row.try_get("depth")?,
        head_sequence_id: row.try_get("head_sequence_id")?,
        head_message_id: row.try_get("head_message_id")?,
        head_due_at: row.try_get("head_due_at")?,
        head_attempt_count: row.try_get("head_attempt_count")?,
        head_error_code: row.try_get("head_error_code")?,
        head_error_message: row.try_get("head_error_message")?,
    })
}
