//! What `postrider run` and `postrider drain` have in common: their options, the relay that is made of them, and the
//! account at the end. The delivering is the relay's; this file hands it the options and a sink on stdout.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use postrider::Store;
use postrider_relay::{Counts, NdjsonSink, Relay, RelayOptions, RetryOptions, SinkOptions};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::exit_code::ExitCode;
use crate::failure::{Failure, Result};
use crate::humane;
use crate::store::Opened;

const WHAT: &str = "What is delivered";
const HOW: &str = "How it is delivered";
const LIMITS: &str = "Limits";

/// The options of a relay. The defaults are the library's; a test sees to that.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct DeliveryOptions {
    /// Whose deliveries: a sink's name; may be repeated. All go to stdout
    #[arg(long = "sink", value_name = "NAME", default_value = "default", help_heading = WHAT)]
    sinks: Vec<String>,

    /// How long a claimed message is held before others may take it
    #[arg(long, value_name = "DURATION", default_value = "2m", help_heading = HOW)]
    #[arg(value_parser = humane::parse_duration)]
    pub(super) lease: Duration,
    /// How long one delivery may take; must end before the lease does
    #[arg(long, value_name = "DURATION", default_value = "30s", help_heading = HOW)]
    #[arg(value_parser = humane::parse_duration)]
    deadline: Duration,
    /// After this many attempts a message is dead
    #[arg(long, value_name = "N", default_value_t = 10, help_heading = HOW)]
    max_attempts: u32,
    /// After a signal, how long what is on its way may take to finish
    #[arg(long, value_name = "DURATION", default_value = "25s", help_heading = HOW)]
    #[arg(value_parser = humane::parse_duration)]
    grace: Duration,
    /// Who this is, beside every lease and attempt [default: host-pid-random]
    #[arg(long, value_name = "NAME", help_heading = HOW)]
    worker_id: Option<String>,

    /// Messages of one claim
    #[arg(long, value_name = "N", default_value_t = 500, help_heading = LIMITS)]
    batch_size: u32,
    /// Deliveries at once, for each sink
    #[arg(long, value_name = "N", default_value_t = 32, help_heading = LIMITS)]
    concurrency: usize,
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

/// A relay that is ready to go.
pub(crate) struct Delivery {
    pub(crate) relay: Relay,
    pub(crate) options: RelayOptions,
    pub(crate) sinks: Vec<String>,
    /// Fires when nobody reads stdout any more.
    pub(crate) closed: CancellationToken,
}

impl DeliveryOptions {
    /// Whether a relay can run like this: asked before a store is opened, or made.
    pub(crate) fn check(&self, poll: Duration) -> Result<()> {
        let options = self.relay_options(poll);
        options.check().map_err(explain)?;
        self.sinks.iter().try_for_each(|sink| self.sink_options().check(sink, &options)).map_err(explain)
    }

    fn relay_options(&self, poll: Duration) -> RelayOptions {
        RelayOptions {
            poll,
            lease: self.lease,
            worker_id: self.worker_id.clone().unwrap_or_else(worker_id),
            max_messages: self.max_memory_messages,
            max_bytes: self.max_memory_bytes,
            grace: self.grace,
            // A sink's own bound is the one that was asked for.
            concurrency: RelayOptions::default().concurrency.max(self.concurrency.saturating_mul(self.sinks.len())),
            ..RelayOptions::default()
        }
    }

    pub(crate) async fn relay(self, opened: &Opened, poll: Duration) -> Result<Delivery> {
        let options = self.relay_options(poll);
        let sink_options = self.sink_options();
        // One stdout for every sink, so that their lines do not mix.
        let stdout = NdjsonSink::stdout()
            .map_err(|error| Failure::new(ExitCode::Failure, format!("cannot write to stdout: {error}")))?;
        let closed = stdout.closed();
        let stdout = Arc::new(stdout);
        let store: Arc<dyn Store> = Arc::clone(&opened.store);
        let mut builder = Relay::builder(store).options(options.clone());
        for name in &self.sinks {
            builder = builder.sink_with(name, Arc::clone(&stdout), sink_options.clone());
        }
        let relay = builder.build().map_err(explain)?;
        // The relay would wait for a store that refuses it, as for one that is away. So ask for the least it needs, now.
        opened.store.woke(&options.worker_id).await?;
        Ok(Delivery { relay, options, sinks: self.sinks, closed })
    }

    fn sink_options(&self) -> SinkOptions {
        SinkOptions {
            batch_size: self.batch_size,
            concurrency: self.concurrency,
            deadline: self.deadline,
            retry: RetryOptions { max_attempts: self.max_attempts, ..RetryOptions::default() },
            rate: self.rate,
            ..SinkOptions::default()
        }
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
    let host = ["/proc/sys/kernel/hostname", "/etc/hostname"]
        .iter()
        .filter_map(|file| std::fs::read_to_string(file).ok())
        .map(|name| name.trim().to_owned())
        .find(|name| !name.is_empty())
        .unwrap_or_else(|| "host".to_owned());
    let host: String = host.chars().filter(|c| !c.is_control()).take(100).collect();
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
        assert_eq!(args.sink_options(), sink);
        assert_eq!((args.lease, args.grace), (relay.lease, relay.grace));
        assert_eq!((args.max_memory_messages, args.max_memory_bytes), (relay.max_messages, relay.max_bytes));
        assert_eq!(args.sinks, ["default"]);
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
