//! How long it takes from a commit to the handler: with a relay that sleeps between the messages, and at a steady rate. The
//! moment of the commit is when the producer has its answer; a handler that was faster than that counts as 0.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use postrider::Store;
use tokio::task::JoinSet;
use uuid::Uuid;

use super::enqueue::{self, Producer, Way};
use super::place::Postgres;
use super::relays::Relays;
use super::run::{Run, Watch};
use super::{Bench, floor};
use crate::exit_code::ExitCode;
use crate::failure::{Failure, Result};

/// Messages before the clock starts.
const WARM_UP: u32 = 5;
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// For the last messages.
const PATIENCE: Duration = Duration::from_secs(30);

/// Meets commits and deliveries by their message, whichever comes first.
#[derive(Debug, Default)]
pub(super) struct Meter(Mutex<Met>);

#[derive(Debug, Default)]
struct Met {
    waiting: HashMap<Uuid, Instant>,
    latencies: Vec<Duration>,
}

impl Meter {
    pub(super) fn delivered(&self, ids: &[Uuid]) {
        let now = Instant::now();
        for id in ids {
            self.meet(*id, now, |committed| now.saturating_duration_since(committed));
        }
    }

    fn committed(&self, id: Uuid) {
        self.meet(id, Instant::now(), |_| Duration::ZERO);
    }

    fn meet(&self, id: Uuid, now: Instant, latency: impl Fn(Instant) -> Duration) {
        let mut met = self.lock();
        match met.waiting.remove(&id) {
            Some(other) => met.latencies.push(latency(other)),
            None => drop(met.waiting.insert(id, now)),
        }
    }

    fn count(&self) -> usize {
        self.lock().latencies.len()
    }

    fn take(&self) -> Vec<Duration> {
        std::mem::take(&mut self.lock().latencies)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Met> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until so many have met.
    async fn until(&self, count: usize) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while self.count() < count {
            if Instant::now() > deadline {
                let words = format!("{} of {count} messages arrived", self.count());
                return Err(Failure::new(ExitCode::Failure, words));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Ok(())
    }
}

/// How often messages come.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    pub(super) producers: u16,
    pub(super) messages: u32,
    /// Between two messages of one producer.
    pub(super) every: Duration,
}

/// Through the relay.
pub(super) async fn ours(bench: &Bench<Postgres>, pace: Pace) -> Result<Run> {
    let meter = Arc::new(Meter::default());
    let store: Arc<dyn Store> = Arc::new(bench.place.store()?);
    let relays = Relays::start([store], bench.size.batch, Some(&meter))?;
    let run = measure(bench, &meter, Way::Library, pace).await?;
    relays.stop().await?;
    Ok(run)
}

/// Through a loop that listens and claims.
pub(super) async fn floor(bench: &Bench<Postgres>, pace: Pace) -> Result<Run> {
    let meter = Arc::new(Meter::default());
    let _listening = floor::listen(bench, Arc::clone(&meter)).await?;
    measure(bench, &meter, Way::Notify, pace).await
}

async fn measure(bench: &Bench<Postgres>, meter: &Arc<Meter>, way: Way, pace: Pace) -> Result<Run> {
    let mut producers = Vec::new();
    for _ in 0..pace.producers {
        producers.push(Producer::new(&bench.place, way, bench.size.payload_bytes).await?);
    }
    for warm in 0..WARM_UP {
        let id = producers[0].once().await?;
        meter.committed(id);
        meter.until(warm as usize + 1).await?;
        tokio::time::sleep(pace.every).await;
    }
    meter.take();
    let seen = Arc::clone(meter);
    let watch = Watch::start(&bench.place, move || seen.count() as u64).await?;
    let each = (pace.messages / u32::from(pace.producers)).max(1);
    let mut tasks = JoinSet::new();
    for mut producer in producers {
        let meter = Arc::clone(meter);
        tasks.spawn(async move {
            let mut next = tokio::time::interval(pace.every);
            for _ in 0..each {
                next.tick().await;
                let id = producer.once().await?;
                meter.committed(id);
            }
            Ok(())
        });
    }
    enqueue::all(tasks).await?;
    let total = u64::from(each) * u64::from(pace.producers);
    meter.until(usize::try_from(total).unwrap_or(usize::MAX)).await?;
    let mut run = watch.finish(&bench.place, total).await?;
    run.latencies = meter.take();
    run.latencies.sort_unstable();
    Ok(run)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delivery_may_come_before_the_answer_to_the_commit() {
        let meter = Meter::default();
        let (early, late) = (Uuid::now_v7(), Uuid::now_v7());
        meter.delivered(&[early]);
        meter.committed(late);
        meter.committed(early);
        meter.delivered(&[late]);
        assert_eq!(meter.count(), 2);
        assert_eq!(meter.take()[0], Duration::ZERO);
    }
}
