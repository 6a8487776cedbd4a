//! `postrider sinks`: every sink with what the relays that serve it say about it. `sinks pause` and `sinks resume` tell a
//! sink's messages to wait or to go on; that lasts until the next change, whoever restarts.

use async_trait::async_trait;
use clap::Subcommand;
use postrider::Store;
use postrider::inspect::{Page, SinkOverview, SinkService, SinkState};
use postrider::operate::Action;

use super::OnOutbox;
use crate::exit_code::ExitCode;
use crate::failure::{Failure, Result};
use crate::format;
use crate::operator;
use crate::output::{Column, Columns, Listing, Output, Paint, Text, printable};
use crate::store::Opened;

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

#[async_trait(?Send)]
impl OnOutbox for Args {
    async fn run(self: Box<Self>, outbox: Opened, output: &mut Output) -> Result<ExitCode> {
        let store = &*outbox.store;
        match self.verb.unwrap_or(Verb::List) {
            Verb::List => list(store, output).await,
            Verb::Pause(Name { sink }) => change(store, Action::Pause { sink }, output).await,
            Verb::Resume(Name { sink }) => change(store, Action::Resume { sink }, output).await,
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
pub(super) fn state_words(sink: &SinkOverview) -> (String, Paint) {
    let Some(state) = sink.state else { return ("unknown".to_owned(), Paint::Quiet) };
    let paint = match state {
        SinkState::Running => Paint::Good,
        SinkState::Paused | SinkState::HalfOpen => Paint::Warning,
        SinkState::BreakerOpen => Paint::Bad,
        SinkState::Unserved if sink.status.pending + sink.status.leased > 0 => Paint::Bad,
        SinkState::Unserved => Paint::Quiet,
    };
    (state.as_str().replace('_', " "), paint)
}

/// The same as a cell.
pub(super) fn state(sink: &SinkOverview) -> Text {
    let (state, paint) = state_words(sink);
    Text::new(state, paint)
}

fn rate(sink: &SinkOverview) -> String {
    sink.service.rate.map(|rate| format!("{rate}/s")).unwrap_or_default()
}

async fn list(store: &dyn Store, output: &mut Output) -> Result<ExitCode> {
    let (sinks, relays) = (store.status().await?, store.relays().await?);
    let page = Page::whole(SinkOverview::all(sinks, Some(&relays)));
    let oldest = page.items.iter().filter_map(|sink| sink.service.reported_at).min();
    let below = match oldest {
        Some(oldest) => {
            let ago = format::ago(store.now().await?, oldest);
            Some(format!("HELD, BREAKER and RATE as relays reported {ago}"))
        }
        None => None,
    };
    let columns: Columns<'_, SinkOverview> = &[
        (Column::Left("SINK"), &|sink| Text::from(&sink.status.sink)),
        (Column::Optional("KIND"), &|sink| Text::from(sink.service.kind.as_deref().unwrap_or_default())),
        (Column::Left("STATE"), &state),
        (Column::Right("RELAYS"), &|sink| Text::count(sink.service.relays, Paint::Plain)),
        (Column::Optional("BREAKER"), &|sink| Text::new(breaker_words(&sink.service), breaker_paint(&sink.service))),
        (Column::Right("HELD"), &|sink| Text::count(sink.service.held, Paint::Plain)),
        (Column::Right("PENDING"), &|sink| Text::count(sink.status.pending, Paint::Plain)),
        (Column::Right("DEAD"), &|sink| Text::count(sink.status.dead, Paint::Bad)),
        (Column::Optional("RATE"), &|sink| Text::from(rate(sink))),
    ];
    output.listing(&page, &Listing { below, ..Listing::new("no sinks", columns) })
}

async fn change(store: &dyn Store, action: Action, output: &mut Output) -> Result<ExitCode> {
    let (Action::Pause { sink } | Action::Resume { sink }) = &action else { return Ok(ExitCode::Ok) };
    refuse_unknown(store, sink).await?;
    let done = store.operate(&operator::actor(), &action).await?;
    if output.json {
        output.json(&done)?;
    } else {
        let paused = matches!(action, Action::Pause { .. });
        let words = if paused { "is paused: its messages wait" } else { "goes on" };
        output.line(format!("sink {} {words}", printable(sink)))?;
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
        let mut service = SinkService::default();
        assert_eq!(breaker_words(&service), "");
        (service.relays, service.open, service.breaker) = (3, 1, Some("open"));
        assert_eq!((breaker_words(&service).as_str(), breaker_paint(&service)), ("open 1/3", Paint::Bad));
        service.breaker = Some("half_open");
        assert_eq!((breaker_words(&service).as_str(), breaker_paint(&service)), ("half open", Paint::Warning));
    }
}
