//! One sink as it is written: how the relay treats it, and in one table more what it is. What it leaves out was filled in
//! from `[sink_defaults]` before it comes here; what a sink is made of is the relay crate's.

use std::num::NonZeroU32;
use std::time::Duration;

use postrider::Backoff;
use postrider_relay::{
    BreakerOptions, CodeTable, FailureClass, FileOptions, HttpOptions, MqttOptions, NatsOptions, RabbitmqOptions,
    RedisOptions, RetryOptions, SinkOptions,
};
use serde::Deserialize;
use uuid::Uuid;

use crate::failure::{Failure, Result};
use crate::sinks::Kind;

/// One sink. `[sink_defaults]` has the same keys, and must not say what a sink is.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SinkConfig {
    #[serde(with = "jiff::fmt::serde::unsigned_duration::friendly::compact::required")]
    deadline: Duration,
    batch_size: u32,
    lane_run: u32,
    concurrency: usize,
    rate: Option<NonZeroU32>,
    tenant_id: Option<Uuid>,
    databases: Option<Vec<String>>,
    retry: RetryConfig,
    breaker: BreakerConfig,
    #[serde(default)]
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
pub(crate) struct Stdout {}

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
        let RetryConfig { max_attempts, base, max, retry_after_max } = self.retry;
        let BreakerConfig { failures, cool_down, cool_down_max } = self.breaker;
        SinkOptions {
            batch_size: self.batch_size,
            lane_run: self.lane_run,
            concurrency: self.concurrency,
            deadline: self.deadline,
            retry: RetryOptions { backoff: Backoff { base, max }, max_attempts, retry_after_max },
            codes: self.codes(),
            breaker: BreakerOptions { failures, cool_down, cool_down_max },
            rate: self.rate,
            tenant_id: self.tenant_id,
        }
    }

    fn codes(&self) -> CodeTable {
        let terminal = self.codes.terminal.iter().map(|code| (code, FailureClass::Terminal));
        let retryable = self.codes.retryable.iter().map(|code| (code, FailureClass::Retryable));
        terminal.chain(retryable).fold(CodeTable::default(), |table, (code, class)| table.with(code, class))
    }

    /// The databases it is for; `None`: all of them.
    pub(crate) fn databases(&self) -> Option<&[String]> {
        self.databases.as_deref()
    }

    /// What it is: exactly one table says so.
    pub(crate) fn kind(&self, name: &str) -> Result<Kind> {
        let twice = self.codes.terminal.iter().find(|code| self.codes.retryable.contains(code));
        if let Some(code) = twice {
            return Err(Failure::usage(format!("sink {name:?}: the code {code:?} is both terminal and retryable")));
        }
        #[cfg(not(feature = "kafka"))]
        if self.kafka.is_some() {
            return Err(Failure::usage(format!("sink {name:?}: this postrider was built without Kafka")).hint(
                "build it with `cargo build --release -p postrider-cli --features kafka`, or kafka-tls for TLS",
            ));
        }
        let mut kinds = self.kinds();
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

    /// Whatever says what it is.
    pub(crate) fn kinds(&self) -> Vec<Kind> {
        let mut kinds = Vec::new();
        kinds.extend(self.stdout.map(|Stdout {}| Kind::Stdout));
        kinds.extend(self.file.clone().map(Kind::File));
        kinds.extend(self.http.clone().map(|options| Kind::Http(Box::new(options))));
        #[cfg(feature = "kafka")]
        kinds.extend(self.kafka.clone().map(|options| Kind::Kafka(Box::new(options))));
        kinds.extend(self.mqtt.clone().map(|options| Kind::Mqtt(Box::new(options))));
        kinds.extend(self.nats.clone().map(|options| Kind::Nats(Box::new(options))));
        kinds.extend(self.rabbitmq.clone().map(|options| Kind::Rabbitmq(Box::new(options))));
        kinds.extend(self.redis.clone().map(|options| Kind::Redis(Box::new(options))));
        kinds
    }
}
