//! `postrider relays`: the relays that reported lately, and which of them are missed. Nothing is changed.

use std::time::SystemTime;

use postrider::RelayRecord;
use serde::Serialize;

use crate::exit_code::ExitCode;
use crate::failure::Result;
use crate::humane;
use crate::options::Global;
use crate::output::{Column, Output, Paint, Text};
use crate::store::{Address, Missing, Opened};

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

pub(crate) struct Prepared {
    address: Address,
}

impl Args {
    #[expect(clippy::unused_self, reason = "every command is prepared from its arguments; this one has none yet")]
    pub(crate) fn prepare(self, global: &Global) -> Result<Prepared> {
        Ok(Prepared { address: global.address()? })
    }
}

impl Prepared {
    pub(crate) async fn run(self, output: &mut Output) -> Result<ExitCode> {
        let Opened { store, .. } = self.address.open(Missing::Refuse).await?;
        let relays = store.relays().await?;
        if output.json {
            output.json(&Document { items: relays.iter().map(RelayDocument::from).collect() })?;
        } else if relays.is_empty() {
            output.line("no relay has reported: is `postrider run` running?")?;
        } else {
            let now = store.now().await?;
            output.table("", &COLUMNS, relays.iter().map(|relay| row(relay, now)).collect())?;
        }
        Ok(ExitCode::Ok)
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
        Text::from(humane::age(now, relay.started_at)),
        Text::from(humane::ago(now, relay.reported_at)),
        Text::count(i64::try_from(held).unwrap_or(i64::MAX), Paint::Plain),
        Text::from(sinks.join(", ")),
    ]
}

#[derive(Serialize)]
struct Document<'a> {
    items: Vec<RelayDocument<'a>>,
}

#[derive(Serialize)]
struct RelayDocument<'a> {
    worker_id: &'a str,
    version: &'a str,
    silent: bool,
    started_at: String,
    reported_at: String,
    reports_every_seconds: f64,
    sinks: Vec<SinkDocument<'a>>,
}

#[derive(Serialize)]
struct SinkDocument<'a> {
    sink: &'a str,
    kind: &'a str,
    breaker: &'a str,
    open_for_seconds: Option<f64>,
    held: u64,
    rate: Option<u32>,
    last_error: Option<&'a str>,
}

impl<'a> From<&'a RelayRecord> for RelayDocument<'a> {
    fn from(relay: &'a RelayRecord) -> Self {
        let sinks = relay.report.sinks.iter().map(|sink| SinkDocument {
            sink: &sink.sink,
            kind: &sink.kind,
            breaker: &sink.breaker,
            open_for_seconds: sink.open_for.map(|duration| duration.as_secs_f64()),
            held: sink.held,
            rate: sink.rate,
            last_error: sink.last_error.as_deref(),
        });
        Self {
            worker_id: &relay.report.worker_id,
            version: &relay.report.version,
            silent: relay.silent,
            started_at: humane::rfc3339(relay.started_at),
            reported_at: humane::rfc3339(relay.reported_at),
            reports_every_seconds: relay.report.every.as_secs_f64(),
            sinks: sinks.collect(),
        }
    }
}
