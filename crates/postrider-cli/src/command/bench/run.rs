//! One run: so many messages in so much time, with what it cost the server and this process meanwhile. A [`Watch`] is started
//! before the work and ended after it. What a system does not tell (memory and processor time outside Linux) is left out.

use std::fs;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio_util::task::AbortOnDropHandle;

use super::place::{Place, Position};
use crate::failure::Result;

/// Between two looks at how far a run is.
pub(super) const STEP: Duration = Duration::from_millis(100);
/// Of a processor's second, in /proc; the same on every Linux.
const TICKS_PER_SECOND: f64 = 100.0;
const PAGE_BYTES: u64 = 4096;

/// What came of a run.
#[derive(Debug, Default)]
pub(super) struct Run {
    /// Messages that took `elapsed`.
    pub(super) timed: u64,
    pub(super) elapsed: Duration,
    /// All messages of the run; what it cost is theirs.
    pub(super) messages: u64,
    pub(super) wal_bytes: Option<i64>,
    pub(super) commits: Option<i64>,
    pub(super) round_trips: Option<u64>,
    pub(super) cpu_seconds: Option<f64>,
    pub(super) memory_bytes: Option<u64>,
    /// Sorted.
    pub(super) latencies: Vec<Duration>,
    /// Messages a second, step by step.
    pub(super) series: Vec<f64>,
}

impl Run {
    pub(super) fn rate(&self) -> Option<f64> {
        (self.timed > 0).then(|| number(self.timed) / self.elapsed.as_secs_f64().max(1e-6))
    }

    pub(super) fn wal_bytes(&self) -> Option<f64> {
        self.per_message(signed(self.wal_bytes?))
    }

    pub(super) fn commits(&self) -> Option<f64> {
        self.per_message(signed(self.commits?))
    }

    pub(super) fn round_trips(&self) -> Option<f64> {
        self.per_message(number(self.round_trips?))
    }

    pub(super) fn cpu_us(&self) -> Option<f64> {
        self.per_message(self.cpu_seconds? * 1e6)
    }

    pub(super) fn memory_mib(&self) -> Option<f64> {
        self.memory_bytes.map(|bytes| number(bytes) / 1_048_576.0)
    }

    pub(super) fn p50_ms(&self) -> Option<f64> {
        self.percentile_ms(50)
    }

    pub(super) fn p99_ms(&self) -> Option<f64> {
        self.percentile_ms(99)
    }

    fn percentile_ms(&self, percent: usize) -> Option<f64> {
        let last = self.latencies.len().checked_sub(1)?;
        self.latencies.get(last * percent / 100).map(|latency| latency.as_secs_f64() * 1e3)
    }

    fn per_message(&self, total: f64) -> Option<f64> {
        (self.messages > 0).then(|| total / number(self.messages))
    }
}

#[expect(clippy::cast_precision_loss, reason = "a figure for people needs no 53 bits")]
pub(super) fn number(count: u64) -> f64 {
    count as f64
}

#[expect(clippy::cast_precision_loss, reason = "a figure for people needs no 53 bits")]
fn signed(count: i64) -> f64 {
    count as f64
}

#[derive(Debug, Default)]
struct Samples {
    counts: Vec<u64>,
    memory_bytes: Option<u64>,
}

/// Looks on while a run goes on.
pub(super) struct Watch {
    begun: Position,
    cpu_seconds: Option<f64>,
    started: Instant,
    /// What had been done when the clock started.
    base: u64,
    samples: Arc<Mutex<Samples>>,
    _sampling: AbortOnDropHandle<()>,
}

impl Watch {
    /// `done` tells how many messages are through.
    pub(super) async fn start(place: &impl Place, done: impl Fn() -> u64 + Send + 'static) -> Result<Self> {
        let begun = place.position().await?;
        let samples = Arc::new(Mutex::new(Samples::default()));
        let kept = Arc::clone(&samples);
        let sampling = tokio::spawn(async move {
            let mut step = tokio::time::interval(STEP);
            loop {
                step.tick().await;
                let (count, memory) = (done(), memory_bytes());
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                kept.counts.push(count);
                kept.memory_bytes = kept.memory_bytes.max(memory);
            }
        });
        let (cpu_seconds, started) = (cpu_seconds(), Instant::now());
        Ok(Self { begun, cpu_seconds, started, base: 0, samples, _sampling: AbortOnDropHandle::new(sampling) })
    }

    /// The clock counts from now on, when `base` messages are through: a start-up is not part of a rate.
    pub(super) fn restart_clock(&mut self, base: u64) {
        (self.started, self.base) = (Instant::now(), base);
    }

    pub(super) async fn finish(self, place: &impl Place, messages: u64) -> Result<Run> {
        let elapsed = self.started.elapsed();
        let cpu_seconds = self.cpu_seconds.zip(cpu_seconds()).map(|(before, after)| after - before);
        let ended = place.position().await?;
        let samples = std::mem::take(&mut *self.samples.lock().unwrap_or_else(PoisonError::into_inner));
        let step = STEP.as_secs_f64();
        Ok(Run {
            timed: messages.saturating_sub(self.base),
            elapsed,
            messages,
            wal_bytes: ended.wal_bytes.zip(self.begun.wal_bytes).map(|(after, before)| after - before),
            commits: ended.commits.zip(self.begun.commits).map(|(after, before)| after - before),
            round_trips: ended.round_trips.zip(self.begun.round_trips).map(|(after, before)| after - before),
            cpu_seconds,
            memory_bytes: samples.memory_bytes.max(memory_bytes()),
            latencies: Vec::new(),
            series: samples.counts.windows(2).map(|pair| number(pair[1].saturating_sub(pair[0])) / step).collect(),
        })
    }
}

/// Of this process, both user's and system's.
fn cpu_seconds() -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The name of the program, in parentheses, may hold anything.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let (user, system): (u64, u64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some(number(user + system) / TICKS_PER_SECOND)
}

fn memory_bytes() -> Option<u64> {
    let statm = fs::read_to_string("/proc/self/statm").ok()?;
    statm.split_whitespace().nth(1)?.parse::<u64>().ok().map(|pages| pages * PAGE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn linux_tells_what_a_process_takes() {
        assert!(memory_bytes().is_some_and(|bytes| bytes > 1_000_000));
        assert!(cpu_seconds().is_some());
    }

    #[test]
    fn percentiles_are_of_what_was_measured() {
        let latencies = (1..=100).map(Duration::from_millis).collect();
        let run = Run { latencies, ..Run::default() };
        assert_eq!((run.p50_ms(), run.p99_ms()), (Some(50.0), Some(99.0)));
        assert_eq!(Run::default().p50_ms(), None);
    }
}
