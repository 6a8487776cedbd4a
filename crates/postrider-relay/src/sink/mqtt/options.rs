//! Everything about an MQTT sink that can be set, and what the library wants to know of it for a connection. What can be
//! wrong without a server is found here.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use percent_encoding::percent_decode_str;
use rumqttc::{NetworkOptions, QoS, TlsConfiguration, Transport};
use serde::Deserialize;
use url::Url;

use super::MqttSink;
use crate::error::Error;
use crate::options::setters;
use crate::secret::Secret;
use crate::sink::Sink;
use crate::sink::destinations::Destinations;
use crate::sink::registry::BuildSink;
use crate::sink::template::Template;

const PORT: u16 = 1883;
const TLS_PORT: u16 = 8883;
/// The library takes so many from its queue at a time; one by one, each would be a write of its own.
const REQUEST_BATCH: usize = 100;
/// We subscribe to nothing: what comes are answers, with words of the server at the most.
const MAX_INCOMING_BYTES: u32 = 256 << 10;

/// How to publish to an MQTT server.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct MqttOptions {
    /// `mqtt://host:port`, or `mqtts://` for TLS; a user and a password may stand in it, so it may be taken from the
    /// environment or a file.
    pub url: Secret,
    /// The user, if it is not in the URL.
    pub user: Option<String>,
    /// The password, if it is not in the URL.
    pub password: Option<Secret>,
    /// By default a random one. It must be of one process alone: a server throws out whoever came before with the same id.
    /// Further connections have a number behind it: `relay-1`.
    pub client_id: Option<String>,
    /// The topic: `{topic}`. A message whose topic would hold a wildcard is refused.
    pub topic: Template,
    /// Which topics messages may name: `["orders/*"]`. By default every one that does not begin with `$`.
    pub destinations: Destinations,
    /// The quality of service: 1, at least once, or 2. The relay retries in either case, so 2 takes longer and is of use only
    /// for what happens between one attempt and its answer.
    pub qos: u8,
    /// Whether the server is to keep the last message of each topic for whoever subscribes later: no.
    pub retain: bool,
    /// Whether it is a failure that nobody subscribes to the topic: yes, since the server throws such a message away. Not every
    /// server tells, and at quality 2 the library does not.
    pub require_subscriber: bool,
    /// How long the server may be silent, connecting included, before what is not acknowledged counts as failed: 10 s. A
    /// delivery takes at most twice as long.
    #[serde(with = "jiff::fmt::serde::unsigned_duration::friendly::compact::required")]
    pub timeout: Duration,
    /// After how long a silence both sides ask whether the other is there: 30 s.
    #[serde(with = "jiff::fmt::serde::unsigned_duration::friendly::compact::required")]
    pub keep_alive: Duration,
    /// At most so many messages without an answer on one connection, unless the server takes fewer: 1,000.
    pub max_inflight: u16,
    /// At most so many connections, each of which serves one batch at a time: 4.
    pub connections: usize,
    /// A file of PEM certificates to trust instead of those of the system.
    pub ca: Option<PathBuf>,
    /// A file with our own certificate in PEM, for servers that ask for one; `ca` and `client_key` go with it.
    pub client_cert: Option<PathBuf>,
    /// A file with its key in PEM.
    pub client_key: Option<PathBuf>,
}

setters! { MqttOptions:
    url: Secret, user: Option<String>, password: Option<Secret>, client_id: Option<String>, topic: Template,
    destinations: Destinations, qos: u8, retain: bool, require_subscriber: bool, timeout: Duration,
    keep_alive: Duration, max_inflight: u16, connections: usize, ca: Option<PathBuf>, client_cert: Option<PathBuf>,
    client_key: Option<PathBuf>,
}

impl MqttOptions {
    pub(crate) const PUBLIC_KEYS: &'static [&'static str] = &[
        "url",
        "user",
        "client_id",
        "topic",
        "destinations",
        "timeout",
        "keep_alive",
        "ca",
        "client_cert",
        "client_key",
    ];
}

impl BuildSink for MqttOptions {
    fn build(&self) -> Result<Arc<dyn Sink>, Error> {
        Ok(Arc::new(MqttSink::new(self.clone())?))
    }
}

impl Default for MqttOptions {
    fn default() -> Self {
        Self {
            url: Secret::from("mqtt://localhost:1883"),
            user: None,
            password: None,
            client_id: None,
            topic: Template::topic(),
            destinations: Destinations::default(),
            qos: 1,
            retain: false,
            require_subscriber: true,
            timeout: Duration::from_secs(10),
            keep_alive: Duration::from_secs(30),
            max_inflight: 1_000,
            connections: 4,
            ca: None,
            client_cert: None,
            client_key: None,
        }
    }
}

fn wrong(reason: impl std::fmt::Display) -> Error {
    Error::options(format!("MQTT: {reason}"))
}

/// The connection's options, under the first client id, and the quality of service.
pub(super) fn connection_options(options: &MqttOptions) -> Result<(rumqttc::MqttOptions, QoS), Error> {
    let qos = match options.qos {
        1 => QoS::AtLeastOnce,
        2 => QoS::ExactlyOnce,
        other => return Err(wrong(format!("`qos` is 1 or 2, not {other}: at 0 nobody says that a message arrived"))),
    };
    if options.timeout.is_zero() || options.connections == 0 || options.max_inflight == 0 {
        return Err(wrong("`timeout`, `connections` and `max_inflight` must be more than 0"));
    }
    let url = options.url.reveal("the URL of the MQTT server")?;
    // Its parser's error does not repeat the URL, and with it the password.
    let url = Url::parse(&url).map_err(|error| wrong(format!("`url` cannot be read: {error}")))?;
    let (tls, port) = match url.scheme() {
        "mqtt" => (false, PORT),
        "mqtts" => (true, TLS_PORT),
        _ => return Err(wrong("`url` begins with mqtt://, or mqtts:// for TLS")),
    };
    let host = url.host_str().ok_or_else(|| wrong("`url` names no host: mqtt://localhost:1883"))?;
    let client_id = options.client_id.clone();
    let client_id = client_id.unwrap_or_else(|| format!("postrider-{}", uuid::Uuid::new_v4().simple()));
    let mut connection =
        rumqttc::MqttOptions::new(client_id, (host.trim_matches(['[', ']']).to_owned(), url.port().unwrap_or(port)));
    let mut network = NetworkOptions::new();
    network.set_tcp_nodelay(true);
    let keep_alive = options.keep_alive.max(Duration::from_secs(1)).as_secs();
    connection
        .set_clean_start(true)
        .set_session_expiry_interval(Some(0))
        .set_connect_timeout(options.timeout)
        .set_keep_alive(u16::try_from(keep_alive).unwrap_or(u16::MAX))
        .set_network_options(network)
        .set_max_request_batch(REQUEST_BATCH)
        .set_max_packet_size(Some(MAX_INCOMING_BYTES))
        .set_outgoing_inflight_upper_limit(options.max_inflight);
    if tls {
        connection.set_transport(transport(options)?);
    }
    let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
    let user = options.user.clone().or_else(|| (!url.username().is_empty()).then(|| decoded(url.username())));
    let password = options.password.as_ref().map(|password| password.reveal("the password of the MQTT server"));
    let password = password.transpose()?.or_else(|| url.password().map(decoded));
    match (user, password) {
        (Some(user), Some(password)) => drop(connection.set_credentials(user, password)),
        (Some(user), None) => drop(connection.set_username(user)),
        (None, Some(_)) => return Err(wrong("there is a password without a `user`")),
        (None, None) => {}
    }
    Ok((connection, qos))
}

fn transport(options: &MqttOptions) -> Result<Transport, Error> {
    let file =
        |path: &Path| std::fs::read(path).map_err(|error| wrong(format!("{} cannot be read: {error}", path.display())));
    let client_auth = match (&options.client_cert, &options.client_key) {
        (Some(certificate), Some(key)) => Some((file(certificate)?, file(key)?)),
        (None, None) => None,
        _ => return Err(wrong("`client_cert` and `client_key` go together")),
    };
    match &options.ca {
        Some(ca) => Ok(Transport::tls_with_config(TlsConfiguration::Simple { ca: file(ca)?, alpn: None, client_auth })),
        None if client_auth.is_some() => Err(wrong("`client_cert` needs `ca`")),
        None => Transport::try_tls_with_default_config()
            .map_err(|error| wrong(format!("the certificates of the system cannot be read: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_and_show_no_password() {
        let options: MqttOptions = serde_json::from_str(
            r#"{"url": "mqtt://relay:hunter%202@[::1]:1884", "qos": 2, "keep_alive": "5s", "topic": "shop/{topic}"}"#,
        )
        .expect("options");
        assert!(!format!("{options:?}").contains("hunter"), "{options:?}");
        let (connection, qos) = connection_options(&options).expect("they are good");
        assert_eq!(qos, QoS::ExactlyOnce);
        assert_eq!(connection.keep_alive(), Duration::from_secs(5));
        assert_eq!(connection.broker().tcp_address(), Some(("::1", 1884)));
        assert!(connection.client_id().starts_with("postrider-"));
    }

    #[test]
    fn what_is_wrong_is_said_without_the_password() {
        let with_url = |url: &str| MqttOptions { url: Secret::from(url), ..MqttOptions::default() };
        for (options, reason) in [
            (with_url("http://relay:hunter2@localhost"), "mqtts://"),
            (with_url("mqtt://relay:hunter2@localhost:port"), "port"),
            (with_url("mqtt://:hunter2@localhost"), "without a `user`"),
            (MqttOptions { qos: 0, ..MqttOptions::default() }, "1 or 2"),
        ] {
            let error = connection_options(&options).expect_err("wrong").to_string();
            assert!(error.contains(reason) && !error.contains("hunter2"), "{error}");
        }
    }
}
