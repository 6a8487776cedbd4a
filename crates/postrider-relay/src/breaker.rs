//! Leaves a sink alone that keeps failing. Closed: everything goes. Open: nothing is claimed for it, so no attempt is
//! spent. Half open: one message goes as a probe; if it arrives, the flow starts small and doubles, so that a sink that
//! has just come back is not run over. Pure: it is told the time.

use std::time::{Duration, Instant};

use crate::options::setters;

/// When to leave a sink alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct BreakerOptions {
    /// After so many deliveries in a row that failed and may be retried: 20. Zero: never.
    pub failures: u32,
    /// For how long at first: one second. Doubles while the probes fail.
    pub cool_down: Duration,
    /// For how long at most: 30 seconds.
    pub cool_down_max: Duration,
}

impl Default for BreakerOptions {
    fn default() -> Self {
        Self { failures: 20, cool_down: Duration::from_secs(1), cool_down_max: Duration::from_secs(30) }
    }
}

setters! { BreakerOptions:
    failures: u32, cool_down: Duration, cool_down_max: Duration,
}

/// What may be claimed now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Allowed {
    /// As much as fits.
    Everything,
    /// At most this many: the sink has just come back.
    Ramp(u32),
    /// One, to see whether it is back.
    Probe,
    /// Nothing until then.
    NothingUntil(Instant),
    /// Nothing until the probe has ended.
    NothingYet,
}

/// A change worth telling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    Opened {
        cool_down: Duration,
    },
    /// A probe failed.
    StillOpen,
    Closed,
}

#[derive(Debug, Clone, Copy)]
enum State {
    Closed { failures: u32, ramp: Option<u32> },
    Open { until: Instant },
    HalfOpen { probing: bool },
}

#[derive(Debug)]
pub(crate) struct Breaker {
    options: BreakerOptions,
    state: State,
    /// Openings since it was last closed.
    openings: u32,
}

/// A flow that has grown to this many at once is no longer held back.
const RAMP_END: u32 = 512;

impl Breaker {
    pub(crate) fn new(options: BreakerOptions) -> Self {
        Self { options, state: State::Closed { failures: 0, ramp: None }, openings: 0 }
    }

    /// Asked before each claim. An answer of `Probe` is given once, until the probe has ended or was given back.
    pub(crate) fn allowed(&mut self, now: Instant) -> Allowed {
        match self.state {
            State::Closed { ramp: None, .. } => Allowed::Everything,
            State::Closed { ramp: Some(most), .. } => Allowed::Ramp(most),
            State::Open { until } if now < until => Allowed::NothingUntil(until),
            State::Open { .. } | State::HalfOpen { probing: false } => {
                self.state = State::HalfOpen { probing: true };
                Allowed::Probe
            }
            State::HalfOpen { probing: true } => Allowed::NothingYet,
        }
    }

    /// Whether what is claimed but not sent should be handed back.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.state, State::Open { .. })
    }

    /// For people: `closed`, `open` with the time that is left, `half_open`.
    pub(crate) fn describe(&self, now: Instant) -> (&'static str, Option<Duration>) {
        match self.state {
            State::Closed { .. } => ("closed", None),
            State::Open { until } if now < until => ("open", Some(until - now)),
            State::Open { .. } | State::HalfOpen { .. } => ("half_open", None),
        }
    }

    /// The probe was not sent: nothing was due, or the claim failed.
    pub(crate) fn probe_unused(&mut self) {
        if let State::HalfOpen { probing } = &mut self.state {
            *probing = false;
        }
    }

    /// The destination answered about so many messages, be it with a refusal.
    pub(crate) fn answered(&mut self, messages: u32) -> Option<Change> {
        match &mut self.state {
            State::Closed { failures, ramp } => {
                *failures = 0;
                *ramp = ramp.map(|most| most.saturating_add(messages)).filter(|most| *most < RAMP_END);
                None
            }
            State::HalfOpen { .. } => {
                self.state = State::Closed { failures: 0, ramp: Some(2) };
                self.openings = 0;
                Some(Change::Closed)
            }
            // Sent before it opened, answered after: the probe decides.
            State::Open { .. } => None,
        }
    }

    /// A delivery failed that may be retried.
    pub(crate) fn failed(&mut self, now: Instant) -> Option<Change> {
        match &mut self.state {
            State::Closed { failures, .. } => {
                *failures = failures.saturating_add(1);
                (self.options.failures > 0 && *failures >= self.options.failures).then(|| self.open(now))
            }
            State::HalfOpen { .. } => Some(self.open(now)),
            State::Open { .. } => None,
        }
    }

    fn open(&mut self, now: Instant) -> Change {
        let doubled = self.options.cool_down.saturating_mul(1_u32.checked_shl(self.openings).unwrap_or(u32::MAX));
        let cool_down = doubled.min(self.options.cool_down_max);
        self.openings = self.openings.saturating_add(1).min(31);
        self.state = State::Open { until: now + cool_down };
        if self.openings == 1 { Change::Opened { cool_down } } else { Change::StillOpen }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn breaker() -> (Breaker, Instant) {
        let options =
            BreakerOptions { failures: 3, cool_down: Duration::from_secs(1), cool_down_max: Duration::from_secs(3) };
        (Breaker::new(options), Instant::now())
    }

    fn seconds(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    #[test]
    fn opens_only_on_failures_in_a_row() {
        let (mut breaker, now) = breaker();
        for _ in 0..10 {
            assert_eq!((breaker.failed(now), breaker.failed(now), breaker.answered(1)), (None, None, None));
        }
        assert_eq!(breaker.allowed(now), Allowed::Everything);
        assert_eq!((breaker.failed(now), breaker.failed(now)), (None, None));
        assert_eq!(breaker.failed(now), Some(Change::Opened { cool_down: seconds(1) }));
        assert_eq!(breaker.allowed(now), Allowed::NothingUntil(now + seconds(1)));
    }

    #[test]
    fn one_probe_at_a_time_and_a_longer_wait_after_each_that_fails() {
        let (mut breaker, mut now) = breaker();
        for _ in 0..3 {
            breaker.failed(now);
        }
        for cool_down in [2, 3, 3] {
            now += seconds(3);
            assert_eq!(breaker.allowed(now), Allowed::Probe);
            assert_eq!(breaker.allowed(now), Allowed::NothingYet);
            breaker.probe_unused();
            assert_eq!(breaker.allowed(now), Allowed::Probe, "an unused probe is given back");
            assert_eq!(breaker.failed(now), Some(Change::StillOpen));
            assert_eq!(breaker.allowed(now), Allowed::NothingUntil(now + seconds(cool_down)));
        }
    }

    #[test]
    fn comes_back_small_and_grows_with_what_arrives() {
        let (mut breaker, now) = breaker();
        for _ in 0..3 {
            breaker.failed(now);
        }
        let now = now + seconds(1);
        assert_eq!(breaker.allowed(now), Allowed::Probe);
        assert_eq!(breaker.answered(1), Some(Change::Closed));
        assert_eq!(breaker.allowed(now), Allowed::Ramp(2));
        breaker.answered(1);
        breaker.answered(1);
        assert_eq!(breaker.allowed(now), Allowed::Ramp(4), "what arrived doubles what may be on its way");
        for _ in 0..RAMP_END {
            breaker.answered(1);
        }
        assert_eq!(breaker.allowed(now), Allowed::Everything);
    }

    #[test]
    fn its_state_has_a_word_and_the_time_that_is_left() {
        let (mut breaker, now) = breaker();
        assert_eq!(breaker.describe(now), ("closed", None));
        for _ in 0..3 {
            breaker.failed(now);
        }
        assert_eq!(breaker.describe(now), ("open", Some(seconds(1))));
        assert_eq!(breaker.describe(now + seconds(1)), ("half_open", None), "the next claim is a probe");
        breaker.allowed(now + seconds(1));
        assert_eq!(breaker.describe(now + seconds(1)), ("half_open", None));
        breaker.answered(1);
        assert_eq!(breaker.describe(now + seconds(1)), ("closed", None));
    }

    #[test]
    fn an_old_answer_does_not_close_it() {
        let (mut breaker, now) = breaker();
        for _ in 0..3 {
            breaker.failed(now);
        }
        assert_eq!(breaker.answered(1), None);
        assert!(breaker.is_open());
    }

    #[test]
    fn zero_failures_mean_never() {
        let mut breaker = Breaker::new(BreakerOptions { failures: 0, ..BreakerOptions::default() });
        let now = Instant::now();
        for _ in 0..1_000 {
            assert_eq!(breaker.failed(now), None);
        }
    }
}
