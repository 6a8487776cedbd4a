//! A message as Redis says it, an entry of a stream, and the command that appends the entries of one lane.

use std::borrow::Cow;

use postrider::lifecycle::Claimed;
use redis::{Cmd, Value};

use super::RedisSink;
use super::failure::{refused, unreadable};
use crate::sink::lanes::Run;
use crate::sink::{Receipt, SinkFailure, Verdict, envelope};

/// A script of Redis hands on at most some 8,000 values at once, two for each header.
const MAX_HEADERS: usize = 3_500;
/// The field that holds the content.
const BODY: &str = "body";
/// Stands before the name of a header that would be taken for something else.
const HEADER: &str = "header:";
/// Appends the messages of one lane and stops at the first that is refused.
const APPEND: &str = include_str!("append.lua");

/// The messages of one lane, or one without: one command.
pub(super) struct Append<'a> {
    pub(super) run: Run,
    pub(super) entries: Vec<Entry<'a>>,
}

/// What one XADD says.
pub(super) struct Entry<'a> {
    stream: String,
    max_len: Option<u64>,
    headers: Vec<(&'a str, Cow<'a, str>)>,
    body: &'a [u8],
}

impl Entry<'_> {
    /// How many arguments come after the stream's name.
    fn count(&self) -> usize {
        let trimming = if self.max_len.is_some() { 3 } else { 0 };
        trimming + 1 + 2 * (self.headers.len() + 1)
    }

    fn write(&self, command: &mut Cmd) {
        if let Some(max_len) = self.max_len {
            command.arg("MAXLEN").arg("~").arg(max_len);
        }
        command.arg("*");
        for (name, value) in &self.headers {
            command.arg(&*field(name)).arg(&**value);
        }
        command.arg(BODY).arg(self.body);
    }
}

impl Append<'_> {
    pub(super) fn command(&self) -> Cmd {
        if let [entry] = self.entries.as_slice() {
            let mut command = redis::cmd("XADD");
            command.arg(&entry.stream);
            entry.write(&mut command);
            return command;
        }
        let mut command = redis::cmd("EVAL");
        command.arg(APPEND).arg(self.entries.len());
        for entry in &self.entries {
            command.arg(&entry.stream);
        }
        for entry in &self.entries {
            command.arg(entry.count());
            entry.write(&mut command);
        }
        command
    }

    /// Reads what Redis said: the id of a single entry, or a list of ids with perhaps an error at its end.
    pub(super) fn settle(&self, answer: Value, address: &str, verdicts: &mut [Verdict]) {
        let answers = match answer {
            Value::Array(answers) => answers,
            single => vec![single],
        };
        for (&place, answer) in self.run.iter().zip(answers) {
            let verdict = match answer {
                Value::BulkString(id) => delivered(&id),
                Value::SimpleString(id) => delivered(id.as_bytes()),
                Value::ServerError(error) => Verdict::Failed(refused(&error, address)),
                _ => Verdict::Failed(unreadable(address)),
            };
            let failed = matches!(verdict, Verdict::Failed(_));
            verdicts[place] = verdict;
            if failed {
                break;
            }
        }
    }
}

pub(super) fn entry<'a>(sink: &RedisSink, message: &'a Claimed) -> Result<Entry<'a>, SinkFailure> {
    let stream = sink.stream.render(message)?;
    sink.destinations.admit(&sink.stream, &stream, &[])?;
    let body = message.content.as_bytes();
    if body.len() > sink.max_message_bytes {
        let words =
            format!("the message has {} bytes, and max_message_bytes is {}", body.len(), sink.max_message_bytes);
        return Err(SinkFailure::terminal(SinkFailure::TOO_LARGE, words));
    }
    let headers = envelope::headers(message);
    if headers.len() > MAX_HEADERS {
        let words = format!("it has {} headers, and an entry takes at most {MAX_HEADERS}", headers.len());
        return Err(SinkFailure::terminal(SinkFailure::INVALID_HEADER, words));
    }
    Ok(Entry { stream, max_len: sink.max_len, headers, body })
}

fn delivered(id: &[u8]) -> Verdict {
    Verdict::Delivered(Receipt { reference: Some(String::from_utf8_lossy(id).into_owned()), code: None })
}

/// The field of a header. `body` is the content's, so a header of that name, or one that looks like what we make of it,
/// gets a prefix; no two headers get the same field.
fn field(header: &str) -> Cow<'_, str> {
    if header == BODY || header.starts_with(HEADER) { format!("{HEADER}{header}").into() } else { header.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_headers_share_a_field() {
        let headers = ["body", "header:body", "header:header:body", "x-body", "Body", "header:"];
        let fields = headers.map(field);
        assert_eq!(
            fields,
            ["header:body", "header:header:body", "header:header:header:body", "x-body", "Body", "header:header:"]
        );
    }
}
