//! Publishes messages to NATS JetStream and waits until a stream has confirmed each. A batch goes in waves
//! (`lanes.rs`), so no message of a lane is sent before the one ahead of it is stored, whatever the server refuses;
//! nothing else is relied on. The client library would send again what it holds when a connection comes back: here every delivery
//! has a client of its own, which ends with the first sign of trouble and with the delivery.

mod check;
mod connection;
mod encode;
mod failure;
mod options;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_nats::jetstream::publish::PublishAck;
use async_nats::jetstream::response::Response;
use async_nats::{HeaderValue, Request};
use async_trait::async_trait;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use postrider::lifecycle::Claimed;

use self::connection::{Connection, Connector};
use self::encode::{Publication, encode};
pub use self::options::{NatsOptions, NatsServers};
use super::destinations::Destinations;
use super::idle::Idle;
use super::lanes::Waves;
use super::template::Template;
use super::{Batching, Finding, Receipt, Sink, SinkFailure, Verdict};
use crate::error::Error;
use crate::tls;

/// Messages of one call.
const MAX_MESSAGES: usize = 1_000;
/// Bytes of one call, which are in memory twice while they are on their way.
const MAX_BYTES: usize = 16 * 1024 * 1024;
/// The code of a receipt when the stream had the message already.
const DUPLICATE: &str = "DUPLICATE";

/// A sink that publishes to JetStream.
pub struct NatsSink {
    connector: Connector,
    subject: Template,
    destinations: Destinations,
    stream: Option<HeaderValue>,
    timeout: Duration,
    idle: Idle<Connection>,
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
        let connector = Connector::new(&options)?;
        options.destinations.check(&options.subject)?;
        let NatsOptions { subject, destinations, timeout, .. } = options;
        Ok(Self { connector, subject, destinations, stream, timeout, idle: Idle::default() })
    }

    /// A client that rested and is still connected, or else a new one.
    async fn connection(&self) -> Result<Connection, SinkFailure> {
        while let Some(connection) = self.idle.take() {
            if connection.is_well() {
                return Ok(connection);
            }
        }
        match tokio::time::timeout(self.timeout, self.connector.connect()).await {
            Ok(Ok(connection)) => Ok(connection),
            Ok(Err(error)) => Err(failure::of_connecting(&error, self.connector.address())),
            Err(_) => Err(failure::no_connection_after(self.timeout, self.connector.address())),
        }
    }

    /// Publishes a wave and waits for the confirmations, as long as the connection is well and there is time. What is not
    /// confirmed by then has failed. False: the connection is of no use any more.
    async fn publish_wave(
        &self,
        connection: &mut Connection,
        batch: &[Arc<Claimed>],
        wave: Vec<usize>,
        waves: &mut Waves,
    ) -> bool {
        let mut waiting: BTreeSet<usize> = wave.iter().copied().collect();
        let client = &connection.client;
        let publish = |place: usize| async move {
            let verdict = match encode(self, &batch[place]) {
                Ok(publication) => publish(client, publication, self.connector.address()).await,
                Err(failure) => Verdict::Failed(failure),
            };
            (place, verdict)
        };
        let mut answers: FuturesUnordered<_> = wave.into_iter().map(publish).collect();
        let late = tokio::time::sleep(self.timeout);
        tokio::pin!(late);
        let address = self.connector.address();
        let failure = loop {
            tokio::select! {
                biased;
                answer = answers.next() => match answer {
                    Some((place, verdict)) => {
                        waiting.remove(&place);
                        waves.settle(place, verdict);
                    }
                    None => return true,
                },
                said = connection.state.until_lost() => break failure::lost(said.as_deref(), address),
                () = &mut late => {
                    break failure::unconfirmed_after(self.timeout, connection.state.said().as_deref(), address);
                }
            }
        };
        waves.fail(waiting, &failure);
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

#[async_trait]
impl Sink for NatsSink {
    fn kind(&self) -> &'static str {
        "nats"
    }

    fn batching(&self) -> Batching {
        Batching::ordered(MAX_MESSAGES).max_bytes(MAX_BYTES)
    }

    fn longest(&self) -> Option<Duration> {
        Some(2 * self.timeout)
    }

    async fn deliver(&self, batch: &[Arc<Claimed>]) -> Vec<Verdict> {
        let mut waves = Waves::new(batch);
        let started = Instant::now();
        let mut connection = match self.connection().await {
            Ok(connection) => connection,
            Err(failure) => {
                let heads = waves.next_wave().unwrap_or_default();
                waves.fail(heads, &failure);
                return waves.into_verdicts();
            }
        };
        let mut is_well = true;
        while is_well && let Some(wave) = waves.next_wave() {
            is_well = self.publish_wave(&mut connection, batch, wave, &mut waves).await;
            // A long lane takes many waves. What it does not get through in time is handed back, rather than the relay's
            // deadline taking back what was confirmed.
            if started.elapsed() > self.timeout {
                break;
            }
        }
        if is_well && connection.is_well() {
            self.idle.give_back(connection);
        } else {
            self.idle.forget();
        }
        waves.into_verdicts()
    }

    async fn check(&self) -> Vec<Finding> {
        let mut findings = check::findings(self).await;
        findings.extend(self.destinations.finding(&self.subject, "subject"));
        findings
    }
}
