//! What every SQLite driver needs to enqueue: the two statements, and a message as their parameters. Used by
//! `enqueue/rusqlite.rs` and `enqueue/sqlx_sqlite.rs`, which only bind and run. The rules are in `sql/sqlite/views/enqueue.sql`.

use std::time::{Duration, SystemTime};

use uuid::Uuid;

use super::{Enqueued, headers_json};
use crate::error::{Error, InvalidMessage};
use crate::message::{Body, Due, Message};
use crate::statement::named;

pub(super) const ENQUEUE: &str = named!("sqlite", "enqueue", "message");
pub(super) const ENQUEUED: &str = named!("sqlite", "enqueue", "enqueued");

/// A batch is written as a whole or not at all, whatever the caller does with the rest of its transaction. (Without a
/// transaction, this is one.)
pub(super) const BEGIN: &str = "savepoint outbox_enqueue";
pub(super) const KEEP: &str = "release outbox_enqueue";
pub(super) const UNDO: &str = "rollback to outbox_enqueue; release outbox_enqueue";

/// A message, column by column, as `enqueue.sql` wants it.
pub(super) struct Parameters<'a> {
    pub(super) message_id: Uuid,
    pub(super) topic: &'a str,
    pub(super) payload: Option<&'a str>,
    pub(super) namespace: Option<&'a str>,
    pub(super) tenant_id: Option<Uuid>,
    pub(super) lane: Option<&'a str>,
    pub(super) dedupe_key: Option<&'a str>,
    pub(super) priority: i32,
    pub(super) headers: Option<String>,
    pub(super) due_at: Option<i64>,
    pub(super) occurred_at: Option<i64>,
    pub(super) body: Option<&'a [u8]>,
    pub(super) content_type: Option<&'a str>,
    pub(super) delay_us: Option<i64>,
}

impl<'a> Parameters<'a> {
    pub(super) fn from_message(message: &'a Message) -> Result<Self, Error> {
        let (payload, body) = match &message.content {
            Body::Json(json) => (Some(json.as_str()), None),
            Body::Bytes(bytes) => (None, Some(bytes.as_slice())),
        };
        let (due_at, delay_us) = match message.due {
            Due::Now => (None, None),
            Due::After(delay) => (None, Some(delay_micros(delay)?)),
            Due::At(time) => (Some(micros("due_at", time)?), None),
        };
        Ok(Self {
            // In the order they are made, within this process: ties of the clock are kept in order by it.
            message_id: Uuid::now_v7(),
            topic: &message.topic,
            payload,
            namespace: message.namespace.as_deref(),
            tenant_id: message.tenant_id,
            lane: message.lane.as_deref(),
            dedupe_key: message.dedupe_key.as_deref(),
            priority: message.priority,
            headers: headers_json(message)?,
            due_at,
            occurred_at: message.occurred_at.map(|time| micros("occurred_at", time)).transpose()?,
            body,
            content_type: message.content_type.as_deref(),
            delay_us,
        })
    }

    /// What became of it, if that needs no look into the database.
    pub(super) fn certain_answer(&self) -> Option<Enqueued> {
        (self.lane.is_none() && self.dedupe_key.is_none()).then_some(Enqueued {
            message_id: self.message_id,
            sequence_id: None,
            created: true,
        })
    }
}

fn delay_micros(delay: Duration) -> Result<i64, InvalidMessage> {
    i64::try_from(delay.as_micros()).map_err(|_| InvalidMessage::TimeOutOfRange { field: "delay" })
}

fn micros(field: &'static str, time: SystemTime) -> Result<i64, InvalidMessage> {
    jiff::Timestamp::try_from(time)
        .map(jiff::Timestamp::as_microsecond)
        .map_err(|_| InvalidMessage::TimeOutOfRange { field })
}
