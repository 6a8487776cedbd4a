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
mod link;
mod parcel;

use std::collections::HashMap;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::{FusedFuture, FutureExt as _};
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use lapin::message::BasicReturnMessage;
use lapin::options::{BasicPublishOptions, ExchangeDeclareOptions, QueueDeclareOptions};
use lapin::protocol::AMQPErrorKind;
use lapin::tcp::OwnedTLSConfig;
use lapin::types::FieldTable;
use lapin::uri::AMQPUri;
use lapin::{Channel, Confirmation, ErrorKind, ExchangeKind};
use postrider::Claimed;
use serde::Deserialize;
use tokio::time::{Instant, timeout, timeout_at};

use super::template::Template;
use super::waves::Waves;
use super::{Batching, Finding, Receipt, Sink, SinkFailure, Verdict};
use crate::error::Error;
use crate::secret::Secret;
use link::{Link, Links, Target};
use parcel::{Addressing, Parcel};

/// One flight of publishes. More would only wait in the server's buffers.
const BATCH_MESSAGES: usize = 1_000;
/// The library copies what it sends.
const BATCH_BYTES: usize = 16 << 20;

/// How to publish to RabbitMQ.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
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
    /// How long a delivery may take, connecting included, before what is not confirmed counts as failed: 10 s.
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

impl Default for RabbitmqOptions {
    fn default() -> Self {
        Self {
            url: Secret::from("amqp://localhost:5672/%2f"),
            password: None,
            exchange: None,
            routing_key: Template::topic(),
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
        let wrong = |reason: &str| Error::Options { reason: format!("RabbitMQ: {reason}") };
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
        let RabbitmqOptions { exchange, routing_key, timeout, connections, max_message_size, .. } = options;
        let addressing = Addressing { exchange, routing_key, max_message_size };
        Ok(Self { addressing, links: Links::new(target, connections), timeout })
    }

    async fn send(&self, batch: &[Arc<Claimed>], waves: &mut Waves, deadline: Instant) {
        let parcels: Vec<_> = batch.iter().map(|message| self.addressing.parcel(message)).collect();
        loop {
            let wave = waves.next_wave();
            if wave.is_empty() {
                return;
            }
            let mut group = Vec::with_capacity(wave.len());
            for place in wave {
                match &parcels[place] {
                    Ok(parcel) => group.push(Letter { place, parcel, body: batch[place].content.as_bytes() }),
                    Err(failure) => waves.settle(place, Verdict::Failed(failure.clone())),
                }
            }
            let mut groups = vec![group];
            while let Some(group) = groups.pop().filter(|group| !group.is_empty()) {
                let taken = timeout_at(deadline, self.links.take()).await;
                let link = match taken.unwrap_or_else(|_| Err(failure::silent(self.timeout))) {
                    Ok(link) => link,
                    Err(failure) => {
                        let unsent = group.into_iter().chain(groups.into_iter().flatten());
                        unsent.for_each(|letter| waves.settle(letter.place, Verdict::Failed(failure.clone())));
                        return;
                    }
                };
                groups.extend(self.fly(link, group, waves, deadline).await);
            }
        }
    }

    /// Publishes a group as one flight and settles what is certain. What a closed channel left uncertain comes back in
    /// halves, the first of them last.
    async fn fly<'a>(
        &self,
        mut link: Link,
        mut group: Vec<Letter<'a>>,
        waves: &mut Waves,
        deadline: Instant,
    ) -> Vec<Vec<Letter<'a>>> {
        let frame_max = link.frame_max();
        group.retain(|letter| {
            let fits = letter.parcel.fits(frame_max);
            fits.map_err(|failure| waves.settle(letter.place, Verdict::Failed(failure))).is_ok()
        });
        let flown = publish(&mut link, &group, deadline).await;
        let certain = flown.certain(&group);
        let mut left: Vec<Letter<'a>> = Vec::new();
        for (letter, verdict) in group.into_iter().zip(certain) {
            match verdict {
                Some(verdict) => waves.settle(letter.place, verdict),
                None => left.push(letter),
            }
        }
        let failure = match flown.end {
            End::Answered => {
                self.links.give_back(link);
                failure::in_doubt()
            }
            End::Late => failure::silent(self.timeout),
            End::Blocked(reason) => {
                let failure = failure::blocked(&reason);
                self.links.watch(link, reason);
                failure
            }
            End::Broken(error) => {
                if let Some(code) = channel_closed(&error)
                    && !share_the_reason(code, &left)
                {
                    let second = left.split_off(left.len().div_ceil(2));
                    return vec![second, left];
                }
                failure::of(&error)
            }
        };
        left.into_iter().for_each(|letter| waves.settle(letter.place, Verdict::Failed(failure.clone())));
        Vec::new()
    }
}

#[async_trait]
impl Sink for RabbitmqSink {
    fn batching(&self) -> Batching {
        Batching { max_messages: BATCH_MESSAGES, max_bytes: BATCH_BYTES, ordered: true }
    }

    async fn deliver(&self, batch: &[Arc<Claimed>]) -> Vec<Verdict> {
        let mut waves = Waves::new(batch);
        // Whoever finds no link free has sent nothing, and says so.
        if let Ok(Some(_turn)) = timeout(self.timeout, self.links.turn()).await {
            self.send(batch, &mut waves, Instant::now() + self.timeout).await;
        }
        waves.into_verdicts()
    }

    async fn check(&self) -> Vec<Finding> {
        let looking = self.look();
        timeout(self.timeout * 2, looking).await.unwrap_or_else(|_| vec![silent(self.timeout)])
    }
}

/// A message of a flight.
#[derive(Clone, Copy)]
struct Letter<'a> {
    place: usize,
    parcel: &'a Parcel,
    body: &'a [u8],
}

impl Letter<'_> {
    fn message_id(&self) -> &str {
        self.parcel.properties.message_id().as_ref().map_or("", |id| id.as_str())
    }
}

/// What came back from a flight.
struct Flown {
    /// By place in the group.
    answers: Vec<Option<Confirmation>>,
    end: End,
}

enum End {
    /// Every message has its answer.
    Answered,
    /// The deadline passed.
    Late,
    /// The server blocks publishers.
    Blocked(String),
    /// The channel or the connection was closed.
    Broken(lapin::Error),
}

/// Sends a group and waits for its answers. On return nothing more is sent: the link is in doubt unless all were answered.
async fn publish(link: &mut Link, group: &[Letter<'_>], deadline: Instant) -> Flown {
    link.begin();
    let channel = link.channel.clone();
    let mut flights: FuturesUnordered<_> = (0..group.len()).map(|at| one(&channel, at, group[at]).fuse()).collect();
    let mut answers = Answers { confirmed: (0..group.len()).map(|_| None).collect(), broken: None };
    let mut end = loop {
        tokio::select! {
            biased;
            answer = flights.next() => match answer {
                Some((at, answer)) => answers.note(at, answer),
                None => break End::Answered,
            },
            reason = link.until_blocked() => break End::Blocked(reason),
            () = tokio::time::sleep_until(deadline) => break End::Late,
        }
    };
    answers.sweep(Pin::new(&mut flights));
    if let Some(error) = answers.broken {
        end = End::Broken(error);
    }
    Flown { answers: answers.confirmed, end }
}

async fn one(channel: &Channel, at: usize, letter: Letter<'_>) -> (usize, Result<Confirmation, lapin::Error>) {
    let Parcel { exchange, routing_key, properties, .. } = letter.parcel;
    let options = BasicPublishOptions { mandatory: true, immediate: false };
    let publishing =
        channel.basic_publish(exchange.clone(), routing_key.clone(), options, letter.body, properties.clone());
    let answer = match publishing.await {
        Ok(confirm) => confirm.await,
        Err(error) => Err(error),
    };
    (at, answer)
}

struct Answers {
    confirmed: Vec<Option<Confirmation>>,
    broken: Option<lapin::Error>,
}

impl Answers {
    fn note(&mut self, at: usize, answer: Result<Confirmation, lapin::Error>) {
        match answer {
            Ok(confirmation) => self.confirmed[at] = Some(confirmation),
            // What the server said explains what the library says of the rest.
            Err(error) if self.broken.is_none() || error.is_amqp_error() => self.broken = Some(error),
            Err(_) => {}
        }
    }

    /// Takes every answer that is there. When a round finds none, no return is overlooked that belongs to a confirmation
    /// already seen: the library sets them one after the other, and a return never later than its own confirmation unless
    /// that carries another one's.
    fn sweep<F>(&mut self, mut flights: Pin<&mut FuturesUnordered<F>>)
    where
        F: FusedFuture<Output = (usize, Result<Confirmation, lapin::Error>)>,
    {
        let mut context = Context::from_waker(Waker::noop());
        let mut found = true;
        while std::mem::take(&mut found) {
            for mut flight in flights.as_mut().iter_pin_mut().filter(|flight| !flight.is_terminated()) {
                if let Poll::Ready((at, answer)) = flight.as_mut().poll(&mut context) {
                    self.note(at, answer);
                    found = true;
                }
            }
        }
    }
}

impl Flown {
    /// The verdict of each message of which the answers make it certain.
    fn certain(&self, group: &[Letter<'_>]) -> Vec<Option<Verdict>> {
        let returned: HashMap<&str, &BasicReturnMessage> = self
            .answers
            .iter()
            .flatten()
            .filter_map(carried)
            .filter_map(|message| Some((message.properties.message_id().as_ref()?.as_str(), message)))
            .collect();
        let complete = matches!(self.end, End::Answered);
        let verdict = |(letter, answer): (&Letter<'_>, &Option<Confirmation>)| {
            let answer = answer.as_ref()?;
            if let Some(message) = returned.get(letter.message_id()) {
                let failure = failure::refused(message.reply_code, message.reply_text.as_str());
                return Some(Verdict::Failed(failure));
            }
            match answer {
                Confirmation::Nack(_) => Some(Verdict::Failed(failure::nack())),
                // It carries the return of another, and its own may be still to come.
                Confirmation::Ack(Some(_)) if !complete => None,
                Confirmation::Ack(_) => Some(Verdict::Delivered(Receipt::default())),
                Confirmation::NotRequested => None,
            }
        };
        group.iter().zip(&self.answers).map(verdict).collect()
    }
}

fn carried(confirmation: &Confirmation) -> Option<&BasicReturnMessage> {
    match confirmation {
        Confirmation::Ack(message) | Confirmation::Nack(message) => message.as_ref(),
        Confirmation::NotRequested => None,
    }
}

/// With which code the server closed the channel, if that is what it did.
fn channel_closed(error: &lapin::Error) -> Option<u16> {
    match error.kind() {
        ErrorKind::ProtocolError(said) if matches!(said.kind(), AMQPErrorKind::Soft(_)) => Some(said.get_id()),
        _ => None,
    }
}

/// Whether what closed the channel for one of these would close it for each.
fn share_the_reason(code: u16, letters: &[Letter<'_>]) -> bool {
    let same = |same: fn(&Parcel, &Parcel) -> bool| letters.windows(2).all(|two| same(two[0].parcel, two[1].parcel));
    match code {
        // The exchange is missing.
        404 => same(|one, other| one.exchange == other.exchange),
        // We may not write there, or not with this routing key.
        403 => same(|one, other| one.exchange == other.exchange && one.routing_key == other.routing_key),
        _ => letters.len() < 2,
    }
}

impl RabbitmqSink {
    async fn look(&self) -> Vec<Finding> {
        let opened = timeout(self.timeout, Link::open(self.links.target())).await;
        let link = match opened {
            Ok(Ok(link)) => link,
            Ok(Err(error)) => return vec![not_let_in(&error)],
            Err(_) => return vec![silent(self.timeout)],
        };
        let uri = &self.links.target().uri;
        let mut findings = vec![Finding::works(format!(
            "RabbitMQ at {}:{} lets us into the virtual host {:?} and confirms what is published",
            uri.authority.host, uri.authority.port, uri.vhost
        ))];
        findings.extend(self.look_for_the_exchange(&link.channel).await);
        if let Some(reason) = self.links.blocked() {
            findings.push(Finding::broken(
                format!("the server has blocked its publishers: {reason}"),
                "give it memory or disk: `rabbitmq-diagnostics alarms` tells which",
            ));
        }
        findings
    }

    async fn look_for_the_exchange(&self, channel: &Channel) -> Option<Finding> {
        let (exchange, routing_key) = (self.addressing.exchange.as_ref(), &self.addressing.routing_key);
        match (exchange.map(Template::fixed), routing_key.fixed()) {
            (Some(Some(name)), _) => {
                let options = ExchangeDeclareOptions { passive: true, ..ExchangeDeclareOptions::default() };
                let name = lapin::types::ShortString::try_new(name).ok()?;
                let found =
                    channel.exchange_declare(name.clone(), ExchangeKind::Topic, options, FieldTable::default()).await;
                Some(match found {
                    Ok(()) => Finding::weak(
                        format!(
                            "the exchange {name:?} exists; AMQP does not tell whether it and the queues behind it are durable"
                        ),
                        "see `rabbitmqctl list_exchanges name durable` and `rabbitmqctl list_queues name durable`",
                    ),
                    Err(error) => missing(&format!("the exchange {name:?}"), &error),
                })
            }
            (None, Some(name)) => {
                let options = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
                let name = lapin::types::ShortString::try_new(name).ok()?;
                let found = channel.queue_declare(name.clone(), options, FieldTable::default()).await;
                Some(match found {
                    Ok(_) => Finding::weak(
                        format!("the queue {name:?} exists; AMQP does not tell whether it is durable"),
                        "see `rabbitmqctl list_queues name durable`",
                    ),
                    Err(error) => missing(&format!("the queue {name:?}"), &error),
                })
            }
            _ => Some(Finding::works(
                "where a message goes depends on the message, so that is not looked at: one without a route fails and is \
                 tried again",
            )),
        }
    }
}

fn missing(what: &str, error: &lapin::Error) -> Finding {
    Finding::broken(
        format!("{what} cannot be used: {}", failure::of(error).message),
        "declare it, durable, before anything is sent; it is never declared from here",
    )
}

fn not_let_in(error: &lapin::Error) -> Finding {
    let failure = failure::of(error);
    let fix = match failure.code.as_str() {
        SinkFailure::UNAUTHORIZED => "check the user, the password and `rabbitmqctl list_permissions`",
        SinkFailure::UNREACHABLE => "check the host, the port, and whether the server runs",
        _ => "check the virtual host, and `rabbitmqctl list_vhosts`",
    };
    Finding::broken(format!("no connection: {}", failure.message), fix)
}

fn silent(timeout: Duration) -> Finding {
    Finding::broken(failure::silent(timeout).message, "check the host, the port, and whether the server is well")
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
