//! When to say that something is away and that it is back, so that a storm of short outages is a few lines and not
//! hundreds. Used by the relay for its store and for its listener, and by the admin API; it logs nothing itself.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Between two times that an outage is said. The first is said at once.
const SAY_EVERY: Duration = Duration::from_mins(1);

/// Whether something is away, and what of it was said.
#[derive(Debug, Default)]
pub struct Outage(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    away: bool,
    /// This outage was said, so its end is said too.
    said: bool,
    said_at: Option<Instant>,
    /// Outages since one was said, this one included.
    times: u64,
}

impl Outage {
    /// It is away. `Some`: say so, and how many outages there were since it was last said.
    #[must_use]
    pub fn away(&self, now: Instant) -> Option<u64> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !state.away {
            state.away = true;
            state.times += 1;
        }
        if state.said || state.said_at.is_some_and(|at| now < at + SAY_EVERY) {
            return None;
        }
        state.said = true;
        state.said_at = Some(now);
        Some(std::mem::take(&mut state.times))
    }

    /// It is there. True: say so.
    #[must_use]
    pub fn back(&self) -> bool {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.away = false;
        std::mem::take(&mut state.said)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_is_said_once_in_a_while() {
        let (outage, start) = (Outage::default(), Instant::now());
        assert!(!outage.back(), "nothing to say at the start");
        assert_eq!(outage.away(start), Some(1), "the first is said at once");
        assert_eq!(outage.away(start + 2 * SAY_EVERY), None, "one that lasts is said once");
        assert!(outage.back());
        assert!(!outage.back(), "once");

        let (outage, mut now, mut said) = (Outage::default(), start, Vec::new());
        for _ in 0..600 {
            said.extend(outage.away(now));
            let _said = outage.back();
            now += SAY_EVERY / 240;
        }
        assert_eq!(said, [1, 240, 240], "and the others are counted");

        assert_eq!(outage.away(now), None);
        assert!(!outage.back(), "an outage that was not said has no end that is");
        assert_eq!(outage.away(now), None);
        assert_eq!(outage.away(now + SAY_EVERY), Some(121), "but one that lasts is said");
    }
}
