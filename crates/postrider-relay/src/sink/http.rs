//! Sends messages over HTTP: one message a request as it is, as a signed webhook or as a `CloudEvent`, or many at once to a
//! receiver that takes batches. An answer counts when it has been read to its end or to the limit; redirects and the
//! environment's proxies are never followed.
//!
//! Order: a lane's next message is sent when the one before was answered. One request holds one message, or one message of
//! each lane (see `batch_delivery.rs` for the exception that an operator can make).

mod answer;
mod batch;
mod batch_delivery;
mod check;
mod cloudevents;
mod connection;
mod encode;
mod excerpt;
mod guard;
mod options;
mod plain;
mod target;
mod webhook;

use std::fmt;
use std::io::Write as _;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use postrider::lifecycle::Claimed;
use reqwest::Client;
use reqwest::header::{CONTENT_ENCODING, HeaderValue};
use rustls::ClientConfig;
use tokio::time::Instant;

use self::answer::{Answer, AnswerReader};
use self::connection::Unanswered;
use self::encode::{Composer, Outgoing};
use self::guard::{Guard, SystemResolver};
use self::plain::Plain;
use super::{Batching, Finding, Sink, SinkFailure, Verdict};
use crate::error::Error;

pub use self::guard::Resolver;
pub use self::options::{BasicAuth, HttpBody, HttpOptions, WebhookOptions};

/// What an answer for one event of a batch takes, with room for a code: answers must not be cut.
const RESULT_BYTES: usize = 256;

/// A sink that sends over HTTP.
pub struct HttpSink {
    composer: Composer,
    reading: AnswerReader,
    client: Client,
    /// For `http://`, unless it is HTTP/2.
    plain: Plain,
    guard: Guard,
    tls: Arc<ClientConfig>,
    options: HttpOptions,
}

impl HttpSink {
    /// Reads files and secrets, and connects to nothing: the receiver may be away.
    pub fn new(options: HttpOptions) -> Result<Self, Error> {
        Self::with_resolver(options, Arc::new(SystemResolver))
    }

    /// The same, with names looked up by `resolver` instead of the system's. The guard checks what it answers.
    pub fn with_resolver(options: HttpOptions, resolver: Arc<dyn Resolver>) -> Result<Self, Error> {
        if options.timeout.is_zero() || options.connect_timeout.is_zero() || options.max_batch == 0 {
            let reason = "timeout, connect_timeout and max_batch must be more than 0".to_owned();
            return Err(Error::options(reason));
        }
        if options.body == HttpBody::Batch && options.max_response_bytes / RESULT_BYTES < options.max_batch {
            return Err(Error::options(format!(
                "max_response_bytes is {} and max_batch {}: give at least {RESULT_BYTES} bytes for each result",
                options.max_response_bytes, options.max_batch
            )));
        }
        options.check()?;
        let guard = Guard::new(resolver, options.guarded(), &options.allow);
        let tls = connection::tls(&options)?;
        let composer = Composer::new(&options)?;
        Ok(Self {
            reading: AnswerReader::new(&options, composer.secrets())?,
            composer,
            client: connection::client(&options, tls.clone(), guard.clone())?,
            plain: Plain::new(guard.clone(), options.connect_timeout),
            guard,
            tls: Arc::new(tls),
            options,
        })
    }

    async fn deliver_one(&self, message: &Claimed, deadline: Instant) -> Verdict {
        let exchanged = match self.composer.one(message, SystemTime::now()) {
            Ok(outgoing) => self.exchange(outgoing, deadline).await,
            Err(failure) => Err(failure),
        };
        match exchanged {
            Ok((answer, _)) if answer.status.is_success() => Verdict::Delivered(answer.receipt()),
            Ok((answer, host)) => Verdict::Failed(self.reading.failure(&answer, &host)),
            Err(failure) => Verdict::Failed(failure),
        }
    }

    /// Sends a request and reads the answer, and says who answered. When it is dropped, the connection is closed or the
    /// stream reset: nothing more is sent.
    async fn exchange(&self, outgoing: Outgoing, deadline: Instant) -> Result<(Answer, String), SinkFailure> {
        let host = target::host(&outgoing.url);
        self.guard.check(&outgoing.url).map_err(|forbidden| forbidden.failure())?;
        match tokio::time::timeout_at(deadline, self.request(outgoing, &host)).await {
            Ok(Ok(answer)) => Ok((answer, host)),
            Ok(Err(unanswered)) => Err(unanswered.failure(&host)),
            Err(_) => Err(SinkFailure::retryable(
                SinkFailure::TIMEOUT,
                format!("{host} did not answer to the end within {:?}", self.options.timeout),
            )),
        }
    }

    async fn request(&self, mut outgoing: Outgoing, host: &str) -> Result<Answer, Unanswered> {
        // What its producer has compressed is not compressed again.
        if self.options.gzip
            && !outgoing.headers.contains_key(CONTENT_ENCODING)
            && let Some(compressed) = compressed(outgoing.body.clone()).await
        {
            outgoing.body = compressed;
            outgoing.headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        let method = &self.composer.method;
        if outgoing.url.scheme() == "http" && !self.options.http2_prior_knowledge {
            return self.plain.exchange(method, outgoing, host, &self.reading).await;
        }
        let Outgoing { url, headers, body } = outgoing;
        let request = self.client.request(method.clone(), url).headers(headers).body(body);
        Ok(self.reading.read(request.send().await?, SystemTime::now()).await?)
    }
}

/// On a thread that may be kept busy. `None` if it cannot be done: then it goes as it is.
async fn compressed(body: Bytes) -> Option<Bytes> {
    let compress = move || {
        let mut encoder = GzEncoder::new(Vec::with_capacity(body.len() / 2), Compression::fast());
        encoder.write_all(&body).and_then(|()| encoder.finish()).ok().map(Bytes::from)
    };
    tokio::task::spawn_blocking(compress).await.ok().flatten()
}

#[async_trait]
impl Sink for HttpSink {
    fn kind(&self) -> &'static str {
        "http"
    }

    fn batching(&self) -> Batching {
        if self.options.body.holds_several() {
            let ordered = self.options.lanes_in_order;
            Batching { ordered, ..Batching::ordered(self.options.max_batch).max_bytes(self.options.max_batch_bytes) }
        } else {
            Batching::one_by_one()
        }
    }

    fn longest(&self) -> Option<Duration> {
        Some(self.options.timeout)
    }

    async fn deliver(&self, batch: &[Arc<Claimed>]) -> Vec<Verdict> {
        let deadline = Instant::now() + self.options.timeout;
        if self.options.body.holds_several() {
            return self.deliver_batch(batch, deadline).await;
        }
        let mut verdicts = Vec::with_capacity(batch.len());
        for message in batch {
            verdicts.push(self.deliver_one(message, deadline).await);
        }
        verdicts
    }

    async fn check(&self) -> Vec<Finding> {
        self.findings().await
    }
}

impl fmt::Debug for HttpSink {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("HttpSink").field("body", &self.options.body).finish_non_exhaustive()
    }
}
