//! What relays report and measure in PostgreSQL, and how they sleep. Called by the store's traits. Decides nothing: when to
//! sample is `measure.sql`'s.

use std::time::Duration;

use tokio_postgres::types::{Json, Type};

use super::PostgresStore;
use super::statement::{seconds, sql};
use crate::error::{Cause, Error};
use crate::inspect::{FutureTimes, LONGEST_LEASE, RelayRecord, RelayReport, Sample};
use crate::message::limit;

/// Asked as a statement that writes is: a pool that leads to a standby is left, then.
pub(super) async fn can_write(store: &PostgresStore) -> Result<(), Error> {
    let judge = |answer: super::statement::Answer| {
        let message = match answer.one()? {
            Some((true, _)) => "it is in recovery",
            Some((_, true)) => "its transactions are read-only",
            _ => return Ok(()),
        };
        Err(Error::from(Cause::ReadOnly { message: message.to_owned() }))
    };
    store.check(sql!("watch", "can_write"), judge).await
}

pub(super) async fn sleep(store: &PostgresStore, worker_id: &str, at_most: Duration) -> Result<(), Error> {
    let terms = [(&worker_id as _, Type::TEXT), (&seconds(at_most) as _, Type::TEXT)];
    store.query(sql!("watch", "sleep"), &terms).await.map(drop)
}

pub(super) async fn woke(store: &PostgresStore, worker_id: &str) -> Result<(), Error> {
    store.query(sql!("watch", "woke"), &[(&worker_id, Type::TEXT)]).await.map(drop)
}

pub(super) async fn report(store: &PostgresStore, report: &RelayReport) -> Result<(), Error> {
    store
        .query(
            sql!("watch", "report"),
            &[
                (&report.worker_id, Type::TEXT),
                (&report.version, Type::TEXT),
                (&seconds(report.every), Type::TEXT),
                (&Json(&report.sinks), Type::JSONB),
            ],
        )
        .await
        .map(drop)
}

pub(super) async fn sign_off(store: &PostgresStore, worker_id: &str) -> Result<(), Error> {
    store.query(sql!("watch", "sign_off"), &[(&worker_id, Type::TEXT)]).await.map(drop)
}

pub(super) async fn measure(store: &PostgresStore) -> Result<bool, Error> {
    Ok(store.query(sql!("watch", "measure"), &[]).await?.value()?.unwrap_or(false))
}

pub(super) async fn samples(store: &PostgresStore, within: Duration) -> Result<Vec<Sample>, Error> {
    let within = seconds(within.min(Duration::from_secs(limit::DELAY_SECONDS)));
    store.ask(sql!("watch", "samples"), &[(&within, Type::TEXT)]).await?.all()
}

pub(super) async fn relays(store: &PostgresStore) -> Result<Vec<RelayRecord>, Error> {
    store.ask(sql!("watch", "relays"), &[]).await?.all()
}

pub(super) async fn future_times(store: &PostgresStore, tolerance: Duration) -> Result<FutureTimes, Error> {
    let seconds = [tolerance.as_secs_f64(), LONGEST_LEASE.as_secs_f64()];
    let limits = [(&seconds[0] as _, Type::FLOAT8), (&seconds[1] as _, Type::FLOAT8)];
    Ok(store.ask(sql!("watch", "future_times"), &limits).await?.one()?.unwrap_or_default())
}
