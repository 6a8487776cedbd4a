//! The history checker: at the end of a round it reads every message and attempt of the database once, in order, and
//! compares them with the books. It keeps nothing but counts and what the books hold already. What breaks a promise
//! becomes a violation of the books. It never asks the database itself: whoever calls it hands it the rows.

use std::collections::HashMap;
use std::time::Duration;

use crate::books::{Books, Contents, Fate, MAX_ATTEMPT_NO};
use crate::kinds::Number;

/// A message as the database has it.
#[derive(Debug, Clone)]
pub(crate) struct MessageRow {
    pub(crate) number: Number,
    pub(crate) lane: Option<String>,
    pub(crate) sequence_id: Option<i64>,
    /// Whether it is a dead letter.
    pub(crate) dead: bool,
    /// Whether it is still pending or leased.
    pub(crate) open: bool,
}

/// An attempt as the database has it.
#[derive(Debug, Clone)]
pub(crate) struct AttemptRow {
    pub(crate) attempt_no: i32,
    pub(crate) state: State,
    pub(crate) worker: String,
    /// Microseconds of the database's clock.
    pub(crate) claimed_us: i64,
    pub(crate) completed_us: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Dispatched,
    Retryable,
    Failed,
    Zombie,
    Cancelled,
}

impl State {
    pub(crate) fn of(word: &str) -> Self {
        match word {
            "DISPATCHED" => Self::Dispatched,
            "RETRYABLE" => Self::Retryable,
            "FAILED" => Self::Failed,
            "CANCELLED" => Self::Cancelled,
            _ => Self::Zombie,
        }
    }
}

/// What the history was like.
#[derive(Debug, Clone, Default)]
pub(crate) struct Figures {
    pub(crate) messages: u64,
    pub(crate) delivered: u64,
    pub(crate) dead: u64,
    pub(crate) given_up: u64,
    pub(crate) attempts: u64,
    pub(crate) expired: u64,
    pub(crate) duplicates: u64,
    /// From the end of a worker to the next arrival of what it held, without the time that the server was away.
    pub(crate) redeliveries: Vec<Duration>,
}

/// The server was away from when until when.
pub(crate) type Outages = [(Duration, Duration)];

pub(crate) struct Checker<'a> {
    books: &'a Books,
    contents: std::sync::MutexGuard<'a, Contents>,
    /// When each worker was killed or stopped.
    ended: &'a HashMap<String, Duration>,
    outages: &'a Outages,
    arrivals: HashMap<(Number, i32), Duration>,
    lanes: HashMap<String, (i64, i64)>,
    /// Messages in the database of each statement whose answer was lost, and how many it had.
    existing: Vec<Vec<bool>>,
    figures: Figures,
}

impl<'a> Checker<'a> {
    pub(crate) fn new(books: &'a Books, ended: &'a HashMap<String, Duration>, outages: &'a Outages) -> Self {
        let contents = books.open();
        let arrivals = contents.redelivered.iter().map(|one| ((one.number, one.attempt_no), one.at)).collect();
        let existing = contents.records.iter().map(|all| vec![false; all.len()]).collect();
        let (lanes, figures) = (HashMap::new(), Figures::default());
        Self { books, contents, ended, outages, arrivals, lanes, existing, figures }
    }

    /// One message with all its attempts, in the order of their numbers.
    pub(crate) fn message(&mut self, row: &MessageRow, attempts: &[AttemptRow]) {
        let number = row.number;
        self.figures.messages += 1;
        let Some(record) = self.contents.record(number).copied() else {
            return self.contents.violation(format!("phantom: {number:?} is in the database and was never sent"));
        };
        let seen = &mut self.existing[number.producer as usize][number.position as usize];
        if std::mem::replace(seen, true) {
            self.contents.violation(format!("twice: {number:?} was enqueued twice"));
        }
        if record.fate == Fate::Refused {
            self.contents.violation(format!("phantom: {number:?} is in the database and was rolled back"));
        }
        if let (Some(lane), Some(sequence_id)) = (&row.lane, row.sequence_id) {
            let (count, highest) = self.lanes.entry(lane.clone()).or_default();
            *count += 1;
            *highest = sequence_id.max(*highest);
        }
        self.attempts(number, attempts);
        self.end(row, attempts);
        self.duplicates(number, attempts);
    }

    /// 1, 2, 3 without gaps, one after the other, within the budget, and delivered at most once.
    fn attempts(&mut self, number: Number, attempts: &[AttemptRow]) {
        let arrived = self.contents.record(number).map_or(0, |record| record.arrived);
        let accepted = self.contents.record(number).map_or(0, |record| record.accepted);
        let most = self.books.plan.kind(number).attempts_at_most();
        self.figures.attempts += attempts.len() as u64;
        let mut before: Option<&AttemptRow> = None;
        for (place, attempt) in attempts.iter().enumerate() {
            if usize::try_from(attempt.attempt_no).ok() != Some(place + 1) {
                self.contents.violation(format!(
                    "gap: attempt {} of {number:?} is row {}",
                    attempt.attempt_no,
                    place + 1
                ));
            }
            if let Some(before) = before {
                if attempt.claimed_us < before.completed_us {
                    self.contents.violation(format!("two leases: {number:?}, {before:?} and {attempt:?}"));
                }
                if before.state == State::Dispatched {
                    self.contents.violation(format!("delivered and tried again: {number:?}, {attempt:?}"));
                }
            }
            let bit = 1_u64.checked_shl(attempt.attempt_no.unsigned_abs()).unwrap_or(0);
            match attempt.state {
                State::Dispatched if accepted & bit == 0 => {
                    self.contents
                        .violation(format!("lost: {number:?} is recorded as delivered by {attempt:?} and never was"));
                }
                State::Failed | State::Retryable if attempt.worker.starts_with("late-") => {
                    self.contents.violation(format!("stale: {number:?}, {attempt:?}"));
                }
                State::Zombie => {
                    self.figures.expired += 1;
                    self.redelivery(number, attempt);
                }
                _ => {}
            }
            if attempt.state == State::Dispatched && attempt.worker.starts_with("late-") {
                self.contents.violation(format!("stale: {number:?}, {attempt:?}"));
            }
            before = Some(attempt);
        }
        if attempts.len() > most as usize || attempts.len() > MAX_ATTEMPT_NO as usize {
            self.contents.violation(format!("budget: {number:?} had {} attempts", attempts.len()));
        }
        let known = attempts
            .iter()
            .fold(0, |known, attempt| known | 1_u64.checked_shl(attempt.attempt_no.unsigned_abs()).unwrap_or(0));
        if arrived & !known != 0 {
            self.contents.violation(format!("arrived without an attempt: {number:?}, {:b}", arrived & !known));
        }
    }

    /// How it ended is how it was to end, and what is not delivered is open, dead, or was given up by an operator.
    fn end(&mut self, row: &MessageRow, attempts: &[AttemptRow]) {
        let number = row.number;
        let delivered = attempts.iter().any(|attempt| attempt.state == State::Dispatched);
        let sent = self.contents.record(number).is_some_and(|record| record.arrived != 0);
        let kind = self.books.plan.kind(number);
        self.figures.delivered += u64::from(delivered);
        self.figures.dead += u64::from(row.dead);
        self.figures.given_up += u64::from(!delivered && !row.dead && !row.open);
        if row.open {
            self.contents.violation(format!("not at its end: {number:?} ({kind:?}), {attempts:?}"));
        }
        if row.dead && !sent {
            self.contents.violation(format!("dead and never sent: {number:?}, {attempts:?}"));
        }
        if delivered && row.dead {
            self.contents.violation(format!("delivered and dead: {number:?}"));
        }
        if delivered != kind.is_delivered() && !row.open {
            self.contents.violation(format!("ended wrongly: {number:?} ({kind:?}), dead: {}, {attempts:?}", row.dead));
        }
    }

    /// What was accepted more often than once was accepted by attempts that ended without a delivery.
    fn duplicates(&mut self, number: Number, attempts: &[AttemptRow]) {
        let accepted = self.contents.record(number).map_or(0, |record| record.accepted.count_ones());
        let delivered = attempts.iter().any(|attempt| attempt.state == State::Dispatched);
        self.figures.duplicates += u64::from(accepted.saturating_sub(u32::from(delivered)));
    }

    fn redelivery(&mut self, number: Number, expired: &AttemptRow) {
        let (Some(&ended), Some(&arrived)) =
            (self.ended.get(&expired.worker), self.arrivals.get(&(number, expired.attempt_no + 1)))
        else {
            return;
        };
        let away: Duration =
            self.outages.iter().map(|&(from, to)| to.min(arrived).saturating_sub(from.max(ended))).sum();
        let time = arrived.saturating_sub(ended).saturating_sub(away);
        self.figures.redeliveries.push(time);
    }

    /// After the last row: what should have come and did not.
    pub(crate) fn finish(mut self) -> Figures {
        let mut found = Vec::new();
        let mut statements: HashMap<(usize, u32), (u32, u32)> = HashMap::new();
        for (producer, (records, existing)) in self.contents.records.iter().zip(&self.existing).enumerate() {
            for (position, (record, &exists)) in records.iter().zip(existing).enumerate() {
                match record.fate {
                    Fate::Acknowledged if !exists => {
                        found.push(format!("lost: message {position} of producer {producer} was acknowledged"));
                    }
                    Fate::Unknown | Fate::Sent => {
                        let (all, there) = statements.entry((producer, record.statement)).or_default();
                        *all += 1;
                        *there += u32::from(exists);
                    }
                    _ => {}
                }
            }
        }
        for ((producer, statement), (all, there)) in statements {
            if there != 0 && there != all {
                found.push(format!("torn: {there} of {all} messages of statement {statement} of producer {producer}"));
            }
        }
        let ends = self.contents.lane_ends();
        for (lane, (count, highest)) in &self.lanes {
            if count != highest {
                found.push(format!("gap: {lane} has {count} messages and its last number is {highest}"));
            }
            if ends.get(lane.as_str()).copied().unwrap_or(0) != *highest {
                found.push(format!("lost: {lane} ends at {highest}, and {:?} arrived", ends.get(lane.as_str())));
            }
        }
        for violation in found {
            self.contents.violation(violation);
        }
        self.figures
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::books::Arrival;
    use crate::kinds::{Kind, Plan};

    const PLAN: Plan = Plan { seed: 16, producers: 1, lanes: 1 };

    /// The first two messages of the lane: they are plain with this seed.
    const FIRST: Number = Number { producer: 0, position: 0 };

    fn books() -> Books {
        let books = Books::new(PLAN);
        books.sent(0, 4);
        books.heard(0, 4, Fate::Acknowledged);
        books
    }

    fn arrive(books: &Books, position: u32, attempt_no: i32) {
        let number = Number { producer: 0, position };
        let lane = PLAN.lane(number);
        let sequence_id = lane.is_some().then(|| i64::from(position / 2 + 1));
        books.arrive(Arrival { number, attempt_no, lane: lane.as_deref(), sequence_id });
    }

    fn row(position: u32) -> MessageRow {
        let number = Number { producer: 0, position };
        let lane = PLAN.lane(number);
        let sequence_id = lane.is_some().then(|| i64::from(position / 2 + 1));
        MessageRow { number, lane, sequence_id, dead: false, open: false }
    }

    fn attempt(attempt_no: i32, state: State) -> AttemptRow {
        let claimed_us = i64::from(attempt_no) * 10;
        AttemptRow { attempt_no, state, worker: "relay".to_owned(), claimed_us, completed_us: claimed_us + 5 }
    }

    /// Everything was delivered at its first attempt, but for what `change` does to the rows of the first message.
    fn checked(change: impl FnOnce(&Books, &mut MessageRow, &mut Vec<AttemptRow>)) -> (String, Figures) {
        for position in 0..4 {
            assert_eq!(PLAN.kind(Number { producer: 0, position }), Kind::Plain, "choose another seed");
        }
        let books = books();
        for position in 0..4 {
            arrive(&books, position, 1);
        }
        let (mut first, mut attempts) = (row(0), vec![attempt(1, State::Dispatched)]);
        change(&books, &mut first, &mut attempts);
        let ended = HashMap::from([("killed".to_owned(), Duration::ZERO)]);
        let mut checker = Checker::new(&books, &ended, &[]);
        if !attempts.is_empty() || first.open {
            checker.message(&first, &attempts);
        }
        for position in 1..4 {
            checker.message(&row(position), &[attempt(1, State::Dispatched)]);
        }
        let figures = checker.finish();
        let said = books.open().violations().0.join("; ");
        (said, figures)
    }

    #[test]
    fn an_honest_history_is_accepted_and_its_duplicates_are_counted() {
        let (said, figures) = checked(|_, _, _| {});
        assert_eq!((said.as_str(), figures.messages, figures.delivered, figures.duplicates), ("", 4, 4, 0));
        let (said, figures) = checked(|books, _, attempts| {
            arrive(books, 0, 2);
            *attempts = vec![attempt(1, State::Zombie), attempt(2, State::Dispatched)];
            "killed".clone_into(&mut attempts[0].worker);
        });
        assert_eq!((said.as_str(), figures.duplicates, figures.expired, figures.redeliveries.len()), ("", 1, 1, 1));
    }

    #[test]
    fn a_lost_message_is_caught() {
        let (said, _) = checked(|_, _, attempts| attempts.clear());
        assert!(said.contains("lost: message 0 of producer 0"), "{said}");
        let (said, _) = checked(|_, first, attempts| {
            first.open = true;
            attempts.clear();
        });
        assert!(said.contains("not at its end"), "{said}");
        let (said, _) = checked(|_, _, attempts| attempts[0].state = State::Zombie);
        assert!(said.contains("ended wrongly"), "{said}");
    }

    #[test]
    fn a_delivery_that_never_arrived_is_caught() {
        let (said, _) = checked(|_, _, attempts| attempts.insert(0, attempt(1, State::Zombie)));
        assert!(said.contains("gap: attempt 1"), "{said}");
        let (said, _) = checked(|_, _, attempts| {
            *attempts = vec![attempt(1, State::Zombie), attempt(2, State::Dispatched)];
        });
        assert!(said.contains("recorded as delivered"), "{said}");
    }

    #[test]
    fn two_leases_and_a_second_delivery_are_caught() {
        let (said, _) = checked(|books, _, attempts| {
            arrive(books, 0, 2);
            *attempts = vec![attempt(1, State::Zombie), attempt(2, State::Dispatched)];
            attempts[1].claimed_us = 0;
        });
        assert!(said.contains("two leases"), "{said}");
        let (said, _) = checked(|books, _, attempts| {
            arrive(books, 0, 2);
            attempts.push(attempt(2, State::Dispatched));
        });
        assert!(said.contains("delivered and tried again"), "{said}");
    }

    #[test]
    fn a_stale_completion_is_caught() {
        let (said, _) = checked(|_, _, attempts| "late-1".clone_into(&mut attempts[0].worker));
        assert!(said.contains("stale"), "{said}");
    }

    #[test]
    fn an_arrival_without_an_attempt_is_caught() {
        let (said, _) = checked(|books, _, _| arrive(books, 0, 2));
        assert!(said.contains("arrived without an attempt"), "{said}");
    }

    #[test]
    fn a_death_without_a_sending_and_a_budget_that_is_exceeded_are_caught() {
        let books = books();
        let ended = HashMap::new();
        let mut checker = Checker::new(&books, &ended, &[]);
        checker.message(&MessageRow { dead: true, ..row(1) }, &[attempt(1, State::Zombie)]);
        let many: Vec<AttemptRow> = (1..=30).map(|number| attempt(number, State::Zombie)).collect();
        checker.message(&row(3), &many);
        drop(checker);
        let said = books.open().violations().0.join("; ");
        assert!(said.contains("dead and never sent") && said.contains("budget"), "{said}");
    }

    #[test]
    fn a_phantom_a_double_and_a_torn_statement_are_caught() {
        let books = Books::new(PLAN);
        books.sent(0, 2);
        books.heard(0, 2, Fate::Refused);
        books.sent(0, 2);
        books.heard(0, 2, Fate::Unknown);
        let ended = HashMap::new();
        let mut checker = Checker::new(&books, &ended, &[]);
        checker.message(&row(0), &[]);
        checker.message(&row(2), &[]);
        checker.message(&row(2), &[]);
        checker.message(&row(9), &[]);
        checker.finish();
        let said = books.open().violations().0.join("; ");
        for word in
            ["is in the database and was rolled back", "torn: 1 of 2", "enqueued twice", "never sent", "gap: lane"]
        {
            assert!(said.contains(word), "{word}: {said}");
        }
    }

    #[test]
    fn the_end_of_a_lane_that_never_arrived_is_caught() {
        let books = books();
        let ended = HashMap::new();
        let mut checker = Checker::new(&books, &ended, &[]);
        checker.message(&row(FIRST.position), &[]);
        checker.finish();
        let said = books.open().violations().0.join("; ");
        assert!(said.contains("ends at 1, and None arrived"), "{said}");
    }

    #[test]
    fn time_that_the_server_was_away_is_not_counted() {
        let books = books();
        arrive(&books, 0, 1);
        arrive(&books, 0, 2);
        let now = books.now() + Duration::from_secs(100);
        let ended = HashMap::from([("killed".to_owned(), Duration::ZERO)]);
        let outages = [(Duration::ZERO, now)];
        let mut checker = Checker::new(&books, &ended, &outages);
        let attempts =
            [AttemptRow { worker: "killed".to_owned(), ..attempt(1, State::Zombie) }, attempt(2, State::Dispatched)];
        checker.message(&row(0), &attempts);
        assert_eq!(checker.figures.redeliveries, [Duration::ZERO]);
    }
}
