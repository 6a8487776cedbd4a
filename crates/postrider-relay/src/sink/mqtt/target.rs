//! Reads the options into what the library wants to know for a connection. Everything that can be wrong without a server is
//! found here.

use std::path::Path;
use std::time::Duration;

use percent_encoding::percent_decode_str;
use rumqttc::{MqttOptions as Connection, NetworkOptions, QoS, TlsConfiguration, Transport};
use url::Url;

use super::MqttOptions;
use crate::error::Error;

const PORT: u16 = 1883;
const TLS_PORT: u16 = 8883;
/// The library takes so many from its queue at a time; one by one, each would be a write of its own.
const REQUEST_BATCH: usize = 100;
/// We subscribe to nothing: what comes are answers, with words of the server at the most.
const MAX_INCOMING_BYTES: u32 = 256 << 10;

fn wrong(reason: impl std::fmt::Display) -> Error {
    Error::options(format!("MQTT: {reason}"))
}

/// The connection's options, under the first client id, and the quality of service.
pub(super) fn read(options: &MqttOptions) -> Result<(Connection, QoS), Error> {
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
        Connection::new(client_id, (host.trim_matches(['[', ']']).to_owned(), url.port().unwrap_or(port)));
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
    use crate::secret::Secret;

    #[test]
    fn options_are_read_and_show_no_password() {
        let options: MqttOptions = serde_json::from_str(
            r#"{"url": "mqtt://relay:hunter%202@[::1]:1884", "qos": 2, "keep_alive": "5s", "topic": "shop/{topic}"}"#,
        )
        .expect("options");
        assert!(!format!("{options:?}").contains("hunter"), "{options:?}");
        let (connection, qos) = read(&options).expect("they are good");
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
            let error = read(&options).expect_err("wrong").to_string();
            assert!(error.contains(reason) && !error.contains("hunter2"), "{error}");
        }
    }
}
