//! The admin API and the web page: an HTTP server beside the relay (`postrider run`) or alone (`postrider serve`). This
//! file takes the address, serves, and ends in good order; what is answered stands in the files beside it. It delivers
//! nothing, and a fault of it never stops a delivery.

mod access;
mod assets;
mod audit;
mod bulk;
mod dead_letters;
mod error;
mod guard;
mod health;
mod input;
mod lanes;
mod messages;
mod openapi;
mod overview;
mod reading;
mod sinks;
mod state;
mod sync;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use self::access::Access;
use self::health::Readiness;
use self::state::Admin;
use crate::config::admin::{AdminConfig, AdminToken};
use crate::exit_code::ExitCode;
use crate::failure::{Failure, Result};
use crate::server::guard::Guard;
use crate::server::token;
use crate::{format, server};

pub(crate) use self::state::Served;

/// How long requests that are on their way may take once all else has ended.
const CLOSE_GRACE: Duration = Duration::from_secs(5);

/// Whether it may be served like this: other machines only with a token, and not with one that they can guess. Before
/// anything is opened.
pub(crate) fn check(config: &AdminConfig) -> Result<()> {
    let Some(listen) = config.listen.filter(|listen| !listen.ip().is_loopback()) else { return Ok(()) };
    if config.tokens.is_empty() {
        let words = format!("{listen} can be reached from other machines, and the admin API has no token");
        return Err(Failure::usage(words).hint(
            "set POSTRIDER_ADMIN_TOKEN, or listen on 127.0.0.1 behind a proxy that asks who calls, or --listen none",
        ));
    }
    for AdminToken { name, secret, role: _ } in &config.tokens {
        if let Some(why) = token::weakness(secret) {
            return Err(Failure::usage(format!(
                "{listen} can be reached from other machines, and they can guess the admin token {name:?}: {why}"
            ))
            .hint(token::HOW_TO_MAKE_ONE));
        }
    }
    Ok(())
}

/// Takes the address. `None`: it is to listen nowhere, or the address nobody asked for is taken.
pub(crate) async fn bind(config: AdminConfig) -> Result<Option<Bound>> {
    let Some(listen) = config.listen else { return Ok(None) };
    match TcpListener::bind(listen).await {
        Ok(listener) => {
            let address = listener.local_addr().unwrap_or(listen);
            Ok(Some(Bound { listener, address, config }))
        }
        Err(error) if config.explicit => {
            Err(Failure::new(ExitCode::Failure, format!("cannot listen on {listen}: {error}"))
                .hint("is another program there? Give another address with --listen, or --listen none"))
        }
        Err(error) => {
            warn!("no admin API: cannot listen on {listen}: {error}; give another address with --listen");
            Ok(None)
        }
    }
}

/// An address that was taken.
pub(crate) struct Bound {
    listener: TcpListener,
    address: SocketAddr,
    config: AdminConfig,
}

/// A server that runs.
pub(crate) struct Serving {
    task: JoinHandle<()>,
    close: CancellationToken,
}

impl Bound {
    /// Serves these databases until it is closed; from `stopping` on it says that it is not ready.
    pub(crate) fn serve(self, databases: Vec<Served>, stopping: CancellationToken) -> Serving {
        let Self { listener, address, config } = self;
        let AdminConfig { listen: _, explicit: _, enabled, tokens, loopback_reads_without_token, hosts } = config;
        for token in tokens.iter().filter(|token| token::weakness(&token.secret).is_some()) {
            warn!("anybody on this machine can guess the admin token {:?}; {}", token.name, token::HOW_TO_MAKE_ONE);
        }
        let access = Access::new(tokens, enabled, address.ip().is_loopback(), loopback_reads_without_token);
        info!(
            actions = if access.enabled { "allowed with a token" } else { "off until POSTRIDER_ADMIN_TOKEN is set" },
            "the admin API and the page are at http://{address}"
        );
        let room = Semaphore::new(state::MAX_REQUESTS);
        let guard = Guard { hosts, section: "admin", probes: guard::PROBES };
        let admin = Admin { databases, guard, access, stopping, room, readiness: Readiness::default() };
        let router = openapi::router(Arc::new(admin));
        let close = CancellationToken::new();
        let task = tokio::spawn(server::serve(listener, router, close.clone()));
        Serving { task, close }
    }
}

impl Serving {
    /// No new requests; those on their way finish.
    pub(crate) async fn close(self) {
        self.close.cancel();
        if timeout(CLOSE_GRACE, self.task).await.is_err() {
            warn!("requests to the admin API did not end in {}", format::span(CLOSE_GRACE));
        }
    }
}
