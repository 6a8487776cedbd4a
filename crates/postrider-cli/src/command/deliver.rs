//! What `postrider run` and `postrider drain` have in common: their options, the relay that is made of them and of a
//! configuration file, and the account at the end. The delivering is the relay's.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use postrider::{Route, Store};
use postrider_relay::{Counts, HttpOptions, Relay, RelayOptions, Schemas, Sink, SinkOptions};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::config::{Config, Overrides, SinkConfig};
use crate::exit_code::ExitCode;
use crate::failure::{Failure, Result};
use crate::humane;
use crate::operator;
use crate::sinks::{self, Kind, Maker};
use crate::store::Opened;

const WHAT: &str = "What is delivered";
const HOW: &str = "How it is delivered";
const LIMITS: &str = "Limits";

/// The sink of messages without a route.
const DEFAULT_SINK: &str = "default";

/// The options of a relay. What is given here stands above the configuration file.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct DeliveryOptions {
    /// Sinks, routes and schemas: a TOML file. Without one, all goes to stdout
    #[arg(long, env = "POSTRIDER_CONFIG", hide_env_values = true, value_name = "FILE", help_heading = WHAT)]
    config: Option<PathBuf>,
    /// Without a configuration: POST batches there instead of writing to stdout
    #[arg(long = "cloud-url", env = "CLOUD_INGESTION_URL", hide_env_values = true, value_name = "URL")]
    #[arg(help_heading = WHAT)]
    cloud: Option<String>,
    /// Whose deliveries: a sink's name; may be repeated [default: all of the
    /// configuration, or `default`]
    #[arg(long = "sink", value_name = "NAME", help_heading = WHAT)]
    sinks: Vec<String>,

    /// How long a claimed message is held before others may take it
    #[arg(long, value_name = "DURATION", default_value = "2m", help_heading = HOW)]
    #[arg(value_parser = humane::parse_duration)]
    pub(super) lease: Duration,
    /// How long one delivery may take; must end before the lease does [default: 30s]
    #[arg(long, value_name = "DURATION", help_heading = HOW)]
    #[arg(value_parser = humane::parse_duration)]
    deadline: Option<Duration>,
    /// After this many attempts a message is dead [default: 10]
    #[arg(long, value_name = "N", help_heading = HOW)]
    max_attempts: Option<u32>,
    /// After a signal, how long what is on its way may take to finish
    #[arg(long, value_name = "DURATION", default_value = "25s", help_heading = HOW)]
    #[arg(value_parser = humane::parse_duration)]
    grace: Duration,
    /// Who this is, beside every lease and attempt [default: host-pid-random]
    #[arg(long, value_name = "NAME", help_heading = HOW)]
    worker_id: Option<String>,

    /// Messages of one claim [default: 500]
    #[arg(long, value_name = "N", help_heading = LIMITS)]
    batch_size: Option<u32>,
    /// Deliveries at once, for each sink [default: 32]
    #[arg(long, value_name = "N", help_heading = LIMITS)]
    concurrency: Option<usize>,
    /// Messages a second, for each sink [default: as fast as it goes]
    #[arg(long, value_name = "N", help_heading = LIMITS)]
    rate: Option<NonZeroU32>,
    /// Messages in memory, over all sinks
    #[arg(long, value_name = "N", default_value_t = 10_000, help_heading = LIMITS)]
    max_memory_messages: u32,
    /// Content in memory, over all sinks: 512KiB, 64MiB, 1GiB
    #[arg(long, value_name = "SIZE", default_value = "64MiB", help_heading = LIMITS)]
    #[arg(value_parser = humane::parse_size)]
    max_memory_bytes: usize,
}

/// What is to be delivered where: read and checked, nothing connected.
pub(crate) struct Plan {
    sinks: Vec<Planned>,
    routes: Vec<Route>,
    schemas: Schemas,
    options: RelayOptions,
}

/// One sink.
pub(crate) struct Planned {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    options: SinkOptions,
}

/// A relay that is ready to go.
pub(crate) struct Delivery {
    pub(crate) relay: Relay,
    pub(crate) options: RelayOptions,
    /// Each with what it is.
    pub(crate) sinks: Vec<String>,
    /// Fires when nobody reads stdout any more; `None` if no sink goes there.
    pub(crate) closed: Option<CancellationToken>,
}

impl DeliveryOptions {
    /// Reads the configuration and sees whether a relay can run like this: before a store is opened, or made.
    pub(crate) fn plan(self, poll: Duration) -> Result<Plan> {
        let over = Overrides {
            deadline: self.deadline,
            max_attempts: self.max_attempts,
            batch_size: self.batch_size,
            concurrency: self.concurrency,
            rate: self.rate,
        };
        let config = self.config.as_deref().map(Config::read).transpose()?;
        let (routes, schemas) = match &config {
            Some(config) => (config.routes().collect(), sinks::schemas(config)?),
            None => Default::default(),
        };
        let sinks = planned(config, self.cloud.as_deref(), &self.sinks, over)?;
        let most = sinks.iter().map(|sink| sink.options.concurrency).fold(0, usize::saturating_add);
        let options = RelayOptions {
            poll,
            lease: self.lease,
            worker_id: self.worker_id.unwrap_or_else(worker_id),
            max_messages: self.max_memory_messages,
            max_bytes: self.max_memory_bytes,
            grace: self.grace,
            // A sink's own bound is the one that was asked for.
            concurrency: RelayOptions::default().concurrency.max(most),
            ..RelayOptions::default()
        };
        options.check().map_err(explain)?;
        sinks.iter().try_for_each(|sink| sink.options.check(&sink.name, &options)).map_err(explain)?;
        Ok(Plan { sinks, routes, schemas, options })
    }
}

/// The sinks of a configuration; without one, those that are to go to stdout, or to the cloud that `CLOUD_INGESTION_URL` names.
pub(super) fn planned(
    config: Option<Config>,
    cloud: Option<&str>,
    named: &[String],
    over: Overrides,
) -> Result<Vec<Planned>> {
    let Some(config) = config else {
        let default = [DEFAULT_SINK.to_owned()];
        let named = if named.is_empty() { &default } else { named };
        let options = SinkConfig::default().options(over);
        let kind = match cloud {
            Some(url) => Kind::Http(Box::new(HttpOptions::edge(url).map_err(explain)?)),
            None => Kind::Stdout,
        };
        let planned = |name: &String| Planned { name: name.clone(), kind: kind.clone(), options: options.clone() };
        return Ok(named.iter().map(planned).collect());
    };
    if let Some(unknown) = named.iter().find(|name| !config.sinks.contains_key(*name)) {
        let known = config.sinks.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
        return Err(
            Failure::usage(format!("the configuration has no sink {unknown:?}")).hint(format!("it has: {known}"))
        );
    }
    if config.sinks.is_empty() {
        return Err(Failure::usage("the configuration has no sink").hint("add one: [sinks.default.stdout]"));
    }
    let wanted = config.sinks.into_iter().filter(|(name, _)| named.is_empty() || named.contains(name));
    wanted.map(|(name, sink)| Ok(Planned { kind: sink.kind(&name)?, options: sink.options(over), name })).collect()
}

impl Plan {
    /// Makes the sinks and the relay, and asks the store for the least it needs.
    pub(crate) async fn relay(self, opened: &Opened) -> Result<Delivery> {
        let Self { sinks, routes, schemas, options } = self;
        let store: Arc<dyn Store> = Arc::clone(&opened.store);
        let mut builder = Relay::builder(store).options(options.clone());
        let (mut maker, mut told) = (Maker::default(), Vec::new());
        for Planned { name, kind, options } in sinks {
            told.push(format!("{name} ({})", kind.name()));
            let sink: Arc<dyn Sink> = maker.make(&name, kind)?;
            builder = if schemas.is_empty() {
                builder.sink_with(name, sink, options)
            } else {
                builder.sink_with(name, schemas.clone().guard(sink), options)
            };
        }
        builder = routes.into_iter().fold(builder, postrider_relay::RelayBuilder::route);
        let relay = builder.build().map_err(explain)?;
        // The relay would wait for a store that refuses it, as for one that is away. So ask for the least it needs, now.
        opened.store.woke(&options.worker_id).await?;
        Ok(Delivery { relay, options, sinks: told, closed: maker.closed() })
    }
}

/// Fires when the reader of stdout is gone, where that can be seen without writing: a pipe, a socket.
pub(crate) fn reader_gone() -> CancellationToken {
    let gone = CancellationToken::new();
    let told = gone.clone();
    // A thread of its own, for it waits for ever where there is nothing to see; it ends with the process.
    std::thread::spawn(move || {
        let stdout = std::io::stdout();
        // Asked for nothing, it answers about errors and hang-ups alone.
        let mut watched = [PollFd::new(&stdout, PollFlags::empty())];
        while let Err(Errno::INTR) = poll(&mut watched, None) {}
        if watched[0].revents().intersects(PollFlags::ERR | PollFlags::HUP) {
            told.cancel();
        }
    });
    gone
}

/// A relay's error as ours, with its own words.
pub(crate) fn explain(error: postrider_relay::Error) -> Failure {
    match error {
        postrider_relay::Error::Options { reason } => Failure::usage(reason).hint("see --help for the options"),
        postrider_relay::Error::Store(error) => error.into(),
        error @ postrider_relay::Error::StoreAway { .. } => Failure::new(ExitCode::Unreachable, error.to_string())
            .hint("start it again when the database is back: what was due still is"),
        other => Failure::new(ExitCode::Failure, other.to_string())
            .hint("start it again: what it held is delivered when its leases end"),
    }
}

/// `host-pid-random`: names the process to a person, and no other process has it.
fn worker_id() -> String {
    let host = operator::host();
    let random = Uuid::new_v4().simple().to_string();
    format!("{host}-{}-{}", std::process::id(), &random[..8])
}

/// `delivered 12, retried 1, dead 0, handed back 3`; lost leases only if there are any.
pub(crate) fn account(counts: &Counts) -> String {
    let Counts { delivered, retried, dead, released, lost, .. } = *counts;
    let [delivered, retried, dead, released] = [delivered, retried, dead, released].map(humane::count);
    let lost = if lost == 0 { String::new() } else { format!(", leases lost {}", humane::count(lost)) };
    format!("delivered {delivered}, retried {retried}, dead {dead}, handed back {released}{lost}")
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: DeliveryOptions,
    }

    #[test]
    fn the_defaults_are_the_librarys() {
        let Line { args } = Line::parse_from(["x"]);
        let (relay, sink) = (RelayOptions::default(), SinkOptions::default());
        let plan = args.plan(relay.poll).unwrap_or_else(|failure| panic!("{failure:?}"));
        let expected = RelayOptions { worker_id: plan.options.worker_id.clone(), ..relay };
        assert_eq!(plan.options, expected);
        assert_eq!(plan.sinks.iter().map(|sink| sink.name.as_str()).collect::<Vec<_>>(), ["default"]);
        assert_eq!(plan.sinks[0].options, sink);
    }

    /// The help says in words what the library has as figures.
    #[test]
    fn the_help_tells_the_librarys_defaults() {
        use clap::CommandFactory as _;
        let help = Line::command().render_help().to_string();
        let sink = SinkOptions::default();
        for told in [
            format!("[default: {}s]", sink.deadline.as_secs()),
            format!("[default: {}]", sink.retry.max_attempts),
            format!("[default: {}]", sink.batch_size),
            format!("[default: {}]", sink.concurrency),
        ] {
            assert!(help.contains(&told), "{told} is not in the help:\n{help}");
        }
    }

    #[test]
    fn a_worker_has_a_name_of_its_own() {
        let (one, other) = (worker_id(), worker_id());
        assert_ne!(one, other);
        assert!(one.contains(&format!("-{}-", std::process::id())) && one.len() <= 255, "{one}");
    }

    #[test]
    fn lost_leases_are_told_when_there_are_any() {
        let counts = Counts { delivered: 1_200, retried: 1, released: 3, ..Counts::default() };
        assert_eq!(account(&counts), "delivered 1,200, retried 1, dead 0, handed back 3");
        assert!(account(&Counts { lost: 2, ..counts }).ends_with("handed back 3, leases lost 2"));
    }
}
