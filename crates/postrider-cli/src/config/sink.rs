//! One sink as it is written: how the relay treats it, and in one table more what it is. What it leaves out was filled in
//! from `[sink_defaults]` before it comes here; what a sink is made of is the relay crate's.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use postrider_relay::sink::registry::{BuildSink, SinkKind};
use postrider_relay::{Backoff, BreakerOptions, CodeTable, FailureClass, RetryOptions, Sink, SinkOptions};
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, DeserializeSeed, IntoDeserializer as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::failure::{Failure, Result};

/// One sink. `[sink_defaults]` has the same keys, and must not say what a sink is.
#[derive(Debug, Clone)]
pub(crate) struct SinkConfig {
    treatment: Treatment,
    /// The tables that say what it is.
    kinds: Kinds,
}

/// Kinds of sinks with their options; without them if this build leaves the kind out.
type Kinds = Vec<(&'static SinkKind, Option<Arc<dyn BuildSink>>)>;

/// What a sink is, with its options.
#[derive(Debug, Clone)]
pub(crate) struct Configured {
    pub(crate) kind: &'static str,
    options: Arc<dyn BuildSink>,
}

/// How the relay treats a sink.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Treatment {
    #[serde(with = "jiff::fmt::serde::unsigned_duration::friendly::compact::required")]
    deadline: Duration,
    batch_size: u32,
    lane_run: u32,
    concurrency: usize,
    rate: Option<NonZeroU32>,
    tenant_id: Option<String>,
    databases: Option<Vec<String>>,
    retry: RetryConfig,
    breaker: BreakerConfig,
    #[serde(default)]
    codes: CodesConfig,
}

impl<'de> Deserialize<'de> for SinkConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct Table;
        impl<'de> Visitor<'de> for Table {
            type Value = SinkConfig;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a table")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> std::result::Result<SinkConfig, A::Error> {
                let mut kinds = Vec::new();
                let rest = MapAccessDeserializer::new(WithoutKinds { map, kinds: &mut kinds });
                Ok(SinkConfig { treatment: Treatment::deserialize(rest)?, kinds })
            }
        }
        deserializer.deserialize_map(Table)
    }
}

/// A table without the keys that are kinds of sinks: those are read here, by the kind itself.
struct WithoutKinds<'a, A> {
    map: A,
    kinds: &'a mut Kinds,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for WithoutKinds<'_, A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> std::result::Result<Option<K::Value>, A::Error> {
        let mut seed = Some(seed);
        while let Some(key) = self.map.next_key_seed(KindOr(&mut seed))? {
            match key {
                Ok(key) => return Ok(Some(key)),
                Err(kind) => self.kinds.push((kind, self.map.next_value_seed(kind)?)),
            }
        }
        Ok(None)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> std::result::Result<V::Value, A::Error> {
        self.map.next_value_seed(seed)
    }
}

/// Reads a key: a kind of sink, or what `K` makes of it.
struct KindOr<'a, K>(&'a mut Option<K>);

impl<'de, K: DeserializeSeed<'de>> DeserializeSeed<'de> for KindOr<'_, K> {
    type Value = std::result::Result<K::Value, &'static SinkKind>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> std::result::Result<Self::Value, D::Error> {
        let key = String::deserialize(deserializer)?;
        match (SinkKind::find(&key), self.0.take()) {
            (None, Some(seed)) => seed.deserialize(key.into_deserializer()).map(Ok),
            (Some(kind), seed) => {
                *self.0 = seed;
                Ok(Err(kind))
            }
            (None, None) => Err(de::Error::custom("a key was read twice")),
        }
    }
}

/// When and how often to try again.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RetryConfig {
    max_attempts: u32,
    #[serde(with = "jiff::fmt::serde::unsigned_duration::friendly::compact::required")]
    base: Duration,
    #[serde(with = "jiff::fmt::serde::unsigned_duration::friendly::compact::required")]
    max: Duration,
    #[serde(with = "jiff::fmt::serde::unsigned_duration::friendly::compact::required")]
    retry_after_max: Duration,
}

/// When to leave a sink alone.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BreakerConfig {
    failures: u32,
    #[serde(with = "jiff::fmt::serde::unsigned_duration::friendly::compact::required")]
    cool_down: Duration,
    #[serde(with = "jiff::fmt::serde::unsigned_duration::friendly::compact::required")]
    cool_down_max: Duration,
}

/// What codes mean here, whatever the sink says.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct CodesConfig {
    terminal: Vec<String>,
    retryable: Vec<String>,
}

impl SinkConfig {
    /// How the relay treats it.
    pub(crate) fn options(&self) -> SinkOptions {
        let RetryConfig { max_attempts, base, max, retry_after_max } = self.treatment.retry;
        let BreakerConfig { failures, cool_down, cool_down_max } = self.treatment.breaker;
        SinkOptions::default()
            .batch_size(self.treatment.batch_size)
            .lane_run(self.treatment.lane_run)
            .concurrency(self.treatment.concurrency)
            .deadline(self.treatment.deadline)
            .retry(
                RetryOptions::default()
                    .backoff(Backoff::new(base, max))
                    .max_attempts(max_attempts)
                    .retry_after_max(retry_after_max),
            )
            .codes(self.codes())
            .breaker(BreakerOptions::default().failures(failures).cool_down(cool_down).cool_down_max(cool_down_max))
            .rate(self.treatment.rate)
            .tenant_id(self.treatment.tenant_id.clone())
    }

    fn codes(&self) -> CodeTable {
        let terminal = self.treatment.codes.terminal.iter().map(|code| (code, FailureClass::Terminal));
        let retryable = self.treatment.codes.retryable.iter().map(|code| (code, FailureClass::Retryable));
        terminal.chain(retryable).fold(CodeTable::default(), |table, (code, class)| table.with(code, class))
    }

    /// The databases it is for; `None`: all of them.
    pub(crate) fn databases(&self) -> Option<&[String]> {
        self.treatment.databases.as_deref()
    }

    /// What it is: exactly one table says so.
    pub(crate) fn kind(&self, name: &str) -> Result<Configured> {
        let codes = &self.treatment.codes;
        if let Some(code) = codes.terminal.iter().find(|code| codes.retryable.contains(code)) {
            return Err(Failure::usage(format!("sink {name:?}: the code {code:?} is both terminal and retryable")));
        }
        match self.kinds.as_slice() {
            [(kind, Some(options))] => Ok(Configured { kind: kind.name, options: Arc::clone(options) }),
            [(SinkKind { name: kind, feature, .. }, None)] => {
                let feature = feature.unwrap_or(kind);
                Err(Failure::usage(format!("sink {name:?}: this postrider was built without {kind} sinks"))
                    .hint(format!("build it with `cargo build --release -p postrider-cli --features {feature}`")))
            }
            several => {
                let count = if several.is_empty() { "no table says" } else { "two tables say" };
                let known: Vec<&str> = SinkKind::ALL.iter().map(|kind| kind.name).collect();
                Err(Failure::usage(format!("sink {name:?}: {count} what it is"))
                    .hint(format!("give it exactly one of [sinks.NAME.{}]", known.join("], [sinks.NAME."))))
            }
        }
    }

    /// Whether a table says what it is.
    pub(crate) fn has_kind(&self) -> bool {
        !self.kinds.is_empty()
    }
}

impl Configured {
    /// Makes the sink `name`. Checks what can be checked without the network: a server may be down.
    pub(crate) fn build(&self, name: &str) -> Result<Arc<dyn Sink>> {
        self.options.build().map_err(|error| {
            Failure::usage(format!("the sink {name:?} cannot be used: {error}"))
                .hint("see docs/sinks for what may stand in its table")
        })
    }
}
