//! Decides where a claim's scan of the store begins, how many lanes it visits and how much it takes of each. A full scan finds everything, but costs
//! more the more deleted or blocked rows it has to step over, so it runs as often as its cost allows. A partial scan that
//! finds nothing proves nothing.

use std::time::{Duration, Instant, SystemTime};

use postrider::lifecycle::Claimed;

/// After a full scan comes a pause of this many times its duration.
const PAUSE_FACTOR: u32 = 20;
/// And at most this long.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// Messages of one lane in a claim when lanes have to share it.
const FAIR_RUN: u32 = 100;

pub(crate) struct ScanPlan {
    /// Where the last full claim without lanes ended.
    watermark: Option<SystemTime>,
    from_start_at: Instant,
    every_lane_at: Instant,
}

/// How one claim scans.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Scan {
    /// Where to begin among messages without a lane; `None` is the start.
    pub(crate) due_from: Option<SystemTime>,
    pub(crate) every_lane: bool,
}

impl Scan {
    /// Finding nothing means that nothing is due.
    pub(crate) fn is_full(self) -> bool {
        self.due_from.is_none() && self.every_lane
    }
}

impl ScanPlan {
    pub(crate) fn new(now: Instant) -> Self {
        Self { watermark: None, from_start_at: now, every_lane_at: now }
    }

    pub(crate) fn next(&self, now: Instant) -> Scan {
        Scan {
            due_from: if now >= self.from_start_at { None } else { self.watermark },
            every_lane: now >= self.every_lane_at,
        }
    }

    /// The next scan is a full one, whatever it costs.
    pub(crate) fn force_full(&mut self, now: Instant) {
        self.watermark = None;
        self.every_lane_at = now;
    }

    /// Leases have ended behind the watermark: the next scan begins before them.
    pub(crate) fn look_behind(&mut self) {
        self.watermark = None;
    }

    /// A scan got no answer: after one that was waited for, the next is a partial one, if possible. One that a lost
    /// connection ended at once says nothing about what a scan costs.
    pub(crate) fn failed(&mut self, scan: Scan, asked_at: Instant, now: Instant) {
        let pause = pause_after(now - asked_at);
        if scan.every_lane {
            self.every_lane_at = now + pause;
        }
        if scan.due_from.is_none() && self.watermark.is_some() {
            self.from_start_at = now + pause;
        }
    }

    pub(crate) fn every_lane_at(&self) -> Instant {
        self.every_lane_at
    }

    /// Plans the next scan by what this one cost and where it ended. Only a full claim of one priority has taken everything
    /// before its last message. Late commits, retries and other priorities may come before it, too; a scan from the start
    /// finds them.
    pub(crate) fn succeeded(&mut self, scan: Scan, claimed: &[Claimed], full: bool, asked_at: Instant, now: Instant) {
        let pause = pause_after(now - asked_at);
        if scan.due_from.is_none() {
            self.from_start_at = now + pause;
        }
        if scan.every_lane {
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

fn pause_after(duration: Duration) -> Duration {
    (duration * PAUSE_FACTOR).min(LONGEST_PAUSE)
}

/// How many messages of one lane a claim takes. Few lanes leave a claim half empty, so it doubles until claims are full, and
/// halves when they are. What stands behind a message that fails was claimed in vain, so a failure ends the growth.
pub(crate) struct LaneRun {
    most: u32,
    now: u32,
}

impl LaneRun {
    pub(crate) fn new(most: u32) -> Self {
        Self { most, now: most.min(FAIR_RUN) }
    }

    pub(crate) fn now(&self) -> u32 {
        self.now
    }

    pub(crate) fn failed(&mut self) {
        *self = Self::new(self.most);
    }

    pub(crate) fn succeeded(&mut self, claimed: &[Claimed], full: bool) {
        let longest = claimed
            .chunk_by(|one, next| one.lane == next.lane)
            .filter(|run| run[0].lane.is_some())
            .map(<[Claimed]>::len)
            .max();
        let limited = longest.is_some_and(|longest| longest >= self.now as usize);
        let next = if limited && !full { self.now.saturating_mul(2) } else { self.now / 2 };
        self.now = next.clamp(self.most.min(FAIR_RUN), self.most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_only_lane_gives_more_until_claims_are_full_or_one_fails() {
        let mut message = postrider_testkit::sink_contract::claimed("t", "1");
        message.lane = Some("a".to_owned());
        let claimed = |count: u32| vec![message.clone(); count as usize];
        let mut run = LaneRun::new(500);
        let runs =
            [(100, false), (200, false), (400, false), (500, true), (3, false), (3, false)].map(|(count, full)| {
                run.succeeded(&claimed(count), full);
                run.now()
            });
        assert_eq!(runs, [200, 400, 500, 250, 125, 100]);
        run.succeeded(&claimed(100), false);
        run.failed();
        assert_eq!(run.now(), FAIR_RUN);
        let mut few = LaneRun::new(3);
        few.succeeded(&claimed(3), false);
        assert_eq!(few.now(), 3, "never more than asked for");
    }

    #[test]
    fn a_scan_from_the_start_is_repeated_as_its_cost_allows() {
        let start = Instant::now();
        let mut plan = ScanPlan::new(start);
        let first = plan.next(start);
        assert!(first.is_full());
        let message = postrider_testkit::sink_contract::claimed("t", "1");
        let took = Duration::from_millis(100);
        plan.succeeded(first, std::slice::from_ref(&message), true, start, start + took);
        let second = plan.next(start + took);
        assert_eq!(
            second,
            Scan { due_from: Some(message.due_at), every_lane: false },
            "it goes on where the last ended"
        );
        assert!(plan.next(start + took * (PAUSE_FACTOR + 1)).is_full());
        plan.succeeded(second, &[], false, start, start + took);
        assert_eq!(plan.next(start + took).due_from, None, "the end was reached");
    }

    #[test]
    fn a_scan_without_an_answer_is_followed_by_a_partial_one() {
        let start = Instant::now();
        let mut plan = ScanPlan::new(start);
        let gave_up = start + Duration::from_secs(5);
        plan.failed(plan.next(start), start, gave_up);
        assert!(!plan.next(gave_up).every_lane && plan.next(gave_up + LONGEST_PAUSE).is_full());
        plan.force_full(gave_up);
        assert!(plan.next(gave_up).is_full());
    }

    /// A server that is killed breaks every scan at once. Messages of a relay that died with it are behind the watermark.
    #[test]
    fn a_scan_that_a_lost_connection_ended_is_not_put_off() {
        let start = Instant::now();
        let mut plan = ScanPlan::new(start);
        let message = postrider_testkit::sink_contract::claimed("t", "1");
        plan.succeeded(plan.next(start), std::slice::from_ref(&message), true, start, start);
        let broke = start + Duration::from_millis(2);
        plan.failed(plan.next(start), start, broke);
        assert!(plan.next(broke + Duration::from_millis(2) * PAUSE_FACTOR).is_full());
    }

    #[test]
    fn leases_that_ended_are_looked_for_behind_the_watermark() {
        let start = Instant::now();
        let mut plan = ScanPlan::new(start);
        let message = postrider_testkit::sink_contract::claimed("t", "1");
        let slow = start + Duration::from_secs(1);
        plan.succeeded(plan.next(start), std::slice::from_ref(&message), true, start, slow);
        assert_eq!(plan.next(slow).due_from, Some(message.due_at));
        plan.look_behind();
        assert_eq!(plan.next(slow).due_from, None);
    }
}
