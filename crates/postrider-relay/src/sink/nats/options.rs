//! How to send to NATS: what stands in a configuration.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;

use super::NatsSink;
use crate::error::Error;
use crate::options::setters;
use crate::secret::Secret;
use crate::sink::Sink;
use crate::sink::destinations::Destinations;
use crate::sink::registry::BuildSink;
use crate::sink::template::Template;

/// How to send to NATS.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct NatsOptions {
    /// One server or several of a cluster: `"nats://host:4222"`, `"a:4222,b:4222"`, or a list. `tls://…` for TLS. Not
    /// printed, for a URL may hold a password; `{ env = "NAME" }` and `{ file = "/path" }` are read as well.
    pub servers: NatsServers,
    /// A user, with `password`. Default: none. At most one way to log in can be set.
    #[serde(default)]
    pub user: Option<String>,
    /// The user's password.
    #[serde(default)]
    pub password: Option<Secret>,
    /// A token. Default: none.
    #[serde(default)]
    pub token: Option<Secret>,
    /// The seed of an `NKey` (`SU…`). Default: none.
    #[serde(default)]
    pub nkey: Option<Secret>,
    /// Credentials as `nsc` writes them: `{ file = "/etc/postrider/relay.creds" }`. Default: none.
    #[serde(default)]
    pub credentials: Option<Secret>,
    /// Certificates to trust besides the system's, as PEM. Default: none.
    #[serde(default)]
    pub ca: Option<PathBuf>,
    /// Our own certificate, as PEM, with `client_key`. Default: none.
    #[serde(default)]
    pub client_cert: Option<PathBuf>,
    /// The key of `client_cert`, as PEM.
    #[serde(default)]
    pub client_key: Option<PathBuf>,
    /// Refuse to talk without TLS. Default false: it is used where the URL or the server asks for it.
    #[serde(default)]
    pub tls: bool,
    /// The subject. Default `{topic}`. A message whose values make no valid subject fails for good.
    #[serde(default = "Template::topic")]
    pub subject: Template,
    /// Which subjects messages may name: `["orders.*"]`. By default every one but the server's own (`$…`, `_INBOX…`).
    #[serde(default)]
    pub destinations: Destinations,
    /// The stream that is to take the messages: one that goes to another is refused. Default: any.
    #[serde(default)]
    pub stream: Option<String>,
    /// How long connecting may take, and how long a confirmation. Default 10 s. After that time a batch starts nothing
    /// more, so that a delivery takes at most twice as long; keep the sink's deadline above that.
    #[serde(default = "timeout", with = "jiff::fmt::serde::unsigned_duration::friendly::compact::required")]
    pub timeout: Duration,
}

setters! { NatsOptions:
    servers: NatsServers, user: Option<String>, password: Option<Secret>, token: Option<Secret>, nkey: Option<Secret>,
    credentials: Option<Secret>, ca: Option<PathBuf>, client_cert: Option<PathBuf>, client_key: Option<PathBuf>,
    tls: bool, subject: Template, destinations: Destinations, stream: Option<String>, timeout: Duration,
}

impl NatsOptions {
    pub(crate) const PUBLIC_KEYS: &'static [&'static str] =
        &["servers", "user", "ca", "client_cert", "client_key", "subject", "destinations", "stream", "timeout"];
}

impl BuildSink for NatsOptions {
    fn build(&self) -> Result<Arc<dyn Sink>, Error> {
        Ok(Arc::new(NatsSink::new(self.clone())?))
    }
}

fn timeout() -> Duration {
    Duration::from_secs(10)
}

/// One address or several.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum NatsServers {
    /// One, or several with commas between them.
    One(Secret),
    /// A list.
    Many(Vec<Secret>),
}

impl From<&str> for NatsServers {
    fn from(servers: &str) -> Self {
        Self::One(Secret::from(servers))
    }
}

impl NatsOptions {
    /// To these servers, with the defaults.
    #[must_use]
    pub fn new(servers: &str) -> Self {
        Self {
            servers: servers.into(),
            user: None,
            password: None,
            token: None,
            nkey: None,
            credentials: None,
            ca: None,
            client_cert: None,
            client_key: None,
            tls: false,
            subject: Template::topic(),
            destinations: Destinations::default(),
            stream: None,
            timeout: timeout(),
        }
    }
}
