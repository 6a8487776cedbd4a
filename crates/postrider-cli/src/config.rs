//! The configuration file: sinks with their options, routes, schemas of payloads. Read and checked before anything is
//! connected to; what is wrong is told with the file and the key. It may name secrets and is never printed.

#[cfg_attr(not(test), expect(dead_code, reason = "the admin API reads it"))]
mod admin;

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::Duration;

use figment::Figment;
use figment::providers::{Format as _, Toml};
use postrider::{Backoff, Route};
use postrider_relay::{
    BreakerOptions, CodeTable, FailureClass, FileOptions, HttpOptions, MqttOptions, NatsOptions, RabbitmqOptions,
    RedisOptions, RetryOptions, SinkOptions,
};
use serde::Deserialize;
use uuid::Uuid;

use crate::failure::{Failure, Result};
use crate::sinks::Kind;

/// A configuration file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    /// Sinks by name.
    pub(crate) sinks: BTreeMap<String, SinkConfig>,
    /// Which new messages go to which sinks.
    pub(crate) routes: Vec<RouteConfig>,
    /// JSON Schemas by topic (`*` stands for any characters): files, beside the configuration unless they are absolute.
    pub(crate) schemas: BTreeMap<String, PathBuf>,
    #[serde(skip)]
    directory: PathBuf,
}

/// One sink: how the relay treats it, and in one table more what it is.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct SinkConfig {
    #[serde(with = "jiff::fmt::serde::unsigned_duration::friendly::compact::optional")]
    deadline: Option<Duration>,
    concurrency: Option<usize>,
    batch_size: Option<u32>,
    lane_run: Option<u32>,
    rate: Option<NonZeroU32>,
    tenant_id: Option<Uuid>,
    retry: RetryConfig,
    breaker: BreakerConfig,
    codes: CodesConfig,
    stdout: Option<Stdout>,
    file: Option<FileOptions>,
    http: Option<HttpOptions>,
    #[cfg(feature = "kafka")]
    kafka: Option<postrider_relay::KafkaOptions>,
    #[cfg(not(feature = "kafka"))]
    kafka: Option<serde::de::IgnoredAny>,
    mqtt: Option<MqttOptions>,
    nats: Option<NatsOptions>,
    rabbitmq: Option<RabbitmqOptions>,
    redis: Option<RedisOptions>,
}

/// A sink on stdout has no options.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stdout {}

/// When and how often to try again.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RetryConfig {
    max_attempts: Option<u32>,
    #[serde(with = "jiff::fmt::serde::unsigned_duration::friendly::compact::optional")]
    base: Option<Duration>,
    #[serde(with = "jiff::fmt::serde::unsigned_duration::friendly::compact::optional")]
    max: Option<Duration>,
    #[serde(with = "jiff::fmt::serde::unsigned_duration::friendly::compact::optional")]
    retry_after_max: Option<Duration>,
}

/// When to leave a sink alone.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct BreakerConfig {
    failures: Option<u32>,
    #[serde(with = "jiff::fmt::serde::unsigned_duration::friendly::compact::optional")]
    cool_down: Option<Duration>,
    #[serde(with = "jiff::fmt::serde::unsigned_duration::friendly::compact::optional")]
    cool_down_max: Option<Duration>,
}

/// What codes mean here, whatever the sink says.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct CodesConfig {
    terminal: Vec<String>,
    retryable: Vec<String>,
}

/// Messages of a topic, to one or several sinks.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RouteConfig {
    topic: String,
    #[serde(default = "any")]
    namespace: String,
    sinks: Vec<String>,
}

fn any() -> String {
    "*".to_owned()
}

/// What was given on the command line stands above the file.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Overrides {
    pub(crate) deadline: Option<Duration>,
    pub(crate) max_attempts: Option<u32>,
    pub(crate) batch_size: Option<u32>,
    pub(crate) concurrency: Option<usize>,
    pub(crate) rate: Option<NonZeroU32>,
}

impl Config {
    /// Reads a file.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let wrong = |reason: String| {
            Failure::usage(format!("the configuration {} cannot be used: {reason}", path.display()))
                .hint("see docs/sinks for what may stand there")
        };
        if !path.is_file() {
            return Err(wrong("there is no such file".to_owned()));
        }
        let mut config: Self =
            Figment::from(Toml::file_exact(path)).extract().map_err(|error| wrong(explain(&error)))?;
        config.directory = path.parent().map(Path::to_owned).unwrap_or_default();
        for route in &config.routes {
            let unknown = route.sinks.iter().find(|sink| !config.sinks.contains_key(*sink));
            if let Some(unknown) = unknown {
                let known = config.sinks.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
                return Err(wrong(format!(
                    "the route of topic {:?} leads to the sink {unknown:?}, and there are only: {known}",
                    route.topic
                )));
            }
        }
        Ok(config)
    }

    /// The routes, one for each sink.
    pub(crate) fn routes(&self) -> impl Iterator<Item = Route> + '_ {
        self.routes.iter().flat_map(|route| {
            let to = |sink: &String| Route::new(&route.topic, sink).namespace(&route.namespace);
            route.sinks.iter().map(to)
        })
    }

    /// The files of the schemas, by topic.
    pub(crate) fn schema_files(&self) -> impl Iterator<Item = (&str, PathBuf)> {
        self.schemas.iter().map(|(topic, file)| (topic.as_str(), self.directory.join(file)))
    }
}

impl SinkConfig {
    /// How the relay treats it.
    pub(crate) fn options(&self, over: Overrides) -> SinkOptions {
        let defaults = SinkOptions::default();
        let Backoff { base, max } = defaults.retry.backoff;
        let breaker = defaults.breaker;
        SinkOptions {
            batch_size: over.batch_size.or(self.batch_size).unwrap_or(defaults.batch_size),
            lane_run: self.lane_run.unwrap_or(defaults.lane_run),
            concurrency: over.concurrency.or(self.concurrency).unwrap_or(defaults.concurrency),
            deadline: over.deadline.or(self.deadline).unwrap_or(defaults.deadline),
            retry: RetryOptions {
                backoff: Backoff { base: self.retry.base.unwrap_or(base), max: self.retry.max.unwrap_or(max) },
                max_attempts: over.max_attempts.or(self.retry.max_attempts).unwrap_or(defaults.retry.max_attempts),
                retry_after_max: self.retry.retry_after_max.unwrap_or(defaults.retry.retry_after_max),
            },
            codes: self.codes(),
            breaker: BreakerOptions {
                failures: self.breaker.failures.unwrap_or(breaker.failures),
                cool_down: self.breaker.cool_down.unwrap_or(breaker.cool_down),
                cool_down_max: self.breaker.cool_down_max.unwrap_or(breaker.cool_down_max),
            },
            rate: over.rate.or(self.rate),
            tenant_id: self.tenant_id,
        }
    }

    fn codes(&self) -> CodeTable {
        let terminal = self.codes.terminal.iter().map(|code| (code, FailureClass::Terminal));
        let retryable = self.codes.retryable.iter().map(|code| (code, FailureClass::Retryable));
        terminal.chain(retryable).fold(CodeTable::default(), |table, (code, class)| table.with(code, class))
    }

    /// What it is: exactly one table says so.
    pub(crate) fn kind(&self, name: &str) -> Result<Kind> {
        let mut kinds = Vec::new();
        kinds.extend(self.stdout.map(|Stdout {}| Kind::Stdout));
        kinds.extend(self.file.clone().map(Kind::File));
        kinds.extend(self.http.clone().map(|options| Kind::Http(Box::new(options))));
        #[cfg(feature = "kafka")]
        kinds.extend(self.kafka.clone().map(|options| Kind::Kafka(Box::new(options))));
        #[cfg(not(feature = "kafka"))]
        if self.kafka.is_some() {
            return Err(Failure::usage(format!("sink {name:?}: this postrider was built without Kafka")).hint(
                "build it with `cargo build --release -p postrider-cli --features kafka`, or kafka-tls for TLS",
            ));
        }
        kinds.extend(self.mqtt.clone().map(|options| Kind::Mqtt(Box::new(options))));
        kinds.extend(self.nats.clone().map(|options| Kind::Nats(Box::new(options))));
        kinds.extend(self.rabbitmq.clone().map(|options| Kind::Rabbitmq(Box::new(options))));
        kinds.extend(self.redis.clone().map(|options| Kind::Redis(Box::new(options))));
        let twice = self.codes.terminal.iter().find(|code| self.codes.retryable.contains(code));
        if let Some(code) = twice {
            return Err(Failure::usage(format!("sink {name:?}: the code {code:?} is both terminal and retryable")));
        }
        match (kinds.pop(), kinds.pop()) {
            (Some(kind), None) => Ok(kind),
            (one, _) => {
                let count = if one.is_none() { "no table says" } else { "two tables say" };
                let known = Kind::NAMES.join("], [sinks.NAME.");
                Err(Failure::usage(format!("sink {name:?}: {count} what it is"))
                    .hint(format!("give it exactly one of [sinks.NAME.{known}]")))
            }
        }
    }
}

/// A fault of the file's syntax is told with the line it is in, which may hold a secret: where and why are enough.
fn without_source(words: &str) -> String {
    match (words.lines().next(), words.trim_end().lines().last()) {
        (Some(place), Some(reason)) if words.starts_with("TOML parse error") => format!("{place}: {reason}"),
        _ => words.to_owned(),
    }
}

/// Each fault with its key.
fn explain(error: &figment::Error) -> String {
    let faults = error.clone().into_iter().map(|fault| {
        let path = fault.path.join(".");
        let words = without_source(&fault.kind.to_string());
        if path.is_empty() { words } else { format!("{path}: {words}") }
    });
    faults.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Config> {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("postrider.toml");
        std::fs::write(&file, text).expect("written");
        Config::read(&file)
    }

    fn words<T>(result: Result<T>) -> String {
        match result {
            Err(Failure::Report(report)) => report.message,
            _ => String::new(),
        }
    }

    #[test]
    fn a_sink_is_read_with_all_its_options() {
        let config = read(
            "[sinks.archive]\ndeadline = \"10s\"\nconcurrency = 2\nrate = 5\n[sinks.archive.retry]\nmax_attempts = 3\n\
             base = \"2s\"\n[sinks.archive.codes]\nterminal = [\"WRITE\"]\n[sinks.archive.file]\npath = \"out.ndjson\"\n\
             [[routes]]\ntopic = \"order.*\"\nsinks = [\"archive\"]\n",
        )
        .unwrap_or_else(|failure| panic!("{failure:?}"));
        let sink = &config.sinks["archive"];
        let options = sink.options(Overrides { concurrency: Some(7), ..Overrides::default() });
        assert_eq!((options.deadline, options.concurrency), (Duration::from_secs(10), 7), "the command line is above");
        assert_eq!((options.retry.max_attempts, options.retry.backoff.base), (3, Duration::from_secs(2)));
        assert_eq!(options.codes, CodeTable::default().with("WRITE", FailureClass::Terminal));
        assert_eq!(config.routes().collect::<Vec<_>>(), [Route::new("order.*", "archive")]);
        assert_eq!(SinkConfig::default().options(Overrides::default()), SinkOptions::default());
    }

    #[test]
    fn what_is_wrong_is_told_with_its_key() {
        for (text, said) in [
            ("[sinks.a]\ndeadlin = \"1s\"\n", "deadlin"),
            ("[sinks.a]\ndeadline = \"soon\"\n", "sinks.a.deadline"),
            ("[sinks.a.file]\n", "path"),
            ("[sink.a]\n", "unknown field"),
            ("nonsense", "TOML parse error at line 1, column 9: "),
            ("[[routes]]\ntopic = \"a\"\nsinks = [\"b\"]\n", "leads to the sink \"b\""),
        ] {
            let message = words(read(text));
            assert!(message.contains(said) && message.contains("postrider.toml"), "{text}: {message}");
        }
        let secret = words(read("[sinks.a.http]\nurl = \"https://h/{topic}\"\nbearer = \"hunter2\n"));
        assert!(secret.contains("line 3") && !secret.contains("hunter2"), "{secret}");
        let secret = words(read("[sinks.a.http]\nurl = \"https://user:hunter2@h/{topci}\"\n"));
        assert!(secret.contains("{topci}") && !secret.contains("hunter2"), "{secret}");
    }

    #[test]
    fn a_sink_is_one_thing() {
        for (text, said) in [
            ("[sinks.a]\n", "no table says what it is"),
            ("[sinks.a.stdout]\n[sinks.a.file]\npath = \"x\"\n", "two tables say what it is"),
            (
                "[sinks.a.stdout]\n[sinks.a.codes]\nterminal = [\"X\"]\nretryable = [\"X\"]\n",
                "both terminal and retryable",
            ),
        ] {
            let config = read(text).unwrap_or_else(|failure| panic!("{failure:?}"));
            let message = words(config.sinks["a"].kind("a"));
            assert!(message.contains(said), "{text}: {message}");
        }
    }

    #[cfg(not(feature = "kafka"))]
    #[test]
    fn a_build_without_kafka_says_how_to_get_one_with_it() {
        let config = read("[sinks.a.kafka]\nbrokers = \"b\"\n").unwrap_or_else(|failure| panic!("{failure:?}"));
        assert!(words(config.sinks["a"].kind("a")).contains("built without Kafka"));
    }

    /// Every page on sinks has a configuration that works as pasted.
    #[cfg(feature = "kafka")]
    #[test]
    fn the_configurations_of_the_pages_are_accepted() {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
        let mut pages: Vec<PathBuf> = std::fs::read_dir(docs.join("sinks"))
            .expect("docs/sinks")
            .map(|page| page.expect("a page").path())
            .collect();
        pages.push(docs.join("configuration.md"));
        let mut sinks = 0;
        for page in &pages {
            let text = std::fs::read_to_string(page).expect("a page");
            for block in text.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()) {
                let config = read(block).unwrap_or_else(|failure| panic!("{}: {failure:?}\n{block}", page.display()));
                for (name, sink) in &config.sinks {
                    let kind = sink.kind(name);
                    assert!(kind.is_ok(), "{}: {:?}\n{block}", page.display(), kind.err());
                    sinks += 1;
                }
            }
        }
        assert!(sinks >= Kind::NAMES.len(), "only {sinks} sinks are shown");
    }
}
