//! Pages of a listing and the cursor that leads from one to the next. A cursor is a text that only the stores make and read;
//! the command line and the admin API pass it on as it is.

#[cfg(any(feature = "postgres", feature = "sqlite"))]
use std::time::Duration;
use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

#[cfg(any(feature = "postgres", feature = "sqlite"))]
use super::{AuditRecord, DeadLetter, LaneState, LaneStatus, MAX_NAMED, MessageSummary, enqueued_at};
#[cfg(any(feature = "postgres", feature = "sqlite"))]
use crate::error::{Cause, Error};
use crate::json;

/// A page of a listing.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct Page<T> {
    /// Its lines.
    pub items: Vec<T>,
    /// For `after`; null if this was the last page. A page may be short, or empty, and have another behind it: a search looks
    /// at a bounded number of messages.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub next: Option<Cursor>,
    /// How far back a search for messages came, if there may be more.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "json::time_option")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<json::Time>))]
    pub searched_from: Option<SystemTime>,
}

impl<T> Page<T> {
    /// A listing that is one page.
    #[must_use]
    pub fn whole(items: Vec<T>) -> Self {
        Self { items, next: None, searched_from: None }
    }

    /// A page that is full may have another behind it.
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    fn perhaps_more(items: Vec<T>, limit: u32, cursor: impl Fn(&T) -> Cursor) -> Self {
        let full = items.len() >= usize::try_from(limit).unwrap_or(usize::MAX);
        let next = items.last().filter(|_| full).map(cursor);
        Self { items, next, searched_from: None }
    }
}

#[cfg(any(feature = "postgres", feature = "sqlite"))]
impl Page<DeadLetter> {
    pub(crate) fn of_dead(items: Vec<DeadLetter>, limit: u32) -> Self {
        Self::perhaps_more(items, limit, |last| Cursor::dead(last.died_at, last.message_id, &last.sink))
    }
}

#[cfg(any(feature = "postgres", feature = "sqlite"))]
impl Page<LaneStatus> {
    pub(crate) fn of_lanes(items: Vec<LaneStatus>, limit: u32) -> Self {
        Self::perhaps_more(items, limit, |last| {
            let parked = last.state == LaneState::Parked;
            let place: LanePlace = (!parked, !last.head_failed, -last.depth, last.sink.clone(), last.lane.clone());
            // Numbers and text alone: there is nothing here that cannot be JSON.
            Cursor::new(&serde_json::to_string(&place).unwrap_or_default())
        })
    }
}

/// Where a lane stands in their list: what it is sorted by.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
type LanePlace = (bool, bool, i64, String, String);

#[cfg(any(feature = "postgres", feature = "sqlite"))]
impl Page<AuditRecord> {
    pub(crate) fn of_audit(items: Vec<AuditRecord>, limit: u32) -> Self {
        Self::perhaps_more(items, limit, |last| Cursor::new(&last.id.to_string()))
    }
}

#[cfg(any(feature = "postgres", feature = "sqlite"))]
impl Page<MessageSummary> {
    /// A page that is full may have another behind it; one that is not goes on where the looking ended, if it did.
    pub(crate) fn of(items: Vec<MessageSummary>, limit: u32, look_on: Option<Uuid>) -> Self {
        let full = items.len() >= usize::try_from(limit).unwrap_or(usize::MAX);
        let last = items.last().filter(|_| full).map(|last| last.message_id);
        Self::until(items, last.or(look_on))
    }

    /// What was found by its id or its key. If as many messages were found as may be, it goes on before the last one.
    pub(crate) fn of_named(items: Vec<MessageSummary>, found: usize, look_on: Option<Uuid>) -> Self {
        let full = found >= MAX_NAMED as usize;
        let last = items.last().filter(|_| full).map(|last| last.message_id);
        Self::until(items, last.or(look_on))
    }

    fn until(items: Vec<MessageSummary>, next: Option<Uuid>) -> Self {
        Self { items, next: next.map(Cursor::from), searched_from: next.map(enqueued_at) }
    }
}

/// Where a page begins, and how long it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageRequest {
    /// Behind the page whose [`Page::next`] this was.
    pub after: Option<Cursor>,
    /// At most this many lines; of messages, and the other deliveries of the last one: a page ends between two messages.
    pub limit: u32,
}

impl PageRequest {
    /// The first page.
    #[must_use]
    pub fn first(limit: u32) -> Self {
        Self { after: None, limit }
    }
}

/// The end of a page.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Cursor(String);

impl Cursor {
    fn new(text: &str) -> Self {
        Self(URL_SAFE_NO_PAD.encode(text))
    }

    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    fn dead(died_at: SystemTime, message_id: Uuid, sink: &str) -> Self {
        let micros = died_at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_micros();
        Self::new(&format!("{micros}/{message_id}/{sink}"))
    }

    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    fn read<T>(&self, read: impl FnOnce(&str) -> Option<T>) -> Result<T, Error> {
        let text = URL_SAFE_NO_PAD.decode(&self.0).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        text.and_then(|text| read(&text)).ok_or_else(|| {
            let message = "after is not the `next` of another page of this listing".to_owned();
            Error::from(Cause::Refused { message, hint: None })
        })
    }

    /// The last message of a page.
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    pub(crate) fn message(&self) -> Result<Uuid, Error> {
        self.read(|text| text.parse().ok())
    }

    /// The last entry of the audit of a page.
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    pub(crate) fn entry(&self) -> Result<i64, Error> {
        self.read(|text| text.parse().ok())
    }

    /// The place of the last lane of a page, as JSON.
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    pub(crate) fn lane(&self) -> Result<String, Error> {
        self.read(|text| serde_json::from_str::<LanePlace>(text).is_ok().then(|| text.to_owned()))
    }

    /// The last dead letter of a page.
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    pub(crate) fn letter(&self) -> Result<(SystemTime, Uuid, String), Error> {
        self.read(|text| {
            let mut parts = text.splitn(3, '/');
            let micros = Duration::from_micros(parts.next()?.parse().ok()?);
            let id = parts.next()?.parse().ok()?;
            Some((SystemTime::UNIX_EPOCH.checked_add(micros)?, id, parts.next()?.to_owned()))
        })
    }
}

impl std::fmt::Display for Cursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Messages that were enqueued before this one.
impl From<Uuid> for Cursor {
    fn from(message_id: Uuid) -> Self {
        Self::new(&message_id.to_string())
    }
}

impl From<String> for Cursor {
    fn from(text: String) -> Self {
        Self(text)
    }
}

#[cfg(all(test, any(feature = "postgres", feature = "sqlite")))]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_as_it_was_written() {
        let at = SystemTime::UNIX_EPOCH + Duration::from_micros(1_700_000_000_123_456);
        let id = Uuid::from_u128(7);
        assert_eq!(Cursor::dead(at, id, "a/b").letter().expect("a cursor"), (at, id, "a/b".to_owned()));
        assert_eq!(Cursor::new(&id.to_string()).message().expect("a cursor"), id);
        assert_eq!(Cursor::new("7").entry().expect("a cursor"), 7);
        for wrong in ["", "!", "AAAA", &Cursor::new("1/2/3").0, &Cursor::new(&format!("1/{id}")).0] {
            let cursor = Cursor::from(wrong.to_owned());
            assert!(cursor.letter().is_err() && cursor.message().is_err() && cursor.entry().is_err(), "{wrong}");
            assert!(cursor.lane().is_err(), "{wrong}");
        }
    }
}
