//! How long to wait before the next attempt. A pure function of the attempt count and one random number: the relay
//! calls it and hands the delay to the store, which adds it to the database's clock. It never reads a clock itself.

use std::time::Duration;

use rand::Rng;

/// Exponential backoff with equal jitter: `delay = min(base * 2^(attempts-1), max)`, then uniform in
/// `[delay/2, delay]`. The clamp comes before the jitter, so the spread at the ceiling stays half of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Backoff {
    /// The delay after the first attempt, before jitter.
    pub base: Duration,
    /// The longest delay, before jitter.
    pub max: Duration,
}

impl Default for Backoff {
    /// One second, doubling up to five minutes.
    fn default() -> Self {
        Self { base: Duration::from_secs(1), max: Duration::from_mins(5) }
    }
}

impl Backoff {
    /// A delay of `base` after the first attempt, doubling up to `max`.
    #[must_use]
    pub fn new(base: Duration, max: Duration) -> Self {
        Self { base, max }
    }

    /// The delay before jitter, after `attempts` attempts (at least 1).
    #[must_use]
    pub fn ceiling(&self, attempts: u32) -> Duration {
        let doublings = attempts.max(1) - 1;
        // 2^127 times the shortest duration is past any `max`: the shift cannot overflow before the clamp.
        let nanos =
            self.base.as_nanos().checked_shl(doublings).filter(|nanos| nanos >> doublings == self.base.as_nanos());
        match nanos {
            Some(nanos) if nanos < self.max.as_nanos() => duration_from_nanos(nanos),
            _ => self.max,
        }
    }

    /// The delay after `attempts` attempts, with jitter from `rng`.
    pub(crate) fn delay(&self, attempts: u32, rng: &mut impl Rng) -> Duration {
        let ceiling = self.ceiling(attempts).as_nanos();
        duration_from_nanos(rng.random_range(ceiling.div_ceil(2)..=ceiling))
    }
}

/// Only called with at most `Duration::MAX`, which both callers clamp to.
fn duration_from_nanos(nanos: u128) -> Duration {
    const NANOS_PER_SEC: u128 = 1_000_000_000;
    let secs = u64::try_from(nanos / NANOS_PER_SEC).unwrap_or(u64::MAX);
    let subsec = u32::try_from(nanos % NANOS_PER_SEC).unwrap_or(0);
    Duration::new(secs, subsec)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::*;

    /// Proves M7: the documented ladder.
    #[test]
    fn doubles_from_base_up_to_max() {
        let backoff = Backoff::default();
        let ladder: Vec<u64> = (1..=11).map(|attempts| backoff.ceiling(attempts).as_secs()).collect();
        assert_eq!(ladder, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
        assert_eq!(backoff.ceiling(0), Duration::from_secs(1), "an attempt count of 0 is treated as the first");
    }

    proptest! {
        /// Proves M7: clamp before jitter, uniform bounds, no overflow for any input.
        #[test]
        fn jitter_stays_between_half_and_the_whole(
            base_ms in 0_u64..10_000_000,
            max_ms in 0_u64..10_000_000,
            attempts in 0_u32..=u32::MAX,
            seed: u64,
        ) {
            let backoff = Backoff { base: Duration::from_millis(base_ms), max: Duration::from_millis(max_ms) };
            let exact = f64::from(u32::try_from(base_ms).unwrap_or(u32::MAX)) * 2_f64.powi(i32::try_from(attempts.max(1) - 1).unwrap_or(2000).min(2000));
            #[expect(clippy::cast_precision_loss, reason = "test inputs are below 2^53")]
            let expected_ms = exact.min(max_ms as f64);
            let ceiling = backoff.ceiling(attempts);
            prop_assert!((ceiling.as_secs_f64() * 1000.0 - expected_ms).abs() < 1.0, "{ceiling:?} is not {expected_ms} ms");
            let delay = backoff.delay(attempts, &mut StdRng::seed_from_u64(seed));
            prop_assert!(delay <= ceiling && delay * 2 >= ceiling, "{delay:?} is outside [{ceiling:?}/2, {ceiling:?}]");
        }

        /// Proves M7: a longer history never waits for a lower ceiling.
        #[test]
        fn never_shrinks(base_ms in 0_u64..100_000, max_ms in 0_u64..100_000, attempts in 1_u32..200) {
            let backoff = Backoff { base: Duration::from_millis(base_ms), max: Duration::from_millis(max_ms) };
            prop_assert!(backoff.ceiling(attempts + 1) >= backoff.ceiling(attempts));
        }
    }

    /// Proves M7: the jitter is spread over the whole half, not stuck at an end.
    #[test]
    fn jitter_is_spread() {
        let backoff = Backoff { base: Duration::from_secs(8), max: Duration::from_secs(8) };
        let mut rng = StdRng::seed_from_u64(7);
        let mean = (0..4000).map(|_| backoff.delay(1, &mut rng).as_secs_f64()).sum::<f64>() / 4000.0;
        assert!((mean - 6.0).abs() < 0.1, "the mean of uniform [4, 8] is 6, got {mean}");
    }
}
