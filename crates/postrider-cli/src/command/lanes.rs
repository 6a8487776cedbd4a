//! `postrider lanes`: lanes with something to deliver, those that need a person first. `lanes skip` lets a parked lane go
//! on without its dead head, which stays a dead letter.

use std::time::SystemTime;

use clap::{Subcommand, ValueEnum};
use postrider::{Action, LaneFilter, LaneState, LaneStatus, Store};
use serde::Serialize;
use uuid::Uuid;

use crate::exit_code::ExitCode;
use crate::failure::{Failure, Result};
use crate::options::Global;
use crate::output::{Column, Output, Paint, Text, printable};
use crate::store::{Address, Missing, Opened};
use crate::{humane, operator};

/// Most lines of one answer: more belongs into a query of one's own.
const MAX_ROWS: i64 = 10_000;

const AFTER_HELP: &str = "\
parked   its head is dead and blocks it until an operator acts
waiting  its head is due later, because it failed or was scheduled
leased   a relay holds its head
due      its head can be claimed

Examples:
  postrider lanes
  postrider lanes --state parked --sink orders
  postrider lanes skip orders customer-7";

const AFTER_SKIP: &str = "\
The head stays a dead letter: you can redrive it later, out of order, or discard
it. Exit code 4 if the lane is not parked.

Example:
  postrider lanes skip orders customer-7";

/// List lanes, stuck ones first, or skip a dead head
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP, args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Option<Verb>,
    /// Only for this sink
    #[arg(long, value_name = "NAME")]
    sink: Option<String>,
    /// Only this lane
    #[arg(long, value_name = "LANE")]
    lane: Option<String>,
    /// Only lanes in this state
    #[arg(long, value_enum)]
    state: Option<State>,
    /// At most this many
    #[arg(long, value_name = "N", default_value_t = 50)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=MAX_ROWS))]
    limit: u32,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Continue a parked lane without its dead head
    #[command(after_help = AFTER_SKIP)]
    Skip {
        /// The sink
        #[arg(value_name = "SINK")]
        sink: String,
        /// The lane
        #[arg(value_name = "LANE")]
        lane: String,
    },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum State {
    Parked,
    Waiting,
    Leased,
    Due,
}

pub(crate) struct Prepared {
    address: Address,
    verb: Option<Verb>,
    filter: LaneFilter,
}

impl Args {
    pub(crate) fn prepare(self, global: &Global) -> Result<Prepared> {
        let state = self.state.map(|state| match state {
            State::Parked => LaneState::Parked,
            State::Waiting => LaneState::Waiting,
            State::Leased => LaneState::Leased,
            State::Due => LaneState::Due,
        });
        let filter = LaneFilter { sink: self.sink, lane: self.lane, state, limit: self.limit };
        Ok(Prepared { address: global.address()?, verb: self.verb, filter })
    }
}

impl Prepared {
    pub(crate) async fn run(self, output: &mut Output) -> Result<ExitCode> {
        let Opened { store, .. } = self.address.open(Missing::Refuse).await?;
        if let Some(Verb::Skip { sink, lane }) = self.verb {
            return skip(&*store, sink, lane, output).await;
        }
        let lanes = store.lanes(&self.filter).await?;
        if output.json {
            output.json(&Document { items: lanes.iter().map(LaneDocument::from).collect() })?;
        } else if lanes.is_empty() {
            output.line("no lanes with anything to deliver")?;
        } else {
            let now = store.now().await?;
            output.table("", &COLUMNS, lanes.iter().map(|lane| row(lane, now)).collect())?;
            if lanes.len() >= usize::try_from(self.filter.limit).unwrap_or(usize::MAX) {
                let more = output.paint(Paint::Quiet, "perhaps more: see --limit, --sink and --state");
                output.line(more)?;
            }
        }
        Ok(ExitCode::Ok)
    }
}

async fn skip(store: &dyn Store, sink: String, lane: String, output: &mut Output) -> Result<ExitCode> {
    #[derive(Serialize)]
    struct Skipped {
        skipped: u64,
    }
    let words = printable(&format!("lane {lane:?} of sink {sink:?}"));
    let done = store.operate(&operator::actor(), &Action::Skip { sink, lane }).await?;
    if done.affected == 0 {
        return Err(Failure::new(ExitCode::NotFound, format!("{words} is not parked"))
            .hint("`postrider lanes --state parked` shows those that are"));
    }
    if output.json {
        output.json(&Skipped { skipped: done.affected })?;
    } else {
        output.line(format!("{words} goes on; its dead head stays a dead letter"))?;
    }
    Ok(ExitCode::Ok)
}

const COLUMNS: [Column; 7] = [
    Column::Left("SINK"),
    Column::Left("LANE"),
    Column::Left("STATE"),
    Column::Right("DEPTH"),
    Column::Right("HEAD"),
    Column::Right("ATTEMPTS"),
    Column::Optional("NOTE"),
];

fn row(lane: &LaneStatus, now: SystemTime) -> Vec<Text> {
    vec![
        Text::from(&lane.sink),
        Text::from(&lane.lane),
        Text::new(lane.state.as_str(), state_paint(lane.state)),
        Text::count(lane.depth, Paint::Plain),
        Text::from(format!("#{}", lane.head_sequence_id)),
        Text::count(i64::from(lane.head_attempt_count), Paint::Plain),
        Text::new(note(lane, now), Paint::Quiet),
    ]
}

pub(super) fn state_paint(state: LaneState) -> Paint {
    match state {
        LaneState::Parked => Paint::Bad,
        LaneState::Waiting => Paint::Warning,
        LaneState::Leased | LaneState::Due => Paint::Plain,
    }
}

/// When it goes on, and what went wrong last.
pub(super) fn note(lane: &LaneStatus, now: SystemTime) -> String {
    let due = lane.head_due_at.filter(|due_at| lane.state == LaneState::Waiting && *due_at > now);
    let due = due.map(|due_at| humane::due(now, due_at));
    let error = lane.head_error_code.clone().or_else(|| lane.head_error_message.clone());
    [due, error].into_iter().flatten().collect::<Vec<_>>().join(", ")
}

#[derive(Serialize)]
struct Document<'a> {
    items: Vec<LaneDocument<'a>>,
}

#[derive(Serialize)]
struct LaneDocument<'a> {
    sink: &'a str,
    lane: &'a str,
    state: &'static str,
    depth: i64,
    head_sequence_id: i64,
    head_message_id: Uuid,
    head_due_at: Option<String>,
    head_attempt_count: i32,
    head_error_code: Option<&'a str>,
    head_error_message: Option<&'a str>,
}

impl<'a> From<&'a LaneStatus> for LaneDocument<'a> {
    fn from(lane: &'a LaneStatus) -> Self {
        Self {
            sink: &lane.sink,
            lane: &lane.lane,
            state: lane.state.as_str(),
            depth: lane.depth,
            head_sequence_id: lane.head_sequence_id,
            head_message_id: lane.head_message_id,
            head_due_at: lane.head_due_at.map(humane::rfc3339),
            head_attempt_count: lane.head_attempt_count,
            head_error_code: lane.head_error_code.as_deref(),
            head_error_message: lane.head_error_message.as_deref(),
        }
    }
}
