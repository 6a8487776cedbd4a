//! `postrider config`: shows the configuration that holds, with the source of each value, or says what is wrong with it.
//! Nothing is connected to, and no secret is shown.

use clap::Subcommand;

use super::deliver::Plan;
use crate::admin;
use crate::config::layers;
use crate::config::{Config, Flags, Layers, print};
use crate::exit_code::ExitCode;
use crate::failure::{Failure, Result};
use crate::format;
use crate::log::Logs;
use crate::options::Global;
use crate::output::Output;

const AFTER_HELP: &str = "\
Defaults, file, environment, command line: each overrides the one before.
POSTRIDER__SECTION__KEY sets any key; see docs/configuration.md for the other
variables.

Examples:
  postrider config print --config postrider.toml
  postrider config print --defaults > postrider.toml
  POSTRIDER__RELAY__LEASE=30s postrider config print --json
  postrider config check --config postrider.toml";

/// Print or check the configuration
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Print the effective configuration with the source of each value; secrets as ***
    Print {
        /// Print the defaults, with a comment for every key
        #[arg(long)]
        defaults: bool,
    },
    /// Report errors, without connecting to anything
    Check,
}

/// Everything that can be found out is known before the run.
pub(crate) enum Prepared {
    Text(String),
    Print(Box<Layers>),
    Checked { databases: u64, sinks: u64, routes: u64 },
}

impl Args {
    pub(crate) fn prepare(self, global: &Global) -> Result<Prepared> {
        if matches!(self.action, Action::Print { defaults: true }) {
            return Ok(Prepared::Text(layers::every_key()));
        }
        let layers = global.layers(Flags::default())?;
        let config = layers.config()?;
        match self.action {
            Action::Print { .. } => Ok(Prepared::Print(Box::new(layers))),
            Action::Check => check(global, &layers, &config),
        }
    }
}

/// What `run` would find wrong before it connects, all of it.
fn check(global: &Global, layers: &Layers, config: &Config) -> Result<Prepared> {
    let (mut wrong, mut hints) = (Vec::new(), Vec::new());
    let mut found = |result: Result<()>| match result {
        Err(Failure::Report(report)) => {
            wrong.push(report.message);
            hints.extend(report.hint.filter(|hint| !hints.contains(hint)));
        }
        Err(Failure::Silent(_)) | Ok(()) => {}
    };
    let databases = global.databases(layers);
    let count = databases.as_ref().map_or(0, Vec::len);
    found(databases.map(drop));
    found(Logs::prepare(&config.log, "info").map(drop));
    found(config.admin(layers).and_then(|config| admin::check(&config)));
    found(config.receive.read().map(drop));
    for (name, sink) in &config.sinks {
        found(sink.kind(name).and_then(|kind| kind.build(name)).map(drop));
    }
    if wrong.is_empty() {
        let plan = Plan::of(config, layers, &[])?;
        let [databases, sinks, routes] = [count, plan.sinks.len(), config.route_count()].map(|count| count as u64);
        return Ok(Prepared::Checked { databases, sinks, routes });
    }
    hints.push("see docs/configuration.md and docs/sinks".to_owned());
    Err(Failure::usage(wrong.join("; ")).hint(hints.join("; ")))
}

impl Prepared {
    pub(crate) fn run(self, output: &mut Output) -> Result<ExitCode> {
        match self {
            Self::Text(text) if output.json => output.json(&serde_json::json!({ "defaults": text }))?,
            Self::Text(text) => output.line(text.trim_end())?,
            Self::Print(layers) if output.json => output.json(&print::json(&layers)?)?,
            Self::Print(layers) => output.line(print::toml(&layers)?)?,
            Self::Checked { databases, sinks, routes } if output.json => output.json(
                &serde_json::json!({ "usable": true, "databases": databases, "sinks": sinks, "routes": routes }),
            )?,
            Self::Checked { databases, sinks, routes } => output.line(format!(
                "the configuration can be used: {}, {}, {}",
                format::counted(databases, "database"),
                format::counted(sinks, "sink"),
                format::counted(routes, "route")
            ))?,
        }
        Ok(ExitCode::Ok)
    }
}
