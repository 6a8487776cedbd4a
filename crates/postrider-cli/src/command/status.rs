//! `postrider status`: how each sink stands, from the view `outbox.status` and what relays report. Nothing is changed.

use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use postrider::ErrorKind;
use postrider::inspect::{Page, SinkOverview, SinkStatus};

use super::OnOutbox;
use super::sinks::state_words;
use crate::exit_code::ExitCode;
use crate::failure::Result;
use crate::format;
use crate::output::{Column, Output, Paint, Text};
use crate::store::Opened;

const AFTER_HELP: &str = "\
PENDING waits, DUE of these is due now; LEASED is held by a relay, EXPIRED of
these under a lease that ran out; DEAD and PARKED lanes wait for a person.
STATE is as in `postrider sinks`; a standby does not know it.

Examples:
  postrider status
  postrider status --json | jq '.items[] | select(.dead > 0)'";

/// Show each sink: pending, leased, dead
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {}

#[async_trait(?Send)]
impl OnOutbox for Args {
    async fn run(self: Box<Self>, outbox: Opened, output: &mut Output) -> Result<ExitCode> {
        let sinks = outbox.store.status().await?;
        // What relays report is in an unlogged table, which a standby does not have.
        let relays = match outbox.store.relays().await {
            Err(error) if error.kind() == ErrorKind::ReadOnly => None,
            relays => Some(relays?),
        };
        let page = Page::whole(SinkOverview::all(sinks, relays.as_deref()));
        if output.json {
            output.json(&page)?;
            return Ok(ExitCode::Ok);
        }
        let (sinks, now) = (page.items, outbox.store.now().await?);
        output.table("", &QUEUE, sinks.iter().map(queue_row).collect())?;
        let window = sinks.first().map_or(Duration::ZERO, |sink| format::seconds(sink.status.recent_seconds));
        output.heading(&format!("attempts of the last {}", format::window(window)))?;
        output.table("", &ATTEMPTS, sinks.iter().map(|sink| attempts_row(&sink.status, now)).collect())?;
        Ok(ExitCode::Ok)
    }
}

const QUEUE: [Column; 9] = [
    Column::Left("SINK"),
    Column::Right("PENDING"),
    Column::Right("DUE"),
    Column::Right("LEASED"),
    Column::Right("EXPIRED"),
    Column::Right("DEAD"),
    Column::Right("PARKED"),
    Column::Right("OLDEST"),
    Column::Whole("STATE"),
];

fn queue_row(sink: &SinkOverview) -> Vec<Text> {
    let (state, paint) = state_words(sink);
    let sink = &sink.status;
    vec![
        Text::from(&sink.sink),
        Text::count(sink.pending, Paint::Plain),
        Text::count(sink.due, Paint::Plain),
        Text::count(sink.leased, Paint::Plain),
        Text::count(sink.expired, Paint::Warning),
        Text::count(sink.dead, Paint::Bad),
        Text::count(sink.parked_lanes, Paint::Bad),
        if sink.pending + sink.leased == 0 {
            Text::new("-", Paint::Quiet)
        } else {
            Text::from(format::span(format::seconds(sink.oldest_pending_age_seconds)))
        },
        Text::new(state, paint),
    ]
}

const ATTEMPTS: [Column; 7] = [
    Column::Left("SINK"),
    Column::Right("DISPATCHED"),
    Column::Right("RETRYABLE"),
    Column::Right("FAILED"),
    Column::Right("ZOMBIE"),
    Column::Right("LAST SUCCESS"),
    Column::Right("LAST ERROR"),
];

fn attempts_row(sink: &SinkStatus, now: SystemTime) -> Vec<Text> {
    let recent = &sink.recent;
    let last = |time: Option<SystemTime>| match time {
        Some(time) => Text::from(format::ago(now, time)),
        None => Text::new("-", Paint::Quiet),
    };
    vec![
        Text::from(&sink.sink),
        Text::count(recent.dispatched, Paint::Good),
        Text::count(recent.retryable, Paint::Warning),
        Text::count(recent.failed, Paint::Bad),
        Text::count(recent.zombie_requeue, Paint::Warning),
        last(sink.last_success_at),
        last(sink.last_error_at),
    ]
}
