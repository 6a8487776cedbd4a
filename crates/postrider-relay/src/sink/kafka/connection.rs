//! Keeps one producer of librdkafka at a time for a sink, replaces it when it is of no use any more, and remembers what it
//! said beside its answers. Whoever retires a producer takes back everything that was handed to it: what is on the wire is
//! on the wire, nothing else is sent. Its end is waited for on a thread of its own, because it blocks.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::metadata::Metadata;
use rdkafka::producer::{DeliveryResult, Producer as _, ProducerContext, PurgeConfig, ThreadedProducer};
use rdkafka::types::RDKafkaErrorCode as Code;
use rdkafka::{ClientConfig, ClientContext, Message as _};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use super::partition;
use super::reports::{PendingReport, Report};
use crate::sink::SinkFailure;

/// Producers of one sink at a time: one in use, the others on their way out.
const MAX_PRODUCERS: usize = 4;
/// A topic may get more partitions.
const LOOK_AGAIN_AFTER: Duration = Duration::from_mins(5);
/// Brokers forget a producer that has not sent for a day, unless they are told otherwise.
const FORGOTTEN_AFTER: Duration = Duration::from_mins(30);

/// What a producer has said beside its answers, for all who use it.
#[derive(Debug, Default)]
pub(super) struct ProducerState {
    /// It will not send any more.
    pub(super) fatal: CancellationToken,
    /// Why.
    fatal_code: OnceLock<Code>,
    trouble: Mutex<Trouble>,
    topics: Mutex<HashMap<String, Topic>>,
}

/// A topic that a producer has found.
#[derive(Debug)]
struct Topic {
    partitions: i32,
    found_at: Instant,
    /// Partitions that have taken a record of this producer, and when.
    taken: HashMap<i32, Instant>,
}

/// The last of each kind since something was delivered.
#[derive(Debug, Default)]
struct Trouble {
    unauthorized: Option<String>,
    unreachable: Option<String>,
}

impl ProducerState {
    pub(super) fn fatal_code(&self) -> Option<Code> {
        self.fatal_code.get().copied()
    }

    /// Whether the topic was looked at lately.
    pub(super) fn knows(&self, topic: &str) -> bool {
        lock(&self.topics).get(topic).is_some_and(|topic| topic.found_at.elapsed() < LOOK_AGAIN_AFTER)
    }

    pub(super) fn has_found(&self, topic: &str, partitions: i32) {
        let now = Instant::now();
        let mut topics = lock(&self.topics);
        let fresh = || Topic { partitions, found_at: now, taken: HashMap::new() };
        let topic = topics.entry(topic.to_owned()).or_insert_with(fresh);
        (topic.partitions, topic.found_at) = (partitions, now);
    }

    /// Where a key goes, and whether that partition's broker knows this producer.
    pub(super) fn place(&self, topic: &str, key: &str) -> (i32, bool) {
        let topics = lock(&self.topics);
        let Some(topic) = topics.get(topic) else { return (0, false) };
        let partition = partition::of(key.as_bytes(), topic.partitions);
        (partition, topic.taken.get(&partition).is_some_and(|at| at.elapsed() < FORGOTTEN_AFTER))
    }

    pub(super) fn has_taken(&self, topic: &str, partition: i32) {
        if let Some(topic) = lock(&self.topics).get_mut(topic) {
            topic.taken.insert(partition, Instant::now());
        }
    }

    pub(super) fn is_unauthorized(&self) -> bool {
        lock(&self.trouble).unauthorized.is_some()
    }

    /// Why nothing came back in time, or what is said if it gave no reason.
    pub(super) fn failure(&self, otherwise: SinkFailure) -> SinkFailure {
        let trouble = lock(&self.trouble);
        if let Some(reason) = &trouble.unauthorized {
            let words =
                format!("the Kafka brokers do not let us in: {reason}; check sasl.mechanism and the credentials");
            return SinkFailure::retryable(SinkFailure::UNAUTHORIZED, words);
        }
        if let Some(reason) = &trouble.unreachable {
            let words =
                format!("the Kafka brokers cannot be reached: {reason}; check brokers, and what they advertise");
            return SinkFailure::retryable(SinkFailure::UNREACHABLE, words);
        }
        otherwise
    }

    fn note(&self, code: Code, reason: &str) {
        let mut trouble = lock(&self.trouble);
        match code {
            Code::Fatal => self.fatal.cancel(),
            Code::Authentication | Code::SaslAuthenticationFailed => trouble.unauthorized = Some(reason.to_owned()),
            Code::BrokerTransportFailure | Code::AllBrokersDown | Code::Resolve | Code::SSL => {
                trouble.unreachable = Some(reason.to_owned());
            }
            _ => {}
        }
    }
}

/// What librdkafka calls back.
pub(super) struct Context(Arc<ProducerState>);

impl ClientContext for Context {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        match level {
            RDKafkaLogLevel::Emerg | RDKafkaLogLevel::Alert | RDKafkaLogLevel::Critical | RDKafkaLogLevel::Error => {
                tracing::warn!(facility, "librdkafka: {message}");
            }
            RDKafkaLogLevel::Warning | RDKafkaLogLevel::Notice => tracing::info!(facility, "librdkafka: {message}"),
            RDKafkaLogLevel::Info | RDKafkaLogLevel::Debug => tracing::debug!(facility, "librdkafka: {message}"),
        }
    }

    fn error(&self, error: KafkaError, reason: &str) {
        if let Some(code) = error.rdkafka_error_code() {
            self.0.note(code, reason);
        }
    }
}

impl ProducerContext for Context {
    type DeliveryOpaque = Box<PendingReport>;

    fn delivery(&self, result: &DeliveryResult<'_>, pending_report: Box<PendingReport>) {
        pending_report.report(match result {
            Ok(record) => {
                *lock(&self.0.trouble) = Trouble::default();
                Report::Delivered { partition: record.partition(), offset: record.offset() }
            }
            Err((error, _)) => Report::Refused(error.rdkafka_error_code().unwrap_or(Code::Fail)),
        });
    }
}

pub(super) type Producer = ThreadedProducer<Context>;

struct Slot {
    id: u64,
    producer: Producer,
    state: Arc<ProducerState>,
    /// Given back after the producer is gone.
    _permit: OwnedSemaphorePermit,
}

/// The producer that is in use.
#[derive(Clone)]
pub(super) struct Current {
    id: u64,
    pub(super) state: Arc<ProducerState>,
}

/// The producers of a sink, one at a time.
pub(super) struct Producers {
    config: ClientConfig,
    slot: RwLock<Option<Slot>>,
    building: tokio::sync::Mutex<()>,
    permits: Arc<Semaphore>,
    next_id: AtomicU64,
}

impl Producers {
    pub(super) fn new(config: ClientConfig) -> Self {
        Self {
            config,
            slot: RwLock::default(),
            building: tokio::sync::Mutex::default(),
            permits: Arc::new(Semaphore::new(MAX_PRODUCERS)),
            next_id: AtomicU64::new(1),
        }
    }

    /// Makes the first one at once, to see whether one can be made.
    pub(super) fn begin(&self) -> KafkaResult<()> {
        if let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() {
            let (producer, state) = make(&self.config)?;
            self.put(producer, state, permit);
        }
        Ok(())
    }

    fn put(&self, producer: Producer, state: Arc<ProducerState>, permit: OwnedSemaphorePermit) -> Current {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let current = Current { id, state: Arc::clone(&state) };
        *self.slot.write().unwrap_or_else(PoisonError::into_inner) =
            Some(Slot { id, producer, state, _permit: permit });
        current
    }

    /// The one in use, or a new one.
    pub(super) async fn current(&self, until: Instant) -> Result<Current, SinkFailure> {
        let building = self.building.lock();
        let Ok(_building) = timeout_at(until, building).await else { return Err(too_many()) };
        if let Some(current) = self.in_use() {
            if !current.state.fatal.is_cancelled() {
                return Ok(current);
            }
            self.retire(&current);
        }
        let permit = timeout_at(until, Arc::clone(&self.permits).acquire_owned()).await;
        let Ok(Ok(permit)) = permit else { return Err(too_many()) };
        let config = self.config.clone();
        let made = tokio::task::spawn_blocking(move || make(&config)).await?;
        let (producer, state) = made.map_err(|error| {
            SinkFailure::retryable(SinkFailure::ERROR, format!("a Kafka producer cannot be made: {}", words(&error)))
        })?;
        Ok(self.put(producer, state, permit))
    }

    /// Lets the one in use go: there is nothing to do for it.
    pub(super) fn retire_current(&self) {
        if let Some(current) = self.in_use() {
            self.retire(&current);
        }
    }

    fn in_use(&self) -> Option<Current> {
        let slot = self.slot.read().unwrap_or_else(PoisonError::into_inner);
        slot.as_ref().map(|slot| Current { id: slot.id, state: Arc::clone(&slot.state) })
    }

    /// Does something with a producer unless it was retired. It must be short, and must not keep it.
    pub(super) fn with<R>(&self, current: &Current, what: impl FnOnce(&Producer) -> R) -> Option<R> {
        let slot = self.slot.read().unwrap_or_else(PoisonError::into_inner);
        slot.as_ref().filter(|slot| slot.id == current.id).map(|slot| what(&slot.producer))
    }

    /// Takes back everything that was handed to a producer, and lets it go.
    pub(super) fn retire(&self, current: &Current) {
        let mut in_use = self.slot.write().unwrap_or_else(PoisonError::into_inner);
        let slot = in_use.take_if(|slot| slot.id == current.id);
        drop(in_use);
        if let Some(slot) = slot {
            if let Some((code, _)) = slot.producer.client().fatal_error() {
                let _ = slot.state.fatal_code.set(code);
            }
            slot.producer.purge(PurgeConfig::default().queue().inflight().non_blocking());
            let_go(slot);
        }
    }

    /// Asks the cluster about one topic, or all.
    pub(super) async fn metadata(
        &self,
        current: &Current,
        topic: Option<&str>,
        timeout: Duration,
    ) -> Option<KafkaResult<Metadata>> {
        let producer = self.with(current, Clone::clone)?;
        let topic = topic.map(str::to_owned);
        let asked = move || producer.client().fetch_metadata(topic.as_deref(), timeout);
        tokio::task::spawn_blocking(asked).await.ok()
    }
}

impl Drop for Producers {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.get_mut().unwrap_or_else(PoisonError::into_inner).take() {
            let_go(slot);
        }
    }
}

/// Reads certificates and starts threads.
fn make(config: &ClientConfig) -> KafkaResult<(Producer, Arc<ProducerState>)> {
    let state = Arc::new(ProducerState::default());
    Ok((config.create_with_context(Context(Arc::clone(&state)))?, state))
}

/// What is wrong with a configuration, without the value that is.
pub(super) fn words(error: &KafkaError) -> String {
    match error {
        KafkaError::ClientConfig(_, reason, name, _) => format!("{name}: {reason}"),
        KafkaError::ClientCreation(reason) => reason.clone(),
        other => other.to_string(),
    }
}

/// Without a thread to spare it ends here.
fn let_go(slot: Slot) {
    drop(std::thread::Builder::new().name("kafka-end".to_owned()).spawn(move || drop(slot)));
}

fn too_many() -> SinkFailure {
    let words = format!("{MAX_PRODUCERS} Kafka producers of this sink have not come to their end yet");
    SinkFailure::retryable(SinkFailure::UNREACHABLE, words)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
