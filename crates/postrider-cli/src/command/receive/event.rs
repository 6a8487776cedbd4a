//! One event of a batch, as JSON, into what the store takes: the event for the inbox and the message for the outbox. An
//! event that breaks a rule is rejected by itself; its neighbours are not touched. Payloads are taken out of the text as
//! they stand. Fields and headers are counted while they are read. Nothing here knows HTTP or the store.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use postrider::{Event, Message};
use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use uuid::Uuid;

use super::answer::{Rejection, repeatable};
use super::batch::Arrival;
use super::sender::Rules;

/// What the sender called the event; the message has an id of its own. (Names that begin with `postrider-` are a sink's.)
const EVENT_ID_HEADER: &str = "origin-event-id";
/// Who sent it, and its number in the sender's lane.
const SOURCE_HEADER: &str = "origin-source";
const SEQUENCE_HEADER: &str = "origin-sequence-id";
/// What a body is if nobody says.
const BODY_CONTENT_TYPE: &str = "application/octet-stream";

/// The fields that mean something. Others are ignored.
const FIELDS: [&str; 12] = [
    "event_id",
    "event_type",
    "tenant_id",
    "source",
    "namespace",
    "lane",
    "sequence_id",
    "occurred_at",
    "headers",
    "payload",
    "body",
    "content_type",
];
/// All fields of one event, known or not.
const MAX_FIELDS: usize = 100;
/// All headers of one event.
const MAX_HEADERS: usize = 100;

pub(super) fn read(event: &RawValue, rules: &Rules) -> Arrival {
    let Ok(fields) = serde_json::from_str::<Fields<'_>>(event.get()) else {
        let words = format!("an event must be a JSON object of at most {MAX_FIELDS} fields");
        return Arrival { event_id: None, content: Err(Rejection::new("invalid_event", words)) };
    };
    let event_id = repeatable(fields.get::<String>("event_id", "text").ok().flatten());
    Arrival { event_id, content: content(&fields, rules) }
}

/// The known fields of an event.
struct Fields<'a>(BTreeMap<&'static str, &'a RawValue>);

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Known;
        impl<'de> Visitor<'de> for Known {
            type Value = Fields<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields<'de>, A::Error> {
                let mut fields = BTreeMap::new();
                let mut count = 0;
                while let Some(name) = map.next_key::<String>()? {
                    count += 1;
                    if count > MAX_FIELDS {
                        return Err(A::Error::custom("too many fields"));
                    }
                    match FIELDS.into_iter().find(|known| *known == name) {
                        Some(known) => drop(fields.insert(known, map.next_value()?)),
                        None => drop(map.next_value::<IgnoredAny>()?),
                    }
                }
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_map(Known)
    }
}

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

    fn headers(&self) -> Result<BTreeMap<String, String>, Rejection> {
        let what = format!("an object of at most {MAX_HEADERS} names, whose values are text");
        Ok(self.get::<Headers>("headers", &what)?.map(|Headers(headers)| headers).unwrap_or_default())
    }
}

/// Names and values, not too many of them.
struct Headers(BTreeMap<String, String>);

impl<'de> Deserialize<'de> for Headers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Few;
        impl<'de> Visitor<'de> for Few {
            type Value = Headers;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Headers, A::Error> {
                let mut headers = BTreeMap::new();
                while let Some((name, value)) = map.next_entry()? {
                    if headers.len() == MAX_HEADERS {
                        return Err(A::Error::custom("too many headers"));
                    }
                    headers.insert(name, value);
                }
                Ok(Headers(headers))
            }
        }
        deserializer.deserialize_map(Few)
    }
}

fn content(fields: &Fields<'_>, rules: &Rules) -> Result<(Event, Message), Rejection> {
    let missing = |name: &str| Rejection::new(format!("invalid_{name}"), format!("{name} is missing"));
    let event_id: Uuid = fields.get("event_id", "a UUID")?.ok_or_else(|| missing("event_id"))?;
    let topic = fields.text("event_type")?.ok_or_else(|| missing("event_type"))?;
    let tenant_id = fields.text("tenant_id")?;
    let lane = fields.text("lane")?;
    let sequence_id: Option<i64> = fields.get("sequence_id", "a number")?;
    let source = fields.text("source")?.filter(|source| !source.is_empty());
    let occurred_at = fields.time("occurred_at")?;
    rules.sender.check(source.as_deref(), tenant_id.as_deref())?;

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
    for (name, value) in fields.headers()?.into_iter().filter(|(name, _)| rules.headers.passes(name)) {
        message = message.header(name, value);
    }
    message = message.header(EVENT_ID_HEADER, event_id.to_string());
    if let Some(tenant_id) = tenant_id {
        event = event.tenant(&tenant_id);
        message = message.tenant(tenant_id);
    }
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
        read(serde_json::from_str(event).unwrap(), &Rules::none()).content.err().map(|why| why.code)
    }

    #[test]
    fn every_rule_has_a_code() {
        let good = format!(r#""event_id": "{ID}", "event_type": "t", "payload": 1"#);
        let many = |value: &str| (0..=100).fold(String::new(), |names, n| names + &format!(r#""{n}": {value}, "#));
        for (event, code) in [
            ("7".to_owned(), "invalid_event"),
            (format!("{{{}{good}}}", many("1")), "invalid_event"),
            (r#"{"event_type": "t", "payload": 1}"#.to_owned(), "invalid_event_id"),
            (r#"{"event_id": "no", "event_type": "t", "payload": 1}"#.to_owned(), "invalid_event_id"),
            (format!(r#"{{"event_id": "{ID}", "payload": 1}}"#), "invalid_event_type"),
            (format!(r#"{{"event_id": "{ID}", "event_type": "", "payload": 1}}"#), "invalid_event_type"),
            (format!(r#"{{"event_id": "{ID}", "event_type": "t"}}"#), "invalid_payload"),
            (format!(r#"{{"event_id": "{ID}", "event_type": "t", "payload": "\u0000"}}"#), "invalid_payload"),
            (format!(r#"{{{good}, "body": "AAE="}}"#), "invalid_body"),
            (format!(r#"{{"event_id": "{ID}", "event_type": "t", "body": "?"}}"#), "invalid_body"),
            (format!(r#"{{{good}, "tenant_id": ""}}"#), "invalid_tenant_id"),
            (format!(r#"{{{good}, "tenant_id": 1}}"#), "invalid_tenant_id"),
            (format!(r#"{{{good}, "occurred_at": "yesterday"}}"#), "invalid_occurred_at"),
            (format!(r#"{{{good}, "lane": ""}}"#), "invalid_lane"),
            (format!(r#"{{{good}, "lane": "a", "sequence_id": 0}}"#), "invalid_sequence_id"),
            (format!(r#"{{{good}, "lane": "a", "sequence_id": 1.5}}"#), "invalid_sequence_id"),
            (format!(r#"{{{good}, "headers": {{"a": 1}}}}"#), "invalid_headers"),
            (format!(r#"{{{good}, "headers": {{{}"a": ""}}}}"#, many("\"\"")), "invalid_headers"),
            (format!(r#"{{{good}, "namespace": 1}}"#), "invalid_namespace"),
            (format!(r#"{{{good}, "source": "{}"}}"#, "s".repeat(256)), "invalid_source"),
        ] {
            assert_eq!(rejection(&event).as_deref(), Some(code), "{event}");
        }
        assert_eq!(rejection(&format!(r#"{{{good}, "tenant_id": null, "unknown": 1}}"#)), None);
        assert_eq!(rejection(&format!(r#"{{{good}, "tenant_id": "tenant-1"}}"#)), None);
    }
}
