//! Delivers what is in an outbox. A [`Relay`] takes messages from a store to sinks: it wakes when something is due,
//! claims a batch, hands it to a [`Sink`] with a deadline, and records what became of it, fenced by the lease. It runs
//! as a background task of an application or as the daemon `postrider run`, and as many at once as you like.
//!
//! ```no_run
//! # async fn example(store: std::sync::Arc<dyn postrider::Store>) -> Result<(), postrider_relay::Error> {
//! use postrider_relay::{Relay, SinkFailure, handler};
//! use tokio_util::sync::CancellationToken;
//!
//! let relay = Relay::builder(store)
//!     .sink("default", handler(|message| async move {
//!         println!("{} {}", message.topic, message.message_id);
//!         Ok::<(), SinkFailure>(())
//!     }))
//!     .build()?;
//! let shutdown = CancellationToken::new();
//! relay.run(shutdown).await?;
//! # Ok(()) }
//! ```

mod attempt;
mod batches;
mod breaker;
mod claim_recovery;
mod claimer;
mod clock;
mod completer;
mod dispatcher;
mod error;
#[cfg(test)]
mod fixtures;
mod handle;
mod isolation;
mod jitter;
mod keeper;
mod lease;
mod memory_budget;
mod options;
mod outage;
mod policy;
mod reaper;
mod relay;
mod reporter;
mod results;
mod scan_plan;
#[cfg(feature = "_network")]
mod secret;
pub mod sink;
mod sink_runtime;
mod slots;
mod stats;
mod store_client;
pub mod telemetry;
#[cfg(any(feature = "nats", feature = "redis"))]
mod tls;
pub mod trace;
mod wake;

pub use crate::breaker::BreakerOptions;
pub use crate::clock::{Clock, TokioClock};
pub use crate::error::Error;
pub use crate::handle::RelayHandle;
pub use crate::options::{RelayOptions, RetryOptions, SinkOptions};
pub use crate::outage::Outage;
pub use crate::policy::{CodeTable, FailureClass};
pub use crate::relay::{Relay, RelayBuilder};
#[cfg(feature = "_network")]
pub use crate::secret::{FromEnv, FromFile, Secret};
pub use crate::sink::checked::{Checked, checked};
#[cfg(feature = "_network")]
pub use crate::sink::destinations::Destinations;
pub use crate::sink::file::{FileOptions, FileSink, FileSync};
pub use crate::sink::handler::{Handler, JsonHandler, handler, json_handler};
#[cfg(feature = "http")]
pub use crate::sink::http::{BasicAuth, HttpBody, HttpOptions, HttpSink, Resolver, WebhookOptions};
#[cfg(feature = "kafka")]
pub use crate::sink::kafka::{KafkaAcks, KafkaCompression, KafkaKey, KafkaOptions, KafkaProperty, KafkaSink};
#[cfg(feature = "mqtt")]
pub use crate::sink::mqtt::{MqttOptions, MqttSink};
#[cfg(feature = "nats")]
pub use crate::sink::nats::{NatsOptions, NatsServers, NatsSink};
#[cfg(feature = "rabbitmq")]
pub use crate::sink::rabbitmq::{RabbitmqOptions, RabbitmqSink};
#[cfg(feature = "redis")]
pub use crate::sink::redis::{RedisOptions, RedisSink};
pub use crate::sink::registry::{BuildSink, SinkKind};
#[cfg(feature = "schema")]
pub use crate::sink::schema::Schemas;
pub use crate::sink::stdout::{NdjsonSink, StdoutOptions};
#[cfg(feature = "_network")]
pub use crate::sink::template::{Template, TemplateError};
pub use crate::sink::{Batching, Finding, Level, Receipt, Sink, SinkFailure, Verdict};
pub use crate::stats::{Counts, Stats};
