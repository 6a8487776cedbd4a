//! Deliveries that wait for their time, and times from the future, in SQLite: counted, and made due at once. Called by
//! `inspect.rs` and, in the transaction of an order, by `order.rs`.

use std::time::Duration;

use rusqlite::{ToSql, Transaction};
use uuid::Uuid;

use super::claim::not_json;
use super::statement::{execute, first, micros, sql};
use crate::error::Error;
use crate::inspect::{FutureTimes, LONGEST_LEASE, WaitingFilter};

/// Ids as the statements take them: a JSON array of 32 hexadecimal digits each.
pub(super) fn digits(ids: Option<&Vec<Uuid>>) -> Result<Option<String>, Error> {
    let digits = |ids: &Vec<Uuid>| -> Vec<String> { ids.iter().map(|id| id.simple().to_string()).collect() };
    Ok(ids.map(|ids| serde_json::to_string(&digits(ids))).transpose().map_err(not_json)?)
}

pub(super) fn retry_now(tx: &Transaction<'_>, which: &WaitingFilter, at_most: u32, now: i64) -> Result<u64, Error> {
    let message_ids = digits(which.message_ids.as_ref())?;
    let parameters: [(&str, &dyn ToSql); 4] =
        [(":message_ids", &message_ids), (":sink", &which.sink), (":at_most", &at_most), (":now", &now)];
    Ok(execute(tx, sql!("retry_now"), &parameters)? as u64)
}

pub(super) fn count(tx: &Transaction<'_>, which: &WaitingFilter, now: i64) -> Result<u64, Error> {
    let message_ids = digits(which.message_ids.as_ref())?;
    let parameters: [(&str, &dyn ToSql); 3] = [(":message_ids", &message_ids), (":sink", &which.sink), (":now", &now)];
    let count = first(tx, sql!("count_waiting"), &parameters, |row| row.get::<_, u64>(0))?;
    Ok(count.unwrap_or(0))
}

pub(super) fn future_times(tx: &Transaction<'_>, tolerance: Duration, now: i64) -> Result<FutureTimes, Error> {
    let latest = now.saturating_add(micros(tolerance));
    let parameters: [(&str, &dyn ToSql); 2] = [(":latest", &latest), (":longest_us", &micros(LONGEST_LEASE))];
    let found = first(tx, sql!("future_times"), &parameters, |row| {
        Ok(FutureTimes { leases: row.get(0)?, reports: row.get(1)?, samples: row.get(2)? })
    })?;
    Ok(found.unwrap_or_default())
}
