//! A message as NATS says it: a subject, headers and a payload. What a producer says must be a subject to publish to and
//! nothing more: no wildcard, no empty part, and not one of the server's own, by which streams are deleted.

use async_nats::{HeaderMap, HeaderName, HeaderValue, header};
use bytes::Bytes;
use postrider::lifecycle::Claimed;

use super::NatsSink;
use crate::sink::destinations::Destinations;
use crate::sink::template::Template;
use crate::sink::{SinkFailure, envelope};

/// Beginnings of the server's own subjects. Only the configuration may name them.
const OWN: [&str; 2] = ["$", "_INBOX"];

/// Headers that tell the server what to do. A producer does not command it.
const COMMANDS: &str = "nats-";

pub(super) struct Publication {
    pub(super) subject: String,
    pub(super) headers: HeaderMap,
    pub(super) payload: Bytes,
}

pub(super) fn encode(sink: &NatsSink, message: &Claimed) -> Result<Publication, SinkFailure> {
    let subject = subject(&sink.subject, &sink.destinations, message)?;
    let mut headers = HeaderMap::new();
    for (name, value) in envelope::headers(message) {
        if is_command(name) {
            continue;
        }
        let pair = name.parse::<HeaderName>().ok().zip(value.parse::<HeaderValue>().ok());
        let (name, value) = pair.ok_or_else(|| {
            let words = format!(
                "the header {name:?} cannot be sent to NATS: a name is of visible ASCII without colons, and a value has no line breaks"
            );
            SinkFailure::terminal(SinkFailure::INVALID_HEADER, words)
        })?;
        headers.insert(name, value);
    }
    // Of this delivery, not of the message: two sinks may lead into one stream, and both are to arrive.
    let id = format!("{}/{}", message.message_id, message.sink);
    let id = id.parse::<HeaderValue>().unwrap_or_else(|_| HeaderValue::from(message.message_id.to_string()));
    headers.insert(header::NATS_MESSAGE_ID, id);
    if let Some(stream) = &sink.stream {
        headers.insert(header::NATS_EXPECTED_STREAM, stream.clone());
    }
    Ok(Publication { subject, headers, payload: Bytes::copy_from_slice(message.content.as_bytes()) })
}

fn is_command(header: &str) -> bool {
    header.get(..COMMANDS.len()).is_some_and(|start| start.eq_ignore_ascii_case(COMMANDS))
}

fn subject(template: &Template, destinations: &Destinations, message: &Claimed) -> Result<String, SinkFailure> {
    let subject = template.render(message)?;
    match fault(&subject) {
        None => destinations.admit(template, &subject, &OWN).map(|()| subject),
        Some(fault) => {
            let words = format!(
                "the message's subject would be {subject:?}, which {fault}; change its topic or the sink's `subject`"
            );
            Err(SinkFailure::terminal(SinkFailure::NO_ADDRESS, words))
        }
    }
}

fn fault(subject: &str) -> Option<&'static str> {
    if subject.split('.').any(str::is_empty) {
        return Some("has an empty part between its dots");
    }
    if subject.contains(|letter: char| letter.is_whitespace() || letter.is_control()) {
        return Some("has a space or a control character");
    }
    subject.contains(['*', '>']).then_some("has a wildcard")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_subject_is_said() {
        for (subject, words) in [
            ("", "empty part"),
            ("orders.", "empty part"),
            (".orders", "empty part"),
            ("a..b", "empty part"),
            ("a b", "space"),
            ("a\r\nPUB", "space"),
            ("a\u{0}b", "control"),
            ("orders.*", "wildcard"),
            ("orders.>", "wildcard"),
        ] {
            assert!(fault(subject).is_some_and(|fault| fault.contains(words)), "{subject:?}");
        }
        for subject in ["orders", "orders.created", "käse.ü", "a-b_c/d", "a$b"] {
            assert_eq!(fault(subject), None, "{subject:?}");
        }
    }
}
