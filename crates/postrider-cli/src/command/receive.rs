//! `postrider receive`: takes batches of events over HTTP, tells those that come again, and enqueues the rest in this
//! database's own outbox, so that `postrider run` carries them on. The address, the senders and the limits are settled
//! here; the requests are answered in `receive/server.rs`. It delivers nothing.

mod answer;
mod batch;
mod event;
mod sender;
mod server;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use postrider::Store;
use tokio::net::TcpListener;
use tracing::{info, warn};

use self::sender::Senders;
use self::server::Server;
use crate::config::Flags;
use crate::config::receive::Sender;
use crate::exit_code::ExitCode;
use crate::failure::{Failure, Result};
use crate::log::{LogOptions, Logs};
use crate::options::Global;
use crate::server::guard::Guard;
use crate::server::host::Hosts;
use crate::server::token;
use crate::signals::Stop;
use crate::store::{Address, Missing};
use crate::{format, output};

/// How long requests that are on their way may take after a signal.
const GRACE: Duration = Duration::from_secs(25);
/// Between two looks for received events past their retention. A relay on the same database does the same.
const PRUNE_EVERY: Duration = Duration::from_mins(10);

const AFTER_HELP: &str = "\
POST /api/v1/edge/batch takes {\"events\": [{\"event_id\", \"tenant_id\",
\"event_type\", \"occurred_at\", \"payload\", ...}]}, plain or gzip, and answers for
each event: accepted, duplicate, rejected or retry. An accepted event is in this
database's outbox, once; `postrider run` delivers it. GET /healthz checks the
database. See docs/inbox.md.

A trusted sender passes POSTRIDER_RECEIVE_TOKEN as `Authorization: Bearer ...`.
For several senders, give each its own token in [receive] of the configuration,
with the sources and tenants that it may send. Without any token the server only
listens on this machine. Use a proxy for TLS. Senders call by address, or by a
name in `hosts` of [receive].

SIGINT or SIGTERM: takes no new requests and finishes the running ones; exit code
0. A second signal ends at once (130 or 143); each event is stored completely or
not at all.

Examples:
  postrider receive
  postrider receive --listen 127.0.0.1:8080 --database-url sqlite:inbox.db
  POSTRIDER_RECEIVE_TOKEN=... postrider receive --listen 0.0.0.0:7434
  curl -H 'Content-Type: application/json' -d @batch.json \\
    http://127.0.0.1:7434/api/v1/edge/batch";

/// Receive events over HTTP and enqueue each once
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// The address; other machines need a token
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7434")]
    listen: SocketAddr,
    /// The largest batch, decompressed: 512KiB, 64MiB
    #[arg(long, value_name = "SIZE", default_value = "32MiB", value_parser = format::parse_size)]
    max_body: usize,
    #[command(flatten)]
    log: LogOptions,
}

pub(crate) struct Prepared {
    address: Address,
    listen: SocketAddr,
    max_body: usize,
    senders: Senders,
    hosts: Hosts,
    weak: Vec<String>,
    logs: Logs,
}

impl Args {
    pub(crate) fn prepare(self, global: &Global) -> Result<Prepared> {
        let mut flags = Flags::default();
        self.log.put(&mut flags);
        let layers = global.layers(flags)?;
        let logs = Logs::prepare(&layers.log()?, "info")?;
        let config = layers.receive()?.read()?;
        let weak = check(self.listen, &config.senders)?;
        Ok(Prepared {
            address: global.one(&layers)?.address,
            listen: self.listen,
            max_body: self.max_body,
            hosts: config.hosts.clone(),
            senders: Senders::new(config),
            weak,
            logs,
        })
    }
}

/// Other machines only with tokens, and not with one that they can guess. On this machine, the names of those that can be
/// guessed.
fn check(listen: SocketAddr, senders: &[Sender]) -> Result<Vec<String>> {
    let weak = || senders.iter().filter_map(|sender| Some((&sender.name, token::weakness(&sender.secret)?)));
    if listen.ip().is_loopback() {
        return Ok(weak().map(|(name, _)| name.clone()).collect());
    }
    if senders.is_empty() {
        let words = format!("{listen} can be reached from other machines, and no token is set");
        return Err(Failure::usage(words).hint(
            "set POSTRIDER_RECEIVE_TOKEN, or tokens in [receive] of the configuration, or listen on 127.0.0.1 behind a \
             proxy that asks who calls",
        ));
    }
    match weak().next() {
        None => Ok(Vec::new()),
        Some((name, why)) => Err(Failure::usage(format!(
            "{listen} can be reached from other machines, and they can guess the token {name:?} of senders: {why}"
        ))
        .hint(token::HOW_TO_MAKE_ONE)),
    }
}

impl Prepared {
    pub(crate) async fn run(self) -> Result<ExitCode> {
        let Self { address, listen, max_body, senders, hosts, weak, logs } = self;
        let opened = address.open(Missing::Create).await?;
        let listener = TcpListener::bind(listen).await.map_err(|error| {
            Failure::new(ExitCode::Failure, format!("cannot listen on {listen}: {error}"))
                .hint("is another program there? Give another address with --listen")
        })?;
        let listening = listener.local_addr().unwrap_or(listen);
        logs.start();
        let stop = Stop::on_signals(|| ())?;
        if let Some(words) = opened.created_words() {
            info!("{words}");
        }
        info!(
            store = output::printable(&opened.place),
            address = %listening,
            token = if senders.need_a_token() { "asked for" } else { "none" },
            "receiving"
        );
        for name in weak {
            warn!("anybody on this machine can guess the token {name:?} of senders; {}", token::HOW_TO_MAKE_ONE);
        }
        tokio::spawn(prune(Arc::clone(&opened.store)));
        let guard = Guard { hosts, section: "receive", probes: server::PROBES };
        let server = Arc::new(Server::new(opened.store, guard, senders, max_body));
        let serving = crate::server::serve(listener, server::routes(Arc::clone(&server)), stop.token.clone());
        let grace = async {
            stop.token.cancelled().await;
            tokio::time::sleep(GRACE).await;
        };
        tokio::select! {
            () = serving => {}
            () = grace => warn!("requests did not end in {}: their events are sent again", format::span(GRACE)),
        }
        info!("stopped: {}", server.account());
        Ok(ExitCode::Ok)
    }
}

/// The receiving side may have no relay that does it.
async fn prune(store: Arc<dyn Store>) {
    let mut every = tokio::time::interval(PRUNE_EVERY);
    loop {
        every.tick().await;
        match store.prune_inbox(None).await {
            Ok(0) => {}
            Ok(events) => info!(events, "dropped received events past their retention"),
            Err(error) => warn!("cannot prune the inbox: {}", output::printable(&error.in_short())),
        }
    }
}
