//! Everything about an HTTP sink that can be set, with its default and its reason. What can be wrong without asking the
//! network is found by `HttpSink::new` and by whoever reads a file or a secret, when the sink is made.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use super::HttpSink;
use crate::error::Error;
use crate::options::setters;
use crate::secret::Secret;
use crate::sink::Sink;
use crate::sink::destinations::Destinations;
use crate::sink::registry::BuildSink;
use crate::sink::template::Template;

/// The most of an answer that may be kept beside an attempt. A statement records up to 2,000 outcomes, so this bounds it
/// to 16 MiB; the stores cut what is longer.
pub(super) const MAX_KEEP_ANSWER_BYTES: usize = 8 * 1024;

/// How to send over HTTP, and where to.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct HttpOptions {
    /// Where to: `https://example.org/hooks/{topic}`. Values are percent-encoded, each as one piece of a path or a query.
    /// Its path may be a secret, so it can be kept where secrets are: `{ env = "NAME" }`.
    #[serde(deserialize_with = "url")]
    pub url: Template,
    /// Which URLs messages may make: `["https://*.example.org/*"]`. By default every one.
    #[serde(default)]
    pub destinations: Destinations,
    /// The method: POST.
    #[serde(default = "post")]
    pub method: String,
    /// Headers of every request. They win over a producer's header of the same name.
    #[serde(default)]
    pub headers: BTreeMap<String, Secret>,
    /// What a request holds: one message as it is, unless said otherwise.
    #[serde(default)]
    pub body: HttpBody,
    /// Most messages of one request, for the bodies that hold several: 100.
    #[serde(default = "max_batch")]
    pub max_batch: usize,
    /// Most bytes of content in one such request, unless one message alone has more: 1 MiB, what servers commonly take.
    #[serde(default = "max_batch_bytes")]
    pub max_batch_bytes: usize,
    /// Whether a request may hold several messages of one lane: no. Only for a receiver that, within one request, takes
    /// nothing of a lane behind the first of its events that it does not take. Otherwise a request holds one message of
    /// each lane at most, and the order holds with any receiver.
    #[serde(default)]
    pub lanes_in_order: bool,
    /// Whether to compress what is sent: no, because not every receiver can read it.
    #[serde(default)]
    pub gzip: bool,
    /// Who sends. The source of a `CloudEvent`, `/postrider/{namespace}` unless it is given; in a batch, the `source` of each
    /// event, which it has only if it is given.
    #[serde(default)]
    pub source: Option<Template>,
    /// A token for `Authorization: Bearer`.
    #[serde(default)]
    pub bearer: Option<Secret>,
    /// A name and a password for `Authorization: Basic`.
    #[serde(default)]
    pub basic: Option<BasicAuth>,
    /// A PEM file with the certificate (and its chain) that this client shows.
    #[serde(default)]
    pub client_cert: Option<PathBuf>,
    /// A PEM file with its key.
    #[serde(default)]
    pub client_key: Option<PathBuf>,
    /// A PEM file with the authorities to trust, instead of the system's.
    #[serde(default)]
    pub ca: Option<PathBuf>,
    /// How long a connection may take to be made: 5 seconds.
    #[serde(default = "connect_timeout", with = "jiff::fmt::serde::unsigned_duration::friendly::compact::required")]
    pub connect_timeout: Duration,
    /// How long a delivery may take in all, until the end of the answer: 20 seconds, which is less than a relay's
    /// deadline, so that it is the sink that says what happened.
    #[serde(default = "timeout", with = "jiff::fmt::serde::unsigned_duration::friendly::compact::required")]
    pub timeout: Duration,
    /// How much of an answer is read: 64 KiB. The rest is left on the wire and the connection closed.
    #[serde(default = "max_response_bytes")]
    pub max_response_bytes: usize,
    /// How much of a refusal is kept beside the attempt, for people: 2 KiB. Zero keeps nothing; 8 KiB is the most.
    #[serde(default = "keep_answer_bytes")]
    pub keep_answer_bytes: usize,
    /// Statuses that another try may cure, whatever the table says.
    #[serde(default)]
    pub retry_statuses: Vec<u16>,
    /// Statuses that no other try can cure, whatever the table says.
    #[serde(default)]
    pub terminal_statuses: Vec<u16>,
    /// Where in the JSON of a refusal the receiver's own code is, as a JSON pointer: `/error/code`.
    #[serde(default)]
    pub reply_code: Option<String>,
    /// The header of an answer that is kept as the receiver's reference: `x-request-id`.
    #[serde(default = "reference_header")]
    pub reference_header: String,
    /// Signs each request as Standard Webhooks says.
    #[serde(default)]
    pub webhook: Option<WebhookOptions>,
    /// Whether addresses that are not public are refused: yes for webhooks, whose URLs others choose; no otherwise.
    #[serde(default)]
    pub guard: Option<bool>,
    /// Networks that the guard lets through all the same: `10.1.0.0/16`.
    #[serde(default)]
    pub allow: Vec<IpNet>,
    /// Whether to speak HTTP/2 without asking first: no. Over TLS it is agreed on in the handshake anyway.
    #[serde(default)]
    pub http2_prior_knowledge: bool,
}

setters! { HttpOptions:
    url: Template, destinations: Destinations, method: String, headers: BTreeMap<String, Secret>, body: HttpBody,
    max_batch: usize, max_batch_bytes: usize, lanes_in_order: bool, gzip: bool, source: Option<Template>,
    bearer: Option<Secret>, basic: Option<BasicAuth>, client_cert: Option<PathBuf>, client_key: Option<PathBuf>,
    ca: Option<PathBuf>, connect_timeout: Duration, timeout: Duration, max_response_bytes: usize,
    keep_answer_bytes: usize, retry_statuses: Vec<u16>, terminal_statuses: Vec<u16>, reply_code: Option<String>,
    reference_header: String, webhook: Option<WebhookOptions>, guard: Option<bool>, allow: Vec<IpNet>,
    http2_prior_knowledge: bool,
}

impl HttpOptions {
    pub(crate) const PUBLIC_KEYS: &'static [&'static str] = &[
        "method",
        "body",
        "source",
        "client_cert",
        "client_key",
        "ca",
        "connect_timeout",
        "timeout",
        "reply_code",
        "reference_header",
        "allow",
        "basic.user",
    ];
}

impl BuildSink for HttpOptions {
    fn build(&self) -> Result<Arc<dyn Sink>, Error> {
        Ok(Arc::new(HttpSink::new(self.clone())?))
    }
}

/// What a request holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum HttpBody {
    /// One message: its content, byte for byte, and the rest in headers.
    #[default]
    Content,
    /// Several messages: `{"events": […]}`, answered for all or one by one.
    Batch,
    /// One message as a `CloudEvent` in JSON.
    CloudeventsStructured,
    /// One message as a `CloudEvent` whose attributes are headers.
    CloudeventsBinary,
    /// Several messages as a JSON array of `CloudEvents`, answered for all.
    CloudeventsBatch,
}

impl HttpBody {
    pub(super) fn holds_several(self) -> bool {
        matches!(self, Self::Batch | Self::CloudeventsBatch)
    }
}

/// A name and a password.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the fields say it")]
pub struct BasicAuth {
    pub user: String,
    pub password: Secret,
}

impl BasicAuth {
    /// This name and this password.
    #[must_use]
    pub fn new(user: impl Into<String>, password: Secret) -> Self {
        Self { user: user.into(), password }
    }
}

/// How to sign.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct WebhookOptions {
    /// One or two secrets, `whsec_…`. Two while one replaces the other: each request is signed with both.
    pub secrets: Vec<Secret>,
}

impl WebhookOptions {
    /// Signs with these secrets.
    #[must_use]
    pub fn new(secrets: Vec<Secret>) -> Self {
        Self { secrets }
    }
}

impl HttpOptions {
    /// One message a request, to this URL.
    #[must_use]
    pub fn new(url: Template) -> Self {
        Self {
            url,
            destinations: Destinations::default(),
            method: post(),
            headers: BTreeMap::new(),
            body: HttpBody::default(),
            max_batch: max_batch(),
            max_batch_bytes: max_batch_bytes(),
            lanes_in_order: false,
            gzip: false,
            source: None,
            bearer: None,
            basic: None,
            client_cert: None,
            client_key: None,
            ca: None,
            connect_timeout: connect_timeout(),
            timeout: timeout(),
            max_response_bytes: max_response_bytes(),
            keep_answer_bytes: keep_answer_bytes(),
            retry_statuses: Vec::new(),
            terminal_statuses: Vec::new(),
            reply_code: None,
            reference_header: reference_header(),
            webhook: None,
            guard: None,
            allow: Vec::new(),
            http2_prior_knowledge: false,
        }
    }

    /// What an edge site forwards to: batches, to `CLOUD_INGESTION_URL`.
    pub fn edge(url: &str) -> Result<Self, Error> {
        let url = url.parse::<Template>().map_err(|error| Error::options(error.to_string()))?;
        Ok(Self { body: HttpBody::Batch, ..Self::new(url) })
    }

    /// What would be accepted and do nothing.
    pub(super) fn check(&self) -> Result<(), Error> {
        let reason = if !self.allow.is_empty() && !self.guarded() {
            "`allow` opens networks to a guard that is off: set guard = true, or take it out"
        } else if self.lanes_in_order && !self.body.holds_several() {
            "`lanes_in_order` is about batches, and a request holds one message: set body, or take it out"
        } else {
            return Ok(());
        };
        Err(Error::options(reason))
    }

    /// Whether addresses are guarded.
    pub(super) fn guarded(&self) -> bool {
        self.guard.unwrap_or(self.webhook.is_some())
    }
}

fn url<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Template, D::Error> {
    let url = Secret::deserialize(deserializer)?.reveal("the url of an HTTP sink").map_err(D::Error::custom)?;
    url.parse().map_err(D::Error::custom)
}

fn post() -> String {
    "POST".to_owned()
}

fn max_batch() -> usize {
    100
}

fn max_batch_bytes() -> usize {
    1024 * 1024
}

fn connect_timeout() -> Duration {
    Duration::from_secs(5)
}

fn timeout() -> Duration {
    Duration::from_secs(20)
}

fn max_response_bytes() -> usize {
    64 * 1024
}

fn keep_answer_bytes() -> usize {
    2 * 1024
}

fn reference_header() -> String {
    "x-request-id".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_can_be_kept_where_secrets_are() {
        let read = |text: &str| serde_json::from_str::<HttpOptions>(text).map(|options| options.url.to_string());
        let kept = read(r#"{"url": {"env": "CARGO_MANIFEST_DIR"}}"#).expect("cargo sets it");
        assert_eq!(kept, env!("CARGO_MANIFEST_DIR"));
        let missing = read(r#"{"url": {"env": "POSTRIDER_NO_SUCH"}}"#).expect_err("it is not set").to_string();
        assert!(missing.contains("POSTRIDER_NO_SUCH"), "{missing}");
    }

    #[test]
    fn what_would_do_nothing_is_refused() {
        let plain = HttpOptions::new("http://127.0.0.1/".parse().expect("a template"));
        let allow = vec!["10.0.0.0/8".parse().expect("a network")];
        let batch = HttpBody::Batch;
        for (options, refused) in [
            (plain.clone(), false),
            (HttpOptions { allow: allow.clone(), ..plain.clone() }, true),
            (HttpOptions { allow, guard: Some(true), ..plain.clone() }, false),
            (HttpOptions { lanes_in_order: true, ..plain.clone() }, true),
            (HttpOptions { lanes_in_order: true, body: batch, ..plain }, false),
        ] {
            assert_eq!(options.check().is_err(), refused, "{options:?}");
        }
    }
}
