//! `postrider run`: delivers until a signal asks it to stop, to the sinks of a configuration file or, without one, to
//! stdout, one line of JSON each. Everything else is said on stderr. The store must answer at the start; later outages are waited out by the relay.

use std::time::Duration;

use tracing::info;

use super::deliver::{self, Delivery, DeliveryOptions, Plan};
use crate::exit_code::ExitCode;
use crate::failure::Result;
use crate::log::{LogOptions, Logs};
use crate::options::Global;
use crate::signals::Stop;
use crate::store::{Address, Missing, Opened};
use crate::{humane, output, telemetry, traces};

const AFTER_HELP: &str = "\
Any number of these may run at once, on one machine or many: each message is
with one of them at a time. A message is delivered at least once; a lane is
delivered in order.

SIGINT or SIGTERM: no more is claimed, what is on its way gets the grace period,
the rest is handed back; exit code 0. A second signal ends at once (130 or 143);
what was held is delivered by others when its lease ends. When the reader of
stdout goes away it stops in the same good order.

A configuration names the sinks, and what goes where:
  [sinks.orders.kafka]
  brokers = \"localhost:9092\"
  [[routes]]
  topic = \"order.*\"
  sinks = [\"orders\"]
The routes are added to the store when it starts; they concern new messages
only. `postrider check --config FILE` tries every sink without sending.

Examples:
  postrider run
  postrider run --config postrider.toml
  postrider run --sink default --sink audit | tee -a messages.ndjson
  postrider run --lease 30s --deadline 10s --poll 1s --rate 100
  postrider run --log-format json 2>> relay.log | ./handle-each-line";

/// Deliver messages to their sinks until a signal comes
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    #[command(flatten)]
    delivery: DeliveryOptions,
    /// How often to look for what nobody announced; at most a third of --lease
    #[arg(long, value_name = "DURATION", default_value = "500ms", help_heading = "How it is delivered")]
    #[arg(value_parser = humane::parse_duration)]
    poll: Duration,
    #[command(flatten)]
    log: LogOptions,
}

pub(crate) struct Prepared {
    address: Address,
    plan: Plan,
    logs: Logs,
}

impl Args {
    pub(crate) fn prepare(self, global: &Global) -> Result<Prepared> {
        let logs = self.log.prepare("info")?;
        let plan = self.delivery.plan(self.poll)?;
        Ok(Prepared { address: global.address()?, plan, logs })
    }
}

impl Prepared {
    pub(crate) async fn run(self) -> Result<ExitCode> {
        let Self { address, plan, logs } = self;
        telemetry::record()?;
        traces::start()?;
        let opened = address.open(Missing::Create).await?;
        let Delivery { relay, options, sinks, closed } = plan.relay(&opened).await?;
        logs.start();
        let stop = Stop::on_signals(|| ())?;
        if let Some(words) = opened.created_words() {
            info!("{words}");
        }
        info!(
            store = output::printable(&opened.place),
            sinks = output::printable(&sinks.join(", ")),
            lease = humane::span(options.lease),
            poll = humane::span(options.poll),
            wake = wake(&opened).await,
            worker = output::printable(&options.worker_id),
            "delivering"
        );
        let shutdown = stop.token.child_token();
        if let Some(closed) = closed {
            let asked = shutdown.clone();
            let gone = deliver::reader_gone();
            tokio::spawn(async move {
                tokio::select! {
                    () = closed.cancelled() => {}
                    () = gone.cancelled() => {}
                }
                info!("nobody reads stdout any more: stopping in good order");
                asked.cancel();
            });
        }
        let ended = relay.run(shutdown).await;
        traces::finish().await;
        let counts = ended.map_err(deliver::explain)?;
        info!("stopped: {}", deliver::account(&counts));
        Ok(ExitCode::Ok)
    }
}

/// Whether the store tells when something is due. Asked once more than the relay does, so that the first line can say.
async fn wake(opened: &Opened) -> &'static str {
    match opened.store.listen().await {
        Ok(_) => "listening",
        Err(_) => "polling",
    }
}
