//! The state of one sink while the relay runs: its options, limits, breaker, and the signals to its claimer. Shared by
//! claimer, dispatcher and completer.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use postrider::inspect::SinkReport;
use tokio::sync::{Notify, Semaphore};
use tracing::{info, warn};

use crate::breaker::{Breaker, Change};
use crate::memory_budget::CLAIMS;
use crate::options::SinkOptions;
use crate::sink::{Batching, Sink, SinkFailure};
use crate::telemetry::{SinkCalls, Telemetry};

/// Retries whose time is remembered; polling finds the others.
const MAX_REMEMBERED_RETRIES: usize = 4_096;
/// Characters of a failure that are reported.
const MAX_REPORTED_ERROR_CHARS: usize = 300;

pub(crate) struct SinkRuntime {
    pub(crate) name: String,
    pub(crate) sink: Arc<dyn Sink>,
    pub(crate) batching: Batching,
    pub(crate) options: SinkOptions,
    /// Most messages of one claim: within this sink's share of the memory budget, and no more than the rate lets through
    /// in a second.
    pub(crate) claim_size: u32,
    /// Messages claimed and not ended: up to [`CLAIMS`] claims, or two seconds' worth of a rate.
    pub(crate) prefetch: Arc<Semaphore>,
    pub(crate) concurrency: Semaphore,
    pub(crate) rate: Option<DefaultDirectRateLimiter>,
    /// There may be something to claim: a lane goes on, messages were released, the breaker changed.
    pub(crate) claim_again: Notify,
    /// The last message ended.
    pub(crate) emptied: Notify,
    breaker: Mutex<Breaker>,
    /// Since the destination last answered.
    last_error: Mutex<Option<String>>,
    pub(crate) telemetry: Telemetry,
    pub(crate) calls: SinkCalls,
    /// Some breaker of the relay opened or closed: the reporter waits for this.
    breakers_changed: Arc<Notify>,
    held: AtomicUsize,
    /// What stood behind a failed message of a lane was released, since the claimer last asked.
    lane_broke: AtomicBool,
    retries: Mutex<BTreeSet<Instant>>,
}

impl SinkRuntime {
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
        // With a rate two are enough, and what waits here waits for nobody else.
        let claims = if options.rate.is_some() { 2 } else { CLAIMS };
        Self {
            batching: sink.batching(),
            claim_size,
            prefetch: Arc::new(Semaphore::new(claims * claim_size as usize)),
            concurrency: Semaphore::new(options.concurrency),
            rate: options.rate.map(|rate| RateLimiter::direct(Quota::per_second(rate))),
            claim_again: Notify::new(),
            emptied: Notify::new(),
            breaker: Mutex::new(Breaker::new(options.breaker)),
            last_error: Mutex::default(),
            calls: telemetry.calls_of(&name),
            telemetry,
            breakers_changed,
            held: AtomicUsize::new(0),
            lane_broke: AtomicBool::new(false),
            retries: Mutex::default(),
            name,
            sink,
            options,
        }
    }

    pub(crate) fn breaker(&self) -> MutexGuard<'_, Breaker> {
        self.breaker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The destination answered for so many messages.
    pub(crate) fn answered(&self, messages: usize) {
        *self.last_error() = None;
        let change = self.breaker().answered(u32::try_from(messages).unwrap_or(u32::MAX));
        self.announce(change);
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
        self.announce(change);
    }

    fn announce(&self, change: Option<Change>) {
        match change {
            Some(Change::Opened { .. }) => {
                self.telemetry.breaker_open(&self.name, true);
                self.breakers_changed.notify_one();
                self.claim_again.notify_one();
            }
            Some(Change::Closed) => {
                info!(sink = self.name, "breaker closed: the sink is back");
                self.telemetry.breaker_open(&self.name, false);
                self.breakers_changed.notify_one();
                self.claim_again.notify_one();
            }
            Some(Change::StillOpen) | None => {}
        }
    }

    pub(crate) fn lane_broke(&self) {
        self.lane_broke.store(true, Ordering::Relaxed);
    }

    /// Whether a lane broke since this was asked last.
    pub(crate) fn take_lane_broke(&self) -> bool {
        self.lane_broke.swap(false, Ordering::Relaxed)
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

    pub(crate) fn message_claimed(&self) {
        self.held.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn message_ended(&self) {
        if self.held.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.emptied.notify_one();
        }
    }

    /// Remembers when a message is due again.
    pub(crate) fn retry_at(&self, due: Instant) {
        let mut retries = self.retries();
        retries.insert(due);
        if retries.len() > MAX_REMEMBERED_RETRIES {
            retries.pop_last();
        }
    }

    /// When the next remembered retry is due. Those due before the last claim are forgotten: that claim saw them.
    pub(crate) fn next_retry(&self, claimed_at: Instant) -> Option<Instant> {
        let mut retries = self.retries();
        while retries.first().is_some_and(|due| *due <= claimed_at) {
            retries.pop_first();
        }
        retries.first().copied()
    }

    fn retries(&self) -> MutexGuard<'_, BTreeSet<Instant>> {
        self.retries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::fixtures::runtime;

    #[test]
    fn it_reports_the_last_failure_until_the_destination_answers() {
        let (sink, now) = (runtime(SinkOptions::default()), Instant::now());
        sink.failed(now, Some(&SinkFailure::retryable("DOWN", "away")));
        assert_eq!(sink.report(now).last_error.as_deref(), Some("DOWN: away"));
        sink.failed(now, Some(&SinkFailure::retryable(SinkFailure::PANIC, "the payload")));
        assert_eq!(sink.report(now).last_error.as_deref(), Some("PANIC"), "words of a handler may repeat the message");
        sink.answered(1);
        assert_eq!(sink.report(now).last_error, None);
    }

    #[test]
    fn it_knows_the_next_retry_that_no_claim_has_seen() {
        let (sink, now) = (runtime(SinkOptions::default()), Instant::now());
        let later = now + Duration::from_secs(1);
        sink.retry_at(later);
        sink.retry_at(now);
        assert_eq!(sink.next_retry(now), Some(later));
        assert_eq!(sink.next_retry(later), None);
    }
}
