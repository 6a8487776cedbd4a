//! Makes requests of messages: the URL, the headers and the body, ready to be sent. The producer's headers come first, then
//! ours, then the operator's, each winning over the one before. What HTTP cannot carry is refused here, before a byte is
//! sent.

use std::borrow::Cow;
use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use bytes::Bytes;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use postrider::lifecycle::Claimed;
use reqwest::Method;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use url::Url;

use super::batch::Events;
use super::cloudevents::{self, Event};
use super::options::{HttpBody, HttpOptions};
use super::target::Target;
use super::webhook::{self, Signer};
use crate::error::Error;
use crate::sink::template::Template;
use crate::sink::{SinkFailure, envelope};

/// The same over all retries: what a receiver that knows the header deduplicates by.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// Which attempt this is, from 1.
const ATTEMPT_NO: HeaderName = HeaderName::from_static("postrider-attempt-no");
/// Headers of a usual request: so many places from the start.
const USUAL_HEADERS: usize = 16;
/// How headers begin that are ours.
const OURS: &str = "postrider-";
/// How headers begin that are attributes of a `CloudEvent`.
const ATTRIBUTE: &str = "ce-";
/// How headers begin that tell of the body as the producer gave it.
const ABOUT_CONTENT: &str = "content-";

/// What belongs to one connection or to the framing of one request: never a producer's to say.
const HOP_BY_HOP: [&str; 13] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Who somebody is, where a request came from, and what it is really for: receivers and proxies believe these, so they are
/// the operator's to say, never a producer's.
const TRUSTED: [&str; 27] = [
    "api-key",
    "authorization",
    "cf-connecting-ip",
    "client-ip",
    "cookie",
    "cookie2",
    "fastly-client-ip",
    "forwarded",
    "proxy",
    "remote-user",
    "set-cookie",
    "set-cookie2",
    "true-client-ip",
    "via",
    "x-access-token",
    "x-amz-security-token",
    "x-api-key",
    "x-auth-token",
    "x-client-ip",
    "x-cluster-client-ip",
    "x-forwarded",
    "x-host",
    "x-http-method",
    "x-http-method-override",
    "x-method-override",
    "x-real-ip",
    "x-remote-user",
];

/// Beginnings of others of their kind.
const TRUSTED_STARTS: [&str; 8] = [
    "x-amzn-oidc-",
    "x-client-cert",
    "x-forwarded-",
    "x-goog-",
    "x-ms-client-principal",
    "x-original-",
    "x-rewrite-",
    "x-ssl-",
];

/// What is percent-encoded in a value of ours, so that a receiver gets it back whatever it was: the rule of the HTTP
/// binding of `CloudEvents`.
const UNSAFE: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'%');

/// A request, ready to be sent.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) url: Url,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

/// Makes requests.
pub(super) struct Composer {
    pub(super) target: Target,
    pub(super) method: Method,
    pub(super) signer: Option<Signer>,
    body: HttpBody,
    source: Option<Template>,
    /// One value each.
    fixed: HeaderMap,
}

impl Composer {
    pub(super) fn new(options: &HttpOptions) -> Result<Self, Error> {
        let method = Method::from_bytes(options.method.as_bytes())
            .map_err(|_| Error::options(format!("method {:?} is no HTTP method", options.method)))?;
        let signer = options.webhook.as_ref().map(Signer::new).transpose()?;
        if signer.is_some() && (options.gzip || options.body.holds_several()) {
            return Err(Error::options(
                "a webhook is one message a request, and signed as it is sent: take out `gzip`, and choose another `body`"
                    .to_owned(),
            ));
        }
        Ok(Self {
            target: Target::new(options)?,
            method,
            signer,
            body: options.body,
            source: options.source.clone(),
            fixed: fixed_headers(options)?,
        })
    }

    /// The values of the operator's headers, and what follows the scheme of `Authorization`: what an answer must not repeat.
    pub(super) fn secrets(&self) -> Vec<String> {
        let values = self.fixed.values().filter_map(|value| value.to_str().ok());
        values.flat_map(|value| [value, value.rsplit(' ').next().unwrap_or(value)]).map(str::to_owned).collect()
    }

    /// The request of one message.
    pub(super) fn one(&self, message: &Claimed, now: SystemTime) -> Result<Outgoing, SinkFailure> {
        let url = self.target.url(message)?;
        let mut headers = self.message_headers(message)?;
        let body = match self.body {
            HttpBody::CloudeventsStructured => {
                headers.insert(CONTENT_TYPE, HeaderValue::from_static(cloudevents::STRUCTURED));
                json(&Event::new(message, self.source.as_ref())?)?
            }
            HttpBody::CloudeventsBinary => {
                for (name, value) in cloudevents::attributes(message, self.source.as_ref())? {
                    headers.insert(header_name(&format!("{ATTRIBUTE}{name}"))?, encoded(&value)?);
                }
                Bytes::copy_from_slice(message.content.as_bytes())
            }
            HttpBody::Content | HttpBody::Batch | HttpBody::CloudeventsBatch => {
                Bytes::copy_from_slice(message.content.as_bytes())
            }
        };
        let id = headers.get(envelope::MESSAGE_ID).cloned();
        headers.insert(IDEMPOTENCY_KEY, id.map_or_else(|| encoded(&message.message_id.to_string()), Ok)?);
        headers.insert(ATTEMPT_NO, HeaderValue::from(message.attempt_no));
        if let Some(signer) = &self.signer {
            let signed = signer.sign(message.message_id, now, &body);
            headers.insert(webhook::ID, encoded(&signed.id)?);
            headers.insert(webhook::TIMESTAMP, encoded(&signed.timestamp)?);
            headers.insert(webhook::SIGNATURE, header_value(webhook::SIGNATURE, &signed.signatures)?);
        }
        self.add_fixed(&mut headers);
        Ok(Outgoing { url, headers, body })
    }

    fn add_fixed(&self, headers: &mut HeaderMap) {
        for (name, value) in &self.fixed {
            headers.insert(name.clone(), value.clone());
        }
    }

    /// The request of several messages.
    pub(super) fn several(&self, messages: &[&Claimed]) -> Result<Outgoing, SinkFailure> {
        let (content_type, body) = if self.body == HttpBody::CloudeventsBatch {
            let source = self.source.as_ref();
            let events: Vec<Event<'_>> =
                messages.iter().map(|message| Event::new(message, source)).collect::<Result<_, _>>()?;
            (cloudevents::BATCH, json(&events)?)
        } else {
            ("application/json", json(&Events::new(messages, self.source.as_ref())?)?)
        };
        let url = match &self.target {
            Target::Fixed(url) => url.clone(),
            Target::Each(..) => return Err(SinkFailure::terminal(SinkFailure::NO_ADDRESS, "the url has fields")),
        };
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        headers.insert(IDEMPOTENCY_KEY, encoded(&batch_key(messages))?);
        self.add_fixed(&mut headers);
        Ok(Outgoing { url, headers, body })
    }

    /// The producer's headers and those of the envelope.
    fn message_headers(&self, message: &Claimed) -> Result<HeaderMap, SinkFailure> {
        let mut headers = HeaderMap::with_capacity(USUAL_HEADERS);
        for (name, value) in envelope::producers(message).filter(|(name, _)| self.passes_on(name)) {
            headers.append(header_name(name)?, header_value(name, value)?);
        }
        for (name, value) in envelope::ours(message) {
            let key = HeaderName::from_static(name);
            if key != CONTENT_TYPE {
                headers.insert(key, encoded(&value)?);
            } else if self.passes_on(name) {
                headers.append(key, header_value(name, &value)?);
            }
        }
        Ok(headers)
    }

    fn passes_on(&self, name: &str) -> bool {
        // Many servers read `x_real_ip` as `x-real-ip`.
        let name = name.to_ascii_lowercase().replace('_', "-");
        match self.body {
            _ if is_ours(&name) || (self.signer.is_some() && name.starts_with(webhook::START)) => false,
            // The attributes are ours to say. Receivers take any request that has one for an event in headers.
            HttpBody::CloudeventsBinary | HttpBody::CloudeventsStructured if name.starts_with(ATTRIBUTE) => false,
            // What is sent is not the content but something that holds it.
            HttpBody::CloudeventsStructured if name.starts_with(ABOUT_CONTENT) => false,
            _ => !HOP_BY_HOP.contains(&name.as_str()) && !is_trusted(&name),
        }
    }
}

/// Whether it is, but for its spelling, a header that is set here.
fn is_ours(name: &str) -> bool {
    name.starts_with(OURS) || name == IDEMPOTENCY_KEY.as_str() || name == USER_AGENT.as_str()
}

fn is_trusted(name: &str) -> bool {
    TRUSTED.contains(&name) || TRUSTED_STARTS.iter().any(|start| name.starts_with(start))
}

/// What the operator sets for every request.
fn fixed_headers(options: &HttpOptions) -> Result<HeaderMap, Error> {
    let mut headers = HeaderMap::new();
    for (name, secret) in &options.headers {
        let value = secret.reveal(&format!("the header {name}"))?;
        let known = HeaderName::from_bytes(name.as_bytes()).ok().filter(|name| !HOP_BY_HOP.contains(&name.as_str()));
        let key = known.ok_or_else(|| Error::options(format!("{name:?} is no header that can be set")))?;
        headers.insert(
            key,
            sensitive(&value)
                .ok_or_else(|| Error::options(format!("the value of the header {name} cannot be sent")))?,
        );
    }
    let authorization = match (&options.bearer, &options.basic) {
        (None, None) => return Ok(headers),
        (Some(token), None) => format!("Bearer {}", token.reveal("the bearer token")?),
        (None, Some(basic)) => {
            if basic.user.contains(':') {
                return Err(Error::options("the user of `basic` has a colon in it, which HTTP cannot carry"));
            }
            let pair = format!("{}:{}", basic.user, basic.password.reveal("the basic password")?);
            format!("Basic {}", STANDARD.encode(pair))
        }
        (Some(_), Some(_)) => return Err(Error::options("bearer and basic exclude each other: give one")),
    };
    let value =
        sensitive(&authorization).ok_or_else(|| Error::options("the bearer token cannot be sent in a header"))?;
    headers.insert(AUTHORIZATION, value);
    Ok(headers)
}

fn sensitive(value: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_bytes(value.as_bytes()).ok()?;
    value.set_sensitive(true);
    Some(value)
}

fn header_name(name: &str) -> Result<HeaderName, SinkFailure> {
    HeaderName::from_bytes(name.as_bytes()).map_err(|_| {
        SinkFailure::terminal(SinkFailure::INVALID_HEADER, format!("{name:?} is not a header name that HTTP can carry"))
    })
}

/// As it is, in UTF-8. A line's end or another control character would make a second header of it, so it is refused.
fn header_value(name: &str, value: &str) -> Result<HeaderValue, SinkFailure> {
    HeaderValue::from_bytes(value.as_bytes()).map_err(|_| {
        let words = format!("the value of the header {name:?} has a control character in it");
        SinkFailure::terminal(SinkFailure::INVALID_HEADER, words)
    })
}

/// Percent-encoded where HTTP, or the one who reads it, could not take it as it is.
fn encoded(value: &str) -> Result<HeaderValue, SinkFailure> {
    header_value("postrider", &Cow::from(utf8_percent_encode(value, UNSAFE)))
}

fn json(document: &impl Serialize) -> Result<Bytes, SinkFailure> {
    Ok(serde_json::to_vec(document).map_err(SinkFailure::from)?.into())
}

/// The same for the same messages in the same order, and for no others.
fn batch_key(messages: &[&Claimed]) -> String {
    let mut digest = Sha256::new();
    for message in messages {
        digest.update(message.message_id.as_bytes());
    }
    URL_SAFE_NO_PAD.encode(digest.finalize())
}
