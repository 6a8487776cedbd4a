//! `postrider serve`: the admin API and the web page without a relay, for a machine that only looks, or operates, while
//! others deliver. The server itself is `admin.rs`.

use tracing::info;

use crate::admin::{self, AdminOptions, Database};
use crate::config::admin::AdminConfig;
use crate::exit_code::ExitCode;
use crate::failure::{Failure, Result};
use crate::log::{LogOptions, Logs};
use crate::options::Global;
use crate::output;
use crate::signals::Stop;
use crate::store::{Address, Missing};

const AFTER_HELP: &str = "\
The same as beside `postrider run`: a page at /, the API under /api/v1, its
description at /api/openapi.json, /metrics, /api/health and /api/ready.
See docs/admin-api.md.

POSTRIDER_ADMIN_TOKEN: what operators send as `Authorization: Bearer ...`; with
it set, they can redrive, discard, pause, replay. Without it this machine can
look, and nobody else can do anything.

Examples:
  postrider serve
  POSTRIDER_ADMIN_TOKEN=... postrider serve --listen 0.0.0.0:7433";

/// Serve the admin API and the web page, and deliver nothing
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    #[command(flatten)]
    admin: AdminOptions,
    #[command(flatten)]
    log: LogOptions,
}

pub(crate) struct Prepared {
    address: Address,
    admin: AdminConfig,
    logs: Logs,
}

impl Args {
    pub(crate) fn prepare(self, global: &Global) -> Result<Prepared> {
        let logs = self.log.prepare("info")?;
        // Whatever the address, it is all this command is there for.
        let admin = AdminConfig { explicit: true, ..self.admin.config()? };
        if admin.listen.is_none() {
            return Err(Failure::usage("there is no address to serve at").hint("give one with --listen"));
        }
        admin::check(&admin)?;
        Ok(Prepared { address: global.address()?, admin, logs })
    }
}

impl Prepared {
    pub(crate) async fn run(self) -> Result<ExitCode> {
        let Self { address, admin, logs } = self;
        let opened = address.open(Missing::Refuse).await?;
        let bound = admin::bind(admin).await?;
        logs.start();
        let stop = Stop::on_signals(|| ())?;
        info!(store = output::printable(&opened.place), "serving");
        let database = Database { name: admin::ONLY.to_owned(), store: opened.store, place: opened.place, relay: None };
        let serving = bound.map(|bound| bound.serve(vec![database], stop.token.clone()));
        stop.token.cancelled().await;
        if let Some(serving) = serving {
            serving.close().await;
        }
        info!("stopped");
        Ok(ExitCode::Ok)
    }
}
