//! What `postrider run` and `postrider drain` have in common: their options, the relays that are made of a configuration, and
//! the account at the end. The delivering is the relay's.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use figment::value::Value;
use postrider::{Route, Store};
use postrider_relay::sink::stdout::NdjsonSink;
use postrider_relay::{Counts, ErrorKind, Relay, RelayOptions, Sink, SinkOptions};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use tokio_util::sync::CancellationToken;

use crate::config::{Config, Configured, Flags, Layers, friendly};
use crate::exit_code::ExitCode;
use crate::failure::{Failure, Result};
use crate::format;
use crate::schemas::PayloadSchemas;
use crate::store::Opened;
use crate::traces;

const WHAT: &str = "What is delivered";
const HOW: &str = "How it is delivered";
const LIMITS: &str = "Limits";

const CLOUD_HELP: &str = "Without configured sinks: POST batches there [env: CLOUD_INGESTION_URL]";

/// The options of a relay. What is given here stands above the configuration and the environment.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct DeliveryOptions {
    #[arg(long = "cloud-url", value_name = "URL", help = CLOUD_HELP, help_heading = WHAT)]
    cloud: Option<String>,
    /// Without configured sinks: write to stdout, one line of JSON
    /// each [default with SQLite]
    #[arg(long, conflicts_with = "cloud", help_heading = WHAT)]
    stdout: bool,
    /// Only this sink; may be repeated [default: all of the
    /// configuration, or `default`]
    #[arg(long = "sink", value_name = "NAME", help_heading = WHAT)]
    sinks: Vec<String>,

    /// How long a lease lasts; other relays wait this long for a crashed relay's messages [default: 2m]
    #[arg(long, value_name = "DURATION", help_heading = HOW)]
    #[arg(value_parser = format::parse_duration)]
    lease: Option<Duration>,
    /// How long one delivery may take; must end before the lease [default: 30s]
    #[arg(long, value_name = "DURATION", help_heading = HOW)]
    #[arg(value_parser = format::parse_duration)]
    deadline: Option<Duration>,
    /// After this many attempts a message is dead [default: 10]
    #[arg(long, value_name = "N", help_heading = HOW)]
    max_attempts: Option<u32>,
    /// After a signal, how long deliveries in flight may take to finish [default: 25s]
    #[arg(long, value_name = "DURATION", help_heading = HOW)]
    #[arg(value_parser = format::parse_duration)]
    grace: Option<Duration>,
    /// This worker's name, recorded with leases and attempts [default: host-pid-random]
    #[arg(long, value_name = "NAME", help_heading = HOW)]
    worker_id: Option<String>,

    /// Messages in one claim [default: 500]
    #[arg(long, value_name = "N", help_heading = LIMITS)]
    batch_size: Option<u32>,
    /// Deliveries at once, for each sink [default: 32]
    #[arg(long, value_name = "N", help_heading = LIMITS)]
    concurrency: Option<usize>,
    /// Messages a second, for each sink [default: unlimited]
    #[arg(long, value_name = "N", help_heading = LIMITS)]
    rate: Option<NonZeroU32>,
    /// Messages in memory, over all sinks [default: 10000]
    #[arg(long, value_name = "N", help_heading = LIMITS)]
    max_memory_messages: Option<u32>,
    /// Content in memory, over all sinks: 512KiB, 64MiB, 1GiB [default: 64MiB]
    #[arg(long, value_name = "SIZE", help_heading = LIMITS)]
    #[arg(value_parser = format::parse_size)]
    max_memory_bytes: Option<usize>,
}

/// What is to be delivered where: read and checked, nothing connected.
pub(crate) struct Plan {
    pub(crate) sinks: Vec<Planned>,
    pub(crate) routes: Vec<Route>,
    schemas: PayloadSchemas,
    pub(crate) options: RelayOptions,
}

/// One sink.
pub(crate) struct Planned {
    pub(crate) name: String,
    pub(crate) kind: Configured,
    options: SinkOptions,
    /// The databases that it is for; `None`: all.
    databases: Option<Vec<String>>,
}

/// The sinks themselves. Relays of several databases share them, and with them their connections and files.
pub(crate) struct Made {
    sinks: BTreeMap<String, Arc<dyn Sink>>,
    /// Fires when nobody reads stdout any more; `None` if no sink goes there.
    pub(crate) closed: Option<CancellationToken>,
}

/// A relay that is ready to go.
pub(crate) struct Delivery {
    pub(crate) relay: Relay,
    /// Each with what it is.
    pub(crate) sinks: Vec<String>,
}

impl DeliveryOptions {
    /// What was given, as values that stand above others.
    pub(crate) fn flags(&self) -> Flags {
        let mut flags =
            Flags { cloud: self.cloud.clone(), stdout: self.stdout, sinks: self.sinks.clone(), ..Flags::default() };
        flags.set("--lease", &["relay", "lease"], self.lease.map(friendly));
        flags.set("--grace", &["relay", "grace"], self.grace.map(friendly));
        flags.set("--worker-id", &["relay", "worker_id"], self.worker_id.as_deref());
        flags.set("--max-memory-messages", &["relay", "max_memory_messages"], self.max_memory_messages);
        flags.set("--max-memory-bytes", &["relay", "max_memory_bytes"], self.max_memory_bytes);
        flags.set_sinks("--deadline", &["deadline"], self.deadline.map(friendly));
        flags.set_sinks("--max-attempts", &["retry", "max_attempts"], self.max_attempts);
        flags.set_sinks("--batch-size", &["batch_size"], self.batch_size);
        flags.set_sinks("--concurrency", &["concurrency"], self.concurrency);
        flags.set_sinks("--rate", &["rate"], self.rate.map(|rate| Value::from(rate.get())));
        flags
    }

    /// The names that were given.
    pub(crate) fn sinks(&self) -> &[String] {
        &self.sinks
    }
}

/// The sinks of a configuration, or those of them that were named.
pub(super) fn planned(config: &Config, layers: &Layers, named: &[String]) -> Result<Vec<Planned>> {
    let known = || config.sinks.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
    if config.sinks.is_empty() {
        return Err(Failure::usage("the configuration has no sink").hint(
            "set CLOUD_INGESTION_URL, configure a sink such as [sinks.default.stdout], or give --stdout without a file",
        ));
    }
    for (index, name) in named.iter().enumerate() {
        if !config.sinks.contains_key(name) {
            return Err(
                Failure::usage(format!("the configuration has no sink {name:?}")).hint(format!("it has: {}", known()))
            );
        }
        if named[..index].contains(name) {
            return Err(Failure::usage(format!("two sinks named {name:?}")).hint("name each one once"));
        }
    }
    let databases = &config.databases;
    let wanted = config.sinks.iter().filter(|(name, _)| named.is_empty() || named.contains(name));
    let plan = |(name, sink): (&String, &crate::config::SinkConfig)| {
        let only = sink.databases().filter(|_| !layers.one_url());
        if let Some(unknown) = only.into_iter().flatten().find(|database| !databases.contains_key(*database)) {
            let known = databases.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
            return Err(Failure::usage(format!(
                "sink {name:?} is for the database {unknown:?}, which is not configured"
            ))
            .hint(format!("there are: {known}")));
        }
        let databases = only.map(<[String]>::to_vec);
        Ok(Planned { kind: sink.kind(name)?, options: sink.options(), name: name.clone(), databases })
    };
    wanted.map(plan).collect()
}

impl Plan {
    /// Sees whether a relay can run like this: before a store is opened, or made.
    pub(crate) fn of(config: &Config, layers: &Layers, named: &[String]) -> Result<Self> {
        let schemas = PayloadSchemas::read(config, layers)?;
        let sinks = planned(config, layers, named)?;
        let most = sinks.iter().map(|sink| sink.options.concurrency).fold(0, usize::saturating_add);
        let options = config.relay.options(most);
        options.check().map_err(explain)?;
        sinks.iter().try_for_each(|sink| sink.options.check(&sink.name, &options)).map_err(explain)?;
        Ok(Self { sinks, routes: config.routes().collect(), schemas, options })
    }

    /// Makes the sinks, once for all relays.
    pub(crate) fn make(&self) -> Result<Made> {
        let mut sinks = BTreeMap::new();
        for Planned { name, kind, .. } in &self.sinks {
            sinks.insert(name.clone(), self.schemas.guard(kind.build(name)?));
        }
        let to_stdout = self.sinks.iter().any(|sink| sink.kind.kind == "stdout");
        let closed = to_stdout.then(NdjsonSink::stdout).and_then(std::result::Result::ok).map(|stdout| stdout.closed());
        Ok(Made { sinks, closed })
    }

    /// The relay of one database, which is asked for the least it needs.
    pub(crate) async fn relay(&self, database: &str, opened: &Opened, made: &Made) -> Result<Delivery> {
        let serves =
            |sink: &&Planned| sink.databases.as_ref().is_none_or(|names| names.iter().any(|one| one == database));
        let sinks: Vec<&Planned> = self.sinks.iter().filter(serves).collect();
        if sinks.is_empty() {
            return Err(Failure::usage(format!("no sink is for the database {database:?}"))
                .hint("add its name to `databases` of a sink, or leave that out of one"));
        }
        let store: Arc<dyn Store> = Arc::clone(&opened.store);
        let options = self.options.clone().database(database.to_owned());
        let mut builder = traces::join(Relay::builder(store).options(options));
        let mut told = Vec::new();
        for Planned { name, kind, options, .. } in &sinks {
            told.push(format!("{name} ({})", kind.kind));
            let sink = made.sinks.get(name).map(Arc::clone);
            let sink =
                sink.ok_or_else(|| Failure::new(ExitCode::Failure, format!("the sink {name:?} was not made")))?;
            builder = builder.sink_with(name, sink, options.clone());
        }
        let here = |route: &&Route| {
            let elsewhere = self.sinks.iter().any(|sink| sink.name == route.sink && !serves(&sink));
            !elsewhere
        };
        builder = self.routes.iter().filter(here).cloned().fold(builder, postrider_relay::RelayBuilder::route);
        let relay = builder.build().map_err(explain)?;
        // The relay would wait for a store that refuses it, as for one that is away. So ask for the least it needs, now.
        opened.store.woke(&self.options.worker_id).await?;
        Ok(Delivery { relay, sinks: told })
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
    match error.kind() {
        ErrorKind::Options => Failure::usage(error.reason()).hint("see --help for the options"),
        ErrorKind::StoreAway => Failure::new(ExitCode::Unreachable, error.to_string())
            .hint("start it again when the database is back: what was due still is"),
        _ => match error.into_store() {
            Ok(refused) => refused.into(),
            Err(error) => Failure::new(ExitCode::Failure, error.to_string())
                .hint("start it again: what it held is delivered when its leases end"),
        },
    }
}

/// `delivered 12, retried 1, dead 0, handed back 3`; lost leases only if there are any.
pub(crate) fn account(counts: &Counts) -> String {
    let Counts { delivered, retried, dead, released, lost, .. } = *counts;
    let [delivered, retried, dead, released] = [delivered, retried, dead, released].map(format::count);
    let lost = if lost == 0 { String::new() } else { format!(", leases lost {}", format::count(lost)) };
    format!("delivered {delivered}, retried {retried}, dead {dead}, handed back {released}{lost}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: DeliveryOptions,
    }

    /// The help says in words what the library has as figures.
    #[test]
    fn the_help_tells_the_librarys_defaults() {
        use clap::CommandFactory as _;
        let help = Line::command().render_help().to_string();
        let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
        let (sink, relay) = (SinkOptions::default(), RelayOptions::default());
        for told in [
            format!("[default: {}]", friendly(relay.lease)),
            format!("[default: {}]", friendly(relay.grace)),
            format!("[default: {}]", relay.max_messages),
            format!("[default: {}MiB]", relay.max_bytes >> 20),
            format!("[default: {}s]", sink.deadline.as_secs()),
            format!("[default: {}]", sink.retry.max_attempts),
            format!("[default: {}]", sink.batch_size),
            format!("[default: {}]", sink.concurrency),
        ] {
            assert!(help.contains(&told), "{told} is not in the help:\n{help}");
        }
    }

    #[test]
    fn lost_leases_are_told_when_there_are_any() {
        let mut counts = Counts::default();
        (counts.delivered, counts.retried, counts.released) = (1_200, 1, 3);
        assert_eq!(account(&counts), "delivered 1,200, retried 1, dead 0, handed back 3");
        counts.lost = 2;
        assert!(account(&counts).ends_with("handed back 3, leases lost 2"));
    }
}
