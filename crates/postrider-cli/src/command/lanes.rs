//! `postrider lanes`: lanes with something to deliver, those that need a person first. `lanes skip` lets a parked lane go
//! on without its dead head, which stays a dead letter.

use std::time::SystemTime;

use async_trait::async_trait;
use clap::Subcommand;
use postrider::Store;
use postrider::inspect::{LaneFilter, LaneState, LaneStatus};
use postrider::operate::Action;

use super::OnOutbox;
use crate::exit_code::ExitCode;
use crate::failure::{Failure, Result};
use crate::filter::PageOptions;
use crate::options::words;
use crate::output::{Column, Columns, Listing, Output, Paint, Text, printable};
use crate::store::Opened;
use crate::{format, operator};

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
    #[arg(long, value_parser = words(LaneState::ALL, LaneState::as_str))]
    state: Option<LaneState>,
    #[command(flatten)]
    page: PageOptions,
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

#[async_trait(?Send)]
impl OnOutbox for Args {
    async fn run(self: Box<Self>, outbox: Opened, output: &mut Output) -> Result<ExitCode> {
        let store = &*outbox.store;
        if let Some(Verb::Skip { sink, lane }) = self.verb {
            return skip(store, sink, lane, output).await;
        }
        let filter = LaneFilter { sink: self.sink, lane: self.lane, state: self.state };
        let page = store.lanes(&filter, &self.page.request()).await?;
        let now = store.now().await?;
        let columns: Columns<'_, LaneStatus> = &[
            (Column::Left("SINK"), &|lane| Text::from(&lane.sink)),
            (Column::Left("LANE"), &|lane| Text::from(&lane.lane)),
            (Column::Left("STATE"), &|lane| Text::new(lane.state.as_str(), state_paint(lane.state))),
            (Column::Right("DEPTH"), &|lane| Text::count(lane.depth, Paint::Plain)),
            (Column::Right("HEAD"), &|lane| Text::from(format!("#{}", lane.head_sequence_id))),
            (Column::Right("ATTEMPTS"), &|lane| Text::count(lane.head_attempt_count, Paint::Plain)),
            (Column::Optional("NOTE"), &|lane| Text::new(note(lane, now), Paint::Quiet)),
        ];
        output.listing(&page, &Listing::new("no lanes with anything to deliver", columns))
    }
}

async fn skip(store: &dyn Store, sink: String, lane: String, output: &mut Output) -> Result<ExitCode> {
    let words = printable(&format!("lane {lane:?} of sink {sink:?}"));
    let done = store.operate(&operator::actor(), &Action::Skip { sink, lane }).await?;
    if done.affected == 0 {
        return Err(Failure::new(ExitCode::NotFound, format!("{words} is not parked"))
            .hint("`postrider lanes --state parked` shows those that are"));
    }
    if output.json {
        output.json(&done)?;
    } else {
        output.line(format!("{words} goes on; its dead head stays a dead letter"))?;
    }
    Ok(ExitCode::Ok)
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
    let due = due.map(|due_at| format::due(now, due_at));
    let error = lane.head_error_code.clone().or_else(|| lane.head_error_message.clone());
    [due, error].into_iter().flatten().collect::<Vec<_>>().join(", ")
}
