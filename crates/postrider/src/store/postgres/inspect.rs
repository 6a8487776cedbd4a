//! Answers questions about an outbox in PostgreSQL, through the public views alone.

use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use serde_json::value::RawValue;
use tokio_postgres::Row;
use tokio_postgres::types::{Json, Type};
use uuid::Uuid;

use super::{PostgresStore, dead, search, waiting, watch};
use crate::error::Error;
use crate::inspect::{
    AttemptRecord, AuditRecord, DeadFilter, DeadGroup, DeadLetter, DeadPage, DeliveryFilter, DeliveryRecord, Entry,
    Explanation, FutureTimes, Inspect, LaneFilter, LaneStatus, ListFilter, MessageDetail, MessageSummary, OpenCount,
    Page, RelayRecord, ReplayCount, Sample, SinkStatus,
};
use crate::operate::Replay;
use crate::store::{OnDead, Pruned, Route};

#[async_trait]
impl Inspect for PostgresStore {
    async fn now(&self) -> Result<SystemTime, Error> {
        let rows = self.ask("select clock_timestamp()", &[]).await?;
        match rows.first() {
            Some(row) => Ok(row.try_get(0)?),
            None => Ok(SystemTime::now()),
        }
    }

    async fn status(&self) -> Result<Vec<SinkStatus>, Error> {
        let rows = self
            .ask(
                "select sink, paused, on_dead, pending, due, leased, expired, dead, parked_lanes, oldest_due_age_seconds, \
                 recent_seconds, recent_dispatched, recent_retryable, recent_failed, recent_zombies, last_success_at, last_error_at \
                 from outbox.status order by sink",
                &[],
            )
            .await?;
        rows.iter().map(sink_status).collect()
    }

    async fn list(&self, filter: &ListFilter) -> Result<Page<MessageSummary>, Error> {
        search::list(self, filter).await
    }

    async fn show(&self, message_id: Uuid) -> Result<Option<MessageDetail>, Error> {
        let id: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 1] = [(&message_id, Type::UUID)];
        let messages = self.ask("select * from outbox.messages where message_id = $1", &id).await?;
        let Some(row) = messages.first() else { return Ok(None) };
        let deliveries = self.ask("select * from outbox.deliveries where message_id = $1 order by sink", &id).await?;
        let attempts = self
            .ask("select * from outbox.attempts where message_id = $1 order by completed_at, sink, attempt_no", &id)
            .await?;
        let headers: Option<Json<Box<RawValue>>> = row.try_get("headers")?;
        let payload: Option<Json<Box<RawValue>>> = row.try_get("payload")?;
        Ok(Some(MessageDetail {
            message_id,
            enqueued_at: row.try_get("enqueued_at")?,
            occurred_at: row.try_get("occurred_at")?,
            namespace: row.try_get("namespace")?,
            topic: row.try_get("topic")?,
            tenant_id: row.try_get("tenant_id")?,
            lane: row.try_get("lane")?,
            sequence_id: row.try_get("sequence_id")?,
            dedupe_key: row.try_get("dedupe_key")?,
            priority: row.try_get("priority")?,
            content_type: row.try_get("content_type")?,
            headers: headers.map(|Json(headers)| headers),
            payload: payload.map(|Json(payload)| payload),
            body: row.try_get("body")?,
            deliveries: deliveries.iter().map(delivery_record).collect::<Result<_, _>>()?,
            attempts: attempts.iter().map(attempt_record).collect::<Result<_, _>>()?,
        }))
    }

    async fn entries(&self, message_ids: &[Uuid]) -> Result<Vec<Entry>, Error> {
        super::entries::entries(self, message_ids).await
    }

    async fn routes(&self) -> Result<Vec<Route>, Error> {
        let sql = "select sink, topic, namespace from outbox.route order by namespace collate \"C\", topic collate \"C\", sink collate \"C\"";
        let rows = self.ask(sql, &[]).await?;
        let route = |row: &Row| -> Result<Route, Error> {
            Ok(Route { sink: row.try_get(0)?, topic: row.try_get(1)?, namespace: row.try_get(2)? })
        };
        rows.iter().map(route).collect()
    }

    async fn lanes(&self, filter: &LaneFilter) -> Result<Vec<LaneStatus>, Error> {
        search::lanes(self, filter).await
    }
    async fn dead_letters(&self, filter: &DeadFilter, page: &DeadPage) -> Result<Vec<DeadLetter>, Error> {
        dead::dead_letters(self, filter, page).await
    }

    async fn dead_groups(&self, filter: &DeadFilter) -> Result<Vec<DeadGroup>, Error> {
        dead::dead_groups(self, filter).await
    }

    async fn count_dead(&self, filter: &DeadFilter) -> Result<u64, Error> {
        dead::count_dead(self, filter).await
    }

    async fn not_dead(&self, filter: &DeadFilter) -> Result<Vec<Uuid>, Error> {
        dead::not_dead(self, filter).await
    }

    async fn count_open(&self, filter: &DeliveryFilter) -> Result<OpenCount, Error> {
        waiting::count_open(self, filter).await
    }

    async fn not_open(&self, filter: &DeliveryFilter) -> Result<Vec<Uuid>, Error> {
        waiting::not_open(self, filter).await
    }

    async fn count_replay(&self, replay: &Replay) -> Result<ReplayCount, Error> {
        waiting::count_replay(self, replay).await
    }

    async fn count_stale(&self, older_than: Duration) -> Result<u64, Error> {
        waiting::count_stale(self, older_than).await
    }

    async fn prunable(&self, older_than: Option<Duration>) -> Result<Pruned, Error> {
        waiting::prunable(self, older_than).await
    }

    async fn future_times(&self, tolerance: Duration) -> Result<FutureTimes, Error> {
        waiting::future_times(self, tolerance).await
    }

    async fn samples(&self, within: Duration) -> Result<Vec<Sample>, Error> {
        watch::samples(self, within).await
    }
    async fn relays(&self) -> Result<Vec<RelayRecord>, Error> {
        watch::relays(self).await
    }
    async fn audit(&self, before: Option<i64>, limit: u32) -> Result<Vec<AuditRecord>, Error> {
        dead::audit(self, before, limit).await
    }

    async fn explain(&self, message_id: Uuid) -> Result<Option<Explanation>, Error> {
        watch::explain(self, message_id).await
    }
}

fn sink_status(row: &Row) -> Result<SinkStatus, Error> {
    Ok(SinkStatus {
        sink: row.try_get("sink")?,
        paused: row.try_get("paused")?,
        on_dead: OnDead::from_word(row.try_get("on_dead")?),
        pending: row.try_get("pending")?,
        due: row.try_get("due")?,
        leased: row.try_get("leased")?,
        expired: row.try_get("expired")?,
        dead: row.try_get("dead")?,
        parked_lanes: row.try_get("parked_lanes")?,
        oldest_due_age_seconds: row.try_get("oldest_due_age_seconds")?,
        recent_seconds: row.try_get("recent_seconds")?,
        recent: [
            row.try_get("recent_dispatched")?,
            row.try_get("recent_retryable")?,
            row.try_get("recent_failed")?,
            row.try_get("recent_zombies")?,
        ],
        last_success_at: row.try_get("last_success_at")?,
        last_error_at: row.try_get("last_error_at")?,
    })
}

fn delivery_record(row: &Row) -> Result<DeliveryRecord, Error> {
    Ok(DeliveryRecord {
        sink: row.try_get("sink")?,
        state: row.try_get("state")?,
        due_at: row.try_get("due_at")?,
        attempt_no: row.try_get("attempt_no")?,
        attempt_count: row.try_get("attempt_count")?,
        max_attempts: row.try_get("max_attempts")?,
        claimed_by: row.try_get("claimed_by")?,
        lease_expires_at: row.try_get("lease_expires_at")?,
    })
}

fn attempt_record(row: &Row) -> Result<AttemptRecord, Error> {
    Ok(AttemptRecord {
        sink: row.try_get("sink")?,
        attempt_no: row.try_get("attempt_no")?,
        state: row.try_get("state")?,
        worker_id: row.try_get("worker_id")?,
        claimed_at: row.try_get("claimed_at")?,
        completed_at: row.try_get("completed_at")?,
        latency_ms: row.try_get("latency_ms")?,
        code: row.try_get("code")?,
        reference: row.try_get("reference")?,
        error_code: row.try_get("error_code")?,
        error_message: row.try_get("error_message")?,
        answer: row.try_get("answer")?,
    })
}
