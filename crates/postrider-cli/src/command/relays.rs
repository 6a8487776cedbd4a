//! `postrider relays`: the relays that reported lately, and which of them are missed. Nothing is changed.

use async_trait::async_trait;
use postrider::inspect::{Page, RelayRecord};

use super::OnOutbox;
use crate::exit_code::ExitCode;
use crate::failure::Result;
use crate::format;
use crate::output::{Column, Columns, Listing, Output, Paint, Text};
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
        let columns: Columns<'_, RelayRecord> = &[
            (Column::Left("RELAY"), &|relay| Text::from(&relay.report.worker_id)),
            (Column::Left("STATE"), &state),
            (Column::Left("VERSION"), &|relay| Text::from(&relay.report.version)),
            (Column::Right("UP"), &|relay| Text::from(format::age(now, relay.started_at))),
            (Column::Right("REPORTED"), &|relay| Text::from(format::ago(now, relay.reported_at))),
            (Column::Right("HELD"), &|relay| Text::count(held(relay), Paint::Plain)),
            (Column::Left("SINKS"), &|relay| Text::from(sinks(relay))),
        ];
        output.listing(&page, &Listing::new("no relay has reported: is `postrider run` running?", columns))
    }
}

fn state(relay: &RelayRecord) -> Text {
    if relay.silent { Text::new("silent", Paint::Bad) } else { Text::new("alive", Paint::Good) }
}

fn held(relay: &RelayRecord) -> u64 {
    relay.report.sinks.iter().map(|sink| sink.held).sum()
}

fn sinks(relay: &RelayRecord) -> String {
    let sinks = relay.report.sinks.iter().map(|sink| match sink.breaker.as_str() {
        "closed" => sink.sink.clone(),
        breaker => format!("{} ({})", sink.sink, breaker.replace('_', " ")),
    });
    sinks.collect::<Vec<_>>().join(", ")
}
