//! Looks through the messages and lanes of an outbox in SQLite, page by page and never at more than a bounded number.
//! Called by the store's `Inspect`, on the reader's connection. Nothing here writes.

use rusqlite::{Row, ToSql, Transaction};
use uuid::Uuid;

use super::inspect::deliveries;
use super::statement::{all, first, sql, time};
use crate::error::Error;
use crate::inspect::{
    LaneFilter, LaneState, LaneStatus, ListFilter, ListState, MAX_IDS_LOOKED_AT, MAX_KEY_TOPICS, MAX_LOOKED_AT,
    MAX_NAMED, MAX_PAGE, MessageSummary, Named, Page, just_after,
};

pub(super) fn list(tx: &Transaction<'_>, filter: &ListFilter) -> Result<Page<MessageSummary>, Error> {
    let range = filter.ids();
    let Some(Named { ids, look_on }) = named(tx, filter, range)? else { return list_between(tx, filter, range) };
    let mut found = Vec::new();
    for id in &ids {
        found.extend(list_between(tx, filter, (*id, just_after(*id)))?.items);
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
        ids.retain(|id| (id_from..id_before).contains(id) && filter.id_tail.as_ref().is_none_or(|tail| tail.ends(*id)));
        ids.sort_unstable_by(|one, other| other.cmp(one));
        ids.dedup();
        ids.truncate(MAX_NAMED as usize);
        ids
    };
    if let Some(key) = &filter.dedupe_key {
        return Ok(Some(Named { ids: newest_first(with_key(tx, filter, key)?), look_on: None }));
    }
    let Some(tail) = &filter.id_tail else { return Ok(None) };
    if let Some(id) = tail.whole() {
        return Ok(Some(Named { ids: newest_first(vec![id]), look_on: None }));
    }
    let open: [(&str, &dyn ToSql); 4] = [
        (":ends", &format!("%{}", tail.digits())),
        (":id_from", &id_from),
        (":id_before", &id_before),
        (":limit", &MAX_NAMED),
    ];
    let mut ids: Vec<Uuid> = all(tx, sql!("list", "find_open_ids"), &open, |row| row.get(0))?;
    let history: [(&str, &dyn ToSql); 3] =
        [(":id_from", &id_from), (":id_before", &id_before), (":look_at", &MAX_IDS_LOOKED_AT)];
    let mut statement = tx.prepare_cached(sql!("list", "ids"))?;
    let mut rows = statement.query(&history[..])?;
    let (mut looked_at, mut last) = (0, None);
    while let Some(row) = rows.next()? {
        let id: Uuid = row.get(0)?;
        ids.extend(tail.ends(id).then_some(id));
        (looked_at, last) = (looked_at + 1, Some(id));
    }
    let look_on = last.filter(|_| looked_at >= MAX_IDS_LOOKED_AT);
    Ok(Some(Named { ids: newest_first(ids), look_on }))
}

/// Hops from one pair of namespace and topic to the next, unless both are given.
fn with_key(tx: &Transaction<'_>, filter: &ListFilter, key: &str) -> Result<Vec<Uuid>, Error> {
    // A key of a tenant begins with its id and "/".
    let tenant = key.split_once('/').and_then(|(tenant, _)| Uuid::try_parse(tenant).ok());
    let tenant = tenant.map(|tenant| tenant.simple().to_string().to_uppercase()).unwrap_or_default();
    let in_topic = |namespace: &str, topic: &str| {
        let which: [(&str, &dyn ToSql); 4] =
            [(":namespace", &namespace), (":topic", &topic), (":tenant", &tenant), (":dedupe_key", &key)];
        all(tx, sql!("list", "find_key"), &which, |row| row.get::<_, Uuid>(0))
    };
    let topic = filter.one_topic();
    if let (Some(namespace), Some(topic)) = (&filter.namespace, topic) {
        return in_topic(namespace, topic);
    }
    let mut found = Vec::new();
    let mut pair = (filter.namespace.clone().unwrap_or_default(), String::new());
    for _ in 0..=MAX_KEY_TOPICS {
        let after: [(&str, &dyn ToSql); 2] = [(":namespace", &pair.0), (":topic", &pair.1)];
        let next = first(tx, sql!("list", "next_key_topic"), &after, |row| Ok((row.get(0)?, row.get(1)?)))?;
        match next
            .filter(|(namespace, _): &(String, String)| filter.namespace.as_ref().is_none_or(|own| own == namespace))
        {
            None => return Ok(found),
            Some(next) => pair = next,
        }
        if topic.is_none_or(|topic| topic == pair.1) {
            found.extend(in_topic(&pair.0, &pair.1)?);
        }
    }
    Err(Error::Refused {
        message: format!("more than {MAX_KEY_TOPICS} topics have dedupe keys"),
        hint: Some("Give the namespace and the topic of the key.".to_owned()),
    })
}

fn list_between(
    tx: &Transaction<'_>,
    filter: &ListFilter,
    (id_from, id_before): (Uuid, Uuid),
) -> Result<Page<MessageSummary>, Error> {
    let state = filter.state.map(ListState::as_str);
    let messages: [(&str, &dyn ToSql); 6] = [
        (":namespace", &filter.namespace),
        (":topic", &filter.topic),
        (":tenant_id", &filter.tenant_id),
        (":lane", &filter.lane),
        (":id_from", &id_from),
        (":id_before", &id_before),
    ];
    let statement = match filter.state {
        Some(ListState::Pending | ListState::Leased) => sql!("list", "open"),
        Some(ListState::Dead) => sql!("list", "dead"),
        Some(ListState::Delivered | ListState::Discarded) | None => {
            return page(tx, sql!("list", "messages"), &messages, filter.limit, |row| {
                lines_of_message(tx, row, filter)
            });
        }
    };
    let deliveries: Vec<(&str, &dyn ToSql)> =
        messages.into_iter().chain([(":state", &state as &dyn ToSql), (":sink", &filter.sink)]).collect();
    page(tx, statement, &deliveries, filter.limit, |row| Ok(vec![line_of_delivery(row)?]))
}

/// Reads until the page is full or enough was looked at. It ends between two messages.
fn page(
    tx: &Transaction<'_>,
    sql: &str,
    parameters: &[(&str, &dyn ToSql)],
    limit: u32,
    mut lines: impl FnMut(&Row<'_>) -> Result<Vec<MessageSummary>, Error>,
) -> Result<Page<MessageSummary>, Error> {
    let limit = limit.clamp(1, MAX_PAGE);
    let mut statement = tx.prepare_cached(sql)?;
    let mut rows = statement.query(parameters)?;
    let mut items = Vec::new();
    let (mut looked_at, mut last) = (0, None);
    while let Some(row) = rows.next()? {
        let id: Uuid = row.get("id")?;
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

fn line_of_delivery(row: &Row<'_>) -> rusqlite::Result<MessageSummary> {
    Ok(MessageSummary {
        sink: row.get("sink")?,
        state: row.get("state")?,
        attempt_no: row.get("attempt_no")?,
        due_at: row.get::<_, Option<i64>>("due_at")?.map(time),
        ..delivered(row)?
    })
}

/// A line for each sink that still has to do with it; one if nothing is left to deliver.
fn lines_of_message(tx: &Transaction<'_>, row: &Row<'_>, filter: &ListFilter) -> Result<Vec<MessageSummary>, Error> {
    let message = delivered(row)?;
    let open = deliveries(tx, message.message_id)?;
    if open.is_empty() {
        let which: [(&str, &dyn ToSql); 2] = [(":message_id", &message.message_id), (":sink", &filter.sink)];
        let ended: Option<String> = first(tx, sql!("list", "how_it_ended"), &which, |row| row.get(0))?;
        let asked = ended.filter(|ended| filter.state.is_none_or(|state| state.as_str() == ended));
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

/// A message that was delivered everywhere, unless more is known about it: how it ended, or who still has it.
fn delivered(row: &Row<'_>) -> rusqlite::Result<MessageSummary> {
    Ok(MessageSummary {
        message_id: row.get("id")?,
        enqueued_at: time(row.get("enqueued_at")?),
        namespace: row.get("namespace")?,
        topic: row.get("topic")?,
        lane: row.get("lane")?,
        sequence_id: row.get("sequence_id")?,
        sink: None,
        state: ListState::Delivered.as_str().to_owned(),
        attempt_no: None,
        due_at: None,
    })
}

pub(super) fn lanes(tx: &Transaction<'_>, filter: &LaneFilter) -> Result<Vec<LaneStatus>, Error> {
    let which: [(&str, &dyn ToSql); 4] = [
        (":sink", &filter.sink),
        (":lane", &filter.lane),
        (":state", &filter.state.map(LaneState::as_str)),
        (":limit", &filter.limit.min(MAX_PAGE)),
    ];
    all(tx, sql!("list", "lanes"), &which, |row| {
        Ok(LaneStatus {
            sink: row.get("sink")?,
            lane: row.get("lane")?,
            state: LaneState::from_word(&row.get::<_, String>("state")?),
            depth: row.get("depth")?,
            head_sequence_id: row.get("head_sequence_id")?,
            head_message_id: row.get("head_message_id")?,
            head_due_at: row.get::<_, Option<i64>>("head_due_at")?.map(time),
            head_attempt_count: row.get("head_attempt_count")?,
            head_error_code: row.get("head_error_code")?,
            head_error_message: row.get("head_error_message")?,
        })
    })
}
