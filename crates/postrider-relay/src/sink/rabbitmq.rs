//! Publishes to RabbitMQ (AMQP 0-9-1): persistent, mandatory, each message confirmed. A message counts as delivered when
//! the server has confirmed it and has not returned it as one that no queue takes.
//!
//! **Order.** The server takes what is on one channel in order, but it can refuse a message and take the next: a full queue
//! says no once, a missing binding concerns one routing key. So nothing is relied on but the answers: a batch goes in waves
//! (`waves.rs`), and what follows a message in its lane is sent when that message is confirmed.
//!
//! **What the library does not tell.** It hands a returned message to whichever confirmation it sees next. Returns are
//! therefore matched by message id once a wave has all its answers, and what is not certain then has failed.
//!
//! **A closed channel** names no message. If not all that were on it share the reason, they are sent again in halves until
//! the one is found that closes it alone.

mod failure;
mod flight;
mod link;
mod look;
mod parcel;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lapin::tcp::OwnedTLSConfig;
use lapin::uri::AMQPUri;
use postrider::Claimed;
use serde::Deserialize;
use tokio::time::{Instant, timeout_at};

use super::destinations::Destinations;
use super::registry::BuildSink;
use super::template::Template;
use super::waves::Waves;
use super::{Batching, Finding, Sink, Verdict};
use crate::error::Error;
use crate::options::setters;
use crate::secret::Secret;
use flight::{End, Letter};
use link::{Link, Links, Target};
use parcel::Addressing;

/// One flight of publishes. More would only wait in the server's buffers.
const BATCH_MESSAGES: usize = 1_000;
/// The library copies what it sends.
const BATCH_BYTES: usize = 16 << 20;

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

/// Publishes to RabbitMQ. It connects when there is something to send, and again after whatever broke.
pub struct RabbitmqSink {
    addressing: Addressing,
    links: Links,
    timeout: Duration,
}

impl RabbitmqSink {
    /// Reads the options; nothing is connected yet.
    pub fn new(options: RabbitmqOptions) -> Result<Self, Error> {
        let wrong = |reason: &str| Error::options(format!("RabbitMQ: {reason}"));
        let url = options.url.reveal("the URL of RabbitMQ")?;
        // The library's error may repeat the URL, and with it the password.
        let mut uri: AMQPUri = url.parse().map_err(|_| {
            wrong("`url` cannot be read; it looks like amqp://user:password@host:5672/vhost, or amqps:// for TLS")
        })?;
        if let Some(password) = &options.password {
            uri.authority.userinfo.password = password.reveal("the password of RabbitMQ")?;
        }
        if options.timeout.is_zero() || options.connections == 0 {
            return Err(wrong("`timeout` and `connections` must be more than 0"));
        }
        let cert_chain = options.ca.as_ref().map(std::fs::read_to_string).transpose();
        let cert_chain = cert_chain.map_err(|error| wrong(&format!("the file `ca` cannot be read: {error}")))?;
        let tls = OwnedTLSConfig { identity: None, cert_chain };
        let target = Target { uri, tls, timeout: options.timeout };
        let RabbitmqOptions { exchange, routing_key, destinations, timeout, connections, max_message_size, .. } =
            options;
        let varies = exchange.as_ref().filter(|exchange| exchange.fixed().is_none());
        destinations.check(varies.unwrap_or(&routing_key))?;
        let addressing = Addressing { exchange, routing_key, destinations, max_message_size };
        Ok(Self { addressing, links: Links::new(target, connections), timeout })
    }

    /// No flight begins after `until`, and each has `timeout` of its own: a long lane on a slow way is handed back in part.
    async fn send(&self, batch: &[Arc<Claimed>], waves: &mut Waves, until: Instant) {
        let parcels: Vec<_> = batch.iter().map(|message| self.addressing.parcel(message)).collect();
        while Instant::now() < until
            && let Some(flight) = waves.next_flight()
        {
            let mut letters = Vec::with_capacity(flight.len());
            for place in flight {
                match &parcels[place] {
                    Ok(parcel) => letters.push(Letter { place, parcel, body: batch[place].content.as_bytes() }),
                    Err(failure) => waves.settle(place, Verdict::Failed(failure.clone())),
                }
            }
            if letters.is_empty() {
                continue;
            }
            let deadline = Instant::now() + self.timeout;
            let taken = timeout_at(deadline, self.links.take()).await;
            match taken.unwrap_or_else(|_| Err(failure::silent(self.timeout))) {
                Ok(link) => self.fly(link, letters, waves, deadline).await,
                Err(failure) => return waves.fail(letters.iter().map(|letter| letter.place), &failure),
            }
        }
    }

    /// Publishes as one flight and settles what is certain. What a closed channel left uncertain goes again in halves.
    async fn fly(&self, mut link: Link, mut letters: Vec<Letter<'_>>, waves: &mut Waves, deadline: Instant) {
        let frame_max = link.frame_max();
        letters.retain(|letter| {
            let fits = letter.parcel.fits(frame_max);
            fits.map_err(|failure| waves.settle(letter.place, Verdict::Failed(failure))).is_ok()
        });
        let flown = flight::publish(&mut link, &letters, deadline).await;
        let mut left = Vec::new();
        for (letter, verdict) in letters.into_iter().zip(flown.certain) {
            match verdict {
                Some(verdict) => waves.settle(letter.place, verdict),
                None => left.push(letter),
            }
        }
        let places = left.iter().map(|letter| letter.place);
        match flown.end {
            End::Answered => {
                self.links.give_back(link);
                waves.fail(places, &failure::in_doubt());
            }
            End::Late => waves.fail(places, &failure::silent(self.timeout)),
            End::Blocked(reason) => {
                waves.fail(places, &failure::blocked(&reason));
                self.links.watch(link, reason);
            }
            End::Broken(error) if flight::may_be_of_one(&error, &left) => waves.halve(places.collect()),
            End::Broken(error) => waves.fail(places, &failure::of(&error)),
        }
    }
}

#[async_trait]
impl Sink for RabbitmqSink {
    fn kind(&self) -> &'static str {
        "rabbitmq"
    }

    fn batching(&self) -> Batching {
        Batching { max_messages: BATCH_MESSAGES, max_bytes: BATCH_BYTES, ordered: true }
    }

    fn longest(&self) -> Option<Duration> {
        Some(2 * self.timeout)
    }

    async fn deliver(&self, batch: &[Arc<Claimed>]) -> Vec<Verdict> {
        let mut waves = Waves::new(batch);
        // Whoever finds no link free has sent nothing, and says so.
        let until = Instant::now() + self.timeout;
        if let Ok(Some(_turn)) = timeout_at(until, self.links.turn()).await {
            self.send(batch, &mut waves, until).await;
        }
        waves.into_verdicts()
    }

    async fn check(&self) -> Vec<Finding> {
        let mut findings = look::look(&self.links, &self.addressing).await;
        findings.extend(self.addressing.finding());
        findings
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
