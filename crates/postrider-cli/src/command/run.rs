//! `postrider run`: delivers until a signal asks it to stop, to the sinks of a configuration file, to the cloud of an edge
//! site, or to stdout, one line of JSON each. Everything else is said on stderr. The store must answer at the start; later outages are waited out by the relay.

use std::sync::Arc;
use std::time::Duration;

use postrider_relay::RelayOptions;
use sd_notify::NotifyState;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::deliver::{self, Delivery, DeliveryOptions, Plan};
use crate::admin::{self, Served};
use crate::config::{AdminConfig, Listen, friendly};
use crate::exit_code::ExitCode;
use crate::failure::{Failure, Result};
use crate::log::{LogOptions, Logs};
use crate::options::Global;
use crate::signals::Stop;
use crate::store::{Database, Missing, Opened};
use crate::{format, output, telemetry, traces};

const AFTER_HELP: &str = "\
Any number of relays can share one outbox, on one machine or many; only one holds
a message at a time. Delivery is at least once, and in order within a lane.

SIGINT or SIGTERM: stops claiming, lets deliveries in flight finish within the
grace period, and releases the rest; exit code 0. A second signal ends at once
(130 or 143); other relays deliver what it held when the leases expire. It also
stops gracefully when the reader of stdout closes it.

A configuration names sinks and routes:
  [sinks.orders.kafka]
  brokers = \"localhost:9092\"
  [[routes]]
  topic = \"order.*\"
  sinks = [\"orders\"]
The relay adds the routes to the store when it starts; they apply to new messages
only. `postrider check --config FILE` tests every sink without sending.

Examples:
  postrider run
  postrider run --config postrider.toml
  postrider run --stdout --sink default --sink audit | tee -a messages.ndjson
  postrider run --lease 30s --deadline 10s --poll 1s --rate 100
  postrider run --stdout --log-format json 2>> relay.log | ./handle-each-line";

/// Deliver messages until stopped
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    #[command(flatten)]
    delivery: DeliveryOptions,
    /// Poll interval; at most a third of --lease
    /// [default: 500ms]
    #[arg(long, value_name = "DURATION", help_heading = "How it is delivered")]
    #[arg(value_parser = format::parse_duration)]
    poll: Option<Duration>,
    /// The admin API's address, or none [default: 127.0.0.1:7433]
    #[arg(long, value_name = "ADDRESS", help_heading = "Admin API")]
    listen: Option<Listen>,
    #[command(flatten)]
    log: LogOptions,
}

pub(crate) struct Prepared {
    databases: Vec<Database>,
    plan: Plan,
    admin: AdminConfig,
    logs: Logs,
}

/// The relay of one database.
struct Running {
    /// Its name, if there are others.
    name: Option<String>,
    opened: Opened,
    delivery: Delivery,
}

impl Args {
    pub(crate) fn prepare(self, global: &Global) -> Result<Prepared> {
        let mut flags = self.delivery.flags();
        flags.set("--poll", &["relay", "poll"], self.poll.map(friendly));
        flags.set("--listen", &["admin", "listen"], self.listen.map(|listen| listen.to_string()));
        self.log.put(&mut flags);
        let layers = global.layers(flags)?;
        let config = layers.config()?;
        let logs = Logs::prepare(&config.log, "info")?;
        let plan = Plan::of(&config, &layers, self.delivery.sinks())?;
        let databases = global.databases(&layers)?;
        let admin = config.admin(&layers)?;
        admin::check(&admin)?;
        Ok(Prepared { databases, plan, admin, logs })
    }
}

impl Prepared {
    pub(crate) async fn run(self) -> Result<ExitCode> {
        let Self { databases, plan, admin, logs } = self;
        telemetry::record()?;
        traces::start()?;
        let made = plan.make()?;
        let (mut relays, mut served) = (Vec::new(), Vec::new());
        let several = databases.len() > 1;
        // One that cannot be opened is told at once: later it is waited for.
        for Database { name, address } in databases {
            let about = |failure: Failure| if several { failure.of_database(&name) } else { failure };
            let opened = address.open(Missing::Create).await.map_err(about)?;
            let delivery = plan.relay(&name, &opened, &made).await.map_err(about)?;
            let handle = Arc::new(delivery.relay.handle());
            served.push(Served::new(name.clone(), Arc::clone(&opened.store), opened.place.clone(), Some(handle)));
            relays.push(Running { name: several.then_some(name), opened, delivery });
        }
        logs.start();
        let stop = Stop::on_signals(|| ())?;
        let bound = admin::bind(admin).await?;
        for relay in &relays {
            relay.announce(&plan.options).await;
        }
        let shutdown = stop.token.child_token();
        if let Some(closed) = made.closed {
            stop_without_reader(closed, shutdown.clone());
        }
        let serving = bound.map(|bound| bound.serve(served, shutdown.clone()));
        tell_service_manager(shutdown.clone());
        let ended = deliver_all(relays, shutdown).await;
        if let Some(serving) = serving {
            serving.close().await;
        }
        traces::finish().await;
        ended
    }
}

impl Running {
    async fn announce(&self, options: &RelayOptions) {
        let Self { name, opened, delivery } = self;
        if let Some(words) = opened.created_words() {
            info!(database = name, "{words}");
        }
        info!(
            database = name,
            store = output::printable(&opened.place),
            sinks = output::printable(&delivery.sinks.join(", ")),
            lease = format::span(options.lease),
            poll = format::span(options.poll),
            wake = wake(opened).await,
            worker = output::printable(&options.worker_id),
            "delivering"
        );
    }
}

/// Says to whoever started this as a service, if they asked, that it delivers, and later that it stops.
fn tell_service_manager(shutdown: CancellationToken) {
    let tell = |state| {
        if let Err(error) = sd_notify::notify(&[state]) {
            warn!(%error, "the service manager asked to be told, and cannot be: see NOTIFY_SOCKET");
        }
    };
    tell(NotifyState::Ready);
    tokio::spawn(async move {
        shutdown.cancelled().await;
        tell(NotifyState::Stopping);
    });
}

fn stop_without_reader(closed: CancellationToken, shutdown: CancellationToken) {
    let gone = deliver::reader_gone();
    tokio::spawn(async move {
        tokio::select! {
            () = closed.cancelled() => {}
            () = gone.cancelled() => {}
        }
        info!("nobody reads stdout any more: stopping in good order");
        shutdown.cancel();
    });
}

/// All relays until they are asked to stop. A store that goes away stops none: its relay waits. A relay that fails by itself
/// stops the others in good order, for only a new process can help.
async fn deliver_all(relays: Vec<Running>, shutdown: CancellationToken) -> Result<ExitCode> {
    let mut running = JoinSet::new();
    for Running { name, delivery, .. } in relays {
        let asked = shutdown.clone();
        running.spawn(async move { (name, delivery.relay.run(asked).await) });
    }
    let mut failed = None;
    while let Some(ended) = running.join_next().await {
        let failure = match ended {
            Ok((name, Ok(counts))) => {
                info!(database = name, "stopped: {}", deliver::account(&counts));
                continue;
            }
            Ok((name, Err(error))) => {
                let failure = deliver::explain(error);
                match &name {
                    Some(name) => failure.of_database(name),
                    None => failure,
                }
            }
            Err(error) => Failure::new(ExitCode::Failure, format!("a relay ended: {error}")),
        };
        shutdown.cancel();
        failed = failed.or(Some(failure));
    }
    failed.map_or(Ok(ExitCode::Ok), Err)
}

/// Whether the store tells when something is due. Asked once more than the relay does, so that the first line can say.
async fn wake(opened: &Opened) -> &'static str {
    match opened.store.listen().await {
        Ok(_) => "listening",
        Err(_) => "polling",
    }
}
