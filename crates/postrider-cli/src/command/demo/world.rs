//! What the parts of the demo share while it runs: counters, the last events, how the lanes stand, and the receiver's
//! books. Everything here is for show or for the account at the end; nothing decides what is delivered.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::ledger::Ledger;

/// Events that are kept for the screen.
const MAX_EVENTS: usize = 64;
/// One of so many lanes on the screen may be a parked one.
const PARKED_SHARE: usize = 3;
/// Lanes that are kept for the screen; the oldest that are done go first.
const MAX_LANES: usize = 256;

pub(super) struct World {
    pub(super) seed: u64,
    started: Instant,
    /// Messages whose transaction was committed.
    pub(super) enqueued: AtomicU64,
    /// Transactions that were rolled back on purpose.
    pub(super) rolled_back: AtomicU64,
    /// The relay leaves the sink alone.
    pub(super) breaker_open: AtomicBool,
    /// Somebody pressed p.
    pub(super) paused: AtomicBool,
    events: Mutex<VecDeque<Event>>,
    lanes: Mutex<BTreeMap<u64, Lane>>,
    ledger: Mutex<Ledger>,
}

/// How grave an event is; the colour follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tone {
    Good,
    Warning,
    Bad,
    Plain,
}

#[derive(Clone, Debug)]
pub(super) struct Event {
    pub(super) number: u64,
    pub(super) at: Duration,
    pub(super) tone: Tone,
    pub(super) words: String,
    /// The same again and again is one event.
    pub(super) times: u32,
}

/// One order of the shop, as the screen shows it.
#[derive(Clone, Debug)]
pub(super) struct Lane {
    pub(super) number: u64,
    pub(super) enqueued: u64,
    pub(super) arrived: u64,
    pub(super) topic: &'static str,
    pub(super) state: LaneState,
    touched: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LaneState {
    Moving,
    Retrying,
    Parked,
}

impl World {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            seed,
            started: Instant::now(),
            enqueued: AtomicU64::new(0),
            rolled_back: AtomicU64::new(0),
            breaker_open: AtomicBool::new(false),
            paused: AtomicBool::new(false),
            events: Mutex::default(),
            lanes: Mutex::default(),
            ledger: Mutex::default(),
        }
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    pub(super) fn say(&self, tone: Tone, words: impl Into<String>) {
        let at = self.elapsed();
        let words = words.into();
        let mut events = lock(&self.events);
        if let Some(last) = events.back_mut().filter(|last| last.words == words) {
            (last.at, last.times) = (at, last.times + 1);
            return;
        }
        let number = events.back().map_or(0, |last| last.number + 1);
        events.push_back(Event { number, at, tone, words, times: 1 });
        if events.len() > MAX_EVENTS {
            events.pop_front();
        }
    }

    /// Events from this number on, oldest first.
    pub(super) fn events_from(&self, number: u64) -> Vec<Event> {
        lock(&self.events).iter().filter(|event| event.number >= number).cloned().collect()
    }

    pub(super) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        lock(&self.ledger)
    }

    /// A change of an order was committed with its message.
    pub(super) fn lane_enqueued(&self, number: u64, topic: &'static str) {
        let touched = self.elapsed();
        let mut lanes = lock(&self.lanes);
        let lane = lanes.entry(number).or_insert(Lane {
            number,
            enqueued: 0,
            arrived: 0,
            topic,
            state: LaneState::Moving,
            touched,
        });
        lane.enqueued += 1;
        lane.topic = topic;
        lane.touched = touched;
        if lanes.len() > MAX_LANES {
            let done = lanes.values().find(|lane| lane.arrived >= lane.enqueued).map(|lane| lane.number);
            let oldest = done.or_else(|| lanes.keys().next().copied());
            oldest.map(|number| lanes.remove(&number));
        }
    }

    /// The receiver has had to do with an order.
    pub(super) fn lane_delivered(&self, lane: &str, sequence: u64, state: LaneState) {
        let Some(number) = lane.strip_prefix(LANE_PREFIX).and_then(|number| number.parse().ok()) else { return };
        let touched = self.elapsed();
        if let Some(lane) = lock(&self.lanes).get_mut(&number) {
            if state == LaneState::Moving {
                lane.arrived = lane.arrived.max(sequence);
            }
            lane.state = state;
            lane.touched = touched;
        }
    }

    /// Somebody redrove what was dead: no lane is parked any more.
    pub(super) fn unpark(&self) {
        for lane in lock(&self.lanes).values_mut().filter(|lane| lane.state == LaneState::Parked) {
            lane.state = LaneState::Moving;
        }
    }

    /// Some that are parked, then those with something in them and those that were touched last, in their own order.
    pub(super) fn lanes(&self, most: usize) -> Vec<Lane> {
        let lanes = lock(&self.lanes);
        let (mut shown, mut others): (Vec<&Lane>, Vec<&Lane>) =
            lanes.values().partition(|lane| lane.state == LaneState::Parked);
        shown.sort_by_key(|lane| Reverse(lane.touched));
        // There would soon be nothing else to see.
        shown.truncate(most.div_ceil(PARKED_SHARE));
        others.sort_by_key(|lane| (lane.arrived >= lane.enqueued, Reverse(lane.touched)));
        others.truncate(most - shown.len().min(most));
        shown.extend(others);
        shown.sort_by_key(|lane| lane.number);
        shown.into_iter().cloned().collect()
    }
}

/// An order's lane is this and its number.
pub(super) const LANE_PREFIX: &str = "order-";

pub(super) fn read(count: &AtomicU64) -> u64 {
    count.load(Ordering::Relaxed)
}

/// A panic of another thread is told by that thread.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_that_have_something_in_them_come_first() {
        let world = World::new(1);
        for number in 1..=4 {
            world.lane_enqueued(number, "order.placed");
        }
        world.lane_delivered("order-2", 1, LaneState::Moving);
        world.lane_delivered("order-3", 1, LaneState::Parked);
        let shown = |most| world.lanes(most).iter().map(|lane| lane.number).collect::<Vec<_>>();
        assert_eq!(shown(3), [1, 3, 4]);
        assert_eq!(shown(9), [1, 2, 3, 4]);
    }

    #[test]
    fn only_so_many_lanes_are_kept() {
        let world = World::new(1);
        for number in 0..1_000 {
            world.lane_enqueued(number, "order.placed");
            world.lane_delivered(&format!("order-{number}"), 1, LaneState::Moving);
        }
        assert_eq!(world.lanes(usize::MAX).len(), MAX_LANES);
    }

    #[test]
    fn events_are_numbered_and_bounded() {
        let world = World::new(1);
        for number in 0..100 {
            world.say(Tone::Plain, number.to_string());
        }
        assert_eq!(world.events_from(0).len(), MAX_EVENTS);
        world.say(Tone::Plain, "99");
        assert_eq!(world.events_from(98).iter().map(|event| event.words.as_str()).collect::<Vec<_>>(), ["98", "99"]);
    }
}
