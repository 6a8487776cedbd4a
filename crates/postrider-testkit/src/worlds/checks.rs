//! What must hold at every commit and every tick of the clock, in words of the rows: of a model's state, and of what was read
//! from a real database into one. Called by the explorer and by whoever follows a real server. It changes nothing.

use super::calls::Waits;
use super::mutant::Rules;
use super::state::{
    Call, Delivery, Ending, Fault, LANE_SLOTS, MAX_ATTEMPTS, NEVER, SESSIONS, SLOTS, State, Step, bit, each,
};

/// Longer than anything waits, in ticks.
const LATER: u8 = 100;

impl State {
    /// What is wrong with what is committed, if anything.
    pub fn wrong(&self) -> Option<Fault> {
        self.fault
            .or_else(|| (0..SLOTS).find_map(|slot| self.message_is_wrong(slot)))
            .or_else(|| self.lane_is_wrong())
            .or_else(|| self.beliefs_are_wrong())
    }

    fn message_is_wrong(&self, slot: usize) -> Option<Fault> {
        let delivery = self.deliveries[slot].committed;
        let letter = self.letters[slot].committed.filter(|letter| !letter.given_up);
        if self.messages[slot].committed.is_none() {
            return (delivery.is_some() || letter.is_some()).then_some(Fault::Pruned);
        }
        let recorded = self.attempts[slot].iter().take_while(|attempt| attempt.committed.is_some()).count();
        if self.attempts[slot].iter().skip(recorded).any(|attempt| attempt.committed.is_some()) {
            return Some(Fault::Attempts);
        }
        match (delivery, letter) {
            (Some(row), None) => delivery_is_wrong(row, recorded),
            (Some(row), Some(letter)) => {
                if !letter.parked || row.due != NEVER || row.token != 0 || slot >= LANE_SLOTS {
                    return Some(Fault::Parked);
                }
                (usize::from(row.no) != recorded || row.no != letter.no).then_some(Fault::Attempts)
            }
            (None, Some(letter)) if letter.parked => Some(Fault::Parked),
            (None, Some(letter)) if letter.no == 0 => Some(Fault::DeadUnclaimed),
            (None, Some(letter)) => (usize::from(letter.no) != recorded).then_some(Fault::Attempts),
            (None, None) => {
                let delivered = self.attempts[slot].iter().any(|attempt| attempt.committed == Some(Ending::Dispatched));
                let given_up = self.letters[slot].committed.is_some();
                (!delivered && !given_up).then_some(Fault::Conservation)
            }
        }
    }

    fn lane_is_wrong(&self) -> Option<Fault> {
        let mut hands = (0..LANE_SLOTS)
            .filter_map(|slot| self.deliveries[slot].committed)
            .filter(|row| row.token != 0 && row.ends > self.clock)
            .map(|row| row.token);
        let first = hands.next();
        hands.any(|token| Some(token) != first).then_some(Fault::TwoHands)
    }

    /// Workers act on what they were told until the lease ends.
    fn beliefs_are_wrong(&self) -> Option<Fault> {
        let lane = (1 << LANE_SLOTS) - 1;
        let believed = |session: usize| {
            (0..SLOTS)
                .filter(|slot| self.sessions[session].told[*slot] > self.clock)
                .fold(0_u8, |set, slot| set | 1 << slot)
        };
        for one in 0..SESSIONS {
            for other in 0..one {
                if believed(one) & believed(other) != 0 {
                    return Some(Fault::TwoHolders);
                }
                if believed(one) & lane != 0 && believed(other) & lane != 0 {
                    return Some(Fault::TwoHands);
                }
            }
        }
        None
    }

    /// Whether a claim that has just committed has passed over a lower number.
    pub fn passed_over(&self, session: usize) -> Option<Fault> {
        let one = &self.sessions[session];
        let highest = each(one.held()).filter(|slot| *slot < LANE_SLOTS).last()?;
        let passed = (0..highest)
            .any(|slot| self.deliveries[slot].committed.is_some_and(|row| row.token != one.token || row.token == 0));
        passed.then_some(Fault::OutOfOrder)
    }

    /// Once everything has ended, something must be there for a claim to take, unless the lane is parked.
    pub fn is_stuck(&self, rules: Rules) -> bool {
        if self.sessions.iter().any(|one| one.step != Step::Idle) {
            return false;
        }
        let waits = |row: &Delivery| row.due != NEVER;
        let head = (0..LANE_SLOTS).find_map(|slot| self.deliveries[slot].committed);
        if !head.is_some_and(|row| waits(&row)) && !self.deliveries[LANE_SLOTS].committed.is_some_and(|row| waits(&row))
        {
            return false;
        }
        let mut later = self.clone();
        later.clock = LATER;
        later.start(0, Call::Claim(2));
        while later.sessions[0].step != Step::Answered && !later.beyond {
            if later.step(0, rules).is_err() {
                return true;
            }
        }
        let took = later.sessions[0].answer > 0;
        let buried = (0..SLOTS).any(|slot| later.letters[slot].owner != 0);
        !took && !buried && !later.beyond
    }
}

fn delivery_is_wrong(row: Delivery, recorded: usize) -> Option<Fault> {
    if row.due == NEVER {
        return Some(Fault::Parked);
    }
    if usize::from(row.no) != recorded + usize::from(row.token != 0) {
        return Some(Fault::Attempts);
    }
    (row.count > MAX_ATTEMPTS || row.no.checked_sub(row.base) != Some(row.count)).then_some(Fault::Budget)
}

/// Whether sessions wait for each other in a circle, each for those that its entry names.
pub fn in_a_circle(waits: [Waits; SESSIONS]) -> bool {
    (0..SESSIONS).any(|one| {
        let mut reached = waits[one];
        for _ in 0..SESSIONS {
            reached |= (0..SESSIONS).filter(|n| reached & bit(*n) != 0).fold(0, |set, n| set | waits[n]);
        }
        reached & bit(one) != 0
    })
}
