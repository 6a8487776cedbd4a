//! One sink as the relay runs it: what it was given, its breaker, its limits, and what wakes its claimer. Shared by the
//! claimer, the dispatcher and the completer.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use tokio::sync::{Notify, Semaphore};
use tracing::{info, warn};

use crate::breaker::{Breaker, Change};
use crate::options::SinkOptions;
use crate::sink::{Batching, Sink};
use crate::telemetry;

/// Retries that are remembered to the moment; more are found by polling.
const MAX_REMEMBERED_RETRIES: usize = 4_096;

pub(crate) struct Outlet {
    pub(crate) name: String,
    pub(crate) sink: Arc<dyn Sink>,
    pub(crate) batching: Batching,
    pub(crate) options: SinkOptions,
    /// Claimed and not ended: two claims' worth, so that the next batch is here while this one is on its way.
    pub(crate) ahead: Arc<Semaphore>,
    pub(crate) concurrency: Semaphore,
    pub(crate) rate: Option<DefaultDirectRateLimiter>,
    /// There may be something to claim: a lane goes on, messages were handed back, the breaker closed.
    pub(crate) nudge: Notify,
    /// Nothing is held any more.
    pub(crate) emptied: Notify,
    breaker: Mutex<Breaker>,
    held: AtomicUsize,
    retries: Mutex<BinaryHeap<Reverse<Instant>>>,
}

impl Outlet {
    pub(crate) fn new(name: String, sink: Arc<dyn Sink>, options: SinkOptions) -> Self {
        Self {
            batching: sink.batching(),
            ahead: Arc::new(Semaphore::new(2 * options.batch_size as usize)),
            concurrency: Semaphore::new(options.concurrency),
            rate: options.rate.map(|rate| RateLimiter::direct(Quota::per_second(rate))),
            nudge: Notify::new(),
            emptied: Notify::new(),
            breaker: Mutex::new(Breaker::new(options.breaker)),
            held: AtomicUsize::new(0),
            retries: Mutex::new(BinaryHeap::new()),
            name,
            sink,
            options,
        }
    }

    pub(crate) fn breaker(&self) -> MutexGuard<'_, Breaker> {
        self.breaker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The destination answered.
    pub(crate) fn answered(&self) {
        let change = self.breaker().answered();
        self.tell(change);
    }

    /// A delivery failed that may be retried.
    pub(crate) fn failed(&self, now: Instant) {
        let change = self.breaker().failed(now);
        self.tell(change);
    }

    fn tell(&self, change: Option<Change>) {
        match change {
            Some(Change::Opened { cool_down }) => {
                warn!(sink = self.name, ?cool_down, "breaker opened: the sink keeps failing and is left alone");
                telemetry::breaker_open(&self.name, true);
            }
            Some(Change::Closed) => {
                info!(sink = self.name, "breaker closed: the sink is back");
                telemetry::breaker_open(&self.name, false);
                self.nudge.notify_one();
            }
            None => {}
        }
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
        if retries.len() < MAX_REMEMBERED_RETRIES {
            retries.push(Reverse(due));
        }
    }

    /// When the next remembered retry is due; those that are due already are forgotten, for a claim follows.
    pub(crate) fn next_retry(&self, now: Instant) -> Option<Instant> {
        let mut retries = self.retries();
        while retries.peek().is_some_and(|Reverse(due)| *due <= now) {
            retries.pop();
        }
        retries.peek().map(|Reverse(due)| *due)
    }

    fn retries(&self) -> MutexGuard<'_, BinaryHeap<Reverse<Instant>>> {
        self.retries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
