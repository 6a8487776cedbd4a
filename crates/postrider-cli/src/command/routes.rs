//! `postrider routes`: which new messages go to which sinks. Shows, adds and removes; a message that is already written
//! keeps its sinks until somebody applies the routes to what is pending, and whoever changes a route is told so.

use async_trait::async_trait;
use clap::Subcommand;
use postrider::inspect::Page;
use postrider::operate::{Action, Done};
use postrider::{Route, Store};

use super::OnOutbox;
use crate::bulk::Bulk;
use crate::exit_code::ExitCode;
use crate::failure::{Failure, Result};
use crate::operator::{self, Consent};
use crate::output::{Column, Columns, Listing, Output, Text, printable};
use crate::store::{Missing, Opened};

const AFTER_HELP: &str = "\
When a message is enqueued, it goes to the sinks of all routes that match its
namespace and topic, or to the sink `default` if none does. In a pattern `*`
matches any characters. Each delivery has its own retries, its own place in the
lane and its own dead letter.

A change applies to new messages only. `routes apply` brings pending deliveries
to the sinks that the routes name now: sinks that never had the message get it,
and a delivery whose sink no route names goes, if it was never tried and another
sink has the message. What is leased or dead stays, and so does what waits
behind it in its lane. Counts first, and asks.

Examples:
  postrider routes
  postrider routes add 'order.*' orders audit
  postrider routes add '*' billing --namespace billing
  postrider routes remove 'order.*' audit
  postrider routes apply --dry-run";

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
    /// Bring pending deliveries to the sinks that the routes name now
    Apply(Consent),
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

#[async_trait(?Send)]
impl OnOutbox for Args {
    fn missing(&self) -> Missing {
        if matches!(self.verb, Some(Verb::Add(_))) { Missing::Create } else { Missing::Refuse }
    }

    async fn run(self: Box<Self>, outbox: Opened, output: &mut Output) -> Result<ExitCode> {
        let store = &*outbox.store;
        let affected = match &self.verb {
            None | Some(Verb::List) => return list(store, output).await,
            Some(Verb::Add(change)) => add(store, change).await?,
            Some(Verb::Remove(change)) => remove(store, change).await?,
            Some(Verb::Apply(consent)) => return operator::carry_out(store, Bulk::ApplyRoutes, *consent, output).await,
        };
        if output.json {
            output.json(&Done { affected, ..Done::default() })?;
            return Ok(ExitCode::Ok);
        }
        output.line(match affected {
            0 => "nothing changed: it was so already",
            _ => {
                "changed, for new messages only: what is already written keeps its sinks until `postrider routes apply`"
            }
        })?;
        output.line("")?;
        list(store, output).await
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
            let Route { topic, namespace, sink, .. } = route;
            let words = format!("there is no route of topic {topic:?} in namespace {namespace:?} to the sink {sink:?}");
            return Err(Failure::new(ExitCode::NotFound, printable(&words)).hint("`postrider routes` shows them all"));
        }
        changed += 1;
    }
    Ok(changed)
}

async fn list(store: &dyn Store, output: &mut Output) -> Result<ExitCode> {
    let page = Page::whole(store.routes().await?);
    let columns: Columns<'_, Route> = &[
        (Column::Left("NAMESPACE"), &|route| Text::from(&route.namespace)),
        (Column::Left("TOPIC"), &|route| Text::from(&route.topic)),
        (Column::Left("SINK"), &|route| Text::from(&route.sink)),
    ];
    let below = (!page.items.is_empty()).then(|| "what matches none goes to the sink default".to_owned());
    let empty = "no routes: every message goes to the sink default";
    output.listing(&page, &Listing { below, ..Listing::new(empty, columns) })
}
