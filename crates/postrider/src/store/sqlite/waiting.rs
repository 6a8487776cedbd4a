//! Open deliveries as a filter means them, in SQLite: counted, made due at once, cancelled. Beside that what unclaim and prune
//! would take, and times from the future. Asked by `inspect.rs`; what changes is called in the transaction of an action, by
//! `action.rs`.

use std::time::Duration;

use rusqlite::{Row, ToSql, Transaction};
use uuid::Uuid;

use super::claim::not_json;
use super::statement::{all, execute, first, matching, micros, sql};
use crate::error::Error;
use crate::inspect::{DeliveryFilter, FutureTimes, LONGEST_LEASE, OpenCount};
use crate::store::Pruned;

/// Ids as the statements take them: a JSON array of 32 hexadecimal digits each.
pub(super) fn digits(ids: Option<&Vec<Uuid>>) -> Result<Option<String>, Error> {
    let digits = |ids: &Vec<Uuid>| -> Vec<String> { ids.iter().map(|id| id.simple().to_string()).collect() };
    Ok(ids.map(|ids| serde_json::to_string(&digits(ids))).transpose().map_err(not_json)?)
}

/// A filter as SQLite takes it.
struct Terms<'a> {
    message_ids: Option<String>,
    filter: &'a DeliveryFilter,
}

impl<'a> Terms<'a> {
    fn new(filter: &'a DeliveryFilter) -> Result<Self, Error> {
        Ok(Self { message_ids: digits(filter.message_ids.as_ref())?, filter })
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

fn choose(
    tx: &Transaction<'_>,
    filter: &DeliveryFilter,
    due_after: Option<i64>,
    at_most: u32,
) -> Result<Vec<Chosen>, Error> {
    let terms = Terms::new(filter)?;
    let parameters = terms.with(&[(":due_after", &due_after), (":at_most", &at_most)]);
    all(tx, matching!("pending", "choose"), &parameters, |row| {
        Ok(Chosen { message_id: row.get(0)?, sink: row.get(1)?, attempt_no: row.get(2)? })
    })
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

pub(super) fn count_open(tx: &Transaction<'_>, filter: &DeliveryFilter, now: i64) -> Result<OpenCount, Error> {
    let terms = Terms::new(filter)?;
    let counts = |row: &Row<'_>| Ok(OpenCount { pending: row.get(0)?, waiting: row.get(1)?, leased: row.get(2)? });
    Ok(first(tx, matching!("pending", "count"), &terms.with(&[(":now", &now)]), counts)?.unwrap_or_default())
}

pub(super) fn not_open(tx: &Transaction<'_>, filter: &DeliveryFilter) -> Result<Vec<Uuid>, Error> {
    let terms = Terms::new(filter)?;
    all(tx, matching!("pending", "missing"), &terms.with(&[]), |row| row.get(0))
}

pub(super) fn count_stale(tx: &Transaction<'_>, older_than: Duration, now: i64) -> Result<u64, Error> {
    let claimed_before = now.saturating_sub(micros(older_than));
    let which: [(&str, &dyn ToSql); 2] = [(":now", &now), (":claimed_before", &claimed_before)];
    Ok(first(tx, sql!("lease", "count_stale"), &which, |row| row.get(0))?.unwrap_or(0))
}

pub(super) fn prunable(tx: &Transaction<'_>, older_than: Option<Duration>, now: i64) -> Result<Pruned, Error> {
    let which: [(&str, &dyn ToSql); 2] = [(":now", &now), (":older_than_us", &older_than.map(micros))];
    let counts =
        |row: &Row<'_>| Ok(Pruned { partitions_dropped: 0, rest_deleted: row.get(0)?, dedupe_deleted: row.get(1)? });
    Ok(first(tx, sql!("prune", "prunable"), &which, counts)?.unwrap_or_default())
}

pub(super) fn future_times(tx: &Transaction<'_>, tolerance: Duration, now: i64) -> Result<FutureTimes, Error> {
    let latest = now.saturating_add(micros(tolerance));
    let parameters: [(&str, &dyn ToSql); 2] = [(":latest", &latest), (":longest_us", &micros(LONGEST_LEASE))];
    let found = first(tx, sql!("watch", "future_times"), &parameters, |row| {
        Ok(FutureTimes { leases: row.get(0)?, reports: row.get(1)?, samples: row.get(2)? })
    })?;
    Ok(found.unwrap_or_default())
}
