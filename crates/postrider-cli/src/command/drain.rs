//! `postrider drain`: delivers what is due now and ends, for a scheduler such as cron. Messages go to the sinks of a
//! configuration or to stdout, the account to stderr. What fails is due again later and left to the next run.

use std::io::{self, Write as _};
use std::time::{Duration, Instant};

use postrider_relay::{Counts, RelayOptions};
use serde::Serialize;
use tracing::info;

use super::deliver::{self, Delivery, DeliveryOptions, Plan};
use crate::exit_code::ExitCode;
use crate::failure::Result;
use crate::format;
use crate::log::{LogOptions, Logs};
use crate::options::Global;
use crate::signals::Stop;
use crate::store::{Database, Missing};
use crate::traces;

const AFTER_HELP: &str = "\
Exit code 0 when nothing more is due. It does not wait for retries: they are due
later, and the next run takes them. Several drains and `postrider run` can run at
once. The summary is on stderr, with --json as JSON.

A signal stops it gracefully, with exit code 130 or 143; a second signal stops it
at once.

Examples:
  postrider drain --stdout | ./handle-each-line
  postrider drain --config postrider.toml
  * * * * *  postrider drain --database-url sqlite:/srv/outbox.db | /srv/handle
  postrider drain --stdout --sink audit --json >> audit.ndjson 2> account.json";

/// Deliver what is due, and exit
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    #[command(flatten)]
    delivery: DeliveryOptions,
    #[command(flatten)]
    log: LogOptions,
}

pub(crate) struct Prepared {
    database: Database,
    plan: Plan,
    logs: Logs,
}

impl Args {
    pub(crate) fn prepare(self, global: &Global) -> Result<Prepared> {
        let mut flags = self.delivery.flags();
        self.log.put(&mut flags);
        let layers = global.layers(flags)?;
        let mut config = layers.config()?;
        // Only how often it looks whether all has ended.
        config.relay.poll = RelayOptions::default().poll.min(config.relay.lease / 3);
        let logs = Logs::prepare(&config.log, "warn")?;
        let plan = Plan::of(&config, &layers, self.delivery.sinks())?;
        let database = global.one(&layers)?;
        Ok(Prepared { database, plan, logs })
    }
}

impl Prepared {
    pub(crate) async fn run(self, json: bool) -> Result<ExitCode> {
        let Self { database: Database { name, address }, plan, logs } = self;
        let started = Instant::now();
        traces::start()?;
        let opened = address.open(Missing::Create).await?;
        let made = plan.make()?;
        let Delivery { relay, .. } = plan.relay(&name, &opened, &made).await?;
        logs.start();
        let stop = Stop::on_signals(|| ())?;
        if let Some(words) = opened.created_words() {
            info!("{words}");
        }
        let shutdown = stop.token.child_token();
        if let Some(closed) = made.closed {
            let asked = shutdown.clone();
            tokio::spawn(async move {
                closed.cancelled().await;
                asked.cancel();
            });
        }
        let ended = relay.drain(shutdown).await;
        traces::finish().await;
        let counts = ended.map_err(deliver::explain)?;
        say(&counts, started.elapsed(), json);
        Ok(stop.heard().unwrap_or(ExitCode::Ok))
    }
}

/// On stderr: stdout holds the messages. If nobody listens there, nobody wanted it.
fn say(counts: &Counts, elapsed: Duration, json: bool) {
    #[derive(Serialize)]
    struct Document {
        delivered: u64,
        retried: u64,
        dead: u64,
        handed_back: u64,
        leases_lost: u64,
        elapsed_seconds: f64,
    }
    let Counts { delivered, retried, dead, released, lost, .. } = *counts;
    let line = if json {
        let document = Document {
            delivered,
            retried,
            dead,
            handed_back: released,
            leases_lost: lost,
            elapsed_seconds: elapsed.as_secs_f64(),
        };
        // Numbers alone: there is nothing here that cannot be JSON.
        serde_json::to_string(&document).unwrap_or_default()
    } else {
        format!("{}, in {}", deliver::account(counts), format::span(elapsed))
    };
    drop(writeln!(io::stderr().lock(), "{line}"));
}
