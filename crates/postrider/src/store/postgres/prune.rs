//! History and received events that are over, in PostgreSQL: deleted, and counted. Called by the store. A relay may prune at
//! the retention, and nothing else, so that has statements of its own.

use std::time::Duration;

use tokio_postgres::types::Type;

use super::PostgresStore;
use super::statement::{int, seconds, sql};
use crate::error::Error;
use crate::store::Pruned;

/// Received events that go in one transaction of a prune.
const INBOX_BATCH: u32 = 10_000;

pub(super) async fn prune(store: &PostgresStore) -> Result<Pruned, Error> {
    Ok(store.change(sql!("prune", "prune_at_retention"), &[]).await?.one()?.unwrap_or_default())
}

pub(super) async fn prunable(store: &PostgresStore, older_than: Option<Duration>) -> Result<Pruned, Error> {
    let answer = store.ask(sql!("prune", "prunable"), &[(&older_than.map(seconds), Type::TEXT)]).await?;
    Ok(answer.one()?.unwrap_or_default())
}

pub(super) async fn prune_inbox(store: &PostgresStore, older_than: Option<Duration>) -> Result<u64, Error> {
    let older_than = older_than.map(seconds);
    let batch_size = int(INBOX_BATCH);
    let mut pruned = 0;
    loop {
        let deleted = match &older_than {
            Some(older_than) => {
                let which = [(&batch_size as _, Type::INT4), (older_than as _, Type::TEXT)];
                store.change(sql!("prune", "inbox"), &which).await?.count()?
            }
            None => store.change(sql!("prune", "inbox_at_retention"), &[(&batch_size, Type::INT4)]).await?.count()?,
        };
        pruned += deleted;
        if deleted < u64::from(INBOX_BATCH) {
            return Ok(pruned);
        }
    }
}

pub(super) async fn make_partitions(store: &PostgresStore) -> Result<u64, Error> {
    store.change(sql!("prune", "make_partitions"), &[]).await?.count()
}
