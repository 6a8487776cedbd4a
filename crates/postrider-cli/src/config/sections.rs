//! The sections of a configuration that are no sinks: how the relay works, the databases, the log, routes. Only their shape:
//! where values come from is `layers.rs`, and the rules between them are the relay crate's.

use std::path::PathBuf;
use std::time::Duration;

use postrider::Schema;
use postrider_relay::RelayOptions;
use postrider_relay::secret::Secret;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _, Unexpected, Visitor};
use uuid::Uuid;

use crate::format;
use crate::log::Format;
use crate::operator;

/// `[relay]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RelayConfig {
    #[serde(with = "jiff::fmt::serde::unsigned_duration::friendly::compact::required")]
    pub(crate) lease: Duration,
    #[serde(with = "jiff::fmt::serde::unsigned_duration::friendly::compact::required")]
    pub(crate) poll: Duration,
    #[serde(default, with = "jiff::fmt::serde::unsigned_duration::friendly::compact::optional")]
    pub(crate) reap_every: Option<Duration>,
    #[serde(with = "jiff::fmt::serde::unsigned_duration::friendly::compact::required")]
    grace: Duration,
    max_memory_messages: u32,
    #[serde(deserialize_with = "size")]
    max_memory_bytes: usize,
    concurrency: Option<usize>,
    #[serde(with = "jiff::fmt::serde::unsigned_duration::friendly::compact::required")]
    keep_every: Duration,
    worker_id: Option<String>,
}

impl RelayConfig {
    /// As the relay takes it, for sinks that may make so many deliveries at once together.
    pub(crate) fn options(&self, of_sinks: usize) -> RelayOptions {
        let options = RelayOptions::default();
        let concurrency = self.concurrency.unwrap_or_else(|| options.concurrency.max(of_sinks));
        options
            .concurrency(concurrency)
            .lease(self.lease)
            .poll(self.poll)
            .reap_every(self.reap_every)
            .grace(self.grace)
            .max_messages(self.max_memory_messages)
            .max_bytes(self.max_memory_bytes)
            .keep_every(self.keep_every)
            .worker_id(self.worker_id.clone().unwrap_or_else(|| worker_id(&operator::host())))
    }
}

/// One of `[databases]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DatabaseConfig {
    pub(crate) url: Secret,
    #[serde(default, deserialize_with = "schema")]
    pub(crate) schema: Schema,
}

/// `[log]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LogConfig {
    pub(crate) format: Format,
    pub(crate) level: Option<String>,
}

/// Messages of a topic, to one or several sinks.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RouteConfig {
    pub(crate) topic: String,
    #[serde(default = "any")]
    pub(crate) namespace: String,
    pub(crate) sinks: Vec<String>,
}

fn any() -> String {
    "*".to_owned()
}

/// By topic.
pub(crate) type SchemaFiles = std::collections::BTreeMap<String, PathBuf>;

/// `host-pid-random`: names the process to a person, and no other process has it.
fn worker_id(host: &str) -> String {
    /// Of a host's name: the whole must fit into a name of the store.
    const HOST_CHARS: usize = 60;
    let host: String = host.chars().filter(|c| !c.is_control()).take(HOST_CHARS).collect();
    let random = Uuid::new_v4().simple().to_string();
    format!("{host}-{}-{}", std::process::id(), &random[..8])
}

fn schema<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Schema, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(|error: postrider::Error| D::Error::custom(error.in_short()))
}

/// A number of bytes, or one with its unit.
fn size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    struct Size;
    impl Visitor<'_> for Size {
        type Value = usize;

        fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            formatter.write_str("a size such as 4096, 512KiB or 64MiB")
        }

        fn visit_u64<E: serde::de::Error>(self, bytes: u64) -> Result<usize, E> {
            usize::try_from(bytes).map_err(|_| E::invalid_value(Unexpected::Unsigned(bytes), &self))
        }

        fn visit_i64<E: serde::de::Error>(self, bytes: i64) -> Result<usize, E> {
            usize::try_from(bytes).map_err(|_| E::invalid_value(Unexpected::Signed(bytes), &self))
        }

        fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<usize, E> {
            format::parse_size(text).map_err(|_| E::invalid_value(Unexpected::Str(text), &self))
        }
    }
    deserializer.deserialize_any(Size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_has_a_name_of_its_own() {
        let (one, other) = (worker_id(&operator::host()), worker_id(&operator::host()));
        assert_ne!(one, other);
        assert!(one.contains(&format!("-{}-", std::process::id())), "{one}");
        let long = worker_id(&"\u{1f4ee}".repeat(300));
        assert!(long.len() <= postrider::limit::NAME_BYTES, "{} bytes: {long}", long.len());
    }
}
