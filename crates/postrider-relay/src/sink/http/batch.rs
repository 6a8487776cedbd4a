//! The body `{"events": […]}` that forwards several messages at once, and the answer to it. A receiver may answer for all
//! with a status or for each with `{"results": […]}`. Events carry the message id as `event_id`: what it deduplicates by.

use std::collections::{BTreeMap, HashMap};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use postrider::lifecycle::{Claimed, Content};
use reqwest::StatusCode;
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;
use uuid::Uuid;

use super::answer::{Answer, AnswerReader, code_text};
use crate::sink::template::Template;
use crate::sink::{Receipt, SinkFailure, Verdict, envelope, rfc3339};

/// The receiver refuses this event for good.
const REJECTED: &str = "REJECTED";
/// The receiver wants this event again, later.
const RETRY: &str = "RETRY";

/// All events of a request.
#[derive(Serialize)]
pub(super) struct Events<'a> {
    events: Vec<Event<'a>>,
}

/// A message as the receiver sees it. Fields that are not there are left out.
#[derive(Serialize)]
#[expect(clippy::struct_field_names, reason = "these are the names of the receiver's contract")]
struct Event<'a> {
    event_id: Uuid,
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant_id: Option<&'a str>,
    event_type: &'a str,
    occurred_at: String,
    /// Who numbers the lanes, if that is configured: a receiver of several sites tells them apart by it.
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<String>,
    namespace: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    lane: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sequence_id: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dedupe_key: Option<&'a str>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    headers: &'a BTreeMap<String, String>,
    content_type: &'a str,
    /// In its producer's spelling.
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<&'a RawValue>,
    /// Base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<String>,
}

impl<'a> Events<'a> {
    pub(super) fn new(messages: &[&'a Claimed], source: Option<&Template>) -> Result<Self, SinkFailure> {
        let events = messages.iter().copied().map(|message| {
            let source = source.map(|source| source.render_with(message, str::to_owned)).transpose()?;
            Ok(event(message, source))
        });
        Ok(Self { events: events.collect::<Result<_, SinkFailure>>()? })
    }
}

fn event(message: &Claimed, source: Option<String>) -> Event<'_> {
    let (payload, body) = match &message.content {
        Content::Json(payload) => (Some(&**payload), None),
        Content::Bytes(body) => (None, Some(STANDARD.encode(body))),
    };
    Event {
        event_id: message.message_id,
        tenant_id: message.tenant_id.as_deref(),
        event_type: &message.topic,
        occurred_at: rfc3339(message.occurred_at),
        source,
        namespace: &message.namespace,
        lane: message.lane.as_deref(),
        sequence_id: message.sequence_id,
        dedupe_key: message.dedupe_key.as_deref(),
        headers: &message.headers,
        content_type: envelope::content_type(message),
        payload,
        body,
    }
}

/// What a 2xx says about each message of its request.
pub(super) fn verdicts(answer: &Answer, messages: &[&Claimed], reading: &AnswerReader) -> Vec<Verdict> {
    // Whether something was said of single events cannot be known of an answer that was not read to its end.
    let unread = answer.cut || answer.status == StatusCode::MULTI_STATUS;
    match results(&answer.body) {
        Some(results) => {
            let verdict = |message: &&Claimed| verdict(answer, results.get(&message.message_id), reading);
            messages.iter().map(verdict).collect()
        }
        None if unread => vec![Verdict::Failed(no_answer(answer, reading)); messages.len()],
        None => vec![Verdict::Delivered(answer.receipt()); messages.len()],
    }
}

fn verdict(answer: &Answer, result: Option<&EventResult>, reading: &AnswerReader) -> Verdict {
    let Some(EventResult { status, code, said }) = result else {
        return Verdict::Failed(no_answer(answer, reading));
    };
    let failure = match status.as_str() {
        "accepted" | "duplicate" => {
            let code = code.as_ref().unwrap_or(status);
            return Verdict::Delivered(Receipt { code: Some(code.clone()), ..answer.receipt() });
        }
        "rejected" => SinkFailure::terminal(REJECTED, "the receiver rejected this event"),
        "retry" => SinkFailure::retryable(RETRY, "the receiver wants this event again, later"),
        _ => SinkFailure::retryable(RETRY, "the receiver answered for this event with a status that is not known"),
    };
    let said = reading.excerpt(said.as_bytes());
    Verdict::Failed(SinkFailure { reply_code: code.clone(), retry_after: answer.retry_after, answer: said, ..failure })
}

fn no_answer(answer: &Answer, reading: &AnswerReader) -> SinkFailure {
    let words = if answer.cut {
        "the answer is longer than max_response_bytes, so what it says of this event is not known"
    } else {
        "the answer says nothing of this event"
    };
    let said = reading.excerpt(&answer.body);
    let failure = SinkFailure::retryable(SinkFailure::NO_ANSWER, words);
    SinkFailure { retry_after: answer.retry_after, answer: said, ..failure }
}

/// What was said of one event.
#[derive(Debug, PartialEq, Eq)]
struct EventResult {
    status: String,
    code: Option<String>,
    /// All of it, as JSON.
    said: String,
}

/// The results by event, if the answer speaks of single events at all. What cannot be read of it says nothing.
fn results(body: &[u8]) -> Option<HashMap<Uuid, EventResult>> {
    let document: Value = serde_json::from_slice(body).ok()?;
    let results = document.get("results")?;
    let mut by_event = HashMap::new();
    for result in results.as_array().map(Vec::as_slice).unwrap_or_default() {
        let event_id = result.get("event_id").and_then(Value::as_str).and_then(|id| id.parse::<Uuid>().ok());
        let status = result.get("status").and_then(Value::as_str);
        if let (Some(event_id), Some(status)) = (event_id, status) {
            let code = result.get("code").and_then(code_text);
            by_event.entry(event_id).or_insert_with(|| EventResult {
                status: status.to_owned(),
                code,
                said: result.to_string(),
            });
        }
    }
    Some(by_event)
}
