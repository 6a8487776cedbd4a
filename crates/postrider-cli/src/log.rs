//! What a long-running command says about itself: lines on stderr, so that stdout is for messages alone. Colour on a
//! terminal only. Nothing here, or in what it prints, holds a payload or a password.

use std::io::{self, IsTerminal as _};

use clap::ValueEnum;
use serde::Deserialize;
use tracing_subscriber::EnvFilter;

use crate::config::{Flags, LogConfig};
use crate::exit_code::ExitCode;
use crate::failure::{Failure, Result};
use crate::output;

const HEADING: &str = "Logs, on stderr";
const FILTER_HELP: &str = "error, warn, info or debug; by module: warn,postrider_relay=debug [env: RUST_LOG] [default: \
                           info, and warn for drain]";

/// How much is said, and in which form.
#[derive(Debug, clap::Args)]
pub(crate) struct LogOptions {
    #[arg(long = "log", value_name = "FILTER", help = FILTER_HELP, help_heading = HEADING)]
    filter: Option<String>,
    /// How a log line looks [default: pretty]
    #[arg(long = "log-format", value_enum, value_name = "FORMAT", help_heading = HEADING)]
    format: Option<Format>,
}

/// How a log line looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Format {
    Pretty,
    Json,
}

/// Logs that can be started.
pub(crate) struct Logs {
    filter: EnvFilter,
    format: Format,
}

impl LogOptions {
    /// What was given stands above the configuration.
    pub(crate) fn put(&self, flags: &mut Flags) {
        flags.set("--log", &["log", "level"], self.filter.as_deref());
        let word = |format| match format {
            Format::Pretty => "pretty",
            Format::Json => "json",
        };
        flags.set("--log-format", &["log", "format"], self.format.map(word));
    }
}

impl Logs {
    /// Reads the filter; `default` is for a configuration that has none.
    pub(crate) fn prepare(config: &LogConfig, default: &str) -> Result<Self> {
        let level = config.level.clone().filter(|level| !level.trim().is_empty());
        let filter = level.unwrap_or_else(|| default.to_owned());
        let filter = EnvFilter::try_new(&filter).map_err(|error| {
            Failure::usage(format!("the log filter {filter:?} is not usable: {error}"))
                .hint("give --log (or RUST_LOG) a level such as info, or module=level pairs with commas between them")
        })?;
        // The AMQP library writes whole messages to its log when they come back.
        let quiet = "lapin::returned_messages=off".parse().map_err(|error| {
            Failure::new(ExitCode::Failure, format!("a log filter of our own is not usable: {error}"))
        })?;
        Ok(Self { filter: filter.add_directive(quiet), format: config.format })
    }

    /// From here on, what is logged is written. Once in a process.
    pub(crate) fn start(self) {
        let terminal = io::stderr().is_terminal();
        let subscriber = tracing_subscriber::fmt()
            .with_env_filter(self.filter)
            .with_writer(io::stderr)
            .with_ansi(output::colour(terminal))
            .with_target(false)
            // Would be said on stderr, which is what has just failed.
            .log_internal_errors(false);
        // An error means that somebody logs already, which is as good.
        drop(match self.format {
            Format::Pretty => tracing::subscriber::set_global_default(subscriber.compact().finish()),
            Format::Json => tracing::subscriber::set_global_default(subscriber.json().flatten_event(true).finish()),
        });
    }
}
