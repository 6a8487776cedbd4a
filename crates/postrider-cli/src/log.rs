//! What a long-running command says about itself: lines on stderr, so that stdout is for messages alone. Colour on a
//! terminal only. Nothing here, or in what it prints, holds a payload or a password.

use std::io::{self, IsTerminal as _};

use clap::ValueEnum;
use serde::Deserialize;
use tracing::Subscriber;
use tracing_subscriber::filter::{FilterExt as _, LevelFilter, Targets};
use tracing_subscriber::fmt::{self, MakeWriter};
use tracing_subscriber::layer::{Layer, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{EnvFilter, registry};

use crate::config::{Flags, LogConfig};
use crate::exit_code::ExitCode;
use crate::failure::{Failure, Result};
use crate::{output, traces};

const HEADING: &str = "Logs, on stderr";
const FILTER_HELP: &str = "error, warn, info or debug; by module: warn,postrider_relay=debug [env: RUST_LOG] [default: \
                           info, and warn for drain]";

/// The AMQP library writes whole messages to its log when they come back, and the NATS library, below `info`, the URL that it
/// connects to with the password in it.
const SILENCED: [&str; 2] = ["lapin::returned_messages=off", "async_nats=info"];

/// How much is said, and in which form.
#[derive(Debug, clap::Args)]
pub(crate) struct LogOptions {
    #[arg(long = "log", value_name = "FILTER", help = FILTER_HELP, help_heading = HEADING)]
    filter: Option<String>,
    /// Format of log lines [default: pretty]
    #[arg(long = "log-format", value_enum, value_name = "FORMAT", help_heading = HEADING)]
    format: Option<Format>,
}

/// Format of log lines.
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
        let filter = SILENCED.iter().try_fold(filter, |filter, silenced| {
            let silenced = silenced.parse().map_err(|error| {
                Failure::new(ExitCode::Failure, format!("a log filter of our own is not usable: {error}"))
            })?;
            Ok::<_, Failure>(filter.add_directive(silenced))
        })?;
        Ok(Self { filter, format: config.format })
    }

    /// From here on, what is logged is written, and traced if traces were started before. Once in a process.
    pub(crate) fn start(self) {
        let terminal = io::stderr().is_terminal();
        let lines = self.lines(io::stderr, output::colour(terminal));
        // An error means that somebody logs already, which is as good.
        drop(tracing::subscriber::set_global_default(registry().with(lines).with(traces::layer())));
        traces::warn_if_left_out();
    }

    /// The lines of the log. Libraries write whole frames to their own at the levels below `INFO`, with keys and
    /// payloads, so those are ours alone, whatever the filter says.
    fn lines<S, W>(self, writer: W, colour: bool) -> Box<dyn Layer<S> + Send + Sync>
    where
        S: Subscriber + for<'span> LookupSpan<'span>,
        W: for<'line> MakeWriter<'line> + Send + Sync + 'static,
    {
        let discreet = Targets::new().with_default(LevelFilter::INFO).with_target("postrider", LevelFilter::TRACE);
        let layer = fmt::layer()
            .with_writer(writer)
            .with_ansi(colour)
            .with_target(false)
            // Would be said on stderr, which is what has just failed.
            .log_internal_errors(false);
        match self.format {
            Format::Pretty => layer.compact().with_filter(self.filter.and(discreet)).boxed(),
            Format::Json => layer.json().flatten_event(true).with_filter(self.filter.and(discreet)).boxed(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use tracing::{debug, info};

    use super::*;

    #[derive(Clone, Default)]
    struct Page(Arc<Mutex<Vec<u8>>>);

    impl Write for Page {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// What stands in a log of these options after one line of ours and one of a library, each at two levels.
    fn written(filter: &str, format: Format) -> String {
        let page = Page::default();
        let writer = page.clone();
        let config = LogConfig { level: Some(filter.to_owned()), format };
        let logs = Logs::prepare(&config, "info").unwrap();
        let subscriber = registry().with(logs.lines(move || writer.clone(), false));
        tracing::subscriber::with_default(subscriber, || {
            debug!(target: "postrider_relay::claimer", "ours in detail");
            info!(target: "postrider", sink = "s", "ours");
            debug!(target: "lapin::channel", frame = "with the payload", "theirs in detail");
            info!(target: "lapin::channel", "theirs");
            tracing::error!(target: "lapin::returned_messages", "the whole message");
        });
        let bytes = page.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn what_libraries_say_in_detail_is_never_written() {
        for filter in
            ["trace", "debug", "lapin=trace,postrider_relay=debug,postrider=info", "lapin::channel=debug,debug"]
        {
            for format in [Format::Pretty, Format::Json] {
                let log = written(filter, format);
                assert!(log.contains("ours in detail") && log.contains("theirs"), "{filter}: {log}");
                assert!(!log.contains("payload") && !log.contains("the whole message"), "{filter}: {log}");
            }
        }
    }

    #[test]
    fn a_line_of_json_is_one_flat_document() {
        let log = written("postrider=info", Format::Json);
        let line: serde_json::Value = serde_json::from_str(log.trim_end()).unwrap();
        assert_eq!(
            (line["level"].as_str(), line["message"].as_str(), line["sink"].as_str()),
            (Some("INFO"), Some("ours"), Some("s"))
        );
        assert!(line["timestamp"].is_string());
    }
}
