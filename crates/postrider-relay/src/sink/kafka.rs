//! Hands batches to Kafka, or Redpanda, through librdkafka: one flow of records for a batch, topic by topic, each with a
//! report of its own.
//!
//! **Order.** What keeps the messages of a lane in order, in this sink and in librdkafka 2.12 (read in its source, and
//! tried with injected errors):
//! - A wave holds of each lane only what goes to one partition, which is found here from the key. What follows waits until
//!   all of the wave is confirmed.
//! - A broker that knows a producer takes its records of a partition only without a gap: after a refusal it refuses what
//!   follows. Before it has taken a record of this producer there, brokers before Kafka 4.5 take any (KAFKA-14312,
//!   KAFKA-15591): so the first wave to such a partition has one message of each lane.
//! - One request at a time to a broker (`max.in.flight = 1`): a refusal that passes is then retried before anything that
//!   follows is sent. With more, a broker that does not know the producer would take what follows, and librdkafka would
//!   count the refused record as delivered.
//! - librdkafka retries without end (`message.send.max.retries`), in order, and never gives up a single message
//!   (`message.timeout.ms = 0`): time is kept here, and when it is over everything is taken back at once.
//! - A refusal that no retry cures makes the whole producer stop (`enable.gapless.guarantee`) before it sends anything
//!   else. It is replaced, and what was not to blame is sent again by the next one.
//! - A producer that is given up (time over, delivery dropped, fatal error) is purged: what it has sent by then is a prefix
//!   of each lane, so whatever still arrives late, a first arrival never overtakes the one before it.
//!
//! Without the idempotent producer none of this holds, and a batch has one message of a lane.

mod batch;
mod check;
mod connection;
mod failure;
mod options;
mod partition;
mod reports;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use futures_util::{StreamExt as _, stream};
use postrider::lifecycle::Claimed;
use rdkafka::error::KafkaError;
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::BaseRecord;
use rdkafka::types::RDKafkaErrorCode as Code;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use self::batch::{Batch, Ended, Place};
use self::connection::{Current, Producer, Producers};
pub use self::options::{KafkaAcks, KafkaCompression, KafkaKey, KafkaOptions, KafkaProperty};
use self::reports::DeliveryReports;
use super::lanes::FailedLanes;
use super::{Batching, Finding, Sink, SinkFailure, Verdict, envelope};
use crate::error::Error;

/// Messages of one call.
const MAX_MESSAGES: usize = 1_000;
/// Bytes of one call: copied to librdkafka without a pause.
const MAX_BYTES: usize = 16 << 20;
/// One question to the cluster waits so long before the next.
const METADATA_SLICE: Duration = Duration::from_secs(1);
/// A topic that is not there gets so long to be created by the broker that was asked for it.
const TOPIC_PATIENCE: Duration = Duration::from_secs(1);
/// Between two looks for such a topic, or for room in the queue.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Topics that are asked for at once.
const TOPICS_AT_ONCE: usize = 8;
/// How long reports of what was taken back may take.
const REPORTS_GRACE: Duration = Duration::from_secs(2);
/// A batch whose producers come to an end more often than this is left to the relay's backoff.
const MAX_CUTS: usize = 5;

/// A sink that hands messages to Kafka.
pub struct KafkaSink {
    options: KafkaOptions,
    producers: Producers,
    /// For what must not share a request with anything else.
    isolated: Producers,
    isolated_turn: tokio::sync::Mutex<()>,
}

impl KafkaSink {
    /// Checks the options. The brokers may be away: they are looked for when there is something to send.
    pub fn new(options: KafkaOptions) -> Result<Self, Error> {
        options.destinations.check(&options.topic)?;
        let config = options.client_config()?;
        let producers = Producers::new(config.clone());
        producers.begin().map_err(|error| options.wrong(&error))?;
        Ok(Self { options, producers, isolated: Producers::new(config), isolated_turn: tokio::sync::Mutex::default() })
    }

    /// Sends what may go now; if one has to go alone, that one, by a producer of its own. Whether a producer came to an end
    /// under it.
    async fn send(&self, producers: &Producers, batch: &mut Batch<'_>, alone: Option<usize>) -> bool {
        let until = Instant::now() + self.options.timeout;
        let current = match producers.current(until).await {
            Ok(current) => current,
            Err(failure) => {
                batch.fail_all(&failure);
                return false;
            }
        };
        self.find_topics(producers, &current, batch, until).await;
        let wave = match alone {
            Some(at) => batch.only(at, &current.state),
            None => batch.wave(&current.state),
        };
        let in_flight = InFlight { producers, current, reports: Arc::default() };
        let sent = in_flight.produce_wave(batch, &wave);
        let state = &in_flight.current.state;
        let ended = tokio::select! {
            () = in_flight.reports.complete() => Ended::Answered(state.fatal_code()),
            () = state.fatal.cancelled() => {
                in_flight.take_back().await;
                Ended::Answered(state.fatal_code())
            }
            () = tokio::time::sleep_until(until) => {
                in_flight.take_back().await;
                Ended::TimedOut(state.failure(self.timed_out()))
            }
        };
        if sent.is_empty() && !wave.is_empty() {
            // The queue is full of what others have handed over, or the producer is gone.
            sleep(LOOK_EVERY).await;
        }
        batch.record_reports(&sent, &in_flight.reports.reports(), alone.is_some(), &ended, state)
    }

    /// Waits until the topics of a batch are known. What they do not have fails with its topic: a refusal that comes before
    /// anything was handed over holds no other message.
    async fn find_topics(&self, producers: &Producers, current: &Current, batch: &mut Batch<'_>, until: Instant) {
        let topics = batch.topics().into_iter().filter(|topic| !current.state.knows(topic));
        let patience = until.min(Instant::now() + TOPIC_PATIENCE);
        let finding = stream::iter(topics.map(|topic| async move {
            let found = self.find_topic(producers, current, &topic, until, patience).await;
            (topic, found)
        }));
        let found: Vec<_> = finding.buffer_unordered(TOPICS_AT_ONCE).collect().await;
        for (topic, found) in found {
            match found {
                Ok(partitions) => current.state.has_found(&topic, partitions),
                Err(failure) => batch.fail_topic(&topic, &failure),
            }
        }
    }

    /// How many partitions a topic has.
    async fn find_topic(
        &self,
        producers: &Producers,
        current: &Current,
        topic: &str,
        until: Instant,
        patience: Instant,
    ) -> Result<i32, SinkFailure> {
        loop {
            let slice = METADATA_SLICE.min(until.saturating_duration_since(Instant::now())).max(LOOK_EVERY);
            // Retired by another delivery: what is handed over next comes back at once, and goes to the next producer.
            let Some(answer) = producers.metadata(current, Some(topic), slice).await else { return Ok(0) };
            let code = match answer {
                Ok(metadata) => {
                    match metadata.topics().first().map(|topic| (topic.error(), topic.partitions().len())) {
                        Some((None, partitions @ 1..)) => return Ok(i32::try_from(partitions).unwrap_or(i32::MAX)),
                        Some((Some(error), _)) => Code::from(error),
                        _ => Code::LeaderNotAvailable,
                    }
                }
                Err(error) => {
                    let code = error.rdkafka_error_code().unwrap_or(Code::Fail);
                    if Instant::now() >= until || current.state.is_unauthorized() {
                        let words = format!("the Kafka brokers did not answer in time: {code}; check brokers");
                        let otherwise = SinkFailure::retryable(SinkFailure::UNREACHABLE, words);
                        return Err(current.state.failure(otherwise));
                    }
                    continue;
                }
            };
            let may_come =
                matches!(code, Code::UnknownTopicOrPartition | Code::UnknownTopic | Code::LeaderNotAvailable);
            if !may_come || Instant::now() >= patience {
                return Err(failure::of(code, topic));
            }
            sleep(LOOK_EVERY).await;
        }
    }

    fn timed_out(&self) -> SinkFailure {
        let words = format!(
            "the Kafka brokers did not confirm it within {:?}; look for partitions without a leader, or with too few \
             replicas in sync",
            self.options.timeout
        );
        SinkFailure::retryable(SinkFailure::TIMEOUT, words)
    }
}

#[async_trait]
impl Sink for KafkaSink {
    fn kind(&self) -> &'static str {
        "kafka"
    }

    fn batching(&self) -> Batching {
        let ordered = self.options.idempotent;
        Batching { ordered, ..Batching::ordered(MAX_MESSAGES).max_bytes(MAX_BYTES) }
    }

    fn longest(&self) -> Option<Duration> {
        Some(2 * self.options.timeout + REPORTS_GRACE)
    }

    async fn deliver(&self, messages: &[Arc<Claimed>]) -> Vec<Verdict> {
        let mut batch = Batch::new(messages, &self.options);
        // No wave begins after that, so the whole takes at most twice the timeout.
        let until = Instant::now() + self.options.timeout;
        let mut cuts = 0;
        let mut was_isolated = false;
        while !batch.is_settled() && Instant::now() < until && cuts <= MAX_CUTS {
            let alone = batch.next_alone();
            let cut = if alone.is_some() {
                let Ok(_turn) = timeout_at(until, self.isolated_turn.lock()).await else { break };
                was_isolated = true;
                self.send(&self.isolated, &mut batch, alone).await
            } else {
                self.send(&self.producers, &mut batch, None).await
            };
            cuts += usize::from(cut);
        }
        if was_isolated && let Ok(_turn) = self.isolated_turn.try_lock() {
            self.isolated.retire_current();
        }
        batch.into_verdicts()
    }

    async fn check(&self) -> Vec<Finding> {
        let mut findings = check::findings(&self.options).await;
        findings.extend(self.options.destinations.finding(&self.options.topic, "topic"));
        findings
    }
}

/// Messages with a producer. If the delivery is dropped before all have a report, the producer is retired with them.
struct InFlight<'a> {
    producers: &'a Producers,
    current: Current,
    reports: Arc<DeliveryReports>,
}

impl InFlight<'_> {
    /// Hands a wave to the producer, and says which of it were taken, in the order of their reports. What was refused has
    /// failed; the rest stays for another wave.
    fn produce_wave(&self, batch: &mut Batch<'_>, wave: &[Place]) -> Vec<usize> {
        let mut sent = Vec::with_capacity(wave.len());
        let mut refused = Vec::new();
        self.producers.with(&self.current, |producer| {
            let mut failed_lanes = FailedLanes::default();
            for Place { at, partition } in wave.iter().copied() {
                let item = batch.item(at);
                if failed_lanes.contains(item.message) {
                    continue;
                }
                match self.produce(producer, item, partition) {
                    Ok(()) => sent.push(at),
                    // Of a lane nothing may follow what did not go; so nothing at all follows in this wave.
                    Err(Code::QueueFull) => break,
                    Err(Code::Fatal) => {
                        self.current.state.fatal.cancel();
                        break;
                    }
                    Err(code) => {
                        failed_lanes.insert(item.message);
                        refused.push((at, failure::of(code, &item.topic)));
                    }
                }
            }
        });
        for (at, failure) in refused {
            batch.fail(at, &failure);
        }
        sent
    }

    fn produce(&self, producer: &Producer, item: &batch::Item<'_>, partition: i32) -> Result<(), Code> {
        let headers = envelope::headers(item.message);
        let headers = headers.iter().fold(OwnedHeaders::new_with_capacity(headers.len()), |headers, (key, value)| {
            headers.insert(Header { key, value: Some(value.as_bytes()) })
        });
        let record = BaseRecord::with_opaque_to(&item.topic, Box::new(self.reports.pending_report()))
            .partition(partition)
            .key(item.key.as_bytes())
            .payload(item.message.content.as_bytes())
            .timestamp(milliseconds(item.message.occurred_at))
            .headers(headers);
        producer.send(record).map_err(|(error, record)| {
            record.delivery_opaque.take_back();
            match error {
                KafkaError::MessageProduction(code) => code,
                _ => Code::InvalidArgument,
            }
        })
    }

    /// Retires the producer, and waits for the reports of what it had.
    async fn take_back(&self) {
        self.producers.retire(&self.current);
        drop(timeout(REPORTS_GRACE, self.reports.complete()).await);
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        if !self.reports.is_complete() {
            self.producers.retire(&self.current);
        }
    }
}

/// Since 1970. Kafka knows no time before it, and takes 0 for now.
fn milliseconds(time: SystemTime) -> i64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX).max(1)
}
