//! What becomes of a lease before its outcome, in PostgreSQL: the holder renews, releases, abandons and reads under its token,
//! and a lease that ran out is ended. Called by the store; the fences are in the SQL functions.

use std::time::Duration;

use tokio_postgres::types::Type;
use uuid::Uuid;

use super::PostgresStore;
use super::statement::{int, seconds, sql};
use crate::error::Error;
use crate::lifecycle::{ClaimedContent, LeaseToken};

pub(super) async fn renew(
    store: &PostgresStore,
    token: LeaseToken,
    message_ids: &[Uuid],
    lease: Duration,
) -> Result<Vec<Uuid>, Error> {
    let lease = seconds(lease);
    let terms = [(&token.0 as _, Type::UUID), (&message_ids as _, Type::UUID_ARRAY), (&lease as _, Type::TEXT)];
    store.query(sql!("lease", "renew"), &terms).await?.values()
}

pub(super) async fn release(
    store: &PostgresStore,
    token: LeaseToken,
    message_ids: &[Uuid],
) -> Result<Vec<Uuid>, Error> {
    let which = [(&token.0 as _, Type::UUID), (&message_ids as _, Type::UUID_ARRAY)];
    store.query(sql!("lease", "release"), &which).await?.values()
}

pub(super) async fn abandon(store: &PostgresStore, token: LeaseToken) -> Result<u64, Error> {
    store.query(sql!("lease", "abandon"), &[(&token.0, Type::UUID)]).await?.count()
}

/// `None`: the message is not held under this token.
pub(super) async fn content(
    store: &PostgresStore,
    token: LeaseToken,
    message_id: Uuid,
) -> Result<Option<ClaimedContent>, Error> {
    store.query(sql!("lease", "content"), &[(&token.0, Type::UUID), (&message_id, Type::UUID)]).await?.one()
}

pub(super) async fn repair(store: &PostgresStore, batch_size: u32) -> Result<u64, Error> {
    store.query(sql!("lease", "repair"), &[(&int(batch_size), Type::INT4)]).await?.count()
}

/// How many leases an operator's unclaim would end.
pub(super) async fn count_stale(store: &PostgresStore, older_than: Duration, live: bool) -> Result<u64, Error> {
    let older_than = seconds(older_than);
    let which = sql!("lease", "count_stale");
    let answer = store.ask(which, &[(&older_than, Type::TEXT), (&live, Type::BOOL)]).await?;
    Ok(answer.value()?.unwrap_or(0))
}
