//! How a Kafka sink is set up, and what becomes of it in librdkafka's own words. Everything that can be wrong without
//! asking a broker is refused here, once, with what would be right; what the sink's promises rest on cannot be passed
//! through.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use postrider::lifecycle::Claimed;
use rdkafka::ClientConfig;
use rdkafka::error::KafkaError;
use serde::Deserialize;
use serde::de::{self, Deserializer};

use super::KafkaSink;
use super::connection::words;
use crate::error::Error;
use crate::options::setters;
use crate::secret::Secret;
use crate::sink::destinations::Destinations;
use crate::sink::registry::BuildSink;
use crate::sink::template::Template;
use crate::sink::{Sink, SinkFailure};

/// Of this, a sink of one relay keeps in memory at most.
const QUEUE_KBYTES: &str = "262144";
/// Waits so long for more before a request is sent. A batch is handed over in less, and a lone message hardly waits.
const LINGER_MS: &str = "1";
/// Between two tries of a connection at most: the sink is to be back soon after its broker is.
const RECONNECT_MAX_MS: &str = "1000";

/// Options of a Kafka sink.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct KafkaOptions {
    /// Where to find the cluster: `host:port`, several with commas between.
    pub brokers: String,
    /// The Kafka topic. `{topic}` unless given: the message's own.
    #[serde(default = "Template::topic")]
    pub topic: Template,
    /// Which topics messages may name: `["orders.*"]`. Every one that does not begin with `__` unless given.
    #[serde(default)]
    pub destinations: Destinations,
    /// The record's key, which decides on the partition. `"lane"` unless given: the lane, or the message id of a message
    /// without a lane.
    #[serde(default)]
    pub key: KafkaKey,
    /// Who must have a record before it counts as delivered. `"all"` unless given.
    #[serde(default)]
    pub acks: KafkaAcks,
    /// Whether brokers drop what a retry sends twice. `true` unless given; without it, a batch holds one message of a lane.
    #[serde(default = "yes")]
    pub idempotent: bool,
    /// `"none"` unless given.
    #[serde(default)]
    pub compression: KafkaCompression,
    /// How long brokers may take to confirm what was handed over together. `"10s"` unless given: twice that stays below
    /// the relay's own deadline.
    #[serde(default = "ten_seconds", with = "jiff::fmt::serde::unsigned_duration::friendly::compact::required")]
    pub timeout: Duration,
    /// What the brokers' logs and quotas call this client. `"postrider"` unless given.
    #[serde(default = "postrider")]
    pub client_id: String,
    /// Anything else that librdkafka knows, by its name there: `"security.protocol"`, `"sasl.password"`. A value is text, a
    /// number, a truth, or a secret's place: `{ env = "NAME" }`.
    #[serde(default)]
    pub properties: BTreeMap<String, KafkaProperty>,
}

setters! { KafkaOptions:
    brokers: String, topic: Template, destinations: Destinations, key: KafkaKey, acks: KafkaAcks, idempotent: bool,
    compression: KafkaCompression, timeout: Duration, client_id: String, properties: BTreeMap<String, KafkaProperty>,
}

impl KafkaOptions {
    pub(crate) const PUBLIC_KEYS: &'static [&'static str] =
        &["brokers", "topic", "destinations", "key", "acks", "compression", "timeout", "client_id"];
}

impl BuildSink for KafkaOptions {
    fn build(&self) -> Result<Arc<dyn Sink>, Error> {
        Ok(Arc::new(KafkaSink::new(self.clone())?))
    }
}

/// The value of one of librdkafka's options.
#[derive(Clone, Deserialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum KafkaProperty {
    /// `true` or `false`.
    Flag(bool),
    /// A number.
    Number(i64),
    /// Text, here or elsewhere. Never printed.
    Text(Secret),
}

/// What a record's key is made of.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum KafkaKey {
    /// The lane, so that a lane stays in one partition; the message id if there is no lane.
    #[default]
    Lane,
    /// The message id: messages of a lane are spread over partitions, and are sent one by one to keep their order.
    MessageId,
    /// A text made of the message.
    Template(Template),
}

/// Who must have a record before it counts as delivered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub enum KafkaAcks {
    /// Every replica that is in sync.
    #[default]
    #[serde(rename = "all")]
    All,
    /// The partition's leader alone: what it confirmed is lost if it dies before the others have it.
    #[serde(rename = "1")]
    Leader,
}

/// How records are packed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum KafkaCompression {
    /// As they are.
    #[default]
    None,
    /// By gzip.
    Gzip,
    /// By Snappy.
    Snappy,
    /// By LZ4.
    Lz4,
}

fn yes() -> bool {
    true
}

fn ten_seconds() -> Duration {
    Duration::from_secs(10)
}

fn postrider() -> String {
    "postrider".to_owned()
}

impl<'de> Deserialize<'de> for KafkaKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        match text.as_str() {
            "lane" => Ok(Self::Lane),
            "message_id" => Ok(Self::MessageId),
            _ => {
                let template: Template = text.parse().map_err(de::Error::custom)?;
                if template.fixed().is_some() {
                    let words = "the key must be \"lane\", \"message_id\" or a template with a field such as \
                                 \"{tenant_id}\": one key for all would put everything into one partition";
                    return Err(de::Error::custom(words));
                }
                Ok(Self::Template(template))
            }
        }
    }
}

impl KafkaKey {
    pub(super) fn of(&self, message: &Claimed) -> Result<String, SinkFailure> {
        match self {
            Self::Lane => Ok(message.lane.clone().unwrap_or_else(|| message.message_id.to_string())),
            Self::MessageId => Ok(message.message_id.to_string()),
            Self::Template(template) => template.render(message),
        }
    }
}

impl From<&str> for KafkaProperty {
    fn from(text: &str) -> Self {
        Self::Text(Secret::from(text))
    }
}

impl fmt::Debug for KafkaProperty {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(flag) => flag.fmt(formatter),
            Self::Number(number) => number.fmt(formatter),
            Self::Text(secret) => secret.fmt(formatter),
        }
    }
}

impl KafkaProperty {
    fn reveal(&self, name: &str) -> Result<String, Error> {
        match self {
            Self::Flag(flag) => Ok(flag.to_string()),
            Self::Number(number) => Ok(number.to_string()),
            Self::Text(secret) => secret.reveal(&format!("the Kafka property {name}")),
        }
    }
}

impl KafkaOptions {
    /// With everything but the brokers as it is unless given.
    #[must_use]
    pub fn new(brokers: impl Into<String>) -> Self {
        Self {
            brokers: brokers.into(),
            topic: Template::topic(),
            destinations: Destinations::default(),
            key: KafkaKey::default(),
            acks: KafkaAcks::default(),
            idempotent: true,
            compression: KafkaCompression::default(),
            timeout: ten_seconds(),
            client_id: postrider(),
            properties: BTreeMap::new(),
        }
    }

    /// The same in librdkafka's words.
    pub(super) fn client_config(&self) -> Result<ClientConfig, Error> {
        self.check()?;
        let mut config = ClientConfig::new();
        config
            .set("bootstrap.servers", &self.brokers)
            .set("client.id", &self.client_id)
            .set(
                "acks",
                match self.acks {
                    KafkaAcks::All => "all",
                    KafkaAcks::Leader => "1",
                },
            )
            .set(
                "compression.codec",
                match self.compression {
                    KafkaCompression::None => "none",
                    KafkaCompression::Gzip => "gzip",
                    KafkaCompression::Snappy => "snappy",
                    KafkaCompression::Lz4 => "lz4",
                },
            )
            .set("enable.idempotence", self.idempotent.to_string())
            // See the head of `kafka.rs` for these four.
            .set("enable.gapless.guarantee", self.idempotent.to_string())
            .set("max.in.flight.requests.per.connection", "1")
            .set("message.timeout.ms", "0")
            .set("message.send.max.retries", i32::MAX.to_string())
            .set("linger.ms", LINGER_MS)
            .set("queue.buffering.max.kbytes", QUEUE_KBYTES)
            .set("reconnect.backoff.max.ms", RECONNECT_MAX_MS);
        for (name, value) in &self.properties {
            let value = value.reveal(name)?;
            check_property(name, &value)?;
            config.set(name, value);
        }
        Ok(config)
    }

    /// What librdkafka says against the options, without the text of any property.
    pub(super) fn wrong(&self, error: &KafkaError) -> Error {
        let mut reason = format!("the Kafka sink's options do not go together: {}", words(error));
        for (name, value) in &self.properties {
            if let Ok(value) = value.reveal(name)
                && !value.is_empty()
                && matches!(self.properties[name], KafkaProperty::Text(_))
            {
                reason = reason.replace(&value, "[REDACTED]");
            }
        }
        Error::options(reason)
    }

    fn check(&self) -> Result<(), Error> {
        let reason = if self.brokers.trim().is_empty() {
            "the Kafka sink has no brokers; give at least one as host:port"
        } else if self.timeout.is_zero() {
            "the Kafka sink's timeout must be more than 0"
        } else if self.idempotent && self.acks != KafkaAcks::All {
            "the Kafka sink is idempotent, and that needs acks = \"all\"; with acks = \"1\" also say idempotent = false, \
             and know that a broker that dies can lose what it confirmed"
        } else {
            return Ok(());
        };
        Err(Error::options(reason))
    }
}

/// Options of librdkafka that are set here by others, or that a promise of the sink rests on, with the reason.
const NOT_PASSED_THROUGH: [(&[&str], &str); 9] = [
    (&["bootstrap.servers", "metadata.broker.list"], "say brokers instead"),
    (&["client.id"], "say client_id instead"),
    (&["acks", "request.required.acks"], "say acks instead"),
    (&["enable.idempotence"], "say idempotent instead"),
    (&["compression.codec", "compression.type"], "say compression instead"),
    (
        &["message.timeout.ms", "delivery.timeout.ms", "retries", "message.send.max.retries"],
        "librdkafka must not give up one message while it goes on with the next of its lane: say timeout instead, which \
         ends all of them together",
    ),
    (
        &["max.in.flight", "max.in.flight.requests.per.connection", "enable.gapless.guarantee", "queuing.strategy"],
        "the order of lanes rests on it",
    ),
    (
        &["delivery.report.only.error", "transactional.id"],
        "the sink needs a report of each message, outside transactions",
    ),
    (&["partitioner"], "the sink finds the partition of a key as a Java client does"),
];

fn check_property(name: &str, value: &str) -> Result<(), Error> {
    let refused = NOT_PASSED_THROUGH.iter().find(|(names, _)| names.contains(&name));
    let reason = if let Some((_, reason)) = refused {
        format!("the Kafka property {name} cannot be set: {reason}")
    } else if let Some(what) = wants_tls(name, value) {
        format!(
            "{what} needs TLS, which this program was built without; build it with the cargo feature kafka-tls of \
             postrider-relay"
        )
    } else {
        return Ok(());
    };
    Err(Error::options(reason))
}

/// What asks for OpenSSL, if it is not there. SCRAM and OAUTHBEARER take their hashes from it.
fn wants_tls(name: &str, value: &str) -> Option<String> {
    let value = value.to_ascii_lowercase();
    let asks = match name {
        "security.protocol" => matches!(value.as_str(), "ssl" | "sasl_ssl"),
        "sasl.mechanism" | "sasl.mechanisms" => value.starts_with("scram-") || value == "oauthbearer",
        _ => {
            return (!cfg!(feature = "kafka-tls") && name.starts_with("ssl."))
                .then(|| format!("the Kafka property {name}"));
        }
    };
    (asks && !cfg!(feature = "kafka-tls")).then(|| format!("the Kafka property {name} = {value}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<KafkaOptions, serde_json::Error> {
        serde_json::from_str(json)
    }

    fn with(name: &str, value: &str) -> KafkaOptions {
        let mut options = KafkaOptions::new("localhost:9092");
        options.properties.insert(name.to_owned(), value.into());
        options
    }

    fn refusal(options: KafkaOptions) -> String {
        match KafkaSink::new(options) {
            Err(error) => error.to_string(),
            Ok(_) => panic!("it was taken"),
        }
    }

    #[test]
    fn brokers_are_enough() {
        let options = read(r#"{"brokers": "localhost:9092"}"#).expect("options");
        assert_eq!(format!("{options:?}"), format!("{:?}", KafkaOptions::new("localhost:9092")));
        assert!(options.idempotent && options.acks == KafkaAcks::All && options.key == KafkaKey::Lane);
    }

    #[test]
    fn what_is_written_is_read() {
        let options = read(
            r#"{"brokers": "a:1,b:2", "topic": "shop.{topic}", "key": "{tenant_id}", "acks": "1", "idempotent": false,
                "compression": "lz4", "timeout": "5s", "client_id": "shop", "properties": {"linger.ms": 5,
                "socket.keepalive.enable": true, "sasl.password": {"env": "PASSWORD"}, "sasl.username": "relay"}}"#,
        )
        .expect("options");
        assert_eq!(options.key, KafkaKey::Template("{tenant_id}".parse().expect("a template")));
        assert_eq!((options.acks, options.compression), (KafkaAcks::Leader, KafkaCompression::Lz4));
        assert_eq!(options.timeout, Duration::from_secs(5));
        let printed = format!("{options:?}");
        assert!(printed.contains("PASSWORD") && !printed.contains("relay"), "{printed}");
    }

    #[test]
    fn what_cannot_be_read_is_explained() {
        for (json, reason) in [
            (r#"{"topic": "a"}"#, "missing field `brokers`"),
            (r#"{"brokers": "a", "key": "lanes"}"#, "into one partition"),
            (r#"{"brokers": "a", "acks": "0"}"#, "unknown variant"),
            (r#"{"brokers": "a", "broker": "b"}"#, "unknown field"),
        ] {
            let error = read(json).expect_err("no options").to_string();
            assert!(error.contains(reason), "{error}");
        }
    }

    #[test]
    fn what_the_promises_rest_on_is_not_passed_through() {
        for (names, reason) in NOT_PASSED_THROUGH {
            for name in names {
                let error = refusal(with(name, "1"));
                assert!(error.contains(name) && error.contains(reason), "{error}");
            }
        }
        let error = refusal(KafkaOptions { acks: KafkaAcks::Leader, ..KafkaOptions::new("a:1") });
        assert!(error.contains("idempotent = false"), "{error}");
    }

    #[test]
    fn a_wrong_property_is_named_and_its_text_is_not() {
        let error = refusal(with("sasl.pasword", "hunter2"));
        assert!(error.contains("sasl.pasword") && !error.contains("hunter2"), "{error}");
        let error = refusal(with("security.protocol", "hunter2"));
        assert!(error.contains("security.protocol") && !error.contains("hunter2"), "{error}");
    }

    #[cfg(not(feature = "kafka-tls"))]
    #[test]
    fn tls_needs_its_feature() {
        for (name, value) in [
            ("security.protocol", "ssl"),
            ("security.protocol", "SASL_SSL"),
            ("sasl.mechanism", "SCRAM-SHA-512"),
            ("ssl.ca.location", "/etc/ca.pem"),
        ] {
            let error = refusal(with(name, value));
            assert!(error.contains("kafka-tls") && error.contains(name), "{error}");
        }
    }

    #[test]
    fn a_password_without_tls_needs_no_feature() {
        let mut options = with("security.protocol", "sasl_plaintext");
        for (name, value) in [("sasl.mechanism", "PLAIN"), ("sasl.username", "relay"), ("sasl.password", "hunter2")] {
            options.properties.insert(name.to_owned(), value.into());
        }
        assert!(KafkaSink::new(options).is_ok());
    }
}
