//! What a receiver's answer means: the table of statuses, `Retry-After`, the receiver's own code. Reads no more of an
//! answer than it was told, and decides by the status and the code, never by text.

use std::time::{Duration, SystemTime};

use reqwest::header::{HeaderMap, RETRY_AFTER};
use reqwest::{Response, StatusCode};
use serde_json::Value;

use super::excerpt::Excerpt;
use super::options::{HttpOptions, MAX_KEEP_ANSWER_BYTES};
use crate::error::Error;
use crate::policy::FailureClass;
use crate::sink::{Receipt, SinkFailure};

/// The longest reference or code that is kept of an answer, in characters.
const KEPT_CHARS: usize = 200;

/// An answer, as far as it was read.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) body: Vec<u8>,
    /// There was more than was read.
    pub(super) cut: bool,
    pub(super) retry_after: Option<Duration>,
    reference: Option<String>,
}

/// How answers are read.
#[derive(Debug, Clone)]
pub(super) struct AnswerReader {
    retryable: Vec<u16>,
    terminal: Vec<u16>,
    reply_code: Option<String>,
    reference_header: String,
    max_bytes: usize,
    excerpt: Excerpt,
    /// Several receivers behind one sink must not stop one another.
    pauses_when_gone: bool,
}

impl AnswerReader {
    /// `secrets`: what this sink sends and an answer may repeat.
    pub(super) fn new(options: &HttpOptions, secrets: Vec<String>) -> Result<Self, Error> {
        let refused = |reason: String| Err(Error::options(reason));
        let (retryable, terminal) = (&options.retry_statuses, &options.terminal_statuses);
        if let Some(status) = retryable.iter().chain(terminal).find(|status| !(300..=599).contains(*status)) {
            return refused(format!(
                "{status} cannot be in retry_statuses or terminal_statuses: they hold failures, 300 to 599"
            ));
        }
        if let Some(status) = retryable.iter().find(|status| terminal.contains(status)) {
            return refused(format!("{status} is in retry_statuses and in terminal_statuses: take it out of one"));
        }
        if let Some(pointer) = options.reply_code.as_ref().filter(|pointer| !pointer.starts_with('/')) {
            return refused(format!("reply_code {pointer:?} is no JSON pointer: it begins with /, as in /error/code"));
        }
        if options.keep_answer_bytes > MAX_KEEP_ANSWER_BYTES {
            return refused(format!(
                "keep_answer_bytes is {}: give {MAX_KEEP_ANSWER_BYTES} at most, or 0 to keep nothing",
                options.keep_answer_bytes
            ));
        }
        Ok(Self {
            retryable: retryable.clone(),
            terminal: terminal.clone(),
            reply_code: options.reply_code.clone(),
            reference_header: options.reference_header.clone(),
            max_bytes: options.max_response_bytes,
            excerpt: Excerpt::new(options.keep_answer_bytes, secrets),
            pauses_when_gone: options.webhook.is_some() && options.url.fixed().is_some(),
        })
    }

    /// Reads an answer to its end, or as much of it as may be read.
    pub(super) async fn read(&self, mut response: Response, now: SystemTime) -> Result<Answer, reqwest::Error> {
        let mut body = Vec::new();
        let mut cut = false;
        while let Some(piece) = response.chunk().await? {
            let room = self.max_bytes - body.len();
            body.extend_from_slice(&piece[..piece.len().min(room)]);
            if piece.len() > room {
                cut = true;
                break;
            }
        }
        let reference = response.headers().get(&self.reference_header).and_then(|value| value.to_str().ok());
        Ok(Answer {
            status: response.status(),
            retry_after: retry_after(response.headers(), now),
            reference: reference.map(short),
            body,
            cut,
        })
    }

    /// What is kept of an answer, or of a part of it, beside a failed attempt.
    pub(super) fn excerpt(&self, body: &[u8]) -> Option<String> {
        self.excerpt.of(body)
    }

    /// What a status means that is no success.
    pub(super) fn failure(&self, answer: &Answer, host: &str) -> SinkFailure {
        let status = answer.status;
        let mut words = format!("{host} answered {status}");
        if status.is_redirection() {
            words.push_str("; redirects are not followed: set the sink's url to where it leads");
        }
        let code = format!("HTTP_{}", status.as_u16());
        let mut failure = SinkFailure::new(self.class_of(status.as_u16()), code, words);
        failure.retry_after = answer.retry_after;
        failure.reply_code = self.reply_code.as_ref().and_then(|pointer| reply_code(&answer.body, pointer));
        failure.answer = self.excerpt(&answer.body);
        // What the specification of webhooks asks for: this receiver wants no more.
        failure.pause = self.pauses_when_gone && status == StatusCode::GONE;
        failure
    }

    /// Terminal is what no other try of the same request can cure. What an operator can cure, here or there, is not: the
    /// wrong key, the wrong path, the wrong method, a redirect.
    fn class_of(&self, status: u16) -> FailureClass {
        match status {
            _ if self.retryable.contains(&status) => FailureClass::Retryable,
            _ if self.terminal.contains(&status) => FailureClass::Terminal,
            // Key, payment, permission, path, method, proxy, a receiver that is gone (401 to 407, 410); too slow, too early,
            // too often; a length or an encoding that the sink can be set to (411, 415); and 409, which is how a receiver says that it is still at work on a request with the same
            // Idempotency-Key.
            401..=405 | 407..=411 | 415 | 421 | 423..=426 | 429 => FailureClass::Retryable,
            400..=499 => FailureClass::Terminal,
            _ => FailureClass::Retryable,
        }
    }
}

impl Answer {
    /// The receipt of an answer that takes the message.
    pub(super) fn receipt(&self) -> Receipt {
        Receipt { reference: self.reference.clone(), code: Some(self.status.as_u16().to_string()) }
    }
}

/// Seconds, or a date.
fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(text).ok()?;
    // A date that has passed asks for nothing.
    SystemTime::from(date).duration_since(now).ok()
}

/// Text or a number, at this place of a JSON document.
fn reply_code(body: &[u8], pointer: &str) -> Option<String> {
    let document: Value = serde_json::from_slice(body).ok()?;
    code_text(document.pointer(pointer)?)
}

pub(super) fn code_text(code: &Value) -> Option<String> {
    match code {
        Value::String(text) => Some(short(text)),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

fn short(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_control()).take(KEPT_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use reqwest::header::HeaderValue;

    use super::*;

    fn reading(change: impl FnOnce(&mut HttpOptions)) -> Result<AnswerReader, Error> {
        let mut options = HttpOptions::new("http://localhost/".parse().expect("a template"));
        change(&mut options);
        AnswerReader::new(&options, Vec::new())
    }

    /// Proves P11: every status that is no success has its class, and the configuration has the last word.
    #[test]
    fn every_status_has_a_class() {
        let terminal = [400, 406, 412, 413, 414, 416, 417, 418, 419, 420, 422, 427, 428, 430, 431, 451, 499];
        let retryable = [
            300, 301, 302, 303, 304, 307, 308, 401, 402, 403, 404, 405, 407, 408, 409, 410, 411, 415, 421, 423, 424,
            425, 426, 429, 500, 501, 502, 503, 504, 505, 507, 511, 520, 599,
        ];
        let table = reading(|_| ()).expect("a table");
        for status in terminal {
            assert_eq!(table.class_of(status), FailureClass::Terminal, "{status}");
        }
        for status in retryable {
            assert_eq!(table.class_of(status), FailureClass::Retryable, "{status}");
        }
        let changed = reading(|options| {
            options.retry_statuses = vec![422];
            options.terminal_statuses = vec![404, 503];
        })
        .expect("a table");
        let classes = [422, 404, 503, 400, 500].map(|status| changed.class_of(status) == FailureClass::Terminal);
        assert_eq!(classes, [false, true, true, true, false]);
    }

    #[test]
    fn a_table_that_makes_no_sense_is_refused() {
        assert!(reading(|options| options.retry_statuses = vec![200]).is_err());
        assert!(reading(|options| options.terminal_statuses = vec![600]).is_err());
        assert!(reading(|options| options.keep_answer_bytes = MAX_KEEP_ANSWER_BYTES + 1).is_err());
        assert!(reading(|options| options.reply_code = Some("error.code".to_owned())).is_err());
        let both = reading(|options| {
            options.retry_statuses = vec![404];
            options.terminal_statuses = vec![404];
        });
        assert!(both.expect_err("both").to_string().contains("404 is in retry_statuses and in terminal_statuses"));
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let now = UNIX_EPOCH + Duration::from_secs(784_111_777);
        let asked = |text: &'static str| {
            let headers = HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_static(text))]);
            retry_after(&headers, now).map(|wait| wait.as_secs())
        };
        assert_eq!(asked("120"), Some(120));
        assert_eq!(asked(" 7 "), Some(7));
        assert_eq!(asked("Sun, 06 Nov 1994 08:49:47 GMT"), Some(10));
        assert_eq!(asked("Sun, 06 Nov 1994 08:49:27 GMT"), None, "it has passed");
        assert_eq!(asked("soon"), None);
        assert_eq!(asked("-5"), None);
    }

    #[test]
    fn a_reply_code_is_text_or_a_number() {
        let body = br#"{"error":{"code":"ACCOUNT_LOCKED","number":42,"deep":{}}}"#;
        assert_eq!(reply_code(body, "/error/code").as_deref(), Some("ACCOUNT_LOCKED"));
        assert_eq!(reply_code(body, "/error/number").as_deref(), Some("42"));
        assert_eq!(reply_code(body, "/error/deep"), None);
        assert_eq!(reply_code(body, "/nothing"), None);
        assert_eq!(reply_code(b"<html>", "/error/code"), None);
    }
}
