//! One sink as the relay runs it: what it was given, its breaker, its limits, and what wakes its claimer. Shared by the
//! claimer, the dispatcher and the completer.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use postrider::SinkReport;
use tokio::sync::{Notify, Semaphore};
use tracing::{info, warn};

use crate::breaker::{Breaker, Change};
use crate::options::SinkOptions;
use crate::sink::{Batching, Sink, SinkFailure};
use crate::telemetry::Telemetry;

/// Retries that are remembered to the moment; more are found by polling.
const MAX_REMEMBERED_RETRIES: usize = 4_096;
/// Characters of a failure that are reported: enough to tell what is wrong with a destination.
const MAX_REPORTED_ERROR_CHARS: usize = 300;

pub(crate) struct Outlet {
    pub(crate) name: String,
    pub(crate) sink: Arc<dyn Sink>,
    pub(crate) batching: Batching,
    pub(crate) options: SinkOptions,
    /// Most messages of one claim: no more than this sink's share of the room, and no more than are sent in a second, for
    /// the rest would only grow old here.
    pub(crate) claim_size: u32,
    /// Claimed and not ended: two claims' worth, so that the next batch is here while this one is on its way.
    pub(crate) ahead: Arc<Semaphore>,
    pub(crate) concurrency: Semaphore,
    pub(crate) rate: Option<DefaultDirectRateLimiter>,
    /// There may be something to claim: a lane goes on, messages were handed back, the breaker closed.
    pub(crate) nudge: Notify,
    /// Nothing is held any more.
    pub(crate) emptied: Notify,
    breaker: Mutex<Breaker>,
    /// The last failure since the destination last answered.
    last_error: Mutex<Option<String>>,
    pub(crate) telemetry: Telemetry,
    /// Some breaker of the relay opened or closed.
    breakers_changed: Arc<Notify>,
    held: AtomicUsize,
    retries: Mutex<BTreeSet<Instant>>,
}

impl Outlet {
    pub(crate) fn new(
        name: String,
        sink: Arc<dyn Sink>,
        options: SinkOptions,
        max_claim: u32,
        telemetry: Telemetry,
        breakers_changed: Arc<Notify>,
    ) -> Self {
        let claim_size =
            options.rate.map_or(options.batch_size, |rate| options.batch_size.min(rate.get())).min(max_claim);
        Self {
            batching: sink.batching(),
            claim_size,
            ahead: Arc::new(Semaphore::new(2 * claim_size as usize)),
            concurrency: Semaphore::new(options.concurrency),
            rate: options.rate.map(|rate| RateLimiter::direct(Quota::per_second(rate))),
            nudge: Notify::new(),
            emptied: Notify::new(),
            breaker: Mutex::new(Breaker::new(options.breaker)),
            last_error: Mutex::default(),
            telemetry,
            breakers_changed,
            held: AtomicUsize::new(0),
            retries: Mutex::default(),
            name,
            sink,
            options,
        }
    }

    pub(crate) fn breaker(&self) -> MutexGuard<'_, Breaker> {
        self.breaker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The destination answered about so many messages.
    pub(crate) fn answered(&self, messages: usize) {
        *self.last_error() = None;
        let change = self.breaker().answered(u32::try_from(messages).unwrap_or(u32::MAX));
        self.tell(change);
    }

    /// A delivery failed that may be retried, and how; `None` if nothing was sent.
    pub(crate) fn failed(&self, now: Instant, failure: Option<&SinkFailure>) {
        if let Some(failure) = failure {
            let words = [Some(failure.code.as_str()), failure.words_for_the_log()];
            let words = words.into_iter().flatten().collect::<Vec<_>>().join(": ");
            *self.last_error() = Some(words.chars().take(MAX_REPORTED_ERROR_CHARS).collect());
        }
        let change = self.breaker().failed(now);
        if let (Some(Change::Opened { cool_down }), Some(failure)) = (change, failure) {
            let (error_code, error) = (failure.code.as_str(), failure.words_for_the_log());
            warn!(
                sink = self.name,
                ?cool_down,
                error_code,
                error,
                "breaker opened: the sink keeps failing and is left alone"
            );
        } else if let Some(Change::Opened { cool_down }) = change {
            warn!(sink = self.name, ?cool_down, "breaker opened: the sink sends nothing and is left alone");
        }
        self.tell(change);
    }

    fn tell(&self, change: Option<Change>) {
        match change {
            Some(Change::Opened { .. }) => {
                self.telemetry.breaker_open(&self.name, true);
                self.breakers_changed.notify_one();
                self.nudge.notify_one();
            }
            Some(Change::Closed) => {
                info!(sink = self.name, "breaker closed: the sink is back");
                self.telemetry.breaker_open(&self.name, false);
                self.breakers_changed.notify_one();
                self.nudge.notify_one();
            }
            Some(Change::StillOpen) | None => {}
        }
    }

    pub(crate) fn report(&self, now: Instant) -> SinkReport {
        let (breaker, open_for) = self.breaker().describe(now);
        SinkReport {
            sink: self.name.clone(),
            kind: self.sink.kind().to_owned(),
            breaker: breaker.to_owned(),
            open_for,
            held: self.held() as u64,
            rate: self.options.rate.map(NonZeroU32::get),
            last_error: self.last_error().clone(),
        }
    }

    fn last_error(&self) -> MutexGuard<'_, Option<String>> {
        self.last_error.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn held(&self) -> usize {
        self.held.load(Ordering::Acquire)
    }

    pub(crate) fn one_more(&self) {
        self.held.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn one_less(&self) {
        if self.held.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.emptied.notify_one();
        }
    }

    /// A message of this sink is due again then.
    pub(crate) fn retry_at(&self, due: Instant) {
        let mut retries = self.retries();
        retries.insert(due);
        if retries.len() > MAX_REMEMBERED_RETRIES {
            retries.pop_last();
        }
    }

    /// When the next remembered retry is due. What was due when the store was last asked is forgotten: it was seen.
    pub(crate) fn next_retry(&self, looked_at: Instant) -> Option<Instant> {
        let mut retries = self.retries();
        while retries.first().is_some_and(|due| *due <= looked_at) {
            retries.pop_first();
        }
        retries.first().copied()
    }

    fn retries(&self) -> MutexGuard<'_, BTreeSet<Instant>> {
        self.retries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
