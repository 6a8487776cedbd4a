//! Where a claim begins to look, and how far. Looking from the beginning, and at every lane, finds everything, but costs
//! more the more dead or blocked rows stand in front; so both are done as often as their cost allows. What a shorter look
//! does not find proves nothing.

use std::time::{Duration, Instant, SystemTime};

use postrider::Claimed;

/// A long look may take this part of the time: its cost decides how often it is done.
const SHARE: u32 = 20;
/// And it is done at least this often.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

pub(crate) struct Look {
    /// Where the last full claim without lanes ended.
    watermark: Option<SystemTime>,
    sweep_at: Instant,
    every_lane_at: Instant,
}

/// How one claim looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Gaze {
    pub(crate) due_from: Option<SystemTime>,
    pub(crate) every_lane: bool,
}

impl Gaze {
    /// Whether finding nothing means that there is nothing.
    pub(crate) fn sees_everything(self) -> bool {
        self.due_from.is_none() && self.every_lane
    }
}

impl Look {
    pub(crate) fn new(now: Instant) -> Self {
        Self { watermark: None, sweep_at: now, every_lane_at: now }
    }

    pub(crate) fn next(&self, now: Instant) -> Gaze {
        Gaze {
            due_from: if now >= self.sweep_at { None } else { self.watermark },
            every_lane: now >= self.every_lane_at,
        }
    }

    /// The next look sees everything, whatever it costs.
    pub(crate) fn forget(&mut self, now: Instant) {
        self.watermark = None;
        self.every_lane_at = now;
    }

    /// A look got no answer: the next is a shorter one, if there is such.
    pub(crate) fn put_off(&mut self, gaze: Gaze, now: Instant) {
        if gaze.every_lane {
            self.every_lane_at = now + LONGEST_PAUSE;
        }
        if gaze.due_from.is_none() && self.watermark.is_some() {
            self.sweep_at = now + LONGEST_PAUSE;
        }
    }

    /// When every lane is looked at again.
    pub(crate) fn every_lane_at(&self) -> Instant {
        self.every_lane_at
    }

    /// Learns from a claim: what it cost, and where it ended. Only after a full claim of one priority has everything
    /// before its end been taken; late commits, retries and other priorities stand before it too, and a sweep finds them.
    pub(crate) fn learn(&mut self, gaze: Gaze, claimed: &[Claimed], full: bool, asked_at: Instant, now: Instant) {
        let pause = ((now - asked_at) * SHARE).min(LONGEST_PAUSE);
        if gaze.due_from.is_none() {
            self.sweep_at = now + pause;
        }
        if gaze.every_lane {
            self.every_lane_at = now + pause;
        }
        let mut without_lane = claimed.iter().filter(|message| message.lane.is_none());
        let first = without_lane.next();
        let last = without_lane.next_back().or(first);
        self.watermark = match (first, last) {
            (Some(first), Some(last)) if full && first.priority == last.priority => Some(last.due_at),
            (None, _) if full => self.watermark,
            _ => None,
        };
    }
}
