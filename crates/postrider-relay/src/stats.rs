//! What the relay has done since it started: for the line it says when it ends, and for whoever watches. Metrics proper
//! are in `telemetry.rs`.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts that go up while the relay runs. Cheap to read at any time.
#[derive(Debug, Default)]
pub struct Stats {
    claimed: AtomicU64,
    delivered: AtomicU64,
    retried: AtomicU64,
    dead: AtomicU64,
    released: AtomicU64,
    lost: AtomicU64,
}

/// What a relay has done until now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Messages claimed.
    pub claimed: u64,
    /// Attempts recorded as delivered.
    pub delivered: u64,
    /// Attempts recorded as to be tried again.
    pub retried: u64,
    /// Attempts after which the message is dead.
    pub dead: u64,
    /// Messages handed back unsent.
    pub released: u64,
    /// Messages whose lease was lost: whatever became of them, others record it.
    pub lost: u64,
}

#[cfg(feature = "testing")]
impl Counts {
    pub(crate) fn plus(self, more: Self) -> Self {
        Self {
            claimed: self.claimed + more.claimed,
            delivered: self.delivered + more.delivered,
            retried: self.retried + more.retried,
            dead: self.dead + more.dead,
            released: self.released + more.released,
            lost: self.lost + more.lost,
        }
    }
}

impl Stats {
    /// All counts.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Counts {
            claimed: read(&self.claimed),
            delivered: read(&self.delivered),
            retried: read(&self.retried),
            dead: read(&self.dead),
            released: read(&self.released),
            lost: read(&self.lost),
        }
    }

    pub(crate) fn claimed(&self, count: usize) {
        add(&self.claimed, count);
    }

    pub(crate) fn delivered(&self, count: usize) {
        add(&self.delivered, count);
    }

    pub(crate) fn retried(&self, count: usize) {
        add(&self.retried, count);
    }

    pub(crate) fn dead(&self, count: usize) {
        add(&self.dead, count);
    }

    pub(crate) fn released(&self, count: usize) {
        add(&self.released, count);
    }

    pub(crate) fn lost(&self, count: usize) {
        add(&self.lost, count);
    }
}

fn add(count: &AtomicU64, more: usize) {
    count.fetch_add(more as u64, Ordering::Relaxed);
}
