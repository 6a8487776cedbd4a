//! Open deliveries as a filter means them, in SQLite: counted, on the connection of `inspect.rs`; made due at once or cancelled
//! inside the transaction of an action, by `operate.rs`.

use rusqlite::{ToSql, Transaction};
use uuid::Uuid;

use super::statement::{all, digits, execute, first, matching, sql, values};
use crate::error::Error;
use crate::inspect::{DeliveryFilter, OpenCount};
use crate::record::records;

/// A filter as SQLite takes it.
struct Terms<'a> {
    message_ids: Option<String>,
    filter: &'a DeliveryFilter,
}

impl<'a> Terms<'a> {
    fn new(filter: &'a DeliveryFilter) -> Self {
        Self { message_ids: digits(filter.message_ids.as_ref()), filter }
    }

    fn with<'b>(&'b self, more: &[(&'static str, &'b dyn ToSql)]) -> Vec<(&'static str, &'b dyn ToSql)> {
        let mut parameters: Vec<(&'static str, &dyn ToSql)> = vec![
            (":message_ids", &self.message_ids),
            (":sink", &self.filter.sink),
            (":namespace", &self.filter.namespace),
            (":topic", &self.filter.topic),
            (":tenant_id", &self.filter.tenant_id),
            (":lane", &self.filter.lane),
        ];
        parameters.extend_from_slice(more);
        parameters
    }
}

/// A pending delivery that was chosen to be changed.
struct Chosen {
    message_id: Uuid,
    sink: String,
    attempt_no: i64,
}

records! { Chosen(row) { message_id, sink, attempt_no } }

fn choose(
    tx: &Transaction<'_>,
    filter: &DeliveryFilter,
    due_after: Option<i64>,
    at_most: u32,
) -> Result<Vec<Chosen>, Error> {
    all(
        tx,
        matching!("pending", "choose"),
        &Terms::new(filter).with(&[(":due_after", &due_after), (":at_most", &at_most)]),
    )
}

pub(super) fn retry_now(tx: &Transaction<'_>, filter: &DeliveryFilter, at_most: u32, now: i64) -> Result<u64, Error> {
    let chosen = choose(tx, filter, Some(now), at_most)?;
    for one in &chosen {
        execute(
            tx,
            sql!("pending", "retry_now"),
            &[(":message_id", &one.message_id), (":sink", &one.sink), (":now", &now)],
        )?;
    }
    Ok(chosen.len() as u64)
}

pub(super) fn cancel(
    tx: &Transaction<'_>,
    actor: &str,
    filter: &DeliveryFilter,
    at_most: u32,
    now: i64,
) -> Result<u64, Error> {
    let chosen = choose(tx, filter, None, at_most)?;
    for Chosen { message_id, sink, attempt_no } in &chosen {
        let record: [(&str, &dyn ToSql); 5] = [
            (":message_id", message_id),
            (":sink", sink),
            (":attempt_no", &(attempt_no + 1)),
            (":actor", &actor),
            (":now", &now),
        ];
        execute(tx, sql!("pending", "cancel"), &record)?;
        execute(tx, sql!("complete", "end"), &[(":message_id", message_id), (":sink", sink)])?;
    }
    Ok(chosen.len() as u64)
}

pub(super) fn count(tx: &Transaction<'_>, filter: &DeliveryFilter, now: i64) -> Result<OpenCount, Error> {
    Ok(first(tx, matching!("pending", "count"), &Terms::new(filter).with(&[(":now", &now)]))?.unwrap_or_default())
}

pub(super) fn missing(tx: &Transaction<'_>, filter: &DeliveryFilter) -> Result<Vec<Uuid>, Error> {
    values(tx, matching!("pending", "missing"), &Terms::new(filter).with(&[]))
}
