//! What a producer says: a topic, a payload, and how it is to travel. Built here, checked here, before the database is
//! asked; written by `enqueue.rs` in the caller's transaction. A new column of a message is a field, a method and a line of
//! `COLUMNS` here. It knows no driver and no SQL but the columns' names.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use serde::Serialize;
use uuid::Uuid;

use crate::enqueue::columns::{Column, Field, Kind, column, text};
use crate::error::InvalidMessage;
use crate::record::texts;

/// Limits of a message. The database checks the same ones.
pub mod limit {
    /// Namespace, topic, tenant, lane, content type, sink and worker names: they stand in indexes.
    pub const NAME_BYTES: usize = 255;
    /// A dedupe key shares its index with namespace, topic and tenant; an index row holds about 2,700 bytes.
    pub const DEDUPE_KEY_BYTES: usize = 512;
    /// All headers together, as JSON.
    pub const HEADERS_BYTES: usize = 64 * 1024;
    /// Payload or body. Larger content belongs into a blob store, with its address in the message.
    pub const CONTENT_BYTES: usize = 16 * 1024 * 1024;
    /// The lowest priority.
    pub const PRIORITY_MIN: i32 = -100;
    /// The highest priority. A claim looks at each priority in use once, so their number is bounded.
    pub const PRIORITY_MAX: i32 = 100;
    /// The longest delay: 100 years.
    pub const DELAY_SECONDS: u64 = 3_155_760_000;
}

/// A message to enqueue.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    pub(crate) topic: String,
    pub(crate) content: Body,
    pub(crate) namespace: Option<String>,
    pub(crate) tenant_id: Option<String>,
    pub(crate) lane: Option<String>,
    pub(crate) dedupe_key: Option<String>,
    pub(crate) priority: i32,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) due: Due,
    pub(crate) occurred_at: Option<SystemTime>,
    pub(crate) content_type: Option<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Body {
    Json(String),
    Bytes(Vec<u8>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Due {
    Now,
    After(Duration),
    At(SystemTime),
}

/// The columns of a message, declared once: every adapter binds this list, in its order.
pub(crate) const COLUMNS: [Column; 13] = [
    column("topic", Kind::Text, |message| text(Some(&message.topic))),
    column("payload", Kind::Json, |message| match &message.content {
        Body::Json(json) => text(Some(json)),
        Body::Bytes(_) => None,
    }),
    column("namespace", Kind::Text, |message| text(message.namespace.as_deref())),
    column("tenant_id", Kind::Text, |message| text(message.tenant_id.as_deref())),
    column("lane", Kind::Text, |message| text(message.lane.as_deref())),
    column("dedupe_key", Kind::Text, |message| text(message.dedupe_key.as_deref())),
    column("priority", Kind::Integer, |message| (message.priority != 0).then_some(Field::Integer(message.priority))),
    column("headers", Kind::Json, |message| {
        let json = || serde_json::json!(message.headers).to_string();
        (!message.headers.is_empty()).then(|| Field::Text(json().into()))
    }),
    column("due_at", Kind::Time, |message| match message.due {
        Due::At(time) => Some(Field::Time(time)),
        Due::Now | Due::After(_) => None,
    }),
    column("occurred_at", Kind::Time, |message| message.occurred_at.map(Field::Time)),
    column("body", Kind::Bytes, |message| match &message.content {
        Body::Bytes(bytes) => Some(Field::Bytes(bytes)),
        Body::Json(_) => None,
    }),
    column("content_type", Kind::Text, |message| text(message.content_type.as_deref())),
    column("delay", Kind::Span, |message| match message.due {
        Due::After(delay) => Some(Field::Span(delay)),
        Due::Now | Due::At(_) => None,
    }),
];

texts! { Message:
    /// The namespace; `default` if not set.
    namespace => namespace,
    /// The tenant the message belongs to: 1 to 255 bytes, compared byte by byte. With a dedupe key, the key must begin with
    /// the tenant id and "/".
    tenant => tenant_id,
    /// The lane: messages of one lane are delivered strictly in the order they were enqueued.
    lane => lane,
    /// A second message of the same namespace, topic and key is not written; the first one's id is returned.
    dedupe_key => dedupe_key,
    /// The content type of the payload or body.
    content_type => content_type,
}

impl Message {
    /// A message whose payload is any serializable value.
    pub fn json<T: Serialize + ?Sized>(topic: impl Into<String>, payload: &T) -> Result<Self, InvalidMessage> {
        let json =
            serde_json::to_string(payload).map_err(|error| InvalidMessage::NotJson { reason: error.to_string() })?;
        Ok(Self::new(topic.into(), Body::Json(json), None))
    }

    /// A message whose body is opaque bytes of the given content type.
    #[must_use]
    pub fn bytes(topic: impl Into<String>, body: impl Into<Vec<u8>>, content_type: impl Into<String>) -> Self {
        Self::new(topic.into(), Body::Bytes(body.into()), Some(content_type.into()))
    }

    fn new(topic: String, content: Body, content_type: Option<String>) -> Self {
        Self {
            topic,
            content,
            namespace: None,
            tenant_id: None,
            lane: None,
            dedupe_key: None,
            priority: 0,
            headers: BTreeMap::new(),
            due: Due::Now,
            occurred_at: None,
            content_type,
        }
    }

    /// Higher goes first among messages without a lane; 0 if not set.
    #[must_use]
    pub fn priority(mut self, priority: i32) -> Self {
        self.priority = priority;
        self
    }

    /// Adds a header, which travels with the message to its sinks.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.insert(name.into(), value.into());
        self
    }

    /// Not before this long after the transaction began, by the database's clock.
    #[must_use]
    pub fn delay(mut self, delay: Duration) -> Self {
        self.due = Due::After(delay);
        self
    }

    /// Not before this time.
    #[must_use]
    pub fn due_at(mut self, due_at: SystemTime) -> Self {
        self.due = Due::At(due_at);
        self
    }

    /// When what the message tells happened; the time of the transaction if not set.
    #[must_use]
    pub fn occurred_at(mut self, occurred_at: SystemTime) -> Self {
        self.occurred_at = Some(occurred_at);
        self
    }

    /// Checks every rule that can be checked without the database. Enqueuing does this by itself.
    pub fn check(&self) -> Result<(), InvalidMessage> {
        check_name("topic", &self.topic, limit::NAME_BYTES)?;
        let names = [
            ("namespace", &self.namespace, limit::NAME_BYTES),
            ("tenant_id", &self.tenant_id, limit::NAME_BYTES),
            ("lane", &self.lane, limit::NAME_BYTES),
            ("dedupe_key", &self.dedupe_key, limit::DEDUPE_KEY_BYTES),
            ("content_type", &self.content_type, limit::NAME_BYTES),
        ];
        for (field, name, max) in names {
            if let Some(name) = name {
                check_name(field, name, max)?;
            }
        }
        if let (Some(tenant_id), Some(key)) = (&self.tenant_id, &self.dedupe_key)
            && !belongs_to(key, tenant_id)
        {
            return Err(InvalidMessage::ForeignDedupeKey { key: key.clone(), tenant_id: tenant_id.clone() });
        }
        if !(limit::PRIORITY_MIN..=limit::PRIORITY_MAX).contains(&self.priority) {
            return Err(InvalidMessage::Priority {
                priority: self.priority,
                min: limit::PRIORITY_MIN,
                max: limit::PRIORITY_MAX,
            });
        }
        self.check_headers()?;
        self.check_content()?;
        let out_of_range = match self.due {
            Due::After(delay) if delay.as_secs() > limit::DELAY_SECONDS => Some("delay"),
            Due::At(due_at) if !is_in_years_1_to_9999(due_at) => Some("due_at"),
            _ => self.occurred_at.filter(|time| !is_in_years_1_to_9999(*time)).map(|_| "occurred_at"),
        };
        out_of_range.map_or(Ok(()), |field| Err(InvalidMessage::TimeOutOfRange { field }))
    }

    fn check_headers(&self) -> Result<(), InvalidMessage> {
        let bytes = self.headers.iter().map(|(name, value)| name.len() + value.len() + 6).sum();
        if bytes > limit::HEADERS_BYTES {
            return Err(InvalidMessage::TooLong { field: "headers", bytes, max: limit::HEADERS_BYTES });
        }
        for (name, value) in &self.headers {
            if name.is_empty() {
                return Err(InvalidMessage::Empty { field: "header name" });
            }
            if name.contains('\0') || value.contains('\0') {
                return Err(InvalidMessage::Nul { field: "header" });
            }
        }
        Ok(())
    }

    fn check_content(&self) -> Result<(), InvalidMessage> {
        let bytes = match &self.content {
            Body::Json(json) => json.len(),
            Body::Bytes(bytes) => bytes.len(),
        };
        if bytes > limit::CONTENT_BYTES {
            return Err(InvalidMessage::ContentTooLarge { bytes, max: limit::CONTENT_BYTES });
        }
        match &self.content {
            Body::Json(json) if has_escaped_nul(json) => Err(InvalidMessage::Nul { field: "payload" }),
            _ => Ok(()),
        }
    }
}

pub(crate) fn check_name(field: &'static str, name: &str, max: usize) -> Result<(), InvalidMessage> {
    if name.is_empty() {
        return Err(InvalidMessage::Empty { field });
    }
    if name.len() > max {
        return Err(InvalidMessage::TooLong { field, bytes: name.len(), max });
    }
    if name.contains('\0') {
        return Err(InvalidMessage::Nul { field });
    }
    Ok(())
}

/// From 1970 to the beginning of the year 10000.
const UNTIL_YEAR_10000: Duration = Duration::from_hours(70_389_528);
/// From the beginning of the year 1 to 1970.
const SINCE_YEAR_1: Duration = Duration::from_hours(17_259_888);

/// Other years have no RFC 3339 text, which is what receivers get.
fn is_in_years_1_to_9999(time: SystemTime) -> bool {
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(after) => after < UNTIL_YEAR_10000,
        Err(before) => before.duration() <= SINCE_YEAR_1,
    }
}

/// The key begins with the tenant id and "/". A UUID, spelled with hyphens in lower case, may stand there as 32 digits, too.
fn belongs_to(key: &str, tenant_id: &str) -> bool {
    let begins_with = |tenant: &str| key.strip_prefix(tenant).is_some_and(|rest| rest.starts_with('/'));
    begins_with(tenant_id)
        || Uuid::try_parse(tenant_id)
            .is_ok_and(|uuid| uuid.to_string() == tenant_id && begins_with(&uuid.simple().to_string()))
}

/// Whether a JSON text holds the escape for NUL, which jsonb refuses. An escaped backslash before `u0000` is not one.
fn has_escaped_nul(json: &str) -> bool {
    json.match_indices("\\u0000").any(|(at, _)| {
        let backslashes_before = json[..at].bytes().rev().take_while(|&byte| byte == b'\\').count();
        backslashes_before % 2 == 0
    })
}

#[cfg(test)]
mod tests;
