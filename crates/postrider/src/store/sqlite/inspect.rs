//! Answers questions about an outbox in SQLite, on a connection of its own, so that a long look holds up no claim.
//! Nothing here writes.

use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use rusqlite::{Row, Transaction};
use serde_json::value::RawValue;
use uuid::Uuid;

use super::claim::not_json;
use super::statement::{all, first, sql, time};
use super::{SqliteStore, dead, input, operate, search, waiting, watch};
use crate::error::Error;
use crate::inspect::{
    AttemptRecord, AuditRecord, DeadFilter, DeadGroup, DeadLetter, DeadPage, DeliveryFilter, DeliveryRecord, Entry,
    Explanation, FutureTimes, Inspect, LaneFilter, LaneStatus, ListFilter, MessageDetail, MessageSummary, OpenCount,
    Page, RelayRecord, ReplayCount, Sample, SinkStatus,
};
use crate::operate::Replay;
use crate::store::{OnDead, Pruned, Route};

#[async_trait]
impl Inspect for SqliteStore {
    async fn now(&self) -> Result<SystemTime, Error> {
        self.reader.run(|session| session.read(|_, now| Ok(time(now)))).await
    }

    async fn status(&self) -> Result<Vec<SinkStatus>, Error> {
        self.reader.run(|session| session.read(|tx, _| all(tx, sql!("list", "status"), &[], sink_status))).await
    }

    async fn list(&self, filter: &ListFilter) -> Result<Page<MessageSummary>, Error> {
        let filter = filter.clone();
        self.reader.run(move |session| session.read(|tx, _| search::list(tx, &filter))).await
    }

    async fn show(&self, message_id: Uuid) -> Result<Option<MessageDetail>, Error> {
        self.reader.run(move |session| session.read(|tx, _| show(tx, message_id))).await
    }

    async fn entries(&self, message_ids: &[Uuid]) -> Result<Vec<Entry>, Error> {
        let message_ids = message_ids.to_vec();
        self.reader.run(move |session| session.read(|tx, _| super::entries::entries(tx, &message_ids))).await
    }

    async fn routes(&self) -> Result<Vec<Route>, Error> {
        let route = |row: &Row<'_>| Ok(Route { sink: row.get(0)?, topic: row.get(1)?, namespace: row.get(2)? });
        self.reader.run(move |session| session.read(|tx, _| all(tx, sql!("operate", "routes"), &[], route))).await
    }

    async fn lanes(&self, filter: &LaneFilter) -> Result<Vec<LaneStatus>, Error> {
        let filter = filter.clone();
        self.reader.run(move |session| session.read(|tx, _| search::lanes(tx, &filter))).await
    }
    async fn dead_letters(&self, filter: &DeadFilter, page: &DeadPage) -> Result<Vec<DeadLetter>, Error> {
        let (filter, page) = (filter.clone(), page.clone());
        self.reader.run(move |session| session.read(|tx, _| dead::list(tx, &filter, &page))).await
    }

    async fn dead_groups(&self, filter: &DeadFilter) -> Result<Vec<DeadGroup>, Error> {
        let filter = filter.clone();
        self.reader.run(move |session| session.read(|tx, _| dead::group(tx, &filter))).await
    }

    async fn count_dead(&self, filter: &DeadFilter) -> Result<u64, Error> {
        let filter = filter.clone();
        self.reader.run(move |session| session.read(|tx, _| dead::count(tx, &filter))).await
    }

    async fn not_dead(&self, filter: &DeadFilter) -> Result<Vec<Uuid>, Error> {
        let filter = filter.clone();
        self.reader.run(move |session| session.read(|tx, _| dead::not_dead(tx, &filter))).await
    }

    async fn count_open(&self, filter: &DeliveryFilter) -> Result<OpenCount, Error> {
        let filter = filter.clone();
        self.reader.run(move |session| session.read(|tx, now| waiting::count_open(tx, &filter, now))).await
    }

    async fn not_open(&self, filter: &DeliveryFilter) -> Result<Vec<Uuid>, Error> {
        let filter = filter.clone();
        self.reader.run(move |session| session.read(|tx, _| waiting::not_open(tx, &filter))).await
    }

    async fn count_replay(&self, replay: &Replay) -> Result<ReplayCount, Error> {
        replay.check()?;
        let replay = replay.clone();
        self.reader.run(move |session| session.read(|tx, _| operate::count_replay(tx, &replay))).await
    }

    async fn count_stale(&self, older_than: Duration) -> Result<u64, Error> {
        self.reader.run(move |session| session.read(|tx, now| waiting::count_stale(tx, older_than, now))).await
    }

    async fn prunable(&self, older_than: Option<Duration>) -> Result<Pruned, Error> {
        older_than.map_or(Ok(()), input::age)?;
        self.reader.run(move |session| session.read(|tx, now| waiting::prunable(tx, older_than, now))).await
    }

    async fn future_times(&self, tolerance: Duration) -> Result<FutureTimes, Error> {
        self.reader.run(move |session| session.read(|tx, now| waiting::future_times(tx, tolerance, now))).await
    }

    async fn samples(&self, within: Duration) -> Result<Vec<Sample>, Error> {
        self.reader.run(move |session| session.read(|tx, now| watch::samples(tx, now, within))).await
    }
    async fn relays(&self) -> Result<Vec<RelayRecord>, Error> {
        self.reader.run(|session| session.read(|tx, _| watch::relays(tx))).await
    }
    async fn audit(&self, before: Option<i64>, limit: u32) -> Result<Vec<AuditRecord>, Error> {
        self.reader.run(move |session| session.read(|tx, _| dead::audit(tx, before, limit))).await
    }

    async fn explain(&self, message_id: Uuid) -> Result<Option<Explanation>, Error> {
        self.reader.run(move |session| session.read(|tx, now| watch::explain(tx, now, message_id))).await
    }
}

pub(super) fn show(tx: &Transaction<'_>, message_id: Uuid) -> Result<Option<MessageDetail>, Error> {
    let detail = first(tx, sql!("list", "message"), &[(":message_id", &message_id)], |row| {
        let json = |column: &str| {
            let text: Option<String> = row.get(column)?;
            text.map(RawValue::from_string).transpose().map_err(not_json)
        };
        Ok(MessageDetail {
            message_id,
            enqueued_at: time(row.get("enqueued_at")?),
            occurred_at: time(row.get("occurred_at")?),
            namespace: row.get("namespace")?,
            topic: row.get("topic")?,
            tenant_id: row.get("tenant_id")?,
            lane: row.get("lane")?,
            sequence_id: row.get("sequence_id")?,
            dedupe_key: row.get("dedupe_key")?,
            priority: row.get("priority")?,
            content_type: row.get("content_type")?,
            headers: json("headers")?,
            payload: json("payload")?,
            body: row.get("body")?,
            deliveries: Vec::new(),
            attempts: Vec::new(),
        })
    })?;
    let Some(detail) = detail else { return Ok(None) };
    let attempts = all(tx, sql!("list", "attempts"), &[(":message_id", &message_id)], attempt_record)?;
    Ok(Some(MessageDetail { deliveries: deliveries(tx, message_id)?, attempts, ..detail }))
}

pub(super) fn deliveries(tx: &Transaction<'_>, message_id: Uuid) -> Result<Vec<DeliveryRecord>, Error> {
    all(tx, sql!("list", "deliveries"), &[(":message_id", &message_id)], |row| {
        Ok(DeliveryRecord {
            sink: row.get("sink")?,
            state: row.get("state")?,
            due_at: row.get::<_, Option<i64>>("due_at")?.map(time),
            attempt_no: row.get("attempt_no")?,
            attempt_count: row.get("attempt_count")?,
            max_attempts: row.get("max_attempts")?,
            claimed_by: row.get("claimed_by")?,
            lease_expires_at: row.get::<_, Option<i64>>("lease_expires_at")?.map(time),
        })
    })
}

fn attempt_record(row: &Row<'_>) -> rusqlite::Result<AttemptRecord> {
    Ok(AttemptRecord {
        sink: row.get("sink")?,
        attempt_no: row.get("attempt_no")?,
        state: row.get("state")?,
        worker_id: row.get("worker_id")?,
        claimed_at: time(row.get("claimed_at")?),
        completed_at: time(row.get("completed_at")?),
        latency_ms: row.get("latency_ms")?,
        code: row.get("code")?,
        reference: row.get("reference")?,
        error_code: row.get("error_code")?,
        error_message: row.get("error_message")?,
        answer: row.get("answer")?,
    })
}

fn sink_status(row: &Row<'_>) -> rusqlite::Result<SinkStatus> {
    Ok(SinkStatus {
        sink: row.get("sink")?,
        paused: row.get("paused")?,
        on_dead: OnDead::from_word(&row.get::<_, String>("on_dead")?),
        pending: row.get("pending")?,
        due: row.get("due")?,
        leased: row.get("leased")?,
        expired: row.get("expired")?,
        dead: row.get("dead")?,
        parked_lanes: row.get("parked_lanes")?,
        oldest_due_age_seconds: row.get("oldest_due_age_seconds")?,
        recent_seconds: row.get("recent_seconds")?,
        recent: [
            row.get("recent_dispatched")?,
            row.get("recent_retryable")?,
            row.get("recent_failed")?,
            row.get("recent_zombies")?,
        ],
        last_success_at: row.get::<_, Option<i64>>("last_success_at")?.map(time),
        last_error_at: row.get::<_, Option<i64>>("last_error_at")?.map(time),
    })
}
