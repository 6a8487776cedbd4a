//! What is answered for each event of a batch: how it fared, and if it was rejected a code for programs and words for
//! people. Everything in it is short, so that nobody gets back the megabytes that they sent. It knows neither HTTP nor the
//! store.

use postrider::InvalidMessage;
use serde::Serialize;

/// Longer than any UUID is written: what is no id is not repeated.
const MAX_ID_BYTES: usize = 64;
/// Of words that may repeat what was sent.
const MAX_WORDS_CHARS: usize = 300;

/// Why an event was not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rejection {
    pub(super) code: String,
    pub(super) message: String,
}

impl Rejection {
    pub(super) fn new(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self { code: code.into(), message: message.into() }
    }

    /// What the store refused when it was asked for this event alone.
    pub(super) fn by_the_store(message: &str) -> Self {
        Self::new("refused", cut(message))
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
        Self::new(code, cut(&invalid.to_string().replace("topic", "event_type")))
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
    event_id: Option<String>,
    pub(super) status: Status,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
}

impl Answer {
    pub(super) fn plain(event_id: Option<String>, status: Status) -> Self {
        Self { event_id, status, code: None, message: None }
    }

    pub(super) fn rejected(event_id: Option<String>, why: Rejection) -> Self {
        Self { event_id, status: Status::Rejected, code: Some(why.code), message: Some(why.message) }
    }
}

/// What an event was called, for its answer.
pub(super) fn repeatable(event_id: Option<String>) -> Option<String> {
    event_id.filter(|event_id| event_id.len() <= MAX_ID_BYTES)
}

/// The beginning of a text.
pub(super) fn cut(text: &str) -> String {
    match text.char_indices().nth(MAX_WORDS_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_between_characters() {
        assert_eq!(cut("a word"), "a word");
        let long = cut(&"é".repeat(1_000));
        assert_eq!((long.chars().count(), long.ends_with('…')), (MAX_WORDS_CHARS + 1, true));
        assert_eq!(repeatable(Some("x".repeat(65))), None);
    }
}
