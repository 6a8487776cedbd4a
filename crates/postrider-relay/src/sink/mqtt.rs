//! Publishes to an MQTT 5 server at quality 1 or 2. A message counts as delivered when the server has acknowledged it and
//! has not said that nobody is there to get it. What the server keeps, and for whom, is its own affair: MQTT promises
//! nothing about storage.
//!
//! **Order.** A server takes what is on one connection in order, but it answers each message by itself and can refuse one
//! and take the next. So nothing is relied on but the answers (`lanes.rs`): what follows a message in its lane is sent when
//! that message is acknowledged. It does not wait for those of other lanes: a server that holds back its last small answers
//! until ours come (Nagle's algorithm) would make every wave wait 40 ms.
//!
//! **Nothing goes behind the relay's back.** Every connection is a clean start with a session that ends with it, so the
//! library has nothing to resend: the relay retries. Its event loop runs only while a delivery waits for it (`connection.rs`).
//!
//! **A server that hangs up** names no message. If one may be the reason, they are sent again in halves until it is alone.

mod check;
mod connection;
mod encode;
mod failure;
mod options;

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt as _;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use postrider::lifecycle::Claimed;
use rumqttc::{
    AsyncClient, ConnectionError, EventLoop, PubAckReason, PublishNotice, PublishNoticeError, PublishOptions,
    PublishResult, QoS,
};
use tokio::time::{Instant, sleep_until, timeout_at};

use self::connection::{Connection, ConnectionPool, PoolSlot};
use self::encode::Publication;
pub use self::options::MqttOptions;
use super::destinations::Destinations;
use super::lanes::Waves;
use super::template::Template;
use super::{Batching, Finding, Receipt, Sink, SinkFailure, Verdict};
use crate::error::Error;

/// Messages of one call; the server's receive maximum says how many of them are on the wire at once.
const MAX_MESSAGES: usize = 1_000;
/// A batch is held in memory until it is acknowledged.
const MAX_BYTES: usize = 16 << 20;

/// Publishes to an MQTT server. It connects when there is something to send, and again after whatever broke.
pub struct MqttSink {
    connections: ConnectionPool,
    topic: Template,
    destinations: Destinations,
    qos: QoS,
    retain: bool,
    require_subscriber: bool,
    timeout: Duration,
}

impl MqttSink {
    /// Reads the options; nothing is connected yet.
    pub fn new(options: MqttOptions) -> Result<Self, Error> {
        let (connection, qos) = options::connection_options(&options)?;
        options.destinations.check(&options.topic)?;
        let MqttOptions { topic, destinations, retain, require_subscriber, timeout, connections, .. } = options;
        Ok(Self {
            connections: ConnectionPool::new(connection, connections),
            topic,
            destinations,
            qos,
            retain,
            require_subscriber,
            timeout,
        })
    }

    /// Nothing is sent after `until`, and what was sent has `timeout` of its own: a long lane on a slow way is handed back in
    /// part.
    async fn send(&self, batch: &[Arc<Claimed>], slot: &mut PoolSlot<'_>, waves: &mut Waves, until: Instant) {
        while Instant::now() < until
            && let Some(wave) = waves.next_wave()
        {
            let connection = match timeout_at(Instant::now() + self.timeout, slot.connection()).await {
                Ok(Ok(connection)) => connection,
                Ok(Err(error)) => return waves.fail(wave, &failure::of(&error)),
                Err(_) => return waves.fail(wave, &failure::silent(self.timeout)),
            };
            self.publish_wave(connection, batch, wave, slot, waves, until).await;
        }
    }

    /// Publishes what is ready, and as each is acknowledged the next of its lane. What a server that hung up left open goes
    /// again in halves.
    async fn publish_wave(
        &self,
        mut connection: Connection,
        batch: &[Arc<Claimed>],
        wave: Vec<usize>,
        slot: &mut PoolSlot<'_>,
        waves: &mut Waves,
        until: Instant,
    ) {
        let mut left: BTreeSet<usize> = wave.iter().copied().collect();
        let mut answers = FuturesUnordered::new();
        let mut to_send = wave;
        let end = {
            let (client, most) = (&connection.client, connection.terms.max_packet_size);
            let mut breaking = pin!(broken(&mut connection.events));
            let mut late = pin!(sleep_until(Instant::now() + self.timeout));
            loop {
                for place in to_send.drain(..) {
                    match self.publish(client, &batch[place], most) {
                        Ok(notice) => answers.push(async move { (place, notice.wait_async().await) }),
                        Err(failure) => {
                            left.remove(&place);
                            waves.settle(place, Verdict::Failed(failure));
                        }
                    }
                }
                let (place, answer) = tokio::select! {
                    biased;
                    answer = answers.next() => match answer {
                        Some(answer) => answer,
                        None => break End::Answered,
                    },
                    error = &mut breaking => break End::Broken(error),
                    () = &mut late => break End::Late,
                };
                if let Some(verdict) = self.verdict(answer) {
                    left.remove(&place);
                    waves.settle(place, verdict);
                    if Instant::now() < until {
                        to_send = waves.released();
                        left.extend(&to_send);
                    }
                    late.as_mut().reset(Instant::now() + self.timeout);
                }
            }
        };
        // What was answered before the end is known.
        while let Some(Some((place, answer))) = answers.next().now_or_never() {
            if let Some(verdict) = self.verdict(answer) {
                left.remove(&place);
                waves.settle(place, verdict);
            }
        }
        match end {
            End::Answered if left.is_empty() => slot.keep(connection),
            End::Answered => waves.fail(left, &failure::in_doubt()),
            End::Late => waves.fail(left, &failure::silent(self.timeout)),
            End::Broken(error) if left.len() > 1 && failure::may_be_of_one(&error) => {
                waves.halve(left.into_iter().collect());
            }
            End::Broken(error) => waves.fail(left, &failure::of(&error)),
        }
    }

    /// Puts a message into the library's queue, which has room for a batch. It goes when the event loop is polled.
    fn publish(
        &self,
        client: &AsyncClient,
        message: &Claimed,
        most: Option<u32>,
    ) -> Result<PublishNotice, SinkFailure> {
        let publication = Publication::new(message, &self.topic, &self.destinations, self.qos)?;
        publication.fits(most)?;
        let options = PublishOptions::new(self.qos).retain(self.retain).properties(publication.properties);
        client.try_publish_tracked(publication.topic, publication.payload, options).map_err(|_| failure::in_doubt())
    }

    /// What an answer says; nothing if it is none.
    fn verdict(&self, answer: Result<PublishResult, PublishNoticeError>) -> Option<Verdict> {
        let reason = match answer {
            Ok(PublishResult::Qos1(answer)) => answer.reason,
            Ok(PublishResult::Qos2PubRecRejected(answer)) => failure::as_puback(answer.reason),
            Ok(PublishResult::Qos2Completed(_)) => PubAckReason::Success,
            Err(PublishNoticeError::V5PubAck(reason)) => reason,
            Err(PublishNoticeError::V5PubRec(reason)) => failure::as_puback(reason),
            Err(PublishNoticeError::RetainNotSupported) => {
                let words = "the server keeps no retained messages; set retain = false";
                return Some(Verdict::Failed(SinkFailure::retryable("MQTT_RETAIN_NOT_SUPPORTED", words)));
            }
            Ok(PublishResult::Qos0Flushed) | Err(_) => return None,
        };
        let kept = match reason {
            PubAckReason::Success => true,
            PubAckReason::NoMatchingSubscribers => self.retain || !self.require_subscriber,
            _ => false,
        };
        if !kept {
            return Some(Verdict::Failed(failure::of_answer(reason)));
        }
        let code = Some(format!("0x{:02x}", reason as u8));
        Some(Verdict::Delivered(Receipt { reference: None, code }))
    }
}

/// Polls the library's event loop until the connection ends, and says why.
async fn broken(events: &mut EventLoop) -> ConnectionError {
    loop {
        if let Err(error) = events.poll().await {
            return error;
        }
    }
}

/// How a wave ended.
enum End {
    /// Nothing is waited for any more.
    Answered,
    /// The deadline passed.
    Late,
    /// The connection ended.
    Broken(ConnectionError),
}

#[async_trait]
impl Sink for MqttSink {
    fn kind(&self) -> &'static str {
        "mqtt"
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
        if let Ok(Some(mut slot)) = timeout_at(until, self.connections.slot()).await {
            self.send(batch, &mut slot, &mut waves, until).await;
        }
        waves.into_verdicts()
    }

    async fn check(&self) -> Vec<Finding> {
        check::findings(self).await
    }
}
