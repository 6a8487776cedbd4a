//! `postrider routes`: which new messages go to which sinks. Shows, adds and removes; a message that is already written
//! keeps its sinks, and whoever changes a route is told so.

use clap::Subcommand;
use postrider::{Action, Route, Store};
use serde::Serialize;

use crate::exit_code::ExitCode;
use crate::failure::{Failure, Result};
use crate::operator;
use crate::options::Global;
use crate::output::{Column, Output, Paint, Text, printable};
use crate::store::{Address, Missing, Opened};

const AFTER_HELP: &str = "\
When a message is enqueued, it goes to the sinks of all routes that match its
namespace and topic, or to the sink `default` if none does. In a pattern `*`
matches any characters. Each delivery has its own retries, its own place in the
lane and its own dead letter.

A change applies to new messages only.

Examples:
  postrider routes
  postrider routes add 'order.*' orders audit
  postrider routes add '*' billing --namespace billing
  postrider routes remove 'order.*' audit";

/// Show or change which messages go to which sinks
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List the routes (the default)
    List,
    /// Send new messages of a topic to these sinks too
    Add(Change),
    /// Stop sending new messages of a topic to these sinks
    Remove(Change),
}

#[derive(Debug, clap::Args)]
struct Change {
    /// The topic's pattern
    #[arg(value_name = "TOPIC")]
    topic: String,
    /// The sinks
    #[arg(value_name = "SINK", required = true)]
    sinks: Vec<String>,
    /// Only namespaces that match this
    #[arg(long, value_name = "PATTERN", default_value = "*")]
    namespace: String,
}

impl Change {
    fn routes(&self) -> impl Iterator<Item = Route> + '_ {
        self.sinks.iter().map(|sink| Route::new(&self.topic, sink).namespace(&self.namespace))
    }
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

#[derive(Serialize)]
struct Document {
    #[serde(skip_serializing_if = "Option::is_none")]
    changed: Option<u64>,
    routes: Vec<RouteDocument>,
}

#[derive(Serialize)]
struct RouteDocument {
    namespace: String,
    topic: String,
    sink: String,
}

impl Prepared {
    pub(crate) async fn run(self, output: &mut Output) -> Result<ExitCode> {
        let missing = if matches!(self.verb, Verb::Add(_)) { Missing::Create } else { Missing::Refuse };
        let Opened { store, .. } = self.address.open(missing).await?;
        let changed = match &self.verb {
            Verb::List => None,
            Verb::Add(change) => Some(add(&*store, change).await?),
            Verb::Remove(change) => Some(remove(&*store, change).await?),
        };
        let routes = store.routes().await?;
        if output.json {
            let document =
                |route: Route| RouteDocument { namespace: route.namespace, topic: route.topic, sink: route.sink };
            output.json(&Document { changed, routes: routes.into_iter().map(document).collect() })?;
            return Ok(ExitCode::Ok);
        }
        match changed {
            Some(0) => output.line("nothing changed: it was so already")?,
            Some(_) => output.line("changed, for new messages only: what is already written keeps its sinks")?,
            None => {}
        }
        if changed.is_some() {
            output.line("")?;
        }
        show(output, &routes)?;
        Ok(ExitCode::Ok)
    }
}

async fn add(store: &dyn Store, change: &Change) -> Result<u64> {
    let (actor, mut changed) = (operator::actor(), 0);
    for route in change.routes() {
        changed += store.operate(&actor, &Action::AddRoute { route }).await?.affected;
    }
    Ok(changed)
}

async fn remove(store: &dyn Store, change: &Change) -> Result<u64> {
    let (actor, mut changed) = (operator::actor(), 0);
    for route in change.routes() {
        if store.operate(&actor, &Action::RemoveRoute { route: route.clone() }).await?.affected == 0 {
            let Route { topic, namespace, sink } = route;
            let words = format!("there is no route of topic {topic:?} in namespace {namespace:?} to the sink {sink:?}");
            return Err(Failure::new(ExitCode::NotFound, printable(&words)).hint("`postrider routes` shows them all"));
        }
        changed += 1;
    }
    Ok(changed)
}

const COLUMNS: [Column; 3] = [Column::Left("NAMESPACE"), Column::Left("TOPIC"), Column::Left("SINK")];

fn show(output: &mut Output, routes: &[Route]) -> Result<()> {
    if routes.is_empty() {
        return output.line("no routes: every message goes to the sink default");
    }
    let row = |route: &Route| vec![Text::from(&route.namespace), Text::from(&route.topic), Text::from(&route.sink)];
    output.table("", &COLUMNS, routes.iter().map(row).collect())?;
    let rest = output.paint(Paint::Quiet, "what matches none goes to the sink default");
    output.line(rest)
}
