//! A message as a `CloudEvent` 1.0: its attributes, and the JSON format of one event. The same attributes become headers in
//! binary mode, JSON members in structured and batch mode. Our own mapping; the tests read it with the official SDK.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use postrider::lifecycle::{Claimed, Content};
use serde::Serialize;
use serde::ser::{SerializeMap as _, Serializer};
use serde_json::value::RawValue;

use super::target::percent_encoded;
use crate::sink::template::Template;
use crate::sink::{SinkFailure, envelope, rfc3339};

pub(super) const STRUCTURED: &str = "application/cloudevents+json";
pub(super) const BATCH: &str = "application/cloudevents-batch+json";

/// Headers of the tracing context that are attributes as well: the extension for distributed tracing.
const TRACING: [&str; 2] = ["traceparent", "tracestate"];
/// A number in a lane is written with so many digits, because receivers compare it as text.
const SEQUENCE_DIGITS: usize = 19;

/// The attributes of a message, without that of its content's type.
pub(super) fn attributes<'a>(
    message: &'a Claimed,
    source: Option<&Template>,
) -> Result<Vec<(&'static str, Cow<'a, str>)>, SinkFailure> {
    let source = match source {
        Some(source) => source.render_with(message, percent_encoded)?,
        None => format!("/postrider/{}", percent_encoded(&message.namespace)),
    };
    let mut attributes = vec![
        ("specversion", "1.0".into()),
        ("id", message.message_id.to_string().into()),
        ("source", source.into()),
        ("type", Cow::from(&message.topic)),
        ("time", rfc3339(message.occurred_at).into()),
    ];
    attributes.extend(message.tenant_id.as_ref().map(|tenant| ("tenantid", Cow::from(tenant))));
    attributes.extend(message.lane.as_ref().map(|lane| ("partitionkey", Cow::from(lane))));
    let sequence = |number: i64| Cow::from(format!("{number:0SEQUENCE_DIGITS$}"));
    attributes.extend(message.sequence_id.map(|number| ("sequence", sequence(number))));
    attributes.extend(message.dedupe_key.as_ref().map(|key| ("dedupekey", Cow::from(key))));
    for name in TRACING {
        let header = message.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        attributes.extend(header.map(|(_, value)| (name, Cow::from(value))));
    }
    Ok(attributes)
}

/// An event in the JSON format.
pub(super) struct Event<'a> {
    attributes: Vec<(&'static str, Cow<'a, str>)>,
    message: &'a Claimed,
}

impl<'a> Event<'a> {
    pub(super) fn new(message: &'a Claimed, source: Option<&Template>) -> Result<Self, SinkFailure> {
        Ok(Self { attributes: attributes(message, source)?, message })
    }
}

impl Serialize for Event<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (name, value) in &self.attributes {
            map.serialize_entry(name, value)?;
        }
        let content_type = envelope::content_type(self.message);
        map.serialize_entry("datacontenttype", content_type)?;
        match &self.message.content {
            // In its producer's spelling.
            Content::Json(json) if is_json(content_type) => map.serialize_entry::<_, RawValue>("data", json)?,
            other => map.serialize_entry("data_base64", &STANDARD.encode(other.as_bytes()))?,
        }
        map.end()
    }
}

/// Whether a receiver takes `data` for JSON, and not for text that stands for something else.
fn is_json(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    essence.ends_with("/json") || essence.ends_with("+json")
}
