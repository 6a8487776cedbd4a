//! What a long-running command says about itself: lines on stderr, so that stdout is for messages alone. Colour on a
//! terminal only. Nothing here, or in what it prints, holds a payload or a password.

use std::io::{self, IsTerminal as _};

use clap::ValueEnum;
use tracing_subscriber::EnvFilter;

use crate::exit_code::ExitCode;
use crate::failure::{Failure, Result};
use crate::output;

const HEADING: &str = "Logs, on stderr";
const FILTER_HELP: &str = "error, warn, info or debug; by module: warn,postrider_relay=debug [default: info, and warn \
                           for drain]";

/// How much is said, and in which form.
#[derive(Debug, clap::Args)]
pub(crate) struct LogOptions {
    #[arg(long = "log", env = "RUST_LOG", hide_env_values = true, value_name = "FILTER", help_heading = HEADING)]
    #[arg(help = FILTER_HELP)]
    filter: Option<String>,
    /// How a log line looks
    #[arg(long = "log-format", value_enum, value_name = "FORMAT", default_value = "pretty", help_heading = HEADING)]
    format: Format,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    Pretty,
    Json,
}

/// Logs that can be started.
pub(crate) struct Logs {
    filter: EnvFilter,
    format: Format,
}

impl LogOptions {
    pub(crate) fn prepare(self, default: &str) -> Result<Logs> {
        let filter = self.filter.filter(|filter| !filter.trim().is_empty()).unwrap_or_else(|| default.to_owned());
        let filter = EnvFilter::try_new(&filter).map_err(|error| {
            Failure::usage(format!("the log filter {filter:?} is not usable: {error}"))
                .hint("give --log (or RUST_LOG) a level such as info, or module=level pairs with commas between them")
        })?;
        // The AMQP library writes whole messages to its log when they come back.
        let quiet = "lapin::returned_messages=off".parse().map_err(|error| {
            Failure::new(ExitCode::Failure, format!("a log filter of our own is not usable: {error}"))
        })?;
        Ok(Logs { filter: filter.add_directive(quiet), format: self.format })
    }
}

impl Logs {
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
