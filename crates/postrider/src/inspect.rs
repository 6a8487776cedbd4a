//! Read-only questions about an outbox: how it stands, which messages are where, the whole story of one. Called by the
//! command line. Everything is read through the public views; nothing here writes.

use std::time::SystemTime;

use serde_json::value::RawValue;
use tokio_postgres::Row;
use tokio_postgres::types::{Json, Type};
use uuid::Uuid;

use crate::error::Error;
use crate::store::postgres::PostgresStore;

/// How one sink stands.
#[derive(Debug, Clone, PartialEq)]
pub struct SinkStatus {
    /// The sink.
    pub sink: String,
    /// Whether an operator paused it.
    pub paused: bool,
    /// Waiting, due or not.
    pub pending: i64,
    /// Waiting and due.
    pub due: i64,
    /// Held by workers.
    pub leased: i64,
    /// Held under a lease that ended.
    pub expired: i64,
    /// Dead letters.
    pub dead: i64,
    /// Lanes that wait for a person.
    pub parked_lanes: i64,
    /// How long the oldest due delivery has been due.
    pub oldest_due_age_seconds: f64,
    /// Attempts of the last minutes, by outcome: dispatched, retryable, failed, zombie.
    pub recent: [i64; 4],
    /// The last success of the last minutes.
    pub last_success_at: Option<SystemTime>,
    /// The last failure of the last minutes.
    pub last_error_at: Option<SystemTime>,
}

/// Where a message stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListState {
    /// Waiting.
    Pending,
    /// Held by a worker.
    Leased,
    /// Dead.
    Dead,
    /// Ended well everywhere.
    Delivered,
}

impl ListState {
    /// The word used in SQL and JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Leased => "leased",
            Self::Dead => "dead",
            Self::Delivered => "delivered",
        }
    }
}

/// Which messages to list.
#[derive(Debug, Clone, PartialEq)]
pub struct ListFilter {
    /// In this state.
    pub state: Option<ListState>,
    /// Of this topic.
    pub topic: Option<String>,
    /// Of this tenant.
    pub tenant_id: Option<Uuid>,
    /// In this lane.
    pub lane: Option<String>,
    /// For this sink.
    pub sink: Option<String>,
    /// Enqueued before this one: for the next page.
    pub before: Option<Uuid>,
    /// At most this many, and the other deliveries of the last message: a page ends between two messages.
    pub limit: u32,
}

/// One line of a listing: a message and one of its deliveries.
#[derive(Debug, Clone, PartialEq)]
pub struct MessageSummary {
    /// The message.
    pub message_id: Uuid,
    /// When it was enqueued.
    pub enqueued_at: SystemTime,
    /// Its namespace.
    pub namespace: String,
    /// Its topic.
    pub topic: String,
    /// Its lane.
    pub lane: Option<String>,
    /// Its number in the lane.
    pub sequence_id: Option<i64>,
    /// The sink, unless it was delivered everywhere.
    pub sink: Option<String>,
    /// Where it stands.
    pub state: String,
    /// Attempts so far, for a delivery that has not ended.
    pub attempt_no: Option<i32>,
    /// When it is due, for a pending delivery.
    pub due_at: Option<SystemTime>,
}

/// The whole story of one message.
#[derive(Debug, Clone)]
pub struct MessageDetail {
    /// The message.
    pub message_id: Uuid,
    /// When it was enqueued.
    pub enqueued_at: SystemTime,
    /// When what it tells happened.
    pub occurred_at: SystemTime,
    /// Its namespace.
    pub namespace: String,
    /// Its topic.
    pub topic: String,
    /// Its tenant.
    pub tenant_id: Option<Uuid>,
    /// Its lane.
    pub lane: Option<String>,
    /// Its number in the lane.
    pub sequence_id: Option<i64>,
    /// Its dedupe key.
    pub dedupe_key: Option<String>,
    /// Its priority.
    pub priority: i32,
    /// Its content type.
    pub content_type: Option<String>,
    /// Its headers, as JSON.
    pub headers: Option<Box<RawValue>>,
    /// Its payload, as JSON.
    pub payload: Option<Box<RawValue>>,
    /// Its body.
    pub body: Option<Vec<u8>>,
    /// Deliveries that have not ended well.
    pub deliveries: Vec<DeliveryRecord>,
    /// Every attempt, oldest first.
    pub attempts: Vec<AttemptRecord>,
}

/// One delivery that has not ended well.
#[derive(Debug, Clone, PartialEq)]
pub struct DeliveryRecord {
    /// The sink.
    pub sink: String,
    /// `pending`, `leased` or `dead`.
    pub state: String,
    /// When it is due.
    pub due_at: Option<SystemTime>,
    /// Attempts so far.
    pub attempt_no: i32,
    /// Attempts since the last redrive.
    pub attempt_count: i32,
    /// Who holds it.
    pub claimed_by: Option<String>,
    /// Until when.
    pub lease_expires_at: Option<SystemTime>,
}

/// One attempt.
#[derive(Debug, Clone, PartialEq)]
pub struct AttemptRecord {
    /// The sink.
    pub sink: String,
    /// Its number.
    pub attempt_no: i32,
    /// How it ended.
    pub state: String,
    /// Who tried.
    pub worker_id: String,
    /// When it was claimed.
    pub claimed_at: SystemTime,
    /// When the outcome was recorded.
    pub completed_at: SystemTime,
    /// How long the sink took.
    pub latency_ms: Option<i32>,
    /// The destination's code.
    pub code: Option<String>,
    /// The destination's reference.
    pub reference: Option<String>,
    /// The error's code.
    pub error_code: Option<String>,
    /// The error's message.
    pub error_message: Option<String>,
}

impl PostgresStore {
    /// The database's clock, for ages: the reader's own may be off.
    pub async fn now(&self) -> Result<SystemTime, Error> {
        let rows = self.query("select clock_timestamp()", &[]).await?;
        match rows.first() {
            Some(row) => Ok(row.try_get(0)?),
            None => Ok(SystemTime::now()),
        }
    }

    /// How every sink stands, by name.
    pub async fn status(&self) -> Result<Vec<SinkStatus>, Error> {
        let rows = self
            .query(
                "select sink, paused, pending, due, leased, expired, dead, parked_lanes, oldest_due_age_seconds, \
                 recent_dispatched, recent_retryable, recent_failed, recent_zombies, last_success_at, last_error_at \
                 from outbox.status order by sink",
                &[],
            )
            .await?;
        rows.iter().map(sink_status).collect()
    }

    /// Messages, newest first.
    pub async fn list(&self, filter: &ListFilter) -> Result<Vec<MessageSummary>, Error> {
        // What is still to be delivered is read from the small hot table; only `delivered` and no state read history.
        let sql = match filter.state {
            Some(ListState::Pending | ListState::Leased | ListState::Dead) => {
                "select * from (select m.message_id, m.enqueued_at, m.namespace, m.topic, m.lane, m.sequence_id, d.sink, \
                 d.state, d.attempt_no, d.due_at \
                 from outbox.deliveries d join outbox.messages m on m.message_id = d.message_id \
                 where d.state = $1 and ($2::text is null or m.topic = $2) and ($3::uuid is null or m.tenant_id = $3) \
                 and ($4::text is null or m.lane = $4) and ($5::text is null or d.sink = $5) \
                 and ($6::uuid is null or m.message_id < $6) order by m.message_id desc fetch first ($7) rows with ties) page \
                 order by message_id desc, sink"
            }
            Some(ListState::Delivered) | None => {
                "select * from (select m.message_id, m.enqueued_at, m.namespace, m.topic, m.lane, m.sequence_id, d.sink, \
                 coalesce(d.state, 'delivered') as state, d.attempt_no, d.due_at \
                 from outbox.messages m left join outbox.deliveries d on d.message_id = m.message_id \
                 where ($1::text is null or d.state is null) and ($2::text is null or m.topic = $2) \
                 and ($3::uuid is null or m.tenant_id = $3) and ($4::text is null or m.lane = $4) \
                 and ($5::text is null or d.sink = $5 or (d.sink is null and exists (select from outbox.attempts a \
                 where a.message_id = m.message_id and a.sink = $5 and a.state = 'DISPATCHED'))) \
                 and ($6::uuid is null or m.message_id < $6) order by m.message_id desc fetch first ($7) rows with ties) page \
                 order by message_id desc, sink"
            }
        };
        let rows = self
            .query(
                sql,
                &[
                    (&filter.state.map(ListState::as_str), Type::TEXT),
                    (&filter.topic, Type::TEXT),
                    (&filter.tenant_id, Type::UUID),
                    (&filter.lane, Type::TEXT),
                    (&filter.sink, Type::TEXT),
                    (&filter.before, Type::UUID),
                    (&i64::from(filter.limit), Type::INT8),
                ],
            )
            .await?;
        rows.iter().map(message_summary).collect()
    }

    /// One message with its deliveries and attempts; `None` if it is not in the store.
    pub async fn show(&self, message_id: Uuid) -> Result<Option<MessageDetail>, Error> {
        let id: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 1] = [(&message_id, Type::UUID)];
        let messages = self.query("select * from outbox.messages where message_id = $1", &id).await?;
        let Some(row) = messages.first() else { return Ok(None) };
        let deliveries = self.query("select * from outbox.deliveries where message_id = $1 order by sink", &id).await?;
        let attempts = self
            .query("select * from outbox.attempts where message_id = $1 order by completed_at, sink, attempt_no", &id)
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
}

fn sink_status(row: &Row) -> Result<SinkStatus, Error> {
    Ok(SinkStatus {
        sink: row.try_get("sink")?,
        paused: row.try_get("paused")?,
        pending: row.try_get("pending")?,
        due: row.try_get("due")?,
        leased: row.try_get("leased")?,
        expired: row.try_get("expired")?,
        dead: row.try_get("dead")?,
        parked_lanes: row.try_get("parked_lanes")?,
        oldest_due_age_seconds: row.try_get("oldest_due_age_seconds")?,
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

fn message_summary(row: &Row) -> Result<MessageSummary, Error> {
    Ok(MessageSummary {
        message_id: row.try_get("message_id")?,
        enqueued_at: row.try_get("enqueued_at")?,
        namespace: row.try_get("namespace")?,
        topic: row.try_get("topic")?,
        lane: row.try_get("lane")?,
        sequence_id: row.try_get("sequence_id")?,
        sink: row.try_get("sink")?,
        state: row.try_get("state")?,
        attempt_no: row.try_get("attempt_no")?,
        due_at: row.try_get("due_at")?,
    })
}

fn delivery_record(row: &Row) -> Result<DeliveryRecord, Error> {
    Ok(DeliveryRecord {
        sink: row.try_get("sink")?,
        state: row.try_get("state")?,
        due_at: row.try_get("due_at")?,
        attempt_no: row.try_get("attempt_no")?,
        attempt_count: row.try_get("attempt_count")?,
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
    })
}
