//! Publishes to an MQTT 5 server at quality 1 or 2. A message counts as delivered when the server has acknowledged it and
//! has not said that nobody is there to get it. What the server keeps, and for whom, is its own affair: MQTT promises
//! nothing about storage.
//!
//! **Order.** A server takes what is on one connection in order, but it answers each message by itself and can refuse one
//! and take the next. So nothing is relied on but the answers (`waves.rs`): what follows a message in its lane is sent when
//! that message is acknowledged. It does not wait for those of other lanes: a server that holds back its last small answers
//! until ours come (Nagle's algorithm) would make every wave wait 40 ms.
//!
//! **Nothing goes behind the relay's back.** Every connection is a clean start with a session that ends with it, so the
//! library has nothing to resend: the relay retries. Its event loop runs only while a delivery waits for it (`link.rs`).
//!
//! **A server that hangs up** names no message. If one may be the reason, they are sent again in halves until it is alone.

mod failure;
mod link;
mod parcel;
mod target;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt as _;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use postrider::Claimed;
use rumqttc::{
    AsyncClient, ConnectionError, EventLoop, PubAckReason, PublishNotice, PublishNoticeError, PublishOptions,
    PublishResult, QoS,
};
use serde::Deserialize;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use super::destinations::Destinations;
use super::registry::BuildSink;
use super::template::Template;
use super::waves::Waves;
use super::{Batching, Finding, Receipt, Sink, SinkFailure, Verdict};
use crate::error::Error;
use crate::options::setters;
use crate::secret::Secret;
use link::{Link, Links, Turn};
use parcel::Parcel;

/// One flight of publishes; the server's receive maximum says how many of them are on the wire at once.
const BATCH_MESSAGES: usize = 1_000;
/// A batch is held in memory until it is acknowledged.
const BATCH_BYTES: usize = 16 << 20;

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

/// Publishes to an MQTT server. It connects when there is something to send, and again after whatever broke.
pub struct MqttSink {
    links: Links,
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
        let (target, qos) = target::read(&options)?;
        options.destinations.check(&options.topic)?;
        let MqttOptions { topic, destinations, retain, require_subscriber, timeout, connections, .. } = options;
        Ok(Self {
            links: Links::new(target, connections),
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
    async fn send(&self, batch: &[Arc<Claimed>], turn: &mut Turn<'_>, waves: &mut Waves, until: Instant) {
        while Instant::now() < until
            && let Some(flight) = waves.next_flight()
        {
            let link = match timeout_at(Instant::now() + self.timeout, turn.link()).await {
                Ok(Ok(link)) => link,
                Ok(Err(error)) => return waves.fail(flight, &failure::of(&error)),
                Err(_) => return waves.fail(flight, &failure::silent(self.timeout)),
            };
            self.fly(link, batch, flight, turn, waves, until).await;
        }
    }

    /// Publishes what is ready, and as each is acknowledged the next of its lane. What a server that hung up left open goes
    /// again in halves.
    async fn fly(
        &self,
        mut link: Link,
        batch: &[Arc<Claimed>],
        flight: Vec<usize>,
        turn: &mut Turn<'_>,
        waves: &mut Waves,
        until: Instant,
    ) {
        let mut left: BTreeSet<usize> = flight.iter().copied().collect();
        let mut answers = FuturesUnordered::new();
        let mut to_send = flight;
        let end = {
            let (client, most) = (&link.client, link.terms.max_packet_size);
            let mut breaking = pin!(broken(&mut link.events));
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
            End::Answered if left.is_empty() => turn.keep(link),
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
        let parcel = Parcel::new(message, &self.topic, &self.destinations, self.qos)?;
        parcel.fits(most)?;
        let options = PublishOptions::new(self.qos).retain(self.retain).properties(parcel.properties);
        client.try_publish_tracked(parcel.topic, parcel.payload, options).map_err(|_| failure::in_doubt())
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

/// How a flight ended.
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
        Batching { max_messages: BATCH_MESSAGES, max_bytes: BATCH_BYTES, ordered: true }
    }

    fn longest(&self) -> Option<Duration> {
        Some(2 * self.timeout)
    }

    async fn deliver(&self, batch: &[Arc<Claimed>]) -> Vec<Verdict> {
        let mut waves = Waves::new(batch);
        // Whoever finds no connection free has sent nothing, and says so.
        let until = Instant::now() + self.timeout;
        if let Ok(Some(mut turn)) = timeout_at(until, self.links.turn()).await {
            self.send(batch, &mut turn, &mut waves, until).await;
        }
        waves.into_verdicts()
    }

    async fn check(&self) -> Vec<Finding> {
        // Under an id of its own: that of a running relay would throw it out.
        let mut options = self.links.options(0);
        options.set_client_id(format!("postrider-check-{}", uuid::Uuid::new_v4().simple()));
        match timeout(self.timeout, Link::open(options)).await {
            Ok(Ok(link)) => self.look_at(&link),
            Ok(Err(error)) => {
                let failure = failure::of(&error);
                let fix = match failure.code.as_str() {
                    SinkFailure::UNAUTHORIZED => {
                        "check the user, the password and the server's list of who may do what"
                    }
                    _ => "check the host, the port, whether the server runs and whether it speaks MQTT 5",
                };
                vec![Finding::broken(format!("no connection: {}", failure.message), fix)]
            }
            Err(_) => {
                let words = failure::silent(self.timeout).message;
                vec![Finding::broken(words, "check the host, the port, and whether the server is well")]
            }
        }
    }
}

impl MqttSink {
    /// What the server said when it let us in.
    fn look_at(&self, link: &Link) -> Vec<Finding> {
        let terms = &link.terms;
        let most = |limit: Option<u32>| limit.map_or("any number of".to_owned(), |limit| limit.to_string());
        let mut findings = vec![Finding::works(format!(
            "the server lets us in; it takes {} messages without an answer and packets of {} bytes",
            most(terms.receive_max.map(u32::from)),
            most(terms.max_packet_size)
        ))];
        if terms.max_qos.is_some_and(|max_qos| max_qos < self.qos as u8) {
            let words =
                format!("the server takes quality {:?} at most, and the sink asks for {:?}", terms.max_qos, self.qos);
            findings.push(Finding::broken(words, "lower `qos`, or let the server take more"));
        }
        if self.retain && terms.retain_available == Some(0) {
            findings.push(Finding::broken("the server keeps no retained messages", "set retain = false"));
        }
        if self.require_subscriber && !self.retain && self.qos == QoS::ExactlyOnce {
            let words = "at quality 2 it is not seen when nobody subscribes to a topic, and such a message is lost";
            findings.push(Finding::weak(words, "set qos = 1"));
        }
        findings.extend(self.destinations.finding(&self.topic, "topic"));
        findings.push(Finding::weak(
            "an acknowledgement says that the server has the message, not that it will still have it after a crash, and MQTT \
             does not tell",
            "let the server write sessions to disk, and subscribers use sessions that stay",
        ));
        findings
    }
}
