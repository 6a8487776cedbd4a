//! `postrider enqueue`: one message given by options, or many as NDJSON, one object per line. Everything about the one
//! message, and the file of the many, is checked before the database is asked. The writing is the library's.

mod batches;
mod line;
mod load;

use std::fs::{self, File};
use std::io::{self, BufReader, IsTerminal as _, Read, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use postrider::{Error, MAX_BATCH_MESSAGES, Message, limit};
use serde::Serialize;
use serde_json::value::RawValue;
use uuid::Uuid;

use self::load::Source;
use crate::exit_code::ExitCode;
use crate::failure::{Failure, Result};
use crate::format;
use crate::maybe::Maybe as _;
use crate::options::Global;
use crate::output::{Output, Paint};
use crate::store::{Address, Missing, Opened};

/// A path that means stdin.
const STDIN: &str = "-";
const ONE: &str = "One message";
const MANY: &str = "Many messages";

const AFTER_HELP: &str = "\
NDJSON is read from --file, or from stdin if no --topic is given. Each line is
an object with the parameters of outbox.enqueue: topic, payload, namespace,
tenant_id, lane, dedupe_key, priority, headers, due_at, occurred_at, body
(base64), content_type, delay_seconds. Numbers in a payload keep every digit.
Blank lines are skipped.

Each batch is one transaction. A bad line stops the command: its batch is not
written, earlier batches are, and the error says where to continue. If the
messages have dedupe keys, you can send the same file again.

Examples:
  postrider enqueue --topic order.placed --payload '{\"id\": 7}' --lane order-7
  postrider enqueue --topic invoice.due --payload 42 --delay 2h
  postrider enqueue --topic scan --body-file a.png --content-type image/png
  postrider enqueue --file orders.ndjson
  zcat orders.ndjson.gz | postrider enqueue --batch-size 5000";

/// Enqueue one message, or many as NDJSON
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
#[command(group = clap::ArgGroup::new("content").args(["payload", "body_file"]).requires("topic"))]
pub(crate) struct Args {
    /// What happened, for example order.placed
    #[arg(long, requires = "content", help_heading = ONE)]
    topic: Option<String>,
    /// The payload
    #[arg(long, value_name = "JSON", allow_hyphen_values = true, help_heading = ONE)]
    payload: Option<String>,
    /// Read the body, which may be any bytes, from a file (- is stdin)
    #[arg(long, value_name = "FILE", requires = "content_type", help_heading = ONE)]
    body_file: Option<PathBuf>,
    /// Media type of the payload or body, for example application/avro
    #[arg(long, value_name = "TYPE", requires = "topic", help_heading = ONE)]
    content_type: Option<String>,
    /// The namespace [default: default]
    #[arg(long, requires = "topic", help_heading = ONE)]
    namespace: Option<String>,
    /// The tenant
    #[arg(long, requires = "topic", help_heading = ONE)]
    tenant: Option<String>,
    /// Messages of one lane are delivered in order
    #[arg(long, requires = "topic", help_heading = ONE)]
    lane: Option<String>,
    /// A second message with the same namespace, topic, tenant and key is not written
    #[arg(long, value_name = "KEY", requires = "topic", help_heading = ONE)]
    dedupe_key: Option<String>,
    /// From -100 to 100; higher goes first [default: 0]
    #[arg(long, value_name = "N", requires = "topic", allow_negative_numbers = true, help_heading = ONE)]
    priority: Option<i32>,
    /// A header that travels with the message; may be repeated
    #[arg(long = "header", value_name = "NAME=VALUE", requires = "topic", value_parser = header, help_heading = ONE)]
    headers: Vec<(String, String)>,
    /// Deliver no earlier than this from now: 500ms, 5s, 5m, 2h, 1d
    #[arg(long, value_name = "DURATION", requires = "topic", conflicts_with = "due_at", help_heading = ONE)]
    #[arg(value_parser = format::parse_duration)]
    delay: Option<Duration>,
    /// Deliver no earlier than this time, as RFC 3339: 2027-01-31T08:00:00Z
    #[arg(long, value_name = "TIME", requires = "topic", help_heading = ONE)]
    due_at: Option<Timestamp>,
    /// When it happened, as RFC 3339 [default: now]
    #[arg(long, value_name = "TIME", requires = "topic", help_heading = ONE)]
    occurred_at: Option<Timestamp>,

    /// Read NDJSON from a file (- is stdin)
    #[arg(long, value_name = "FILE", conflicts_with_all = ["topic", "content"], help_heading = MANY)]
    file: Option<PathBuf>,
    /// Messages in one transaction
    #[arg(long, value_name = "N", default_value_t = 1_000, conflicts_with = "topic", help_heading = MANY)]
    #[arg(value_parser = batch_size)]
    batch_size: usize,
}

fn header(text: &str) -> std::result::Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("write it as NAME=VALUE".to_owned()),
    }
}

fn batch_size(text: &str) -> std::result::Result<usize, String> {
    match text.parse() {
        Ok(size) if (1..=MAX_BATCH_MESSAGES).contains(&size) => Ok(size),
        _ => Err(format!("give a number from 1 to {MAX_BATCH_MESSAGES}")),
    }
}

pub(crate) enum Prepared {
    One(Address, Box<Message>),
    Many(Address, Source),
}

impl Args {
    pub(crate) fn prepare(mut self, global: &Global) -> Result<Prepared> {
        let address = global.address()?;
        match self.topic.take() {
            Some(topic) => Ok(Prepared::One(address, Box::new(self.message(&topic)?))),
            None => Ok(Prepared::Many(address, self.source()?)),
        }
    }

    fn message(self, topic: &str) -> Result<Message> {
        let mut message = match (self.payload, self.body_file) {
            (Some(payload), _) => {
                let payload: &RawValue = serde_json::from_str(&payload).map_err(|error| {
                    let reason = line::json_reason(&error);
                    Failure::new(ExitCode::InvalidInput, format!("--payload is not JSON: {reason}"))
                        .hint("text is JSON in double quotes; put single quotes around it for the shell: '\"text\"'")
                })?;
                Message::json(topic, payload).map_err(Error::from)?
            }
            (None, Some(file)) => Message::bytes(topic, read_body(&file)?, ""),
            (None, None) => return Err(Failure::usage("give a --payload or a --body-file")),
        };
        message = message
            .maybe(self.content_type, Message::content_type)
            .maybe(self.namespace, Message::namespace)
            .maybe(self.tenant, Message::tenant)
            .maybe(self.lane, Message::lane)
            .maybe(self.dedupe_key, Message::dedupe_key)
            .maybe(self.priority, Message::priority)
            .maybe(self.delay, Message::delay)
            .maybe(self.due_at.map(SystemTime::from), Message::due_at)
            .maybe(self.occurred_at.map(SystemTime::from), Message::occurred_at);
        message = self.headers.into_iter().fold(message, |message, (name, value)| message.header(name, value));
        message.check().map_err(Error::from)?;
        Ok(message)
    }

    fn source(self) -> Result<Source> {
        let Some(file) = self.file.filter(|file| file != Path::new(STDIN)) else {
            if io::stdin().is_terminal() {
                return Err(Failure::usage("no message was given").hint(
                    "give --topic and --payload for one message, or --file FILE (or a pipe) for many; see --help",
                ));
            }
            return Ok(Source {
                name: None,
                reader: Box::new(BufReader::new(io::stdin())),
                bytes: None,
                batch_size: self.batch_size,
            });
        };
        let opened = File::open(&file).map_err(|error| unreadable(&file, &error))?;
        let metadata = opened.metadata().map_err(|error| unreadable(&file, &error))?;
        if metadata.is_dir() {
            return Err(unreadable(&file, &io::Error::from(io::ErrorKind::IsADirectory)));
        }
        Ok(Source {
            bytes: metadata.is_file().then_some(metadata.len()),
            reader: Box::new(BufReader::new(opened)),
            name: Some(file),
            batch_size: self.batch_size,
        })
    }
}

/// One byte more than is allowed is enough to be refused.
fn read_body(file: &Path) -> Result<Vec<u8>> {
    let most = u64::try_from(limit::CONTENT_BYTES).unwrap_or(u64::MAX).saturating_add(1);
    let mut body = Vec::new();
    let read = if file == Path::new(STDIN) {
        io::stdin().lock().take(most).read_to_end(&mut body)
    } else {
        fs::File::open(file).and_then(|opened| opened.take(most).read_to_end(&mut body))
    };
    read.map_err(|error| unreadable(file, &error))?;
    Ok(body)
}

fn unreadable(file: &Path, error: &io::Error) -> Failure {
    Failure::new(ExitCode::InvalidInput, format!("cannot read {}: {error}", file.display()))
}

impl Prepared {
    pub(crate) async fn run(self, output: &mut Output) -> Result<ExitCode> {
        match self {
            Self::One(address, message) => one(&open(address, output).await?, &message, output).await,
            Self::Many(address, source) => load::run(&open(address, output).await?, source, output).await,
        }
    }
}

async fn open(address: Address, output: &Output) -> Result<Opened> {
    let opened = address.open(Missing::Create).await?;
    // A program that reads JSON from stderr expects an error there and nothing else.
    if let Some(words) = opened.created_words().filter(|_| !output.json) {
        drop(writeln!(io::stderr().lock(), "{words}"));
    }
    Ok(opened)
}

async fn one(opened: &Opened, message: &Message, output: &mut Output) -> Result<ExitCode> {
    #[derive(Serialize)]
    struct Document {
        message_id: Uuid,
        sequence_id: Option<i64>,
        created: bool,
    }
    let rows = opened.store.enqueue(std::slice::from_ref(message)).await?;
    let Some(enqueued) = rows.first() else {
        return Err(Failure::new(ExitCode::Failure, "the store did not say what became of the message"));
    };
    if output.json {
        output.json(&Document {
            message_id: enqueued.message_id,
            sequence_id: enqueued.sequence_id,
            created: enqueued.created,
        })?;
        return Ok(ExitCode::Ok);
    }
    output.line(format!("message   {}", enqueued.message_id))?;
    if let Some(sequence_id) = enqueued.sequence_id {
        output.line(format!("sequence  {sequence_id}"))?;
    }
    let created = if enqueued.created {
        output.paint(Paint::Good, "yes")
    } else {
        output.paint(Paint::Warning, "no, already enqueued under this dedupe key")
    };
    output.line(format!("created   {created}"))?;
    Ok(ExitCode::Ok)
}
