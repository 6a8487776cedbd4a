//! What the demo shows, whatever it is shown on: the numbers of the moment and how they came to be. Asks the store, the
//! relay and the receiver's books; draws nothing.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use postrider::Store;
use postrider_relay::Stats;

use super::SINK;
use super::world::{World, read};

/// One sample for the sparklines.
pub(super) const SAMPLE: Duration = Duration::from_millis(500);
/// Samples that are kept: more than the widest terminal shows.
const SAMPLES: usize = 512;
/// Samples that a rate is taken from.
const RATE_SAMPLES: usize = 4;

pub(super) struct Viewer {
    pub(super) world: Arc<World>,
    pub(super) store: Arc<dyn Store>,
    pub(super) file: PathBuf,
    stats: Arc<Stats>,
    sampled_at: Instant,
    last: Snapshot,
    enqueued: VecDeque<u64>,
    delivered: VecDeque<u64>,
}

/// The numbers of one moment.
#[derive(Clone, Debug, Default)]
pub(super) struct Snapshot {
    pub(super) elapsed: Duration,
    pub(super) enqueued: u64,
    pub(super) delivered: u64,
    pub(super) pending: u64,
    pub(super) in_flight: u64,
    pub(super) retried: u64,
    pub(super) dead: u64,
    pub(super) parked_lanes: u64,
    pub(super) paused: bool,
    pub(super) breaker_open: bool,
    /// The receiver's books.
    pub(super) taken: u64,
    pub(super) duplicates: u64,
    pub(super) out_of_order: u64,
}

impl Viewer {
    pub(super) fn new(world: Arc<World>, store: Arc<dyn Store>, stats: Arc<Stats>, file: PathBuf) -> Self {
        Self {
            world,
            store,
            file,
            stats,
            sampled_at: Instant::now(),
            last: Snapshot::default(),
            enqueued: VecDeque::new(),
            delivered: VecDeque::new(),
        }
    }

    /// Looks at everything once.
    pub(super) async fn look(&mut self) -> Snapshot {
        let counts = self.stats.counts();
        let status = self.store.status().await.unwrap_or_default();
        let sink = status.iter().find(|status| status.sink == SINK);
        let number = |of: fn(&postrider::inspect::SinkStatus) -> i64| {
            sink.map_or(0, |sink| u64::try_from(of(sink)).unwrap_or(0))
        };
        let (taken, duplicates, out_of_order) = {
            let ledger = self.world.ledger();
            (ledger.messages() as u64, ledger.duplicates(), ledger.out_of_order().len() as u64)
        };
        let snapshot = Snapshot {
            elapsed: self.world.elapsed(),
            enqueued: read(&self.world.enqueued),
            delivered: counts.delivered,
            retried: counts.retried,
            pending: number(|sink| sink.pending),
            in_flight: number(|sink| sink.leased),
            dead: number(|sink| sink.dead),
            parked_lanes: number(|sink| sink.parked_lanes),
            paused: self.world.paused.load(Ordering::Relaxed),
            breaker_open: self.world.breaker_open.load(Ordering::Relaxed),
            taken,
            duplicates,
            out_of_order,
        };
        if self.sampled_at.elapsed() >= SAMPLE {
            self.sampled_at = Instant::now();
            sample(&mut self.enqueued, snapshot.enqueued.saturating_sub(self.last.enqueued));
            sample(&mut self.delivered, snapshot.delivered.saturating_sub(self.last.delivered));
            self.last = snapshot.clone();
        }
        snapshot
    }

    /// The last samples, oldest first, and the rate of the last moments.
    pub(super) fn enqueued(&self, width: usize) -> (Vec<u64>, u64) {
        tail(&self.enqueued, width)
    }

    pub(super) fn delivered(&self, width: usize) -> (Vec<u64>, u64) {
        tail(&self.delivered, width)
    }
}

fn sample(samples: &mut VecDeque<u64>, value: u64) {
    samples.push_back(value);
    if samples.len() > SAMPLES {
        samples.pop_front();
    }
}

fn tail(samples: &VecDeque<u64>, width: usize) -> (Vec<u64>, u64) {
    let shown = samples.iter().skip(samples.len().saturating_sub(width)).copied().collect();
    let last: Vec<u64> = samples.iter().rev().take(RATE_SAMPLES).copied().collect();
    let per_second = u64::try_from(1_000 / SAMPLE.as_millis()).unwrap_or(1);
    let rate = (last.iter().sum::<u64>() * per_second).div_ceil(last.len().max(1) as u64);
    (shown, rate)
}

/// `0:42`, `12:05`.
pub(super) fn stopwatch(elapsed: Duration) -> String {
    format!("{}:{:02}", elapsed.as_secs() / 60, elapsed.as_secs() % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_of_the_last_two_seconds() {
        let samples = VecDeque::from([100, 100, 10, 20, 30, 40]);
        assert_eq!(tail(&samples, 3), (vec![20, 30, 40], 50));
        assert_eq!(tail(&VecDeque::new(), 3), (vec![], 0));
        assert_eq!(stopwatch(Duration::from_secs(725)), "12:05");
    }
}
