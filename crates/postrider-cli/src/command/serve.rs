//! `postrider serve`: the admin API and the web page without a relay, for a machine that only looks, or operates, while
//! others deliver. The server itself is `admin.rs`.

use tracing::info;

use crate::admin::{self, Served};
use crate::config::{AdminConfig, Flags, Listen};
use crate::exit_code::ExitCode;
use crate::failure::{Failure, Result};
use crate::log::{LogOptions, Logs};
use crate::options::Global;
use crate::output;
use crate::signals::Stop;
use crate::store::{Database, Missing};

const AFTER_HELP: &str = "\
Serves what `postrider run` serves: the page at /, the API under /api/v1, the
OpenAPI document at /api/openapi.json, /metrics, /api/health and /api/ready. See
docs/admin-api.md.

Operators pass POSTRIDER_ADMIN_TOKEN as `Authorization: Bearer ...` to redrive,
discard, pause, replay and so on. If it is set, reading needs it too. Without it,
only this machine can read, and nobody can change anything.

Examples:
  postrider serve
  POSTRIDER_ADMIN_TOKEN=... postrider serve --listen 0.0.0.0:7433";

/// Serve the admin API and the web page, without delivering
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// The address; other machines need a token [default: 127.0.0.1:7433]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<Listen>,
    #[command(flatten)]
    log: LogOptions,
}

pub(crate) struct Prepared {
    databases: Vec<Database>,
    admin: AdminConfig,
    logs: Logs,
}

impl Args {
    pub(crate) fn prepare(self, global: &Global) -> Result<Prepared> {
        let mut flags = Flags::default();
        flags.set("--listen", &["admin", "listen"], self.listen.map(|listen| listen.to_string()));
        self.log.put(&mut flags);
        let layers = global.layers(flags)?;
        let config = layers.config()?;
        let logs = Logs::prepare(&config.log, "info")?;
        // Whatever the address, it is all this command is there for.
        let admin = AdminConfig { explicit: true, ..config.admin(&layers)? };
        if admin.listen.is_none() {
            return Err(Failure::usage("there is no address to serve at").hint("give one with --listen"));
        }
        admin::check(&admin)?;
        Ok(Prepared { databases: global.databases(&layers)?, admin, logs })
    }
}

impl Prepared {
    pub(crate) async fn run(self) -> Result<ExitCode> {
        let Self { databases, admin, logs } = self;
        let (mut served, several) = (Vec::new(), databases.len() > 1);
        for Database { name, address } in databases {
            let about = |failure: Failure| if several { failure.of_database(&name) } else { failure };
            let opened = address.open(Missing::Refuse).await.map_err(about)?;
            served.push(Served::new(name, opened.store, opened.place, None));
        }
        let bound = admin::bind(admin).await?;
        logs.start();
        let stop = Stop::on_signals(|| ())?;
        let stores = served.iter().map(|database| database.place.as_str()).collect::<Vec<_>>().join(", ");
        info!(store = output::printable(&stores), "serving");
        let serving = bound.map(|bound| bound.serve(served, stop.token.clone()));
        stop.token.cancelled().await;
        if let Some(serving) = serving {
            serving.close().await;
        }
        info!("stopped");
        Ok(ExitCode::Ok)
    }
}
