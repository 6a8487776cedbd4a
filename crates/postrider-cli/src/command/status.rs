//! `postrider status`: how each sink stands, from the view `outbox.status` and what relays report. Nothing is changed.

use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use postrider::ErrorKind;
use postrider::inspect::{Page, SinkOverview};

use super::OnOutbox;
use super::sinks::state;
use crate::exit_code::ExitCode;
use crate::failure::Result;
use crate::format;
use crate::output::{Column, Columns, Output, Paint, Text};
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
        output.records(QUEUE, &sinks)?;
        let window = sinks.first().map_or(Duration::ZERO, |sink| format::seconds(sink.status.recent_seconds));
        output.heading(&format!("attempts of the last {}", format::window(window)))?;
        let last = |time: Option<SystemTime>| match time {
            Some(time) => Text::from(format::ago(now, time)),
            None => Text::new("-", Paint::Quiet),
        };
        let attempts: Columns<'_, SinkOverview> = &[
            (Column::Left("SINK"), &|sink| Text::from(&sink.status.sink)),
            (Column::Right("DISPATCHED"), &|sink| Text::count(sink.status.recent.dispatched, Paint::Good)),
            (Column::Right("RETRYABLE"), &|sink| Text::count(sink.status.recent.retryable, Paint::Warning)),
            (Column::Right("FAILED"), &|sink| Text::count(sink.status.recent.failed, Paint::Bad)),
            (Column::Right("ZOMBIE"), &|sink| Text::count(sink.status.recent.zombie_requeue, Paint::Warning)),
            (Column::Right("LAST SUCCESS"), &|sink| last(sink.status.last_success_at)),
            (Column::Right("LAST ERROR"), &|sink| last(sink.status.last_error_at)),
        ];
        output.records(attempts, &sinks)?;
        Ok(ExitCode::Ok)
    }
}

const QUEUE: Columns<'_, SinkOverview> = &[
    (Column::Left("SINK"), &|sink| Text::from(&sink.status.sink)),
    (Column::Right("PENDING"), &|sink| Text::count(sink.status.pending, Paint::Plain)),
    (Column::Right("DUE"), &|sink| Text::count(sink.status.due, Paint::Plain)),
    (Column::Right("LEASED"), &|sink| Text::count(sink.status.leased, Paint::Plain)),
    (Column::Right("EXPIRED"), &|sink| Text::count(sink.status.expired, Paint::Warning)),
    (Column::Right("DEAD"), &|sink| Text::count(sink.status.dead, Paint::Bad)),
    (Column::Right("PARKED"), &|sink| Text::count(sink.status.parked_lanes, Paint::Bad)),
    (Column::Right("OLDEST"), &oldest),
    (Column::Whole("STATE"), &state),
];

fn oldest(SinkOverview { status, .. }: &SinkOverview) -> Text {
    if status.pending + status.leased == 0 {
        return Text::new("-", Paint::Quiet);
    }
    Text::from(format::span(format::seconds(status.oldest_pending_age_seconds)))
}
