//! What people ask about messages and lanes of an outbox in SQLite: found page by page and never at more than a bounded number,
//! shown, explained. Called by `inspect.rs`, on the reader's connection. Nothing here writes.

use rusqlite::{ToSql, Transaction};
use uuid::Uuid;

use super::statement::{all, first, sql, value, values};
use crate::error::{Cause, Error};
use crate::explain::{self, Explanation, Facts};
use crate::inspect::{
    Cursor, DeliveryRecord, DeliveryState, Entry, LaneFilter, LaneStatus, ListFilter, MAX_IDS_LOOKED_AT,
    MAX_KEY_TOPICS, MAX_LOOKED_AT, MAX_NAMED, MAX_PAGE, MessageDetail, MessageSummary, Named, Page, PageRequest,
    just_after,
};
use crate::store::row::{FromRow as _, Row, time};

pub(super) fn list(
    tx: &Transaction<'_>,
    filter: &ListFilter,
    page: &PageRequest,
) -> Result<Page<MessageSummary>, Error> {
    let range = filter.ids(page.after.as_ref().map(Cursor::message).transpose()?);
    let Some(Named { ids, look_on }) = named(tx, filter, range)? else {
        return list_between(tx, filter, range, page.limit);
    };
    let mut found = Vec::new();
    for id in &ids {
        found.extend(list_between(tx, filter, (*id, just_after(*id)), page.limit)?.items);
    }
    Ok(Page::of_named(found, ids.len(), look_on))
}

/// The messages that are named by the end of their id or by a dedupe key, newest first, and where the looking ended;
/// `None`: the filter names none.
fn named(
    tx: &Transaction<'_>,
    filter: &ListFilter,
    (id_from, id_before): (Uuid, Uuid),
) -> Result<Option<Named>, Error> {
    let newest_first = |mut ids: Vec<Uuid>| {
        ids.retain(|id| (id_from..id_before).contains(id) && filter.id.as_ref().is_none_or(|tail| tail.ends(*id)));
        ids.sort_unstable_by(|one, other| other.cmp(one));
        ids.dedup();
        ids.truncate(MAX_NAMED as usize);
        ids
    };
    if let Some(key) = &filter.dedupe_key {
        return Ok(Some(Named { ids: newest_first(with_key(tx, filter, key)?), look_on: None }));
    }
    let Some(tail) = &filter.id else { return Ok(None) };
    if let Some(id) = tail.whole() {
        return Ok(Some(Named { ids: newest_first(vec![id]), look_on: None }));
    }
    let open: [(&str, &dyn ToSql); 4] = [
        (":ends", &format!("%{}", tail.digits())),
        (":id_from", &id_from),
        (":id_before", &id_before),
        (":limit", &MAX_NAMED),
    ];
    let mut ids: Vec<Uuid> = values(tx, sql!("list", "find_open_ids"), &open)?;
    let history: [(&str, &dyn ToSql); 3] =
        [(":id_from", &id_from), (":id_before", &id_before), (":look_at", &MAX_IDS_LOOKED_AT)];
    let looked_at: Vec<Uuid> = values(tx, sql!("list", "ids"), &history)?;
    let look_on = looked_at.last().copied().filter(|_| looked_at.len() >= MAX_IDS_LOOKED_AT as usize);
    ids.extend(looked_at.into_iter().filter(|id| tail.ends(*id)));
    Ok(Some(Named { ids: newest_first(ids), look_on }))
}

/// Hops from one pair of namespace and topic to the next, unless both are given.
fn with_key(tx: &Transaction<'_>, filter: &ListFilter, key: &str) -> Result<Vec<Uuid>, Error> {
    // None, what stands before one of the slashes, and the UUID whose 32 digits stand before the first.
    let named = key.match_indices('/').map(|(at, _)| key[..at].to_owned());
    let uuid = key.get(..32).and_then(|digits| Uuid::try_parse(digits).ok()).map(|uuid| uuid.to_string());
    let tenants: Vec<String> = named.chain(uuid).chain([String::new()]).collect();
    let tenants = serde_json::json!(tenants).to_string();
    let in_topic = |namespace: &str, topic: &str| {
        let which: [(&str, &dyn ToSql); 4] =
            [(":namespace", &namespace), (":topic", &topic), (":tenants", &tenants), (":dedupe_key", &key)];
        values::<Uuid>(tx, sql!("list", "find_key"), &which)
    };
    let topic = filter.one_topic();
    if let (Some(namespace), Some(topic)) = (&filter.namespace, topic) {
        return in_topic(namespace, topic);
    }
    let mut found = Vec::new();
    let mut pair = (filter.namespace.clone().unwrap_or_default(), String::new());
    for _ in 0..=MAX_KEY_TOPICS {
        let after: [(&str, &dyn ToSql); 2] = [(":namespace", &pair.0), (":topic", &pair.1)];
        let next = first::<(String, String)>(tx, sql!("list", "next_key_topic"), &after)?;
        match next.filter(|(namespace, _)| filter.namespace.as_ref().is_none_or(|own| own == namespace)) {
            None => return Ok(found),
            Some(next) => pair = next,
        }
        if topic.is_none_or(|topic| topic == pair.1) {
            found.extend(in_topic(&pair.0, &pair.1)?);
        }
    }
    Err(Error::from(Cause::Refused {
        message: format!("more than {MAX_KEY_TOPICS} topics have dedupe keys"),
        hint: Some("Give the namespace and the topic of the key.".to_owned()),
    }))
}

fn list_between(
    tx: &Transaction<'_>,
    filter: &ListFilter,
    (id_from, id_before): (Uuid, Uuid),
    limit: u32,
) -> Result<Page<MessageSummary>, Error> {
    let messages: [(&str, &dyn ToSql); 6] = [
        (":namespace", &filter.namespace),
        (":topic", &filter.topic),
        (":tenant_id", &filter.tenant_id),
        (":lane", &filter.lane),
        (":id_from", &id_from),
        (":id_before", &id_before),
    ];
    let statement = match filter.state {
        Some(DeliveryState::Pending | DeliveryState::Leased) => sql!("list", "open"),
        Some(DeliveryState::Dead) => sql!("list", "dead"),
        Some(DeliveryState::Delivered | DeliveryState::Discarded) | None => {
            return page(tx, sql!("list", "messages"), &messages, limit, |row| lines_of_message(tx, row, filter));
        }
    };
    let deliveries: Vec<(&str, &dyn ToSql)> =
        messages.into_iter().chain([(":state", &filter.state as &dyn ToSql), (":sink", &filter.sink)]).collect();
    page(tx, statement, &deliveries, limit, |row| Ok(vec![MessageSummary::from_row(row)?]))
}

/// Reads until the page is full or enough was looked at. It ends between two messages.
fn page(
    tx: &Transaction<'_>,
    sql: &str,
    parameters: &[(&str, &dyn ToSql)],
    limit: u32,
    mut lines: impl FnMut(&rusqlite::Row<'_>) -> Result<Vec<MessageSummary>, Error>,
) -> Result<Page<MessageSummary>, Error> {
    let limit = limit.clamp(1, MAX_PAGE);
    let mut statement = tx.prepare_cached(sql)?;
    let mut rows = statement.query(parameters)?;
    let mut items = Vec::new();
    let (mut looked_at, mut last) = (0, None);
    while let Some(row) = rows.next()? {
        let id: Uuid = row.get("message_id")?;
        if last != Some(id) {
            if items.len() >= limit as usize {
                break;
            }
            if looked_at >= MAX_LOOKED_AT {
                return Ok(Page::of(items, limit, last));
            }
        }
        looked_at += 1;
        last = Some(id);
        if row.get("wanted")? {
            items.extend(lines(row)?);
        }
    }
    Ok(Page::of(items, limit, None))
}

/// A line for each sink that still has to do with it; one if nothing is left to deliver.
fn lines_of_message(tx: &Transaction<'_>, row: &impl Row, filter: &ListFilter) -> Result<Vec<MessageSummary>, Error> {
    let message = MessageSummary::from_row(row)?;
    let open = deliveries(tx, message.message_id)?;
    if open.is_empty() {
        let which: [(&str, &dyn ToSql); 2] = [(":message_id", &message.message_id), (":sink", &filter.sink)];
        let ended: Option<DeliveryState> = value(tx, sql!("list", "how_it_ended"), &which)?;
        let asked = ended.filter(|ended| filter.state.is_none_or(|state| state == *ended));
        return Ok(asked.into_iter().map(|state| MessageSummary { state, ..message.clone() }).collect());
    }
    if filter.state.is_some() {
        return Ok(Vec::new());
    }
    let asked = |sink: &str| filter.sink.as_deref().is_none_or(|asked| asked == sink);
    let lines = open.into_iter().filter(|delivery| asked(&delivery.sink)).map(|delivery| MessageSummary {
        sink: Some(delivery.sink),
        state: delivery.state,
        attempt_no: Some(delivery.attempt_no),
        due_at: delivery.due_at,
        ..message.clone()
    });
    Ok(lines.collect())
}

pub(super) fn lanes(tx: &Transaction<'_>, filter: &LaneFilter, page: &PageRequest) -> Result<Page<LaneStatus>, Error> {
    let limit = page.limit.clamp(1, MAX_PAGE);
    let after = page.after.as_ref().map(Cursor::lane).transpose()?;
    let which: [(&str, &dyn ToSql); 5] = [
        (":sink", &filter.sink),
        (":lane", &filter.lane),
        (":state", &filter.state),
        (":limit", &limit),
        (":after", &after),
    ];
    Ok(Page::of_lanes(all(tx, sql!("list", "lanes"), &which)?, limit))
}

pub(super) fn show(tx: &Transaction<'_>, message_id: Uuid) -> Result<Option<MessageDetail>, Error> {
    let id: [(&str, &dyn ToSql); 1] = [(":message_id", &message_id)];
    let Some(detail) = first(tx, sql!("list", "message"), &id)? else { return Ok(None) };
    let attempts = all(tx, sql!("list", "attempts"), &id)?;
    Ok(Some(MessageDetail { deliveries: deliveries(tx, message_id)?, attempts, ..detail }))
}

fn deliveries(tx: &Transaction<'_>, message_id: Uuid) -> Result<Vec<DeliveryRecord>, Error> {
    all(tx, sql!("list", "deliveries"), &[(":message_id", &message_id)])
}

pub(super) fn entries(tx: &Transaction<'_>, message_ids: &[Uuid]) -> Result<Vec<Entry>, Error> {
    let mut entries = Vec::with_capacity(message_ids.len());
    for message_id in message_ids {
        entries.extend(all::<Entry>(tx, sql!("list", "entries"), &[(":message_id", message_id)])?);
    }
    Ok(entries)
}

pub(super) fn explain(tx: &Transaction<'_>, now: i64, message_id: Uuid) -> Result<Option<Explanation>, Error> {
    let Some(detail) = show(tx, message_id)? else { return Ok(None) };
    let paused = values(tx, sql!("list", "paused_sinks"), &[])?;
    let mut heads = Vec::new();
    for delivery in detail.deliveries.iter().filter(|_| detail.lane.is_some()) {
        let which: [(&str, &dyn ToSql); 2] = [(":sink", &delivery.sink), (":lane", &detail.lane)];
        heads.extend(first(tx, sql!("list", "lane_head"), &which)?);
    }
    let relays = all(tx, sql!("watch", "relays"), &[])?;
    Ok(Some(explain::explain(&Facts { now: time(now), detail, paused, heads, relays })))
}
