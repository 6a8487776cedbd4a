//! Answers questions about an outbox in SQLite, on a connection of its own, so that a long look holds up no claim.
//! Nothing here writes.

use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use rusqlite::{Row, ToSql, Transaction};
use serde_json::value::RawValue;
use uuid::Uuid;

use super::claim::not_json;
use super::statement::{all, first, sql, time};
use super::{SqliteStore, dead};
use crate::error::Error;
use crate::inspect::{
    AttemptRecord, AuditRecord, DeadFilter, DeadGroup, DeadLetter, DeadPage, DeliveryRecord, Explanation, Inspect,
    LaneFilter, LaneStatus, ListFilter, ListState, MessageDetail, MessageSummary, Page, RelayRecord, Sample,
    SinkStatus,
};
use crate::store::Route;

#[async_trait]
impl Inspect for SqliteStore {
    async fn now(&self) -> Result<SystemTime, Error> {
        self.reader.run(|session| session.read(|_, now| Ok(time(now)))).await
    }

    async fn status(&self) -> Result<Vec<SinkStatus>, Error> {
        self.reader.run(|session| session.read(|tx, _| all(tx, sql!("status"), &[], sink_status))).await
    }

    async fn list(&self, filter: &ListFilter) -> Result<Page<MessageSummary>, Error> {
        let filter = filter.clone();
        let limit = filter.limit;
        let items = self
            .reader
            .run(move |session| {
                session.read(|tx, _| match filter.state {
                    Some(ListState::Pending | ListState::Leased) => list_by_state(tx, sql!("list_open"), &filter),
                    Some(ListState::Dead) => list_by_state(tx, sql!("list_dead"), &filter),
                    Some(ListState::Delivered) | None => list_messages(tx, &filter),
                })
            })
            .await?;
        Ok(Page::of(items, limit))
    }

    async fn show(&self, message_id: Uuid) -> Result<Option<MessageDetail>, Error> {
        self.reader.run(move |session| session.read(|tx, _| show(tx, message_id))).await
    }

    async fn routes(&self) -> Result<Vec<Route>, Error> {
        let route = |row: &Row<'_>| Ok(Route { sink: row.get(0)?, topic: row.get(1)?, namespace: row.get(2)? });
        self.reader.run(move |session| session.read(|tx, _| all(tx, sql!("routes"), &[], route))).await
    }

    async fn lanes(&self, _filter: &LaneFilter) -> Result<Vec<LaneStatus>, Error> {
        Err(Error::Refused { message: "not there yet".to_owned(), hint: None })
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

    async fn samples(&self, _within: Duration) -> Result<Vec<Sample>, Error> {
        Err(Error::Refused { message: "not there yet".to_owned(), hint: None })
    }
    async fn relays(&self) -> Result<Vec<RelayRecord>, Error> {
        Err(Error::Refused { message: "not there yet".to_owned(), hint: None })
    }
    async fn audit(&self, before: Option<i64>, limit: u32) -> Result<Vec<AuditRecord>, Error> {
        self.reader.run(move |session| session.read(|tx, _| dead::audit(tx, before, limit))).await
    }

    async fn explain(&self, _message_id: Uuid) -> Result<Option<Explanation>, Error> {
        Err(Error::Refused { message: "not there yet".to_owned(), hint: None })
    }
}

/// A page that ends between two messages: whether a line of this message still belongs to it.
fn has_room(page: &[MessageSummary], limit: u32, next: Uuid) -> bool {
    page.len() < limit as usize || page.last().is_some_and(|last| last.message_id == next)
}

fn list_by_state(tx: &Transaction<'_>, sql: &str, filter: &ListFilter) -> Result<Vec<MessageSummary>, Error> {
    let parameters: [(&str, &dyn ToSql); 6] = [
        (":state", &filter.state.map(ListState::as_str)),
        (":topic", &filter.topic),
        (":tenant_id", &filter.tenant_id),
        (":lane", &filter.lane),
        (":sink", &filter.sink),
        (":before", &filter.before),
    ];
    let mut statement = tx.prepare_cached(sql)?;
    let mut rows = statement.query(&parameters[..])?;
    let mut page = Vec::new();
    while let Some(row) = rows.next()? {
        let summary = MessageSummary {
            sink: row.get("sink")?,
            state: row.get("state")?,
            attempt_no: row.get("attempt_no")?,
            due_at: row.get::<_, Option<i64>>("due_at")?.map(time),
            ..message_summary(row)?
        };
        if !has_room(&page, filter.limit, summary.message_id) {
            break;
        }
        page.push(summary);
    }
    Ok(page)
}

fn list_messages(tx: &Transaction<'_>, filter: &ListFilter) -> Result<Vec<MessageSummary>, Error> {
    let parameters: [(&str, &dyn ToSql); 5] = [
        (":topic", &filter.topic),
        (":tenant_id", &filter.tenant_id),
        (":lane", &filter.lane),
        (":sink", &filter.sink),
        (":before", &filter.before),
    ];
    let mut statement = tx.prepare_cached(sql!("list_messages"))?;
    let mut rows = statement.query(&parameters[..])?;
    let mut page = Vec::new();
    while let Some(row) = rows.next()? {
        let message = message_summary(row)?;
        if !has_room(&page, filter.limit, message.message_id) {
            break;
        }
        let deliveries = deliveries(tx, message.message_id)?;
        if deliveries.is_empty() && row.get("sent")? {
            page.push(message);
        } else if filter.state.is_none() {
            let asked = |sink: &str| filter.sink.as_deref().is_none_or(|asked| asked == sink);
            page.extend(deliveries.into_iter().filter(|delivery| asked(&delivery.sink)).map(|delivery| {
                MessageSummary {
                    sink: Some(delivery.sink),
                    state: delivery.state,
                    attempt_no: Some(delivery.attempt_no),
                    due_at: delivery.due_at,
                    ..message.clone()
                }
            }));
        }
    }
    Ok(page)
}

/// A message that was delivered everywhere, unless more is known about it.
fn message_summary(row: &Row<'_>) -> rusqlite::Result<MessageSummary> {
    Ok(MessageSummary {
        message_id: row.get("id")?,
        enqueued_at: time(row.get("enqueued_at")?),
        namespace: row.get("namespace")?,
        topic: row.get("topic")?,
        lane: row.get("lane")?,
        sequence_id: row.get("sequence_id")?,
        sink: None,
        state: ListState::Delivered.as_str().to_owned(),
        attempt_no: None,
        due_at: None,
    })
}

fn show(tx: &Transaction<'_>, message_id: Uuid) -> Result<Option<MessageDetail>, Error> {
    let detail = first(tx, sql!("show_message"), &[(":message_id", &message_id)], |row| {
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
    let attempts = all(tx, sql!("attempts_of"), &[(":message_id", &message_id)], attempt_record)?;
    Ok(Some(MessageDetail { deliveries: deliveries(tx, message_id)?, attempts, ..detail }))
}

fn deliveries(tx: &Transaction<'_>, message_id: Uuid) -> Result<Vec<DeliveryRecord>, Error> {
    all(tx, sql!("deliveries_of"), &[(":message_id", &message_id)], |row| {
        Ok(DeliveryRecord {
            sink: row.get("sink")?,
            state: row.get("state")?,
            due_at: row.get::<_, Option<i64>>("due_at")?.map(time),
            attempt_no: row.get("attempt_no")?,
            attempt_count: row.get("attempt_count")?,
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
    })
}

fn sink_status(row: &Row<'_>) -> rusqlite::Result<SinkStatus> {
    Ok(SinkStatus {
        sink: row.get("sink")?,
        paused: row.get("paused")?,
        pending: row.get("pending")?,
        due: row.get("due")?,
        leased: row.get("leased")?,
        expired: row.get("expired")?,
        dead: row.get("dead")?,
        parked_lanes: row.get("parked_lanes")?,
        oldest_due_age_seconds: row.get("oldest_due_age_seconds")?,
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
