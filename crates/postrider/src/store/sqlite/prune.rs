//! History that is over, in SQLite: deleted batch by batch, and counted. The transactions are the store's and, for an
//! operator, those of `operate.rs`.

use std::time::Duration;

use rusqlite::{ToSql, Transaction};
use uuid::Uuid;

use super::statement::{execute, first, micros, sql, values};
use crate::error::Error;
use crate::store::Pruned;

/// Messages or keys that go in one transaction of a prune.
pub(super) const PRUNE_BATCH: usize = 1000;

/// One batch of messages that are over, from `after` on: how many went, and the last one if there may be more.
pub(super) fn prune_messages(
    tx: &Transaction<'_>,
    now: i64,
    older_than: Option<Duration>,
    after: Uuid,
    batch_size: usize,
) -> Result<(u64, Option<Uuid>), Error> {
    let older_than = older_than.map(micros);
    let which: [(&str, &dyn ToSql); 4] =
        [(":now", &now), (":older_than_us", &older_than), (":after", &after), (":batch_size", &batch_size)];
    let over = values::<Uuid>(tx, sql!("prune", "candidates"), &which)?;
    for id in &over {
        execute(tx, sql!("prune", "message"), &[(":message_id", id)])?;
        execute(tx, sql!("prune", "attempts"), &[(":message_id", id)])?;
    }
    let next = if over.len() < batch_size { None } else { over.last().copied() };
    Ok((over.len() as u64, next))
}

/// One batch of dedupe keys past their window; how many went.
pub(super) fn prune_dedupe(tx: &Transaction<'_>, now: i64, batch_size: usize) -> Result<u64, Error> {
    Ok(execute(tx, sql!("prune", "dedupe"), &[(":now", &now), (":batch_size", &batch_size)])? as u64)
}

pub(super) fn prunable(tx: &Transaction<'_>, older_than: Option<Duration>, now: i64) -> Result<Pruned, Error> {
    let which: [(&str, &dyn ToSql); 2] = [(":now", &now), (":older_than_us", &older_than.map(micros))];
    Ok(first(tx, sql!("prune", "prunable"), &which)?.unwrap_or_default())
}
