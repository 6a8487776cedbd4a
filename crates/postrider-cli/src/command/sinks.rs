//! `postrider sinks`: every sink with what the relays that serve it say about it. `sinks pause` and `sinks resume` tell a
//! sink's messages to wait or to go on; that lasts until the next change, whoever restarts.

use clap::Subcommand;
use postrider::{Action, RelayRecord, SinkReport, SinkStatus, Store};
use serde::Serialize;

use crate::exit_code::ExitCode;
use crate::failure::{Failure, Result};
use crate::operator;
use crate::options::Global;
use crate::output::{Column, Output, Paint, Text, printable};
use crate::store::{Address, Missing, Opened};

/// A name as near as this is offered when there is none like the given one.
const NEAR: f64 = 0.6;

const AFTER_HELP: &str = "\
BREAKER is open while a destination is left alone after it failed; HELD counts
messages that relays have claimed and not ended yet.

Examples:
  postrider sinks
  postrider sinks pause orders
  postrider sinks resume orders";

const AFTER_PAUSE: &str = "\
Nothing new is claimed for a paused sink; what relays hold already ends as it
would have. Attempts are not used up while it waits. Exit code 4 if there is no
such sink.

Example:
  postrider sinks pause orders";

const AFTER_RESUME: &str = "\
Exit code 4 if there is no such sink.

Example:
  postrider sinks resume orders";

/// List sinks, pause one, resume one
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Show the sinks; what `postrider sinks` alone does
    List,
    /// Let a sink's messages wait
    #[command(after_help = AFTER_PAUSE)]
    Pause(Name),
    /// Let a sink's messages go on
    #[command(after_help = AFTER_RESUME)]
    Resume(Name),
}

#[derive(Debug, clap::Args)]
struct Name {
    /// The sink
    #[arg(value_name = "NAME")]
    sink: String,
}

pub(crate) struct Prepared {
    address: Address,
    verb: Verb,
}

impl Args {
    pub(crate) fn prepare(self, global: &Global) -> Result<Prepared> {
        Ok(Prepared { address: global.address()?, verb: self.verb.unwrap_or(Verb::List) })
    }
}

impl Prepared {
    pub(crate) async fn run(self, output: &mut Output) -> Result<ExitCode> {
        let Opened { store, .. } = self.address.open(Missing::Refuse).await?;
        match self.verb {
            Verb::List => list(&*store, output).await,
            Verb::Pause(Name { sink }) => change(&*store, sink, true, output).await,
            Verb::Resume(Name { sink }) => change(&*store, sink, false, output).await,
        }
    }
}

/// What the relays say about one sink, taken together.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(super) struct Served {
    /// Relays that serve it and are not silent.
    pub(super) relays: usize,
    pub(super) kind: Option<String>,
    /// The worst of them: open, then half open, then closed.
    pub(super) breaker: Option<String>,
    /// How many of them have it open.
    pub(super) open: usize,
    pub(super) held: u64,
    /// Most messages a second, all relays together, if each has a limit.
    pub(super) rate: Option<u32>,
}

impl Served {
    pub(super) fn of(sink: &str, relays: &[RelayRecord]) -> Self {
        let reports: Vec<&SinkReport> = relays
            .iter()
            .filter(|relay| !relay.silent)
            .filter_map(|relay| relay.report.sinks.iter().find(|report| report.sink == sink))
            .collect();
        let is = |state: &str| reports.iter().filter(|report| report.breaker == state).count();
        let worst = ["open", "half_open", "closed"].into_iter().find(|state| is(state) > 0);
        Self {
            relays: reports.len(),
            kind: reports.first().map(|report| report.kind.clone()),
            breaker: worst.map(str::to_owned),
            open: is("open"),
            held: reports.iter().map(|report| report.held).sum(),
            rate: reports.iter().map(|report| report.rate).sum::<Option<u32>>().filter(|_| !reports.is_empty()),
        }
    }

    /// `closed`, `open`, `open 1/3`; empty where no relay tells.
    pub(super) fn breaker_words(&self) -> String {
        match self.breaker.as_deref() {
            Some("open") if self.open < self.relays => format!("open {}/{}", self.open, self.relays),
            Some(word) => word.replace('_', " "),
            None => String::new(),
        }
    }

    pub(super) fn breaker_paint(&self) -> Paint {
        match self.breaker.as_deref() {
            Some("open") => Paint::Bad,
            Some("half_open") => Paint::Warning,
            _ => Paint::Plain,
        }
    }
}

#[derive(Serialize)]
struct SinkDocument<'a> {
    sink: &'a str,
    paused: bool,
    pending: i64,
    due: i64,
    leased: i64,
    dead: i64,
    parked_lanes: i64,
    #[serde(flatten)]
    served: Served,
}

async fn list(store: &dyn Store, output: &mut Output) -> Result<ExitCode> {
    #[derive(Serialize)]
    struct Document<'a> {
        items: Vec<SinkDocument<'a>>,
    }
    let (sinks, relays) = (store.status().await?, store.relays().await?);
    if output.json {
        let document = |sink| SinkDocument::new(sink, &relays);
        output.json(&Document { items: sinks.iter().map(document).collect() })?;
    } else {
        output.table("", &COLUMNS, sinks.iter().map(|sink| row(sink, &Served::of(&sink.sink, &relays))).collect())?;
    }
    Ok(ExitCode::Ok)
}

impl<'a> SinkDocument<'a> {
    fn new(sink: &'a SinkStatus, relays: &[RelayRecord]) -> Self {
        Self {
            sink: &sink.sink,
            paused: sink.paused,
            pending: sink.pending,
            due: sink.due,
            leased: sink.leased,
            dead: sink.dead,
            parked_lanes: sink.parked_lanes,
            served: Served::of(&sink.sink, relays),
        }
    }
}

const COLUMNS: [Column; 9] = [
    Column::Left("SINK"),
    Column::Optional("KIND"),
    Column::Left("STATE"),
    Column::Right("RELAYS"),
    Column::Optional("BREAKER"),
    Column::Right("HELD"),
    Column::Right("PENDING"),
    Column::Right("DEAD"),
    Column::Optional("RATE"),
];

fn row(sink: &SinkStatus, served: &Served) -> Vec<Text> {
    let relays = i64::try_from(served.relays).unwrap_or(i64::MAX);
    vec![
        Text::from(&sink.sink),
        Text::from(served.kind.as_deref().unwrap_or_default()),
        if sink.paused { Text::new("paused", Paint::Warning) } else { Text::new("running", Paint::Good) },
        Text::count(relays, Paint::Plain),
        Text::new(served.breaker_words(), served.breaker_paint()),
        Text::count(i64::try_from(served.held).unwrap_or(i64::MAX), Paint::Plain),
        Text::count(sink.pending, Paint::Plain),
        Text::count(sink.dead, Paint::Bad),
        Text::from(served.rate.map(|rate| format!("{rate}/s")).unwrap_or_default()),
    ]
}

async fn change(store: &dyn Store, sink: String, paused: bool, output: &mut Output) -> Result<ExitCode> {
    #[derive(Serialize)]
    struct Changed<'a> {
        sink: &'a str,
        paused: bool,
    }
    refuse_unknown(store, &sink).await?;
    let action = if paused { Action::Pause { sink: sink.clone() } } else { Action::Resume { sink: sink.clone() } };
    store.operate(&operator::actor(), &action).await?;
    if output.json {
        output.json(&Changed { sink: &sink, paused })?;
    } else {
        let words = if paused { "is paused: its messages wait" } else { "goes on" };
        output.line(format!("sink {} {words}", printable(&sink)))?;
    }
    Ok(ExitCode::Ok)
}

/// A sink that is misspelt would be paused without a word, and the right one would go on.
async fn refuse_unknown(store: &dyn Store, sink: &str) -> Result<()> {
    let mut known: Vec<String> = store.status().await?.into_iter().map(|status| status.sink).collect();
    if known.iter().any(|name| name == sink) {
        return Ok(());
    }
    let relays = store.relays().await?;
    known.extend(relays.into_iter().flat_map(|relay| relay.report.sinks).map(|report| report.sink));
    if known.iter().any(|name| name == sink) {
        return Ok(());
    }
    let nearest = known.iter().map(|name| (strsim::jaro_winkler(name, sink), name));
    let nearest = nearest.max_by(|one, other| one.0.total_cmp(&other.0)).filter(|(nearness, _)| *nearness > NEAR);
    let hint = match nearest {
        Some((_, name)) => format!("did you mean {name:?}? `postrider sinks` shows them all"),
        None => "`postrider sinks` shows them all".to_owned(),
    };
    Err(Failure::new(ExitCode::NotFound, format!("there is no sink {sink:?}")).hint(hint))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use postrider::RelayReport;

    use super::*;

    fn relay(silent: bool, breaker: &str, held: u64, rate: Option<u32>) -> RelayRecord {
        let report = SinkReport {
            sink: "orders".to_owned(),
            kind: "http".to_owned(),
            breaker: breaker.to_owned(),
            open_for: None,
            held,
            rate,
        };
        RelayRecord {
            report: RelayReport {
                worker_id: "w".to_owned(),
                version: "1".to_owned(),
                every: Duration::from_secs(5),
                sinks: vec![report],
            },
            started_at: SystemTime::UNIX_EPOCH,
            reported_at: SystemTime::UNIX_EPOCH,
            silent,
        }
    }

    #[test]
    fn relays_are_taken_together_and_silent_ones_do_not_count() {
        let relays =
            [relay(false, "closed", 3, Some(10)), relay(false, "open", 1, Some(5)), relay(true, "open", 9, None)];
        let served = Served::of("orders", &relays);
        assert_eq!((served.relays, served.open, served.held, served.rate), (2, 1, 4, Some(15)));
        assert_eq!(served.breaker_words(), "open 1/2");
        assert_eq!(Served::of("orders", &relays[..1]).breaker_words(), "closed");
        assert_eq!(Served::of("orders", &[relay(false, "half_open", 0, None)]).breaker_words(), "half open");
        assert_eq!(Served::of("other", &relays), Served::default());
    }
}
