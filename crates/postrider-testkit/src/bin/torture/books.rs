//! What is known of every message from outside the database: what its producer heard, and when and by which attempts it
//! arrived. Producers and the receiver write here while the storm goes on; the checker compares it with the database at
//! the end. One compact record for each message, so that millions fit. What must never happen and is seen at once is
//! written down as a violation. Nothing here asks the database.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::kinds::{Kind, Number, Plan};

/// Attempts of one message that are told apart; more are a violation.
pub(crate) const MAX_ATTEMPT_NO: i32 = 63;
/// Between two looks at how many have arrived.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Violations that are kept word for word; the rest are counted.
const VIOLATIONS_KEPT: usize = 40;

/// What its producer knows of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Its statement was sent, and not answered yet.
    Sent,
    /// The commit was confirmed.
    Acknowledged,
    /// The answer was lost.
    Unknown,
    /// Rolled back, or refused by an answer that says so.
    Refused,
}

/// One message, in 32 bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Record {
    /// Bit n: attempt n arrived.
    pub(crate) arrived: u64,
    /// Bit n: attempt n was accepted by the receiver.
    pub(crate) accepted: u64,
    /// Not to arrive before this time of the round.
    not_before_ms: u32,
    /// Which statement wrote it; statements are all or nothing.
    pub(crate) statement: u32,
    pub(crate) fate: Fate,
    /// Refusals so far that the receiver was to give.
    refusals: u8,
}

/// What the receiver answers for one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) enum Answer {
    Accepted,
    /// Try again.
    Busy,
    /// Never again, but for an operator.
    Refused,
    /// Refused for good, whatever an operator does.
    Doomed,
    /// Not looked at: an earlier one of its lane was not accepted.
    NotRead,
}

/// One arrival.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrival<'a> {
    pub(crate) number: Number,
    pub(crate) attempt_no: i32,
    pub(crate) lane: Option<&'a str>,
    pub(crate) sequence_id: Option<i64>,
}

/// The last first arrival of a lane.
#[derive(Debug, Clone, Copy, Default)]
struct LaneEnd {
    sequence_id: i64,
    position: u32,
}

/// An arrival by an attempt that was not the first: what a redelivery is measured by.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Redelivered {
    pub(crate) number: Number,
    pub(crate) attempt_no: i32,
    pub(crate) at: Duration,
}

#[derive(Debug, Default)]
pub(crate) struct Contents {
    pub(crate) records: Vec<Vec<Record>>,
    lanes: HashMap<String, LaneEnd>,
    pub(crate) redelivered: Vec<Redelivered>,
    pub(crate) acknowledged: u64,
    pub(crate) arrived: u64,
    statements: u32,
    violations: Vec<String>,
    more_violations: u64,
}

/// The books of one round.
#[derive(Debug)]
pub(crate) struct Books {
    pub(crate) plan: Plan,
    began: Instant,
    contents: Mutex<Contents>,
}

impl Books {
    pub(crate) fn new(plan: Plan) -> Self {
        let records = vec![Vec::new(); plan.producers as usize];
        Self { plan, began: Instant::now(), contents: Mutex::new(Contents { records, ..Contents::default() }) }
    }

    pub(crate) fn open(&self) -> MutexGuard<'_, Contents> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long the round has lasted.
    pub(crate) fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// A statement with the producer's next `count` messages is about to be sent. Returns its number.
    pub(crate) fn sent(&self, producer: u32, count: usize) -> u32 {
        let now_ms = millis(self.now());
        let mut books = self.open();
        books.statements += 1;
        let statement = books.statements;
        for _ in 0..count {
            let position = u32::try_from(books.records[producer as usize].len()).unwrap_or(u32::MAX);
            let delay = self.plan.kind(Number { producer, position }).delay();
            books.records[producer as usize].push(Record {
                arrived: 0,
                accepted: 0,
                not_before_ms: delay.map_or(0, |delay| now_ms.saturating_add(millis(delay))),
                statement,
                fate: Fate::Sent,
                refusals: 0,
            });
        }
        statement
    }

    /// What its producer heard of the last `count` messages.
    pub(crate) fn heard(&self, producer: u32, count: usize, fate: Fate) {
        let mut books = self.open();
        let records = &mut books.records[producer as usize];
        let begin = records.len() - count;
        let mut phantoms = 0;
        for record in &mut records[begin..] {
            record.fate = fate;
            phantoms += u64::from(fate == Fate::Refused && record.arrived != 0);
        }
        if fate == Fate::Acknowledged {
            books.acknowledged += count as u64;
        }
        if phantoms > 0 {
            books
                .violation(format!("phantom: {phantoms} messages of producer {producer} arrived and were rolled back"));
        }
    }

    /// A message has arrived, and this is the answer to it.
    pub(crate) fn arrive(&self, arrival: Arrival<'_>) -> Answer {
        let now = self.now();
        self.open().arrive(self.plan, arrival, now)
    }

    pub(crate) fn violation(&self, what: String) {
        self.open().violation(what);
    }

    /// Waits until so many more messages have arrived.
    pub(crate) async fn arrivals(&self, more: u64) {
        let enough = self.open().arrived + more;
        while self.open().arrived < enough {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

impl Contents {
    pub(crate) fn violation(&mut self, what: String) {
        if self.violations.len() < VIOLATIONS_KEPT {
            eprintln!("VIOLATION {what}");
            self.violations.push(what);
        } else {
            self.more_violations += 1;
        }
    }

    pub(crate) fn violations(&self) -> (&[String], u64) {
        (&self.violations, self.more_violations)
    }

    /// Messages that were acknowledged and have not arrived yet.
    pub(crate) fn behind(&self) -> u64 {
        self.acknowledged.saturating_sub(self.arrived)
    }

    pub(crate) fn record(&self, number: Number) -> Option<&Record> {
        self.records.get(number.producer as usize)?.get(number.position as usize)
    }

    fn arrive(&mut self, plan: Plan, arrival: Arrival<'_>, now: Duration) -> Answer {
        let Arrival { number, attempt_no, .. } = arrival;
        let kind = plan.kind(number);
        let found =
            self.records.get_mut(number.producer as usize).and_then(|all| all.get_mut(number.position as usize));
        let Some(record) = found else {
            self.violation(format!("phantom: {number:?} arrived and was never sent"));
            return Answer::Accepted;
        };
        if !(1..=MAX_ATTEMPT_NO).contains(&attempt_no) {
            self.violation(format!("budget: {number:?} arrived by attempt {attempt_no}"));
            return Answer::Accepted;
        }
        let bit = 1_u64 << attempt_no;
        let (first, again, fate) = (record.arrived == 0, record.arrived & bit != 0, record.fate);
        let too_early = record.not_before_ms > millis(now);
        record.arrived |= bit;
        let answer = kind.answer(record.refusals);
        if answer == Answer::Accepted {
            record.accepted |= bit;
        } else {
            record.refusals = record.refusals.saturating_add(1);
        }
        if attempt_no > 1 {
            self.redelivered.push(Redelivered { number, attempt_no, at: now });
        }
        if again {
            self.violation(format!("two leases: {number:?} arrived twice by attempt {attempt_no}"));
        }
        if fate == Fate::Refused {
            self.violation(format!("phantom: {number:?} arrived and was rolled back"));
        }
        if too_early || kind == Kind::Cancelled {
            self.violation(format!("early: {number:?} ({kind:?}) arrived at {now:?}"));
        }
        if arrival.lane != plan.lane(number).as_deref() {
            self.violation(format!("lane: {number:?} arrived in lane {:?}", arrival.lane));
        }
        if first {
            self.arrived += 1;
            self.lane_order(arrival);
        }
        answer
    }

    /// First arrivals of a lane are 1, 2, 3 and so on, in the order of their producer.
    fn lane_order(&mut self, arrival: Arrival<'_>) {
        let (Some(lane), Some(sequence_id)) = (arrival.lane, arrival.sequence_id) else { return };
        if !self.lanes.contains_key(lane) {
            self.lanes.insert(lane.to_owned(), LaneEnd::default());
        }
        let Some(end) = self.lanes.get_mut(lane) else { return };
        let before = *end;
        let position = arrival.number.position;
        *end = LaneEnd { sequence_id: sequence_id.max(before.sequence_id), position: position.max(before.position) };
        if sequence_id != before.sequence_id + 1 || (before.sequence_id > 0 && position <= before.position) {
            self.violation(format!(
                "inversion: {:?} has number {sequence_id} of {lane} and came after {}",
                arrival.number, before.sequence_id
            ));
        }
    }

    /// The last number of each lane that arrived.
    pub(crate) fn lane_ends(&self) -> HashMap<&str, i64> {
        self.lanes.iter().map(|(lane, end)| (lane.as_str(), end.sequence_id)).collect()
    }
}

fn millis(time: Duration) -> u32 {
    u32::try_from(time.as_millis()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: Plan = Plan { seed: 1, producers: 1, lanes: 2 };

    /// Books with `count` messages of one statement.
    fn books(count: usize, fate: Fate) -> Books {
        let books = Books::new(PLAN);
        books.sent(0, count);
        books.heard(0, count, fate);
        books
    }

    fn arrival(position: u32, attempt_no: i32, sequence_id: Option<i64>, lane: Option<&str>) -> Arrival<'_> {
        Arrival { number: Number { producer: 0, position }, attempt_no, lane, sequence_id }
    }

    fn said(books: &Books) -> String {
        books.open().violations().0.join("; ")
    }

    #[test]
    fn an_honest_history_is_accepted() {
        let books = books(8, Fate::Acknowledged);
        for (position, sequence_id) in [(0, 1), (4, 2)] {
            books.arrive(arrival(position, 1, Some(sequence_id), Some("lane-0-0")));
        }
        books.arrive(arrival(0, 2, Some(1), Some("lane-0-0")));
        assert_eq!(said(&books), "");
    }

    #[test]
    fn a_phantom_is_caught_whenever_it_is_known() {
        let unsent = books(1, Fate::Acknowledged);
        unsent.arrive(arrival(9, 1, None, None));
        assert!(said(&unsent).contains("never sent"));
        let late = books(1, Fate::Refused);
        late.arrive(arrival(0, 1, Some(1), Some("lane-0-0")));
        assert!(said(&late).contains("was rolled back"));
        let early = Books::new(PLAN);
        early.sent(0, 1);
        early.arrive(arrival(0, 1, Some(1), Some("lane-0-0")));
        early.heard(0, 1, Fate::Refused);
        assert!(said(&early).contains("were rolled back"));
    }

    #[test]
    fn an_inversion_and_a_gap_are_caught() {
        let inverted = books(8, Fate::Acknowledged);
        inverted.arrive(arrival(4, 1, Some(2), Some("lane-0-0")));
        assert!(said(&inverted).contains("inversion"));
        let renumbered = books(8, Fate::Acknowledged);
        renumbered.arrive(arrival(4, 1, Some(1), Some("lane-0-0")));
        renumbered.arrive(arrival(0, 1, Some(2), Some("lane-0-0")));
        assert!(said(&renumbered).contains("inversion"));
    }

    #[test]
    fn an_attempt_that_sends_twice_is_caught() {
        let books = books(1, Fate::Acknowledged);
        books.arrive(arrival(0, 1, Some(1), Some("lane-0-0")));
        books.arrive(arrival(0, 1, Some(1), Some("lane-0-0")));
        assert!(said(&books).contains("two leases"));
    }

    #[test]
    fn what_comes_before_its_time_or_in_a_strange_lane_is_caught() {
        let all = books(20_000, Fate::Acknowledged);
        let delayed = (0..20_000).find(|&position| PLAN.kind(Number { producer: 0, position }).delay().is_some());
        all.arrive(arrival(delayed.expect("one of many"), 1, None, None));
        assert!(said(&all).contains("early"));
        let strange = books(1, Fate::Acknowledged);
        strange.arrive(arrival(0, 1, Some(1), Some("lane-0-1")));
        assert!(said(&strange).contains("lane:"));
    }
}
