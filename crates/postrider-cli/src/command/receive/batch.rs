//! A request's JSON into events and messages, and the answer for each. An event that breaks a rule is rejected by itself,
//! with a code for programs and words for people; its neighbours are not touched. Payloads are taken out of the text as
//! they stand. Nothing here knows HTTP or the store.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use postrider::{Event, InvalidMessage, Message};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use uuid::Uuid;

/// What the sender called the event; the message has an id of its own. (Names that begin with `postrider-` are a sink's.)
const EVENT_ID_HEADER: &str = "origin-event-id";
/// Who sent it, and its number in the sender's lane.
const SOURCE_HEADER: &str = "origin-source";
const SEQUENCE_HEADER: &str = "origin-sequence-id";
/// What a body is if nobody says.
const BODY_CONTENT_TYPE: &str = "application/octet-stream";

#[derive(Deserialize)]
struct Batch<'a> {
    #[serde(borrow)]
    events: Vec<&'a RawValue>,
}

/// An event that keeps every rule, or what is wrong with it.
pub(super) struct Arrival {
    /// As it was given, for the answer.
    pub(super) event_id: Option<String>,
    pub(super) content: Result<(Event, Message), Rejection>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rejection {
    pub(super) code: String,
    pub(super) message: String,
}

impl Rejection {
    fn new(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self { code: code.into(), message: message.into() }
    }

    /// What the store refused when it was asked for this event alone.
    pub(super) fn by_the_store(message: String) -> Self {
        Self::new("refused", message)
    }
}

impl From<InvalidMessage> for Rejection {
    fn from(invalid: InvalidMessage) -> Self {
        let code = match &invalid {
            InvalidMessage::Empty { field } | InvalidMessage::TooLong { field, .. } | InvalidMessage::Nul { field } => {
                // The topic is what the protocol calls the event's type.
                format!("invalid_{}", if *field == "topic" { "event_type" } else { field }).replace(' ', "_")
            }
            InvalidMessage::ContentTooLarge { .. } => "payload_too_large".to_owned(),
            InvalidMessage::Sequence { .. } => "invalid_sequence_id".to_owned(),
            InvalidMessage::TimeOutOfRange { .. } => "invalid_occurred_at".to_owned(),
            _ => "invalid_event".to_owned(),
        };
        Self::new(code, invalid.to_string().replace("topic", "event_type"))
    }
}

/// How one event fared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Status {
    Accepted,
    Duplicate,
    Rejected,
    Retry,
}

#[derive(Serialize)]
pub(super) struct Answer {
    pub(super) event_id: Option<String>,
    pub(super) status: Status,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) code: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) message: Option<String>,
}

impl Answer {
    pub(super) fn plain(event_id: Option<String>, status: Status) -> Self {
        Self { event_id, status, code: None, message: None }
    }

    pub(super) fn rejected(event_id: Option<String>, why: Rejection) -> Self {
        Self { event_id, status: Status::Rejected, code: Some(why.code), message: Some(why.message) }
    }
}

/// Takes a request apart; an error is about the request as a whole.
pub(super) fn read(body: &[u8]) -> Result<Vec<Arrival>, String> {
    let batch: Batch<'_> =
        serde_json::from_slice(body).map_err(|error| format!("the body must be {{\"events\": [...]}}: {error}"))?;
    Ok(batch.events.iter().map(|event| arrival(event)).collect())
}

fn arrival(event: &RawValue) -> Arrival {
    let Ok(fields) = serde_json::from_str::<BTreeMap<String, &RawValue>>(event.get()) else {
        let why = Rejection::new("invalid_event", "an event must be a JSON object");
        return Arrival { event_id: None, content: Err(why) };
    };
    let fields = Fields(fields);
    let event_id = fields.get::<String>("event_id", "text").ok().flatten();
    Arrival { event_id, content: content(&fields) }
}

struct Fields<'a>(BTreeMap<String, &'a RawValue>);

impl Fields<'_> {
    /// The field's value; `null` stands for "not given".
    fn get<T: DeserializeOwned>(&self, name: &str, what: &str) -> Result<Option<T>, Rejection> {
        match self.0.get(name).map(|value| value.get()) {
            None | Some("null") => Ok(None),
            Some(text) => serde_json::from_str(text)
                .map(Some)
                .map_err(|_| Rejection::new(format!("invalid_{name}"), format!("{name} must be {what}"))),
        }
    }

    fn text(&self, name: &str) -> Result<Option<String>, Rejection> {
        self.get(name, "text")
    }

    fn time(&self, name: &str) -> Result<Option<Timestamp>, Rejection> {
        let what = "an RFC 3339 time such as \"2027-01-31T08:00:00Z\"";
        let wrong = |_| Rejection::new(format!("invalid_{name}"), format!("{name} must be {what}"));
        self.get::<String>(name, what)?.map(|text| text.parse().map_err(wrong)).transpose()
    }
}

fn content(fields: &Fields<'_>) -> Result<(Event, Message), Rejection> {
    let missing = |name: &str| Rejection::new(format!("invalid_{name}"), format!("{name} is missing"));
    let event_id: Uuid = fields.get("event_id", "a UUID")?.ok_or_else(|| missing("event_id"))?;
    let topic = fields.text("event_type")?.ok_or_else(|| missing("event_type"))?;
    let tenant_id: Option<Uuid> = fields.get("tenant_id", "a UUID")?;
    let lane = fields.text("lane")?;
    let sequence_id: Option<i64> = fields.get("sequence_id", "a number")?;
    let headers: Option<BTreeMap<String, String>> = fields.get("headers", "an object whose values are text")?;
    let source = fields.text("source")?;
    let occurred_at = fields.time("occurred_at")?;

    let mut event = Event::new(event_id);
    let mut message = match (fields.0.get("payload"), fields.text("body")?) {
        // Beside a body a null payload is "not given"; alone it is the payload null.
        (payload, Some(body)) if payload.is_none_or(|payload| payload.get() == "null") => {
            let wrong = |_| Rejection::new("invalid_body", "body must be base64");
            Message::bytes(topic, STANDARD.decode(&body).map_err(wrong)?, BODY_CONTENT_TYPE)
        }
        (Some(payload), None) => Message::json(topic, payload)?,
        (Some(_), Some(_)) => return Err(Rejection::new("invalid_body", "give a payload or a body, not both")),
        (None, _) => return Err(missing("payload")),
    };
    if let Some(content_type) = fields.text("content_type")? {
        message = message.content_type(content_type);
    }
    for (name, value) in headers.unwrap_or_default() {
        message = message.header(name, value);
    }
    message = message.header(EVENT_ID_HEADER, event_id.to_string());
    if let Some(tenant_id) = tenant_id {
        event = event.tenant(tenant_id);
        message = message.tenant(tenant_id);
    }
    let source = source.filter(|source| !source.is_empty());
    if let Some(source) = &source {
        message = message.header(SOURCE_HEADER, source);
        event = event.source(source);
    }
    if let Some(lane) = lane {
        // A lane without a number keeps its order from here on; a duplicate is then known for the retention alone. So is
        // one of a sender without a name: two of them may count the same lane.
        if let Some(sequence_id) = sequence_id {
            let counted = event.clone().lane(&lane, sequence_id);
            counted.check()?;
            if source.is_some() {
                event = counted;
            }
            message = message.header(SEQUENCE_HEADER, sequence_id.to_string());
        }
        message = message.lane(lane);
    }
    if let Some(namespace) = fields.text("namespace")? {
        message = message.namespace(namespace);
    }
    if let Some(occurred_at) = occurred_at {
        message = message.occurred_at(occurred_at.into());
    }
    event.check()?;
    message.check()?;
    Ok((event, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0190163d-8694-739b-aea5-966c26f8ad91";

    fn rejection(event: &str) -> Option<String> {
        let body = format!("{{\"events\": [{event}]}}");
        read(body.as_bytes()).unwrap().remove(0).content.err().map(|why| why.code)
    }

    #[test]
    fn every_rule_has_a_code() {
        let good = format!(r#""event_id": "{ID}", "event_type": "t", "payload": 1"#);
        for (event, code) in [
            ("7".to_owned(), "invalid_event"),
            (r#"{"event_type": "t", "payload": 1}"#.to_owned(), "invalid_event_id"),
            (r#"{"event_id": "no", "event_type": "t", "payload": 1}"#.to_owned(), "invalid_event_id"),
            (format!(r#"{{"event_id": "{ID}", "payload": 1}}"#), "invalid_event_type"),
            (format!(r#"{{"event_id": "{ID}", "event_type": "", "payload": 1}}"#), "invalid_event_type"),
            (format!(r#"{{"event_id": "{ID}", "event_type": "t"}}"#), "invalid_payload"),
            (format!(r#"{{"event_id": "{ID}", "event_type": "t", "payload": "\u0000"}}"#), "invalid_payload"),
            (format!(r#"{{{good}, "body": "AAE="}}"#), "invalid_body"),
            (format!(r#"{{"event_id": "{ID}", "event_type": "t", "body": "?"}}"#), "invalid_body"),
            (format!(r#"{{{good}, "tenant_id": "tenant-1"}}"#), "invalid_tenant_id"),
            (format!(r#"{{{good}, "occurred_at": "yesterday"}}"#), "invalid_occurred_at"),
            (format!(r#"{{{good}, "lane": ""}}"#), "invalid_lane"),
            (format!(r#"{{{good}, "lane": "a", "sequence_id": 0}}"#), "invalid_sequence_id"),
            (format!(r#"{{{good}, "lane": "a", "sequence_id": 1.5}}"#), "invalid_sequence_id"),
            (format!(r#"{{{good}, "headers": {{"a": 1}}}}"#), "invalid_headers"),
            (format!(r#"{{{good}, "namespace": 1}}"#), "invalid_namespace"),
            (format!(r#"{{{good}, "source": "{}"}}"#, "s".repeat(256)), "invalid_source"),
        ] {
            assert_eq!(rejection(&event).as_deref(), Some(code), "{event}");
        }
        assert_eq!(rejection(&format!(r#"{{{good}, "tenant_id": null, "unknown": 1}}"#)), None);
    }

    #[test]
    fn what_is_no_batch_is_refused_as_a_whole() {
        for body in ["", "[]", "{}", "{\"events\": 1}", "{\"events\": [}", "{\"events\": []} x"] {
            assert!(read(body.as_bytes()).is_err(), "{body}");
        }
        assert!(read(b"{\"events\": [], \"site\": 7}").unwrap().is_empty());
    }
}
