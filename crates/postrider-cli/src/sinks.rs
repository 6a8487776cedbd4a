//! Makes sinks out of their configuration. What a sink is and does is the relay crate's; here is only the list of what
//! this build knows.

use std::sync::Arc;

use postrider_relay::{
    FileOptions, FileSink, HttpOptions, HttpSink, MqttOptions, MqttSink, NatsOptions, NatsSink, NdjsonSink,
    RabbitmqOptions, RabbitmqSink, RedisOptions, RedisSink, Schemas, Sink,
};
use tokio_util::sync::CancellationToken;

use crate::config::{Config, Layers};
use crate::exit_code::ExitCode;
use crate::failure::{Failure, Result};

/// What a sink is.
#[derive(Debug, Clone)]
pub(crate) enum Kind {
    Stdout,
    File(FileOptions),
    Http(Box<HttpOptions>),
    #[cfg(feature = "kafka")]
    Kafka(Box<postrider_relay::KafkaOptions>),
    Mqtt(Box<MqttOptions>),
    Nats(Box<NatsOptions>),
    Rabbitmq(Box<RabbitmqOptions>),
    Redis(Box<RedisOptions>),
}

impl Kind {
    /// As they are called in a configuration.
    pub(crate) const NAMES: [&str; 8] = ["stdout", "file", "http", "kafka", "mqtt", "nats", "rabbitmq", "redis"];

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::File(_) => "file",
            Self::Http(_) => "http",
            #[cfg(feature = "kafka")]
            Self::Kafka(_) => "kafka",
            Self::Mqtt(_) => "mqtt",
            Self::Nats(_) => "nats",
            Self::Rabbitmq(_) => "rabbitmq",
            Self::Redis(_) => "redis",
        }
    }
}

/// Makes sinks; all that go to stdout share one, so that their lines do not mix.
#[derive(Default)]
pub(crate) struct Maker {
    stdout: Option<Arc<NdjsonSink>>,
}

impl Maker {
    /// Checks what can be checked without the network: a server may be away.
    pub(crate) fn make(&mut self, name: &str, kind: Kind) -> Result<Arc<dyn Sink>> {
        let wrong = |error: postrider_relay::Error| {
            Failure::usage(format!("the sink {name:?} cannot be used: {error}"))
                .hint("see docs/sinks for what may stand in its table")
        };
        Ok(match kind {
            Kind::Stdout => self.stdout()?,
            Kind::File(options) => Arc::new(FileSink::new(options)),
            Kind::Http(options) => Arc::new(HttpSink::new(*options).map_err(wrong)?),
            #[cfg(feature = "kafka")]
            Kind::Kafka(options) => Arc::new(postrider_relay::KafkaSink::new(*options).map_err(wrong)?),
            Kind::Mqtt(options) => Arc::new(MqttSink::new(*options).map_err(wrong)?),
            Kind::Nats(options) => Arc::new(NatsSink::new(*options).map_err(wrong)?),
            Kind::Rabbitmq(options) => Arc::new(RabbitmqSink::new(*options).map_err(wrong)?),
            Kind::Redis(options) => Arc::new(RedisSink::new(*options).map_err(wrong)?),
        })
    }

    fn stdout(&mut self) -> Result<Arc<NdjsonSink>> {
        if let Some(stdout) = &self.stdout {
            return Ok(Arc::clone(stdout));
        }
        let stdout = NdjsonSink::stdout()
            .map_err(|error| Failure::new(ExitCode::Failure, format!("cannot write to stdout: {error}")))?;
        Ok(Arc::clone(self.stdout.insert(Arc::new(stdout))))
    }

    /// Fires when nobody reads stdout any more; `None` if no sink goes there.
    pub(crate) fn closed(&self) -> Option<CancellationToken> {
        self.stdout.as_ref().map(|stdout| stdout.closed())
    }
}

/// Reads the schemas that a configuration names.
pub(crate) fn schemas(config: &Config, layers: &Layers) -> Result<Schemas> {
    let mut schemas = Schemas::default();
    for (topic, file) in config.schema_files(layers) {
        let wrong = |reason: String| {
            let file = file.display();
            Failure::usage(format!("the schema {file} for topic {topic:?} cannot be used: {reason}"))
        };
        let text = std::fs::read(&file).map_err(|error| wrong(error.to_string()))?;
        let schema = serde_json::from_slice(&text).map_err(|error| wrong(format!("it is not JSON: {error}")))?;
        schemas = schemas.with(topic, &schema).map_err(|error| wrong(error.to_string()))?;
    }
    Ok(schemas)
}
