//! `postrider relays`: the relays that reported lately, and which of them are missed. Nothing is changed.

use std::time::SystemTime;

use async_trait::async_trait;
use postrider::inspect::{Page, RelayRecord};

use super::OnOutbox;
use crate::exit_code::ExitCode;
use crate::failure::Result;
use crate::format;
use crate::output::{Column, Listing, Output, Paint, Text};
use crate::store::Opened;

const AFTER_HELP: &str = "\
A relay that is late with its report is silent: it stopped without a word, or it
cannot reach the database. One that stopped in good order is not listed.

Examples:
  postrider relays
  postrider relays --json | jq '.items[] | select(.silent)'";

/// List the relays of this outbox
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {}

#[async_trait(?Send)]
impl OnOutbox for Args {
    async fn run(self: Box<Self>, outbox: Opened, output: &mut Output) -> Result<ExitCode> {
        let page = Page::whole(outbox.store.relays().await?);
        let now = outbox.store.now().await?;
        let listing = Listing {
            empty: "no relay has reported: is `postrider run` running?",
            columns: &COLUMNS,
            row: &|relay| row(relay, now),
            narrow: None,
            below: None,
        };
        output.listing(&page, &listing)
    }
}

const COLUMNS: [Column; 7] = [
    Column::Left("RELAY"),
    Column::Left("STATE"),
    Column::Left("VERSION"),
    Column::Right("UP"),
    Column::Right("REPORTED"),
    Column::Right("HELD"),
    Column::Left("SINKS"),
];

fn row(relay: &RelayRecord, now: SystemTime) -> Vec<Text> {
    let held: u64 = relay.report.sinks.iter().map(|sink| sink.held).sum();
    let sinks: Vec<String> = relay
        .report
        .sinks
        .iter()
        .map(|sink| match sink.breaker.as_str() {
            "closed" => sink.sink.clone(),
            breaker => format!("{} ({})", sink.sink, breaker.replace('_', " ")),
        })
        .collect();
    vec![
        Text::from(&relay.report.worker_id),
        if relay.silent { Text::new("silent", Paint::Bad) } else { Text::new("alive", Paint::Good) },
        Text::from(&relay.report.version),
        Text::from(format::age(now, relay.started_at)),
        Text::from(format::ago(now, relay.reported_at)),
        Text::count(held, Paint::Plain),
        Text::from(sinks.join(", ")),
    ]
}
