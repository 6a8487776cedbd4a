//! What people ask about messages and lanes of an outbox in PostgreSQL: found page by page and never at more than a bounded
//! number, shown, explained. Called by `inspect.rs`. The filters are SQL's, in `find_messages.sql`, `find_ids.sql` and
//! `find_keys.sql`.

use tokio_postgres::types::Type;
use uuid::Uuid;

use super::PostgresStore;
use super::statement::{Answer, Argument, Parameter, int, sql};
use crate::error::Error;
use crate::explain::{self, Explanation, Facts};
use crate::inspect::{
    Cursor, Inspect as _, LaneFilter, LaneStatus, ListFilter, MAX_IDS_LOOKED_AT, MAX_KEY_TOPICS, MAX_LOOKED_AT,
    MAX_NAMED, MAX_PAGE, MessageDetail, MessageSummary, Named, Page, PageRequest, just_after,
};
use crate::store::row::{FromRow as _, Row as _};

pub(super) async fn list(
    store: &PostgresStore,
    filter: &ListFilter,
    page: &PageRequest,
) -> Result<Page<MessageSummary>, Error> {
    let range = filter.ids(page.after.as_ref().map(Cursor::message).transpose()?);
    let Some(Named { ids, look_on }) = named(store, filter, range).await? else {
        return list_between(store, filter, range, page.limit).await;
    };
    let mut found = Vec::new();
    for id in &ids {
        found.extend(list_between(store, filter, (*id, just_after(*id)), page.limit).await?.items);
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
    let meant = |id: &Uuid| (id_from..id_before).contains(id) && filter.id.as_ref().is_none_or(|tail| tail.ends(*id));
    if let Some(key) = &filter.dedupe_key {
        let mut ids = with_key(store, filter, key).await?;
        ids.retain(meant);
        ids.sort_unstable_by(|one, other| other.cmp(one));
        ids.truncate(MAX_NAMED as usize);
        return Ok(Some(Named { ids, look_on: None }));
    }
    let Some(tail) = &filter.id else { return Ok(None) };
    if let Some(id) = tail.whole() {
        return Ok(Some(Named { ids: vec![id].into_iter().filter(meant).collect(), look_on: None }));
    }
    let answer = store
        .look_up(
            "find_ids",
            &[
                ("id_tail", &tail.digits(), Type::TEXT),
                ("id_from", &id_from, Type::UUID),
                ("id_before", &id_before, Type::UUID),
                ("page_size", &int(MAX_NAMED), Type::INT4),
                ("look_at", &int(MAX_IDS_LOOKED_AT), Type::INT4),
            ],
        )
        .await?;
    let ids = answer.values::<Option<Uuid>>()?.into_iter().flatten().collect();
    Ok(Some(Named { ids, look_on: look_on(&answer)? }))
}

async fn with_key(store: &PostgresStore, filter: &ListFilter, key: &str) -> Result<Vec<Uuid>, Error> {
    let which: [Argument<'_>; 4] = [
        ("dedupe_key", &key, Type::TEXT),
        ("namespace", &filter.namespace, Type::TEXT),
        ("topic", &filter.one_topic(), Type::TEXT),
        ("most_topics", &int(MAX_KEY_TOPICS), Type::INT4),
    ];
    store.look_up("find_keys", &which).await?.values()
}

async fn list_between(
    store: &PostgresStore,
    filter: &ListFilter,
    (id_from, id_before): (Uuid, Uuid),
    limit: u32,
) -> Result<Page<MessageSummary>, Error> {
    let limit = limit.clamp(1, MAX_PAGE);
    let answer = store
        .look_up(
            "find_messages",
            &[
                ("state", &filter.state, Type::TEXT),
                ("namespace", &filter.namespace, Type::TEXT),
                ("topic", &filter.topic, Type::TEXT),
                ("tenant_id", &filter.tenant_id, Type::TEXT),
                ("lane", &filter.lane, Type::TEXT),
                ("sink", &filter.sink, Type::TEXT),
                ("id_from", &id_from, Type::UUID),
                ("id_before", &id_before, Type::UUID),
                ("page_size", &int(limit), Type::INT4),
                ("look_at", &int(MAX_LOOKED_AT), Type::INT4),
            ],
        )
        .await?;
    // The row without a message, if there is one, is the last.
    let look_on = look_on(&answer)?;
    let lines = if look_on.is_some() { &answer[..answer.len() - 1] } else { &answer[..] };
    let items = lines.iter().map(MessageSummary::from_row).collect::<Result<Vec<_>, _>>()?;
    Ok(Page::of(items, limit, look_on))
}

/// Where the next page goes on, if this one did not see all: the last row says so.
fn look_on(answer: &Answer) -> Result<Option<Uuid>, Error> {
    Ok(answer.last().map(|row| row.read("look_on")).transpose()?.flatten())
}

pub(super) async fn lanes(
    store: &PostgresStore,
    filter: &LaneFilter,
    page: &PageRequest,
) -> Result<Page<LaneStatus>, Error> {
    let limit = page.limit.clamp(1, MAX_PAGE);
    let after = page.after.as_ref().map(Cursor::lane).transpose()?;
    let which: [Parameter<'_>; 5] = [
        (&filter.sink, Type::TEXT),
        (&filter.lane, Type::TEXT),
        (&filter.state, Type::TEXT),
        (&int(limit), Type::INT4),
        (&after, Type::TEXT),
    ];
    Ok(Page::of_lanes(store.ask(sql!("list", "lanes"), &which).await?.all()?, limit))
}

pub(super) async fn show(store: &PostgresStore, message_id: Uuid) -> Result<Option<MessageDetail>, Error> {
    let id: [Parameter<'_>; 1] = [(&message_id, Type::UUID)];
    let Some(detail) = store.ask(sql!("list", "message"), &id).await?.one()? else { return Ok(None) };
    let deliveries = store.ask(sql!("list", "deliveries"), &id).await?.all()?;
    let attempts = store.ask(sql!("list", "attempts"), &id).await?.all()?;
    Ok(Some(MessageDetail { deliveries, attempts, ..detail }))
}

/// The facts are asked for one after the other; what changes in between is told as it was at some moment of it.
pub(super) async fn explain(store: &PostgresStore, message_id: Uuid) -> Result<Option<Explanation>, Error> {
    let Some(detail) = show(store, message_id).await? else { return Ok(None) };
    let paused = store.ask(sql!("list", "paused_sinks"), &[]).await?.values()?;
    let sinks: Vec<&str> = detail.deliveries.iter().map(|delivery| delivery.sink.as_str()).collect();
    let heads = match &detail.lane {
        Some(lane) => {
            let which = [(&sinks as _, Type::TEXT_ARRAY), (lane as _, Type::TEXT)];
            store.ask(sql!("list", "lane_heads"), &which).await?.all()?
        }
        None => Vec::new(),
    };
    let relays = store.relays().await?;
    let now = store.now().await?;
    Ok(Some(explain::explain(&Facts { now, detail, paused, heads, relays })))
}
