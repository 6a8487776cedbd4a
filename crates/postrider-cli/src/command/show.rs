//! `postrider show`: the whole story of one message: what the producer said, where it still has to go, and every
//! attempt as a timeline. Nothing is changed.

mod timeline;

use std::collections::BTreeMap;
use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use postrider::{AttemptRecord, DeliveryRecord, MessageDetail};
use serde::Serialize;
use serde_json::value::RawValue;
use uuid::Uuid;

use super::which::Which;
use crate::exit_code::ExitCode;
use crate::failure::{Failure, Result};
use crate::options::Global;
use crate::output::{Output, Paint, printable};
use crate::store::{Address, Missing, Opened};
use crate::{humane, json_text};

/// How much of a body that is text is shown; `--json` has all of it.
const BODY_TEXT_SHOWN_CHARS: usize = 2_000;
/// How much of a body that is not text is shown, as hexadecimal digits.
const BODY_HEX_SHOWN_BYTES: usize = 64;

const AFTER_HELP: &str = "\
Times in the timeline count from when the message was enqueued.
Exit code 4 if there is no such message: never enqueued, or already pruned.

Examples:
  postrider show 019a8f3c-6b1e-7c02-9d55-0f2b6a3e8d41
  postrider show 0f2b6a3e8d41
  postrider show --dedupe-key order-7/placed
  postrider show 019a8f3c-6b1e-7c02-9d55-0f2b6a3e8d41 --json | jq .payload";

/// Show one message: content, state, every attempt
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    #[command(flatten)]
    which: Which,
}

pub(crate) struct Prepared {
    address: Address,
    which: Which,
}

impl Args {
    pub(crate) fn prepare(self, global: &Global) -> Result<Prepared> {
        Ok(Prepared { address: global.address()?, which: self.which })
    }
}

impl Prepared {
    pub(crate) async fn run(self, output: &mut Output) -> Result<ExitCode> {
        let Opened { store, place, .. } = self.address.open(Missing::Refuse).await?;
        let id = self.which.find(&*store, &place).await?;
        let Some(message) = store.show(id).await? else {
            return Err(Failure::new(ExitCode::NotFound, format!("there is no message {id}"))
                .hint(format!("it may have been pruned, or be in another database or schema than {place}")));
        };
        if output.json {
            output.json(&Document::from(&message))?;
            return Ok(ExitCode::Ok);
        }
        let now = store.now().await?;
        print_facts(&message, now, output)?;
        print_content(&message, output)?;
        output.heading("timeline")?;
        timeline::print(&message, now, output)?;
        Ok(ExitCode::Ok)
    }
}

fn print_facts(message: &MessageDetail, now: SystemTime, output: &mut Output) -> Result<()> {
    let time = |time: SystemTime| format!("{} ({})", humane::clock(time), humane::ago(now, time));
    let lane = match (&message.lane, message.sequence_id) {
        (Some(lane), Some(number)) => Some(format!("{lane} #{number}")),
        (lane, _) => lane.clone(),
    };
    let facts = [
        ("message", Some(message.message_id.to_string())),
        ("namespace", Some(message.namespace.clone())),
        ("topic", Some(message.topic.clone())),
        ("tenant", message.tenant_id.map(|tenant| tenant.to_string())),
        ("lane", lane),
        ("dedupe key", message.dedupe_key.clone()),
        ("priority", (message.priority != 0).then(|| message.priority.to_string())),
        ("enqueued", Some(time(message.enqueued_at))),
        ("occurred", Some(time(message.occurred_at))),
        ("content type", message.content_type.clone()),
    ];
    for (name, fact) in facts {
        if let Some(fact) = fact {
            let name = output.paint(Paint::Quiet, &format!("{name:<12}"));
            output.line(format!("{name}  {}", printable(&fact)))?;
        }
    }
    let headers: BTreeMap<String, String> = match &message.headers {
        Some(headers) => serde_json::from_str(headers.get()).unwrap_or_default(),
        None => BTreeMap::new(),
    };
    for (index, (name, value)) in headers.iter().enumerate() {
        let label = output.paint(Paint::Quiet, &format!("{:<12}", if index == 0 { "headers" } else { "" }));
        output.line(format!("{label}  {}: {}", printable(name), printable(value)))?;
    }
    Ok(())
}

fn print_content(message: &MessageDetail, output: &mut Output) -> Result<()> {
    if let Some(payload) = &message.payload {
        output.heading("payload")?;
        for line in json_text::pretty(payload.get()).lines() {
            output.line(format!("  {line}"))?;
        }
    }
    if let Some(body) = &message.body {
        output.heading(&format!("body, {}", humane::size(body.len())))?;
        for line in body_excerpt(body).lines() {
            output.line(format!("  {line}"))?;
        }
    }
    Ok(())
}

/// Text as text, anything else as hexadecimal digits; the beginning only.
fn body_excerpt(body: &[u8]) -> String {
    let text = std::str::from_utf8(body).ok();
    if let Some(text) = text.filter(|text| !text.contains(|c: char| c.is_control() && !"\n\r\t".contains(c))) {
        let excerpt: String = text.chars().take(BODY_TEXT_SHOWN_CHARS).collect();
        let cut = excerpt.len() < text.len();
        let lines: Vec<String> = excerpt.lines().map(|line| printable(&line.replace('\t', "    "))).collect();
        return lines.join("\n") + if cut { " …" } else { "" };
    }
    let digits = body.iter().take(BODY_HEX_SHOWN_BYTES).map(|byte| format!("{byte:02x}")).collect::<Vec<_>>();
    let lines: Vec<String> = digits.chunks(16).map(|line| line.join(" ")).collect();
    lines.join("\n") + if body.len() > BODY_HEX_SHOWN_BYTES { " …" } else { "" }
}

#[derive(Serialize)]
struct Document<'a> {
    message_id: Uuid,
    enqueued_at: String,
    occurred_at: String,
    namespace: &'a str,
    topic: &'a str,
    tenant_id: Option<Uuid>,
    lane: Option<&'a str>,
    sequence_id: Option<i64>,
    dedupe_key: Option<&'a str>,
    priority: i32,
    content_type: Option<&'a str>,
    headers: Option<&'a RawValue>,
    payload: Option<&'a RawValue>,
    /// Base64.
    body: Option<String>,
    deliveries: Vec<DeliveryDocument<'a>>,
    attempts: Vec<AttemptDocument<'a>>,
}

#[derive(Serialize)]
struct DeliveryDocument<'a> {
    sink: &'a str,
    state: &'a str,
    due_at: Option<String>,
    attempt_no: i32,
    attempt_count: i32,
    max_attempts: Option<i32>,
    claimed_by: Option<&'a str>,
    lease_expires_at: Option<String>,
}

#[derive(Serialize)]
struct AttemptDocument<'a> {
    sink: &'a str,
    attempt_no: i32,
    state: &'a str,
    worker_id: &'a str,
    claimed_at: String,
    completed_at: String,
    latency_ms: Option<i32>,
    code: Option<&'a str>,
    reference: Option<&'a str>,
    error_code: Option<&'a str>,
    error_message: Option<&'a str>,
    answer: Option<&'a str>,
}

impl<'a> From<&'a MessageDetail> for Document<'a> {
    fn from(message: &'a MessageDetail) -> Self {
        Self {
            message_id: message.message_id,
            enqueued_at: humane::rfc3339(message.enqueued_at),
            occurred_at: humane::rfc3339(message.occurred_at),
            namespace: &message.namespace,
            topic: &message.topic,
            tenant_id: message.tenant_id,
            lane: message.lane.as_deref(),
            sequence_id: message.sequence_id,
            dedupe_key: message.dedupe_key.as_deref(),
            priority: message.priority,
            content_type: message.content_type.as_deref(),
            headers: message.headers.as_deref(),
            payload: message.payload.as_deref(),
            body: message.body.as_ref().map(|body| STANDARD.encode(body)),
            deliveries: message.deliveries.iter().map(DeliveryDocument::from).collect(),
            attempts: message.attempts.iter().map(AttemptDocument::from).collect(),
        }
    }
}

impl<'a> From<&'a DeliveryRecord> for DeliveryDocument<'a> {
    fn from(delivery: &'a DeliveryRecord) -> Self {
        Self {
            sink: &delivery.sink,
            state: &delivery.state,
            due_at: delivery.due_at.map(humane::rfc3339),
            attempt_no: delivery.attempt_no,
            attempt_count: delivery.attempt_count,
            max_attempts: delivery.max_attempts,
            claimed_by: delivery.claimed_by.as_deref(),
            lease_expires_at: delivery.lease_expires_at.map(humane::rfc3339),
        }
    }
}

impl<'a> From<&'a AttemptRecord> for AttemptDocument<'a> {
    fn from(attempt: &'a AttemptRecord) -> Self {
        Self {
            sink: &attempt.sink,
            attempt_no: attempt.attempt_no,
            state: &attempt.state,
            worker_id: &attempt.worker_id,
            claimed_at: humane::rfc3339(attempt.claimed_at),
            completed_at: humane::rfc3339(attempt.completed_at),
            latency_ms: attempt.latency_ms,
            code: attempt.code.as_deref(),
            reference: attempt.reference.as_deref(),
            error_code: attempt.error_code.as_deref(),
            error_message: attempt.error_message.as_deref(),
            answer: attempt.answer.as_deref(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_shown_as_what_it_is() {
        assert_eq!(body_excerpt(b"<order id=\"7\"/>"), "<order id=\"7\"/>");
        assert_eq!(body_excerpt(&[0x00, 0xff]), "00 ff");
        assert!(body_excerpt(&[7; 65]).ends_with("07 …"));
        assert!(body_excerpt(&[b'x'; BODY_TEXT_SHOWN_CHARS + 1]).ends_with("x …"));
        assert_eq!(body_excerpt(b"\x1b[2J"), "1b 5b 32 4a", "nothing that moves the cursor");
    }
}
