//! `postrider list`: messages and where each stands, newest first, a page at a time. Nothing is changed.

use std::time::SystemTime;

use clap::ValueEnum;
use postrider::{IdTail, ListFilter, ListState, MAX_IDS_LOOKED_AT, MAX_LOOKED_AT, MessageSummary, Page, enqueued_at};
use serde::Serialize;
use uuid::Uuid;

use crate::exit_code::ExitCode;
use crate::failure::Result;
use crate::humane::{self, Moment, parse_moment};
use crate::options::Global;
use crate::output::{Column, Output, Paint, Text};
use crate::store::{Address, Missing, Opened};

/// Most lines of one page: more belongs into a query of one's own.
const MAX_ROWS: i64 = 10_000;

const AFTER_HELP: &str = "\
A message has one line for each sink that it waits for. When nothing is left to
deliver it has one line: discarded if it was discarded or cancelled for a sink,
else delivered. Searches by the other states do not read the history.

A search examines a limited number of messages and says how far it got. The end
of an id is searched in everything undelivered or dead, and in the newest 100,000
messages. A dedupe key can be found during its dedupe window.

Examples:
  postrider list --state dead
  postrider list --topic 'order.*' --limit 10
  postrider list --id 8930f0599708
  postrider list --dedupe-key 'order-7/placed'
  postrider list --from '2h ago' --to '1h ago' --namespace billing
  postrider list --before 019a8f3c-6b1e-7c02-9d55-0f2b6a3e8d41";

/// List messages, newest first
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Only messages in this state
    #[arg(long, value_enum)]
    state: Option<State>,
    /// Only messages of this namespace
    #[arg(long, value_name = "NAME")]
    namespace: Option<String>,
    /// Only messages of this topic; * matches any characters
    #[arg(long)]
    topic: Option<String>,
    /// Only the message with this id, or whose id ends with these digits
    #[arg(long, value_name = "ID")]
    id: Option<IdTail>,
    /// Only messages with this dedupe key
    #[arg(long, value_name = "KEY")]
    dedupe_key: Option<String>,
    /// Only messages of this tenant
    #[arg(long, value_name = "UUID")]
    tenant: Option<Uuid>,
    /// Only messages in this lane
    #[arg(long)]
    lane: Option<String>,
    /// Only messages for this sink
    #[arg(long)]
    sink: Option<String>,
    /// Only messages enqueued at this time or later: RFC 3339, or "2h ago"
    #[arg(long, value_name = "TIME", value_parser = parse_moment)]
    from: Option<Moment>,
    /// Only messages enqueued before this time
    #[arg(long, value_name = "TIME", value_parser = parse_moment)]
    to: Option<Moment>,
    /// At most this many lines
    #[arg(long, value_name = "N", default_value_t = 50)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=MAX_ROWS))]
    limit: u32,
    /// Only messages enqueued before this one (the next page)
    #[arg(long, value_name = "ID")]
    before: Option<Uuid>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum State {
    Pending,
    Leased,
    Dead,
    Delivered,
    Discarded,
}

pub(crate) struct Prepared {
    address: Address,
    filter: ListFilter,
    from: Option<Moment>,
    to: Option<Moment>,
}

impl Args {
    pub(crate) fn prepare(self, global: &Global) -> Result<Prepared> {
        let state = self.state.map(|state| match state {
            State::Pending => ListState::Pending,
            State::Leased => ListState::Leased,
            State::Dead => ListState::Dead,
            State::Delivered => ListState::Delivered,
            State::Discarded => ListState::Discarded,
        });
        let filter = ListFilter {
            state,
            id_tail: self.id,
            dedupe_key: self.dedupe_key,
            namespace: self.namespace,
            topic: self.topic,
            tenant_id: self.tenant,
            lane: self.lane,
            sink: self.sink,
            before: self.before,
            limit: self.limit,
            ..ListFilter::default()
        };
        Ok(Prepared { address: global.address()?, filter, from: self.from, to: self.to })
    }
}

impl Prepared {
    pub(crate) async fn run(mut self, output: &mut Output) -> Result<ExitCode> {
        let Opened { store, .. } = self.address.open(Missing::Refuse).await?;
        let now = store.now().await?;
        self.filter.from = self.from.map(|from| from.resolve(now));
        self.filter.to = self.to.map(|to| to.resolve(now));
        let Page { items: messages, next: next_before } = store.list(&self.filter).await?;
        if output.json {
            let messages = messages.iter().map(MessageDocument::from).collect();
            output.json(&Document { messages, next_before })?;
            return Ok(ExitCode::Ok);
        }
        if messages.is_empty() {
            output.line("no messages")?;
            return match next_before {
                Some(id) => go_on(&self.filter, messages.len(), id, output),
                None => Ok(ExitCode::Ok),
            };
        }
        let rows: Vec<_> = messages.iter().map(|message| row(message, now)).collect();
        if output.fits(&COLUMNS, &rows) {
            output.table("", &COLUMNS, rows)?;
        } else {
            output.table("", &NARROW, messages.iter().map(|message| narrow_row(message, now)).collect())?;
        }
        match next_before {
            Some(id) => go_on(&self.filter, messages.len(), id, output),
            None => Ok(ExitCode::Ok),
        }
    }
}

/// Says where to go on: after a full page, or how far a search that is bounded has come.
fn go_on(filter: &ListFilter, shown: usize, id: Uuid, output: &mut Output) -> Result<ExitCode> {
    let full = shown >= filter.limit as usize;
    let words = if full {
        format!("perhaps more: --before {id}")
    } else {
        let looked_at = if filter.id_tail.is_some() { MAX_IDS_LOOKED_AT } else { MAX_LOOKED_AT };
        let also = if filter.id_tail.is_some() { "all that is undelivered or dead, and " } else { "" };
        let (looked_at, back_to) = (humane::count(u64::from(looked_at)), humane::clock(enqueued_at(id)));
        format!("searched {also}the newest {looked_at} messages, back to {back_to}; older ones: --before {id}")
    };
    let words = output.paint(Paint::Quiet, &words);
    output.line(words)?;
    Ok(ExitCode::Ok)
}

const COLUMNS: [Column; 7] = [
    Column::Whole("MESSAGE"),
    Column::Right("AGE"),
    Column::Whole("STATE"),
    Column::Left("TOPIC"),
    Column::Optional("LANE"),
    Column::Optional("SINK"),
    Column::Optional("NOTE"),
];

fn row(message: &MessageSummary, now: SystemTime) -> Vec<Text> {
    let mut row = common_cells(message, now);
    row.extend([Text::from(lane(message)), Text::from(sink(message)), Text::new(notes(message, now), Paint::Quiet)]);
    row
}

/// For a terminal that is too narrow: the optional columns go under the topic.
const NARROW: [Column; 4] = [COLUMNS[0], COLUMNS[1], COLUMNS[2], COLUMNS[3]];

fn narrow_row(message: &MessageSummary, now: SystemTime) -> Vec<Text> {
    let more = [lane(message), sink(message).to_owned(), notes(message, now)];
    let more: Vec<String> = more.into_iter().filter(|text| !text.is_empty()).collect();
    let mut row = common_cells(message, now);
    if let Some(topic) = row.pop() {
        row.push(topic.below(&more.join(", ")));
    }
    row
}

fn common_cells(message: &MessageSummary, now: SystemTime) -> Vec<Text> {
    let topic = match message.namespace.as_str() {
        "default" => message.topic.clone(),
        namespace => format!("{namespace}/{}", message.topic),
    };
    vec![
        Text::from(message.message_id.to_string()),
        Text::from(humane::age(now, message.enqueued_at)),
        Text::new(&message.state, state_paint(&message.state)),
        Text::from(topic),
    ]
}

fn lane(message: &MessageSummary) -> String {
    match (&message.lane, message.sequence_id) {
        (Some(lane), Some(number)) => format!("{lane} #{number}"),
        (Some(lane), None) => lane.clone(),
        (None, _) => String::new(),
    }
}

/// Where everything goes to the one default sink, the column would only repeat the word.
fn sink(message: &MessageSummary) -> &str {
    message.sink.as_deref().filter(|sink| *sink != "default").unwrap_or_default()
}

fn notes(message: &MessageSummary, now: SystemTime) -> String {
    let mut notes = Vec::new();
    if let Some(attempts) = message.attempt_no.filter(|attempts| *attempts > 0) {
        notes.push(humane::counted(u64::try_from(attempts).unwrap_or(0), "attempt"));
    }
    if let Some(due_at) = message.due_at.filter(|due_at| *due_at > now && message.state == "pending") {
        notes.push(humane::due(now, due_at));
    }
    notes.join(", ")
}

/// The colour of a state, the same in a list and in a message's story.
pub(super) fn state_paint(state: &str) -> Paint {
    match state {
        "delivered" => Paint::Good,
        "leased" => Paint::Warning,
        "dead" => Paint::Bad,
        _ => Paint::Plain,
    }
}

#[derive(Serialize)]
struct Document<'a> {
    messages: Vec<MessageDocument<'a>>,
    next_before: Option<Uuid>,
}

#[derive(Serialize)]
struct MessageDocument<'a> {
    message_id: Uuid,
    enqueued_at: String,
    namespace: &'a str,
    topic: &'a str,
    lane: Option<&'a str>,
    sequence_id: Option<i64>,
    sink: Option<&'a str>,
    state: &'a str,
    attempt_no: Option<i32>,
    due_at: Option<String>,
}

impl<'a> From<&'a MessageSummary> for MessageDocument<'a> {
    fn from(message: &'a MessageSummary) -> Self {
        Self {
            message_id: message.message_id,
            enqueued_at: humane::rfc3339(message.enqueued_at),
            namespace: &message.namespace,
            topic: &message.topic,
            lane: message.lane.as_deref(),
            sequence_id: message.sequence_id,
            sink: message.sink.as_deref(),
            state: &message.state,
            attempt_no: message.attempt_no,
            due_at: message.due_at.map(humane::rfc3339),
        }
    }
}
