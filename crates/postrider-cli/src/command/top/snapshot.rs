//! One look at the outbox for `top`, and what is kept of the last one. Asks the store, all questions at once and bounded
//! in time; draws nothing. What cannot be asked leaves the old answer, and the picture says how old it is.

use std::future::Future;
use std::time::{Duration, Instant, SystemTime};

use postrider::inspect::{
    DeadFilter, DeadGroup, LaneFilter, LaneState, LaneStatus, Page, PageRequest, RelayRecord, Sample, SinkOverview,
    SinkStatus,
};
use postrider::{Error, Store};

/// An answer that takes longer is not waited for.
const PATIENCE: Duration = Duration::from_secs(10);
/// Lanes that are asked for: more than a screen shows.
const MAX_LANES: u32 = 100;
/// The samples a rate is taken from: relays measure every ten seconds.
const RATE_WINDOW: Duration = Duration::from_mins(1);

/// The answers of one look.
pub(super) struct Snapshot {
    now: SystemTime,
    sinks: Result<Vec<SinkStatus>, String>,
    groups: Result<Vec<DeadGroup>, String>,
    lanes: Result<Page<LaneStatus>, String>,
    relays: Result<Vec<RelayRecord>, String>,
    samples: Result<Vec<Sample>, String>,
}

async fn bounded<T>(asked: impl Future<Output = Result<T, Error>>) -> Result<T, String> {
    match tokio::time::timeout(PATIENCE, asked).await {
        Ok(answer) => answer.map_err(|error| error.in_short()),
        Err(_) => Err(format!("no answer within {} seconds", PATIENCE.as_secs())),
    }
}

impl Snapshot {
    pub(super) async fn at(store: &dyn Store) -> Self {
        let (every_letter, every_lane) = (DeadFilter::default(), LaneFilter::default());
        let most_lanes = PageRequest::first(MAX_LANES);
        let (now, sinks, groups, lanes, relays, samples) = tokio::join!(
            bounded(store.now()),
            bounded(store.status()),
            bounded(store.dead_groups(&every_letter)),
            bounded(store.lanes(&every_lane, &most_lanes)),
            bounded(store.relays()),
            bounded(store.samples(RATE_WINDOW)),
        );
        Self { now: now.unwrap_or_else(|_| SystemTime::now()), sinks, groups, lanes, relays, samples }
    }
}

/// A sink with everything that is known about it.
#[derive(Debug, Clone)]
pub(super) struct Sink {
    pub(super) seen: SinkOverview,
    /// Delivered a second, in the last minute; `None` while nobody measures.
    pub(super) per_second: Option<f64>,
}

/// What is on the screen.
pub(super) struct Picture {
    pub(super) place: String,
    pub(super) now: SystemTime,
    pub(super) sinks: Vec<Sink>,
    pub(super) groups: Vec<DeadGroup>,
    /// Parked and waiting ones: the others go their way.
    pub(super) lanes: Vec<LaneStatus>,
    pub(super) relays: Vec<RelayRecord>,
    /// What went wrong at the last look.
    pub(super) trouble: Option<String>,
    /// When the sinks were last seen.
    pub(super) seen: Option<Instant>,
}

impl Picture {
    pub(super) fn new(place: String) -> Self {
        Self {
            place,
            now: SystemTime::now(),
            sinks: Vec::new(),
            groups: Vec::new(),
            lanes: Vec::new(),
            relays: Vec::new(),
            trouble: None,
            seen: None,
        }
    }

    /// Takes what was answered; what was not stays as it was.
    pub(super) fn take(&mut self, looked: Snapshot) {
        let Snapshot { now, sinks, groups, lanes, relays, samples } = looked;
        self.trouble = None;
        self.now = now;
        let mut note = |trouble: String| self.trouble = Some(trouble);
        match relays {
            Ok(relays) => self.relays = relays,
            Err(trouble) => note(trouble),
        }
        match groups {
            Ok(groups) => self.groups = groups,
            Err(trouble) => note(trouble),
        }
        match lanes {
            Ok(lanes) => {
                let stuck = |lane: &LaneStatus| matches!(lane.state, LaneState::Parked | LaneState::Waiting);
                self.lanes = lanes.items.into_iter().filter(stuck).collect();
            }
            Err(trouble) => note(trouble),
        }
        let samples = samples.unwrap_or_else(|trouble| {
            note(trouble);
            Vec::new()
        });
        match sinks {
            Ok(sinks) => {
                self.seen = Some(Instant::now());
                let sink = |status: SinkStatus| Sink {
                    per_second: rate(&samples, &status.sink),
                    seen: SinkOverview::new(status, Some(&self.relays)),
                };
                self.sinks = sinks.into_iter().map(sink).collect();
            }
            Err(trouble) => note(trouble),
        }
    }
}

/// What was dispatched, over the time it was measured.
fn rate(samples: &[Sample], sink: &str) -> Option<f64> {
    let of_sink = || samples.iter().filter(|sample| sample.sink == sink);
    let seconds: f64 = of_sink().map(|sample| sample.seconds).sum();
    let dispatched: i64 = of_sink().map(|sample| sample.attempts.dispatched).sum();
    #[expect(clippy::cast_precision_loss, reason = "a rate is rounded for display")]
    let dispatched = dispatched as f64;
    (seconds > 0.0).then(|| dispatched / seconds)
}

#[cfg(test)]
mod tests {
    use postrider::inspect::AttemptCounts;

    use super::*;

    #[test]
    fn a_rate_is_taken_over_the_measured_time() {
        let sample = |sink: &str, seconds: f64, dispatched: i64| Sample {
            at: SystemTime::UNIX_EPOCH,
            seconds,
            sink: sink.to_owned(),
            pending: 0,
            due: 0,
            leased: 0,
            expired: 0,
            dead: 0,
            parked_lanes: 0,
            oldest_pending_age_seconds: 0.0,
            oldest_due_age_seconds: 0.0,
            attempts: AttemptCounts { dispatched, retryable: 9, failed: 9, zombie_requeue: 9 },
            latency_p50_ms: None,
            latency_p99_ms: None,
        };
        let samples = [sample("a", 10.0, 50), sample("a", 30.0, 150), sample("b", 10.0, 7)];
        assert_eq!(rate(&samples, "a"), Some(5.0));
        assert_eq!(rate(&samples, "c"), None);
    }
}
