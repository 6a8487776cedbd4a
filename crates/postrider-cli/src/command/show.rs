//! `postrider show`: the whole story of one message: what the producer said, where it still has to go, and every
//! attempt as a timeline. Nothing is changed.

mod timeline;

use std::collections::BTreeMap;
use std::time::SystemTime;

use async_trait::async_trait;
use postrider::inspect::MessageDetail;

use super::OnOutbox;
use super::message::NamedMessage;
use crate::exit_code::ExitCode;
use crate::failure::Result;
use crate::output::{Output, Paint, printable};
use crate::store::Opened;
use crate::{format, json_text};

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
    message: NamedMessage,
}

#[async_trait(?Send)]
impl OnOutbox for Args {
    async fn run(self: Box<Self>, outbox: Opened, output: &mut Output) -> Result<ExitCode> {
        let message = self.message.ask(&outbox, async |store, id| store.show(id).await).await?;
        if output.json {
            output.json(&message)?;
            return Ok(ExitCode::Ok);
        }
        let now = outbox.store.now().await?;
        print_facts(&message, now, output)?;
        print_content(&message, output)?;
        output.heading("timeline")?;
        timeline::print(&message, now, output)?;
        Ok(ExitCode::Ok)
    }
}

fn print_facts(message: &MessageDetail, now: SystemTime, output: &mut Output) -> Result<()> {
    let time = |time: SystemTime| format!("{} ({})", format::clock(time), format::ago(now, time));
    let lane = match (&message.lane, message.sequence_id) {
        (Some(lane), Some(number)) => Some(format!("{lane} #{number}")),
        (lane, _) => lane.clone(),
    };
    let facts = [
        ("message", Some(message.message_id.to_string())),
        ("namespace", Some(message.namespace.clone())),
        ("topic", Some(message.topic.clone())),
        ("tenant", message.tenant_id.clone()),
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
        output.heading(&format!("body, {}", format::size(body.len())))?;
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
