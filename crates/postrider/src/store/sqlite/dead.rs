//! Dead letters in SQLite as a filter means them, and what operators did to them: listed, grouped, counted, chosen. Asked
//! by `inspect.rs` on its own connection; `choose` is called inside the transaction that changes them. Nothing here
//! writes.

use rusqlite::{Row, ToSql, Transaction};
use serde_json::value::RawValue;
use uuid::Uuid;

use super::claim::not_json;
use super::operate::Letter;
use super::statement::{all, first, matching, micros_of, sql, time};
use super::waiting;
use crate::error::Error;
use crate::inspect::{AuditRecord, DeadFilter, DeadGroup, DeadLetter, DeadPage, MAX_DEAD_GROUPS};

/// A filter as SQLite takes it.
struct Terms<'a> {
    message_ids: Option<String>,
    died_from: Option<i64>,
    died_to: Option<i64>,
    filter: &'a DeadFilter,
}

impl<'a> Terms<'a> {
    fn new(filter: &'a DeadFilter) -> Result<Self, Error> {
        Ok(Self {
            message_ids: waiting::digits(filter.message_ids.as_ref())?,
            died_from: filter.died_from.map(micros_of),
            died_to: filter.died_to.map(micros_of),
            filter,
        })
    }

    fn with<'b>(&'b self, more: &[(&'static str, &'b dyn ToSql)]) -> Vec<(&'static str, &'b dyn ToSql)> {
        let mut parameters: Vec<(&'static str, &dyn ToSql)> = vec![
            (":message_ids", &self.message_ids),
            (":sink", &self.filter.sink),
            (":namespace", &self.filter.namespace),
            (":topic", &self.filter.topic),
            (":tenant_id", &self.filter.tenant_id),
            (":lane", &self.filter.lane),
            (":reason", &self.filter.reason),
            (":error_code", &self.filter.error_code),
            (":died_from", &self.died_from),
            (":died_to", &self.died_to),
        ];
        parameters.extend_from_slice(more);
        parameters
    }
}

/// The oldest dead letters of a kind.
pub(super) fn choose(tx: &Transaction<'_>, filter: &DeadFilter, at_most: u32) -> Result<Vec<Letter>, Error> {
    let terms = Terms::new(filter)?;
    all(tx, matching!("dead", "choose"), &terms.with(&[(":at_most", &at_most)]), |row| {
        Ok(Letter { message_id: row.get(0)?, sink: row.get(1)?, parked: row.get(2)? })
    })
}

pub(super) fn count(tx: &Transaction<'_>, filter: &DeadFilter) -> Result<u64, Error> {
    let terms = Terms::new(filter)?;
    let count = first(tx, matching!("dead", "count"), &terms.with(&[]), |row| row.get::<_, i64>(0))?;
    Ok(count.and_then(|count| u64::try_from(count).ok()).unwrap_or(0))
}

pub(super) fn not_dead(tx: &Transaction<'_>, filter: &DeadFilter) -> Result<Vec<Uuid>, Error> {
    let terms = Terms::new(filter)?;
    all(tx, matching!("dead", "missing"), &terms.with(&[]), |row| row.get(0))
}

pub(super) fn list(tx: &Transaction<'_>, filter: &DeadFilter, page: &DeadPage) -> Result<Vec<DeadLetter>, Error> {
    let after = page.after.as_ref();
    let died_at = after.map(|(died_at, ..)| micros_of(*died_at));
    let (message_id, sink) = (after.map(|(_, id, _)| id), after.map(|(.., sink)| sink));
    let terms = Terms::new(filter)?;
    let parameters = terms.with(&[
        (":after_died_at", &died_at),
        (":after_message_id", &message_id),
        (":after_sink", &sink),
        (":limit", &page.limit),
    ]);
    all(tx, matching!("dead", "list"), &parameters, dead_letter)
}

pub(super) fn group(tx: &Transaction<'_>, filter: &DeadFilter) -> Result<Vec<DeadGroup>, Error> {
    let terms = Terms::new(filter)?;
    all(tx, matching!("dead", "group"), &terms.with(&[(":at_most", &MAX_DEAD_GROUPS)]), |row| {
        Ok(DeadGroup {
            sink: row.get("sink")?,
            topic: row.get("topic")?,
            reason: row.get("reason")?,
            error_code: row.get("error_code")?,
            count: row.get("letters")?,
            first_died_at: time(row.get("first_died_at")?),
            last_died_at: time(row.get("last_died_at")?),
            error_message: row.get("error_message")?,
        })
    })
}

pub(super) fn audit(tx: &Transaction<'_>, before: Option<i64>, limit: u32) -> Result<Vec<AuditRecord>, Error> {
    all(tx, sql!("operate", "audit"), &[(":before", &before), (":limit", &limit)], |row| {
        Ok(AuditRecord {
            id: row.get("id")?,
            at: time(row.get("at")?),
            actor: row.get("actor")?,
            db_user: None,
            action: row.get("action")?,
            detail: RawValue::from_string(row.get("detail")?).map_err(not_json)?,
            affected: row.get("affected")?,
        })
    })
}

fn dead_letter(row: &Row<'_>) -> rusqlite::Result<DeadLetter> {
    Ok(DeadLetter {
        message_id: row.get("message_id")?,
        sink: row.get("sink")?,
        died_at: time(row.get("died_at")?),
        reason: row.get("reason")?,
        error_code: row.get("error_code")?,
        error_message: row.get("error_message")?,
        attempt_no: row.get("attempt_no")?,
        attempt_count: row.get("attempt_count")?,
        parked: row.get("parked")?,
        namespace: row.get("namespace")?,
        topic: row.get("topic")?,
        tenant_id: row.get("tenant_id")?,
        lane: row.get("lane")?,
        sequence_id: row.get("sequence_id")?,
        occurred_at: time(row.get("occurred_at")?),
        payload_size_bytes: row.get("payload_size_bytes")?,
    })
}
