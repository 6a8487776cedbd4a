//! Looks through the messages and lanes of an outbox in SQLite, page by page and never at more than a bounded number.
//! Called by the store's `Inspect`, on the reader's connection. Nothing here writes.

use rusqlite::{Row, ToSql, Transaction};
use uuid::Uuid;

use super::inspect::deliveries;
use super::statement::{all, first, sql, time};
use crate::error::Error;
use crate::inspect::{
    LaneFilter, LaneState, LaneStatus, ListFilter, ListState, MAX_LOOKED_AT, MAX_PAGE, MessageSummary, Page,
};

pub(super) fn list(tx: &Transaction<'_>, filter: &ListFilter) -> Result<Page<MessageSummary>, Error> {
    let state = filter.state.map(ListState::as_str);
    let (id_from, id_before) = filter.ids();
    let messages: [(&str, &dyn ToSql); 6] = [
        (":namespace", &filter.namespace),
        (":topic", &filter.topic),
        (":tenant_id", &filter.tenant_id),
        (":lane", &filter.lane),
        (":id_from", &id_from),
        (":id_before", &id_before),
    ];
    let statement = match filter.state {
        Some(ListState::Pending | ListState::Leased) => sql!("list_open"),
        Some(ListState::Dead) => sql!("list_dead"),
        Some(ListState::Delivered | ListState::Discarded) | None => {
            return page(tx, sql!("list_messages"), &messages, filter.limit, |row| lines_of_message(tx, row, filter));
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
        let ended: Option<String> = first(tx, sql!("how_it_ended"), &which, |row| row.get(0))?;
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
    all(tx, sql!("lanes"), &which, |row| {
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
