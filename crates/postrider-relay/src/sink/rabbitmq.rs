//! Publishes to RabbitMQ (AMQP 0-9-1): persistent, mandatory, each message confirmed. A message counts as delivered when
//! the server has confirmed it and has not returned it as one that no queue takes.
//!
//! **Order.** The server takes what is on one channel in order, but it can refuse a message and take the next: a full queue
//! says no once, a missing binding concerns one routing key. So nothing is relied on but the answers: a batch goes in waves
//! (`lanes.rs`), and what follows a message in its lane is sent when that message is confirmed.
//!
//! **What the library does not tell.** It hands a returned message to whichever confirmation it sees next. Returns are
//! therefore matched by message id once a wave has all its answers, and what is not certain then has failed.
//!
//! **A closed channel** names no message. If not all that were on it share the reason, they are sent again in halves until
//! the one is found that closes it alone.

mod check;
mod connection;
mod encode;
mod failure;
mod options;
mod publish;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lapin::tcp::OwnedTLSConfig;
use lapin::uri::AMQPUri;
use postrider::lifecycle::Claimed;
use tokio::time::{Instant, timeout_at};

use self::connection::{Connection, ConnectionPool, Target};
use self::encode::Encoder;
pub use self::options::RabbitmqOptions;
use self::publish::{End, Outgoing};
use super::lanes::Waves;
use super::{Batching, Finding, Sink, Verdict};
use crate::error::Error;

/// Messages of one call. More would only wait in the server's buffers.
const MAX_MESSAGES: usize = 1_000;
/// The library copies what it sends.
const MAX_BYTES: usize = 16 << 20;

/// Publishes to RabbitMQ. It connects when there is something to send, and again after whatever broke.
pub struct RabbitmqSink {
    encoder: Encoder,
    connections: ConnectionPool,
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
        let encoder = Encoder { exchange, routing_key, destinations, max_message_size };
        Ok(Self { encoder, connections: ConnectionPool::new(target, connections), timeout })
    }

    /// No wave begins after `until`, and each has `timeout` of its own: a long lane on a slow way is handed back in part.
    async fn send(&self, batch: &[Arc<Claimed>], waves: &mut Waves, until: Instant) {
        let publications: Vec<_> = batch.iter().map(|message| self.encoder.encode(message)).collect();
        while Instant::now() < until
            && let Some(wave) = waves.next_wave()
        {
            let mut outgoing = Vec::with_capacity(wave.len());
            for place in wave {
                match &publications[place] {
                    Ok(publication) => {
                        let body = batch[place].content.as_bytes();
                        outgoing.push(Outgoing { place, publication, body });
                    }
                    Err(failure) => waves.settle(place, Verdict::Failed(failure.clone())),
                }
            }
            if outgoing.is_empty() {
                continue;
            }
            let deadline = Instant::now() + self.timeout;
            let taken = timeout_at(deadline, self.connections.take()).await;
            match taken.unwrap_or_else(|_| Err(failure::silent(self.timeout))) {
                Ok(connection) => self.publish_wave(connection, outgoing, waves, deadline).await,
                Err(failure) => return waves.fail(outgoing.iter().map(|one| one.place), &failure),
            }
        }
    }

    /// Publishes a wave and settles what is certain. What a closed channel left uncertain goes again in halves.
    async fn publish_wave(
        &self,
        mut connection: Connection,
        mut outgoing: Vec<Outgoing<'_>>,
        waves: &mut Waves,
        deadline: Instant,
    ) {
        let frame_max = connection.frame_max();
        outgoing.retain(|one| {
            let fits = one.publication.fits(frame_max);
            fits.map_err(|failure| waves.settle(one.place, Verdict::Failed(failure))).is_ok()
        });
        let published = publish::publish(&mut connection, &outgoing, deadline).await;
        let mut left = Vec::new();
        for (one, verdict) in outgoing.into_iter().zip(published.certain) {
            match verdict {
                Some(verdict) => waves.settle(one.place, verdict),
                None => left.push(one),
            }
        }
        let places = left.iter().map(|one| one.place);
        match published.end {
            End::Answered => {
                self.connections.give_back(connection);
                waves.fail(places, &failure::in_doubt());
            }
            End::Late => waves.fail(places, &failure::silent(self.timeout)),
            End::Blocked(reason) => {
                waves.fail(places, &failure::blocked(&reason));
                self.connections.watch(connection, reason);
            }
            End::Broken(error) if publish::may_be_of_one(&error, &left) => waves.halve(places.collect()),
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
        Batching::ordered(MAX_MESSAGES).max_bytes(MAX_BYTES)
    }

    fn longest(&self) -> Option<Duration> {
        Some(2 * self.timeout)
    }

    async fn deliver(&self, batch: &[Arc<Claimed>]) -> Vec<Verdict> {
        let mut waves = Waves::new(batch);
        // Whoever finds no connection free has sent nothing, and says so.
        let until = Instant::now() + self.timeout;
        if let Ok(Some(_permit)) = timeout_at(until, self.connections.permit()).await {
            self.send(batch, &mut waves, until).await;
        }
        waves.into_verdicts()
    }

    async fn check(&self) -> Vec<Finding> {
        let mut findings = check::findings(&self.connections, &self.encoder).await;
        findings.extend(self.encoder.finding());
        findings
    }
}
