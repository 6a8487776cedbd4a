//! What relays report and measure in PostgreSQL, and the facts that explain a message. Called by the store's traits, one
//! function for each method. Decides nothing: when to sample is `measure.sql`'s, why a message waits `explain.rs`'s.

use std::time::Duration;

use tokio_postgres::Row;
use tokio_postgres::types::{Json, Type};
use uuid::Uuid;

use super::{PostgresStore, seconds};
use crate::error::Error;
use crate::explain::{self, Facts, LaneHead};
use crate::inspect::{Explanation, Inspect as _, MessageDetail, RelayRecord, RelayReport, Sample};
use crate::message::limit;

/// Asked as a statement that writes is: a pool that leads to a standby is left, then.
pub(super) async fn can_write(store: &PostgresStore) -> Result<(), Error> {
    store
        .check(
            "select pg_catalog.pg_is_in_recovery(), pg_catalog.current_setting('transaction_read_only') = 'on'",
            |row| {
                let (standby, read_only): (bool, bool) = (row.try_get(0)?, row.try_get(1)?);
                let message = match (standby, read_only) {
                    (true, _) => "it is in recovery",
                    (_, true) => "its transactions are read-only",
                    _ => return Ok(()),
                };
                Err(Error::ReadOnly { message: message.to_owned() })
            },
        )
        .await
}

pub(super) async fn report(store: &PostgresStore, report: &RelayReport) -> Result<(), Error> {
    store
        .query(
            "select outbox.report(worker_id => $1, version => $2, every_seconds => $3::text::numeric, sinks => $4)",
            &[
                (&report.worker_id, Type::TEXT),
                (&report.version, Type::TEXT),
                (&seconds(report.every), Type::TEXT),
                (&Json(&report.sinks), Type::JSONB),
            ],
        )
        .await?;
    Ok(())
}

pub(super) async fn sign_off(store: &PostgresStore, worker_id: &str) -> Result<(), Error> {
    store.query("select outbox.sign_off(worker_id => $1)", &[(&worker_id, Type::TEXT)]).await?;
    Ok(())
}

pub(super) async fn measure(store: &PostgresStore) -> Result<bool, Error> {
    let rows = store.query("select outbox.measure()", &[]).await?;
    Ok(rows.first().map(|row| row.try_get(0)).transpose()?.unwrap_or(false))
}

pub(super) async fn samples(store: &PostgresStore, within: Duration) -> Result<Vec<Sample>, Error> {
    let rows = store
        .ask(
            "select at, seconds, sink, pending, due, leased, expired, dead, parked_lanes, oldest_due_age_seconds, \
             dispatched, retryable, failed, zombie_requeue, latency_p50_ms, latency_p99_ms from outbox.samples \
             where at >= now() - $1::text::numeric * interval '1 second' order by at, sink",
            &[(&seconds(within.min(Duration::from_secs(limit::DELAY_SECONDS))), Type::TEXT)],
        )
        .await?;
    rows.iter().map(sample).collect()
}

pub(super) async fn relays(store: &PostgresStore) -> Result<Vec<RelayRecord>, Error> {
    let rows = store
        .ask(
            "select worker_id, version, started_at, reported_at, every_seconds, silent, sinks::text as sinks \
             from outbox.relays order by worker_id",
            &[],
        )
        .await?;
    rows.iter().map(relay_record).collect()
}

/// The facts are asked for one after the other; what changes in between is told as it was at some moment of it.
pub(super) async fn explain(store: &PostgresStore, message_id: Uuid) -> Result<Option<Explanation>, Error> {
    let Some(detail) = store.show(message_id).await? else { return Ok(None) };
    let rows = store.ask("select name from outbox.sink where paused", &[]).await?;
    let paused = rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?;
    let heads = heads(store, &detail).await?;
    let relays = relays(store).await?;
    let now = store.now().await?;
    Ok(Some(explain::explain(&Facts { now, detail, paused, heads, relays })))
}

async fn heads(store: &PostgresStore, detail: &MessageDetail) -> Result<Vec<LaneHead>, Error> {
    let Some(lane) = &detail.lane else { return Ok(Vec::new()) };
    let sinks: Vec<&str> = detail.deliveries.iter().map(|delivery| delivery.sink.as_str()).collect();
    let rows = store
        .ask(
            include_str!("../../../sql/postgres/queries/lane_heads.sql"),
            &[(&sinks, Type::TEXT_ARRAY), (lane, Type::TEXT)],
        )
        .await?;
    rows.iter().map(lane_head).collect()
}

fn sample(row: &Row) -> Result<Sample, Error> {
    Ok(Sample {
        at: row.try_get("at")?,
        seconds: row.try_get("seconds")?,
        sink: row.try_get("sink")?,
        pending: row.try_get("pending")?,
        due: row.try_get("due")?,
        leased: row.try_get("leased")?,
        expired: row.try_get("expired")?,
        dead: row.try_get("dead")?,
        parked_lanes: row.try_get("parked_lanes")?,
        oldest_due_age_seconds: row.try_get("oldest_due_age_seconds")?,
        attempts: [
            row.try_get("dispatched")?,
            row.try_get("retryable")?,
            row.try_get("failed")?,
            row.try_get("zombie_requeue")?,
        ],
        latency_p50_ms: row.try_get("latency_p50_ms")?,
        latency_p99_ms: row.try_get("latency_p99_ms")?,
    })
}

fn relay_record(row: &Row) -> Result<RelayRecord, Error> {
    let sinks: &str = row.try_get("sinks")?;
    Ok(RelayRecord {
        report: RelayReport {
            worker_id: row.try_get("worker_id")?,
            version: row.try_get("version")?,
            every: Duration::try_from_secs_f64(row.try_get("every_seconds")?).unwrap_or_default(),
            sinks: RelayReport::sinks_from(sinks),
        },
        started_at: row.try_get("started_at")?,
        reported_at: row.try_get("reported_at")?,
        silent: row.try_get("silent")?,
    })
}

fn lane_head(row: &Row) -> Result<LaneHead, Error> {
    Ok(LaneHead {
        sink: row.try_get("sink")?,
        message_id: row.try_get("message_id")?,
        sequence_id: row.try_get("sequence_id")?,
        due_at: row.try_get("due_at")?,
        claimed_by: row.try_get("claimed_by")?,
        lease_expires_at: row.try_get("lease_expires_at")?,
        error_code: row.try_get("error_code")?,
        error_message: row.try_get("error_message")?,
    })
}
