//! `postrider sinks`: every sink with what the relays that serve it say about it. `sinks pause` and `sinks resume` tell a
//! sink's messages to wait or to go on; that lasts until the next change, whoever restarts.

use clap::Subcommand;
use postrider::{Action, RelayRecord, SinkService, SinkState, SinkStatus, Store};
use serde::Serialize;

use crate::exit_code::ExitCode;
use crate::failure::{Failure, Result};
use crate::humane;
use crate::operator;
use crate::options::Global;
use crate::output::{Column, Output, Paint, Text, printable};
use crate::store::{Address, Missing, Opened};

/// A name as near as this is offered when there is none like the given one.
const NEAR: f64 = 0.6;

const AFTER_HELP: &str = "\
STATE is running, paused, unserved (no live relay delivers to it), breaker open
(the destination keeps failing, and relays wait before they try again) or half
open (relays are trying one message). HELD counts messages that relays have
claimed and not completed.

Examples:
  postrider sinks
  postrider sinks pause orders
  postrider sinks resume orders";

const AFTER_PAUSE: &str = "\
Relays claim nothing for a paused sink and finish what they hold. No attempts are
spent while it is paused. Exit code 4 if there is no such sink.

Example:
  postrider sinks pause orders";

const AFTER_RESUME: &str = "\
Exit code 4 if there is no such sink.

Example:
  postrider sinks resume orders";

/// List, pause or resume sinks
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List the sinks (the default)
    List,
    /// Stop deliveries to a sink
    #[command(after_help = AFTER_PAUSE)]
    Pause(Name),
    /// Restart deliveries to a sink
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

/// `closed`, `open`, `open 1/3`; empty where no relay tells.
pub(super) fn breaker_words(service: &SinkService) -> String {
    match service.breaker {
        Some("open") if service.open < service.relays => format!("open {}/{}", service.open, service.relays),
        Some(word) => word.replace('_', " "),
        None => String::new(),
    }
}

pub(super) fn breaker_paint(service: &SinkService) -> Paint {
    match service.breaker {
        Some("open") => Paint::Bad,
        Some("half_open") => Paint::Warning,
        _ => Paint::Plain,
    }
}

/// The state in words and its colour. A sink without a relay hurts only while something waits for it.
pub(super) fn state_words(status: &SinkStatus, service: &SinkService) -> (String, Paint) {
    let state = SinkState::of(status, service);
    let paint = match state {
        SinkState::Running => Paint::Good,
        SinkState::Paused | SinkState::HalfOpen => Paint::Warning,
        SinkState::BreakerOpen => Paint::Bad,
        SinkState::Unserved if status.pending + status.leased > 0 => Paint::Bad,
        SinkState::Unserved => Paint::Quiet,
    };
    (state.as_str().replace('_', " "), paint)
}

#[derive(Serialize)]
struct SinkDocument<'a> {
    sink: &'a str,
    state: SinkState,
    paused: bool,
    pending: i64,
    due: i64,
    leased: i64,
    dead: i64,
    parked_lanes: i64,
    #[serde(flatten)]
    service: SinkService,
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
        let now = store.now().await?;
        let services: Vec<SinkService> = sinks.iter().map(|sink| SinkService::of(&sink.sink, &relays)).collect();
        output.table("", &COLUMNS, sinks.iter().zip(&services).map(|(sink, service)| row(sink, service)).collect())?;
        if let Some(oldest) = services.iter().filter_map(|service| service.reported_at).min() {
            let words = format!("HELD, BREAKER and RATE as relays reported {}", humane::ago(now, oldest));
            let words = output.paint(Paint::Quiet, &words);
            output.line(words)?;
        }
    }
    Ok(ExitCode::Ok)
}

impl<'a> SinkDocument<'a> {
    fn new(sink: &'a SinkStatus, relays: &[RelayRecord]) -> Self {
        let service = SinkService::of(&sink.sink, relays);
        Self {
            sink: &sink.sink,
            state: SinkState::of(sink, &service),
            paused: sink.paused,
            pending: sink.pending,
            due: sink.due,
            leased: sink.leased,
            dead: sink.dead,
            parked_lanes: sink.parked_lanes,
            service,
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

fn row(sink: &SinkStatus, service: &SinkService) -> Vec<Text> {
    let relays = i64::try_from(service.relays).unwrap_or(i64::MAX);
    let (state, paint) = state_words(sink, service);
    vec![
        Text::from(&sink.sink),
        Text::from(service.kind.as_deref().unwrap_or_default()),
        Text::new(state, paint),
        Text::count(relays, Paint::Plain),
        Text::new(breaker_words(service), breaker_paint(service)),
        Text::count(i64::try_from(service.held).unwrap_or(i64::MAX), Paint::Plain),
        Text::count(sink.pending, Paint::Plain),
        Text::count(sink.dead, Paint::Bad),
        Text::from(service.rate.map(|rate| format!("{rate}/s")).unwrap_or_default()),
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
    use super::*;

    #[test]
    fn a_breaker_that_is_open_in_some_relays_is_counted() {
        let service = SinkService { relays: 3, open: 1, closed: 2, breaker: Some("open"), ..SinkService::default() };
        assert_eq!((breaker_words(&service).as_str(), breaker_paint(&service)), ("open 1/3", Paint::Bad));
        let service = SinkService { relays: 1, breaker: Some("half_open"), ..SinkService::default() };
        assert_eq!((breaker_words(&service).as_str(), breaker_paint(&service)), ("half open", Paint::Warning));
        assert_eq!(breaker_words(&SinkService::default()), "");
    }
}
