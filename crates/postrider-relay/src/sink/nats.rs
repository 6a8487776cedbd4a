//! Publishes messages to NATS JetStream and waits until a stream has confirmed each. A batch goes in waves: a wave holds
//! the next message of every lane and all its messages are on their way at once; the next wave starts when it is
//! confirmed. So no message of a lane is sent before the one ahead of it is stored, whatever the server refuses; nothing
//! else is relied on. The client library would send again what it holds when a connection comes back: here every delivery
//! has a client of its own, which ends with the first sign of trouble and with the delivery.

mod address;
mod check;
mod failure;
mod link;
mod options;

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_nats::jetstream::publish::PublishAck;
use async_nats::jetstream::response::Response;
use async_nats::{HeaderMap, HeaderName, HeaderValue, Request, header};
use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use postrider::Claimed;

use self::address::subject;
use self::link::{Link, Login};
pub use self::options::{NatsOptions, NatsServers};
use super::destinations::Destinations;
use super::idle::Idle;
use super::lanes::{Run, runs};
use super::template::Template;
use super::{Batching, Finding, Receipt, Sink, SinkFailure, Verdict, envelope};
use crate::error::Error;
use crate::tls;

/// Messages of one call.
const MAX_MESSAGES: usize = 1_000;
/// Bytes of one call, which are in memory twice while they are on their way.
const MAX_BYTES: usize = 16 * 1024 * 1024;
/// Headers that tell the server what to do. A producer does not command it.
const COMMANDS: &str = "nats-";
/// The code of a receipt when the stream had the message already.
const DUPLICATE: &str = "DUPLICATE";

/// A sink that publishes to JetStream.
pub struct NatsSink {
    login: Login,
    subject: Template,
    destinations: Destinations,
    stream: Option<HeaderValue>,
    timeout: Duration,
    idle: Idle<Link>,
}

/// What is published.
struct Publication {
    subject: String,
    headers: HeaderMap,
    payload: Bytes,
}

impl NatsSink {
    /// Reads the options and the files they name. Connects when there is something to send.
    pub fn new(options: NatsOptions) -> Result<Self, Error> {
        let wrong = |reason: &str| Error::options(format!("a NATS sink: {reason}"));
        if options.timeout.is_zero() {
            return Err(wrong("the timeout is zero: nothing could ever answer in time"));
        }
        let stream = options.stream.as_deref().map(str::parse).transpose();
        let stream = stream.map_err(|_| wrong("the stream's name has a line break"))?;
        tls::ensure_provider();
        let login = Login::new(&options)?;
        options.destinations.check(&options.subject)?;
        let NatsOptions { subject, destinations, timeout, .. } = options;
        Ok(Self { login, subject, destinations, stream, timeout, idle: Idle::default() })
    }

    fn publication(&self, message: &Claimed) -> Result<Publication, SinkFailure> {
        let subject = subject(&self.subject, &self.destinations, message)?;
        let mut headers = HeaderMap::new();
        for (name, value) in envelope::headers(message) {
            if is_command(name) {
                continue;
            }
            let pair = name.parse::<HeaderName>().ok().zip(value.parse::<HeaderValue>().ok());
            let (name, value) = pair.ok_or_else(|| {
                let words = format!(
                    "the header {name:?} cannot be sent to NATS: a name is of visible ASCII without colons, and a value has no line breaks"
                );
                SinkFailure::terminal(SinkFailure::INVALID_HEADER, words)
            })?;
            headers.insert(name, value);
        }
        // Of this delivery, not of the message: two sinks may lead into one stream, and both are to arrive.
        let id = format!("{}/{}", message.message_id, message.sink);
        let id = id.parse::<HeaderValue>().unwrap_or_else(|_| HeaderValue::from(message.message_id.to_string()));
        headers.insert(header::NATS_MESSAGE_ID, id);
        if let Some(stream) = &self.stream {
            headers.insert(header::NATS_EXPECTED_STREAM, stream.clone());
        }
        Ok(Publication { subject, headers, payload: Bytes::copy_from_slice(message.content.as_bytes()) })
    }

    /// A client that rested and is still connected, or else a new one.
    async fn link(&self) -> Result<Link, SinkFailure> {
        while let Some(link) = self.idle.take() {
            if link.is_well() {
                return Ok(link);
            }
        }
        match tokio::time::timeout(self.timeout, self.login.connect()).await {
            Ok(Ok(link)) => Ok(link),
            Ok(Err(error)) => Err(failure::of_connecting(&error, self.login.address())),
            Err(_) => Err(failure::no_connection_after(self.timeout, self.login.address())),
        }
    }

    /// Sends one message of each lane and waits for their confirmations, as long as the connection is well and there is
    /// time. What is not confirmed by then has failed.
    async fn wave(&self, link: &mut Link, batch: &[Arc<Claimed>], places: &[usize], verdicts: &mut [Verdict]) -> bool {
        let mut waiting: Vec<Option<usize>> = places.iter().copied().map(Some).collect();
        let client = &link.client;
        let publish = |(at, &place): (usize, &usize)| async move {
            let verdict = match self.publication(&batch[place]) {
                Ok(publication) => publish(client, publication, self.login.address()).await,
                Err(failure) => Verdict::Failed(failure),
            };
            (at, place, verdict)
        };
        let mut answers: FuturesUnordered<_> = places.iter().enumerate().map(publish).collect();
        let late = tokio::time::sleep(self.timeout);
        tokio::pin!(late);
        let trouble = loop {
            tokio::select! {
                biased;
                answer = answers.next() => match answer {
                    Some((at, place, verdict)) => {
                        verdicts[place] = verdict;
                        waiting[at] = None;
                    }
                    None => return true,
                },
                said = link.trouble.until_lost() => break failure::lost(said.as_deref(), self.login.address()),
                () = &mut late => {
                    break failure::unconfirmed_after(self.timeout, link.trouble.said().as_deref(), self.login.address());
                }
            }
        };
        for place in waiting.into_iter().flatten() {
            verdicts[place] = Verdict::Failed(trouble.clone());
        }
        false
    }
}

/// Sends one message and reads what the stream says.
async fn publish(client: &async_nats::Client, publication: Publication, address: &str) -> Verdict {
    let Publication { subject, headers, payload } = publication;
    let request = Request::new().payload(payload).headers(headers).timeout(None);
    let answer = match client.send_request(subject.clone(), request).await {
        Ok(answer) => answer,
        Err(error) => return Verdict::Failed(failure::of_request(&error, &subject, address)),
    };
    match serde_json::from_slice(&answer.payload) {
        Ok(Response::Ok(PublishAck { stream, sequence, duplicate, .. })) => Verdict::Delivered(Receipt {
            reference: Some(format!("{stream}@{sequence}")),
            code: duplicate.then(|| DUPLICATE.to_owned()),
        }),
        Ok(Response::Err { error }) => Verdict::Failed(failure::of_stream(&error, &subject, address)),
        Err(_) => Verdict::Failed(failure::unreadable(&subject, address)),
    }
}

fn is_command(header: &str) -> bool {
    header.get(..COMMANDS.len()).is_some_and(|start| start.eq_ignore_ascii_case(COMMANDS))
}

#[async_trait]
impl Sink for NatsSink {
    fn kind(&self) -> &'static str {
        "nats"
    }

    fn batching(&self) -> Batching {
        Batching { max_bytes: MAX_BYTES, ..Batching::ordered(MAX_MESSAGES) }
    }

    fn longest(&self) -> Option<Duration> {
        Some(2 * self.timeout)
    }

    async fn deliver(&self, batch: &[Arc<Claimed>]) -> Vec<Verdict> {
        // What gets no other answer stands behind a failure of its lane, or its turn did not come.
        let mut verdicts = vec![Verdict::NotSent; batch.len()];
        let started = Instant::now();
        let mut runs: Vec<Run> = runs(batch);
        let mut link = match self.link().await {
            Ok(link) => link,
            Err(failure) => {
                for run in runs {
                    verdicts[run[0]] = Verdict::Failed(failure.clone());
                }
                return verdicts;
            }
        };
        let mut is_well = true;
        // A long lane takes many waves. What it does not get through in time is handed back, rather than the relay's
        // deadline taking back what was confirmed.
        for number in 0.. {
            runs.retain(|run| run.len() > number);
            if !is_well || runs.is_empty() || (number > 0 && started.elapsed() > self.timeout) {
                break;
            }
            let places: Vec<usize> = runs.iter().map(|run| run[number]).collect();
            is_well = self.wave(&mut link, batch, &places, &mut verdicts).await;
            runs.retain(|run| matches!(verdicts[run[number]], Verdict::Delivered(_)));
        }
        if is_well && link.is_well() {
            self.idle.give_back(link);
        } else {
            self.idle.forget();
        }
        verdicts
    }

    async fn check(&self) -> Vec<Finding> {
        let mut findings = check::look(self).await;
        findings.extend(self.destinations.finding(&self.subject, "subject"));
        findings
    }
}
