//! Brings pending deliveries to the sinks that today's routes name, in SQLite: counted, on the connection of `inspect.rs`;
//! carried out inside the transaction of an action, by `operate.rs`. A claim waits for that transaction, so lanes stay in
//! order without a lock of their own.

use rusqlite::{ToSql, Transaction};
use uuid::Uuid;

use super::statement::{all, execute, first, matching, sql};
use crate::error::Error;
use crate::inspect::RouteChanges;
use crate::record::records;

/// A pending delivery that the routes would change.
struct Misrouted {
    message_id: Uuid,
    source: String,
    due_at: i64,
    /// A sink that is to get the message; none if the delivery only goes.
    missing: Option<String>,
    gone: bool,
}

records! { Misrouted(row) { message_id, source, due_at, missing, gone } }

/// One step; how many deliveries were added and removed.
pub(super) fn apply(tx: &Transaction<'_>, at_most: u32, now: i64) -> Result<u64, Error> {
    let mut affected = 0;
    for one in all::<Misrouted>(tx, matching!("routes", "choose"), &[(":now", &now), (":at_most", &at_most)])? {
        if let Some(sink) = &one.missing {
            let place: [(&str, &dyn ToSql); 3] =
                [(":message_id", &one.message_id), (":sink", sink), (":due_at", &one.due_at)];
            affected += execute(tx, sql!("routes", "add"), &place)? as u64;
        }
        if one.gone {
            let place: [(&str, &dyn ToSql); 2] = [(":message_id", &one.message_id), (":sink", &one.source)];
            affected += execute(tx, sql!("complete", "end"), &place)? as u64;
        }
    }
    Ok(affected)
}

pub(super) fn count(tx: &Transaction<'_>) -> Result<RouteChanges, Error> {
    Ok(first(tx, matching!("routes", "count"), &[])?.unwrap_or_default())
}
