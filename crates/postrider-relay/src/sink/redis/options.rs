//! Everything about a Redis sink that can be set, with its default and its reason.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use redis::{ClientTlsConfig, TlsCertificates};
use serde::Deserialize;

use super::RedisSink;
use crate::error::Error;
use crate::options::setters;
use crate::secret::Secret;
use crate::sink::Sink;
use crate::sink::destinations::Destinations;
use crate::sink::registry::BuildSink;
use crate::sink::template::Template;

/// How to send to Redis.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct RedisOptions {
    /// Where it is: `redis://user:password@host:6379/0`, `rediss://…` for TLS, `unix:///path`. Not printed, for it may hold
    /// a password; `{ env = "NAME" }` and `{ file = "/path" }` are read as well.
    pub url: Secret,
    /// The password, where it does not stand in the URL. Wins over one that does. Default: none.
    #[serde(default)]
    pub password: Option<Secret>,
    /// A file of PEM certificates to trust instead of those of the system. Default: none.
    #[serde(default)]
    pub ca: Option<PathBuf>,
    /// A file with our own certificate in PEM, for servers that ask for one; `client_key` goes with it. Default: none.
    #[serde(default)]
    pub client_cert: Option<PathBuf>,
    /// The key of `client_cert`, a PEM file.
    #[serde(default)]
    pub client_key: Option<PathBuf>,
    /// The stream's key. Default `{topic}`.
    #[serde(default = "Template::topic")]
    pub stream: Template,
    /// Which streams messages may name: `["orders:*"]`. By default every key that the login may write to.
    #[serde(default)]
    pub destinations: Destinations,
    /// About how many entries a stream keeps (`MAXLEN ~`): older ones go, whether they were read or not. Default: all of
    /// them, because only the readers know what has been read.
    #[serde(default)]
    pub max_len: Option<u64>,
    /// The longest content, in bytes. Default 512 MiB, which is the server's own limit (`proto-max-bulk-len`) unless it was
    /// changed there: beyond it Redis hangs up without a word about which message it was.
    #[serde(default = "max_message_bytes")]
    pub max_message_bytes: usize,
    /// How long connecting and answering may take together. Default 10 s.
    #[serde(default = "timeout", with = "jiff::fmt::serde::unsigned_duration::friendly::compact::required")]
    pub timeout: Duration,
}

setters! { RedisOptions:
    url: Secret, password: Option<Secret>, ca: Option<PathBuf>, client_cert: Option<PathBuf>,
    client_key: Option<PathBuf>, stream: Template, destinations: Destinations, max_len: Option<u64>,
    max_message_bytes: usize, timeout: Duration,
}

impl RedisOptions {
    pub(crate) const PUBLIC_KEYS: &'static [&'static str] =
        &["url", "ca", "client_cert", "client_key", "stream", "destinations", "timeout"];
}

impl BuildSink for RedisOptions {
    fn build(&self) -> Result<Arc<dyn Sink>, Error> {
        Ok(Arc::new(RedisSink::new(self.clone())?))
    }
}

fn max_message_bytes() -> usize {
    512 * 1024 * 1024
}

fn timeout() -> Duration {
    Duration::from_secs(10)
}

impl RedisOptions {
    /// To the server at this address, with the defaults.
    #[must_use]
    pub fn new(url: &str) -> Self {
        Self {
            url: Secret::from(url),
            password: None,
            ca: None,
            client_cert: None,
            client_key: None,
            stream: Template::topic(),
            destinations: Destinations::default(),
            max_len: None,
            max_message_bytes: max_message_bytes(),
            timeout: timeout(),
        }
    }
}

/// The files that are named; `None` if none is.
pub(super) fn certificates(options: &RedisOptions) -> Result<Option<TlsCertificates>, Error> {
    let wrong = |reason: String| Error::options(format!("a Redis sink: {reason}"));
    let file = |path: &PathBuf| {
        std::fs::read(path).map_err(|error| wrong(format!("{} cannot be read: {error}", path.display())))
    };
    let client_tls = match (&options.client_cert, &options.client_key) {
        (Some(cert), Some(key)) => Some(ClientTlsConfig { client_cert: file(cert)?, client_key: file(key)? }),
        (None, None) => None,
        _ => return Err(wrong("`client_cert` and `client_key` go together".to_owned())),
    };
    let root_cert = options.ca.as_ref().map(file).transpose()?;
    Ok((client_tls.is_some() || root_cert.is_some()).then_some(TlsCertificates { client_tls, root_cert }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_with_a_password_is_not_printed() {
        let options = RedisOptions::new("redis://relay:hunter2@127.0.0.1:1/0");
        assert!(!format!("{options:?}").contains("hunter2"));
        let error = RedisSink::new(RedisOptions::new("rdis://relay:hunter2@host")).err().expect("no such scheme");
        assert!(!error.to_string().contains("hunter2") && error.to_string().contains("redis://"), "{error}");
    }

    #[test]
    fn options_that_cannot_work_are_refused() {
        for wrong in ["{ \"url\": \"redis://h\", \"max_length\": 1 }", "{}"] {
            assert!(serde_json::from_str::<RedisOptions>(wrong).is_err(), "{wrong}");
        }
        for (wrong, reason) in [("\"max_len\": 0", "max_len"), ("\"timeout\": \"0s\"", "timeout")] {
            let options = format!("{{ \"url\": \"redis://h\", {wrong} }}");
            let options: RedisOptions = serde_json::from_str(&options).expect("options");
            let error = RedisSink::new(options).err().expect("refused").to_string();
            assert!(error.contains(reason), "{error}");
        }
    }
}
