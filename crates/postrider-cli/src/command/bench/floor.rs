//! The floors: the same work by hand, in plain statements and one table, without rules, lanes, keys, routes, retries and dead
//! letters. They are what an outbox is held against and nothing that anybody should use.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use postrider::{PostgresConnection, Queue as _};
use tokio_postgres::Statement;
use tokio_util::task::AbortOnDropHandle;
use uuid::Uuid;

use super::Bench;
use super::latency::Meter;
use super::load;
use super::place::Postgres;
use super::run::{Run, Watch};
use crate::failure::Result;

pub(super) const INSERT_ONE: &str = include_str!("sql/floor_insert_one.sql");
pub(super) const INSERT_TABLE: &str = include_str!("sql/floor_insert_table.sql");
pub(super) const INSERT_TABLES: &str = include_str!("sql/floor_insert_tables.sql");
pub(super) const NOTIFY: &str = include_str!("sql/floor_notify.sql");
const CLAIM: &str = include_str!("sql/floor_claim.sql");
const COMPLETE: &str = include_str!("sql/floor_complete.sql");

pub(super) const LOOP: &str = "a hand-written loop over one table";

/// A connection that claims and completes.
struct Worker {
    client: PostgresConnection,
    claim: Statement,
    complete: Statement,
}

impl Worker {
    async fn new(place: &Postgres) -> Result<Self> {
        let client = place.client().await?;
        let claim = client.prepare(&place.fill(CLAIM)).await?;
        let complete = client.prepare(&place.fill(COMPLETE)).await?;
        Ok(Self { client, claim, complete })
    }

    /// Claims a batch and hands it over, then completes it. Returns how many.
    async fn round(&self, batch: u32, handle: impl Fn(&[Uuid])) -> Result<usize> {
        let token = Uuid::new_v4();
        let rows = self.client.query(&self.claim, &[&i64::from(batch), &token]).await?;
        let ids = rows.iter().map(|row| row.try_get(0)).collect::<std::result::Result<Vec<Uuid>, _>>()?;
        if ids.is_empty() {
            return Ok(0);
        }
        handle(&ids);
        self.client.execute(&self.complete, &[&ids, &token]).await?;
        Ok(ids.len())
    }
}

/// Fills the one table and drains it.
pub(super) async fn drain(bench: &Bench<Postgres>, payload_bytes: u32, messages: u32) -> Result<Run> {
    fill(bench, payload_bytes, messages).await?;
    empty(bench, messages).await
}

pub(super) async fn fill(bench: &Bench<Postgres>, payload_bytes: u32, messages: u32) -> Result<()> {
    let client = bench.place.client().await?;
    let insert = client.prepare(&bench.place.fill(INSERT_TABLE)).await?;
    let payload = load::payload(payload_bytes);
    for batch in load::batches(messages, load::batch_of(payload_bytes)) {
        client.execute(&insert, &[&load::ids(batch), &vec![payload.as_str(); batch as usize]]).await?;
    }
    Ok(())
}

/// Drains so many, in a loop of one connection.
pub(super) async fn empty(bench: &Bench<Postgres>, messages: u32) -> Result<Run> {
    let worker = Worker::new(&bench.place).await?;
    let done = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&done);
    let watch = Watch::start(&bench.place, move || seen.load(Ordering::Relaxed)).await?;
    while done.load(Ordering::Relaxed) < u64::from(messages) {
        let count = worker.round(bench.size.batch, |_| ()).await?;
        if count == 0 {
            break;
        }
        done.fetch_add(count as u64, Ordering::Relaxed);
    }
    watch.finish(&bench.place, done.load(Ordering::Relaxed)).await
}

/// LISTEN, claim, hand over, complete: until it is dropped.
pub(super) async fn listen(bench: &Bench<Postgres>, meter: Arc<Meter>) -> Result<AbortOnDropHandle<Result<()>>> {
    let (store, worker, batch) = (bench.place.store()?, Worker::new(&bench.place).await?, bench.size.batch);
    let mut listener = store.listen().await?;
    Ok(AbortOnDropHandle::new(tokio::spawn(async move {
        loop {
            listener.news().await?;
            while worker.round(batch, |ids| meter.delivered(ids)).await? > 0 {}
        }
    })))
}
