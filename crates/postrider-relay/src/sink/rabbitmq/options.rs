//! Everything about a RabbitMQ sink that can be set, with its default and its reason.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;

use super::RabbitmqSink;
use crate::error::Error;
use crate::options::setters;
use crate::secret::Secret;
use crate::sink::Sink;
use crate::sink::destinations::Destinations;
use crate::sink::registry::BuildSink;
use crate::sink::template::Template;

/// How to publish to RabbitMQ.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct RabbitmqOptions {
    /// `amqp://user:password@host:port/vhost`, or `amqps://` for TLS. The virtual host is percent-encoded: `/%2f` is `/`, as
    /// is no path at all. It may hold a password, so it may be taken from the environment or a file.
    pub url: Secret,
    /// The password, if it is not in the URL.
    pub password: Option<Secret>,
    /// The exchange, which must exist: it is never declared from here. None, the default, is RabbitMQ's own exchange, where
    /// the routing key is the name of a queue.
    pub exchange: Option<Template>,
    /// The routing key: `{topic}`.
    pub routing_key: Template,
    /// Where messages may go: `["orders.*"]`. Matched with the routing key, or with `exchange/routing_key` if there is an
    /// exchange. By default everywhere but to names that begin with `amq.`.
    pub destinations: Destinations,
    /// How long a flight may take, connecting included, before what is not confirmed counts as failed: 10 s. A delivery of
    /// several takes at most twice as long.
    #[serde(with = "jiff::fmt::serde::unsigned_duration::friendly::compact::required")]
    pub timeout: Duration,
    /// A file of PEM certificates to trust beside those of the system.
    pub ca: Option<PathBuf>,
    /// At most so many connections, each of which serves one batch at a time: 4. One takes a thread and about 8 MiB.
    pub connections: usize,
    /// Larger bodies are refused before they are sent: 128 MiB, the most that any RabbitMQ takes by default. Set it to the
    /// server's `max_message_size` if that is lower; otherwise the server closes a channel to say so.
    pub max_message_size: usize,
}

setters! { RabbitmqOptions:
    url: Secret, password: Option<Secret>, exchange: Option<Template>, routing_key: Template,
    destinations: Destinations, timeout: Duration, ca: Option<PathBuf>, connections: usize, max_message_size: usize,
}

impl RabbitmqOptions {
    pub(crate) const PUBLIC_KEYS: &'static [&'static str] =
        &["exchange", "routing_key", "destinations", "timeout", "ca"];
}

impl BuildSink for RabbitmqOptions {
    fn build(&self) -> Result<Arc<dyn Sink>, Error> {
        Ok(Arc::new(RabbitmqSink::new(self.clone())?))
    }
}

impl Default for RabbitmqOptions {
    fn default() -> Self {
        Self {
            url: Secret::from("amqp://localhost:5672/%2f"),
            password: None,
            exchange: None,
            routing_key: Template::topic(),
            destinations: Destinations::default(),
            timeout: Duration::from_secs(10),
            ca: None,
            connections: 4,
            max_message_size: 128 << 20,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(json: &str) -> RabbitmqOptions {
        serde_json::from_str(json).expect("options")
    }

    #[test]
    fn options_are_read_and_show_no_password() {
        let options = options(
            r#"{"url": "amqp://relay:hunter2@localhost/shop", "exchange": "events", "routing_key": "{namespace}.{topic}", "timeout": "3s"}"#,
        );
        assert_eq!(options.timeout, Duration::from_secs(3));
        assert!(!format!("{options:?}").contains("hunter2"), "{options:?}");
        assert!(RabbitmqSink::new(options).is_ok());
    }

    #[test]
    fn a_wrong_url_is_refused_without_its_password() {
        for url in ["http://relay:hunter2@localhost", "relay:hunter2", "amqp://relay:hunter2@localhost:port"] {
            let options = RabbitmqOptions { url: Secret::from(url), ..RabbitmqOptions::default() };
            let error = RabbitmqSink::new(options).err().expect("no sink").to_string();
            assert!(error.contains("amqps://") && !error.contains("hunter2"), "{error}");
        }
    }
}
