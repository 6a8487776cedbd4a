//! Calls and their steps, each as small as sessions can get between in PostgreSQL: a statement's snapshot, the lock of one row,
//! the write, the commit. READ COMMITTED: a row that was waited for is looked at again. Here is what a holder calls and repair;
//! `claim` and `operate` have the others. Called by the explorer and by whoever follows a real server; a step changes the state
//! or says for whom it waits, and never both.

use super::claim;
use super::mutant::{Mutant, Rules};
use super::operate;
use super::state::{
    Call, Delivery, Ending, Fault, LANE_SLOTS, LEASE_TICKS, Letter, MAX_ATTEMPTS, NEVER, SLOTS, Set, State, Step, bit,
    each,
};

/// For whom a step waits: a set of sessions.
pub type Waits = u8;

impl State {
    /// A session makes a call.
    pub fn start(&mut self, session: usize, call: Call) {
        let clock = self.clock;
        let one = &mut self.sessions[session];
        one.call = Some(call);
        one.calls += 1;
        one.in_transaction += 1;
        (one.now, one.candidates, one.got, one.memo, one.answer) = (clock, 0, 0, 0, 0);
        (one.stale, one.deleted) = (0, 0);
        one.step = match call {
            Call::Enqueue(true) => Step::EnqueueNumber,
            Call::Enqueue(false) => Step::EnqueueWrite,
            Call::Claim(_) => {
                (one.told, one.token, one.will) = ([0; SLOTS], 0, Some(([0; SLOTS], 0)));
                Step::ClaimBegin
            }
            Call::Complete(_, which) | Call::Renew(which) | Call::Release(which) => {
                one.memo = one.part(which);
                Step::HeldLook
            }
            Call::Repair => Step::RepairLock,
            Call::Redrive(slots) | Call::Discard(slots) => {
                one.memo = slots;
                Step::LetterLook
            }
            Call::Replay(_) => Step::ReplayFront,
            Call::Skip => Step::SkipLook,
            Call::Prune => Step::Prune,
        };
    }

    /// The next step of a session's call, or for whom it waits.
    pub fn step(&mut self, session: usize, rules: Rules) -> Result<(), Waits> {
        match self.sessions[session].step {
            Step::Idle | Step::Answered => Ok(()),
            Step::ClaimBegin => claim::begin(self, session, rules),
            Step::ClaimDue => claim::due(self, session, rules),
            Step::ClaimLook => claim::look(self, session, rules),
            Step::ClaimLock => claim::lock(self, session, rules),
            Step::ClaimLease => claim::lease(self, session, rules),
            Step::HeldLook => held_look(self, session, rules),
            Step::HeldLock => held_lock(self, session, rules),
            Step::HeldWrite => held_write(self, session, rules),
            Step::RepairLock => repair_lock(self, session, rules),
            Step::RepairWrite => repair_write(self, session, rules),
            Step::LetterLook => operate::letter_look(self, session),
            Step::LetterLock => operate::letter_lock(self, session, rules),
            Step::LetterFront => operate::letter_front(self, session),
            Step::LetterWrite => operate::letter_write(self, session, rules),
            Step::SkipLook => operate::skip_look(self, session),
            Step::SkipWrite => operate::skip_write(self, session, rules),
            Step::ReplayFront => operate::replay_front(self, session),
            Step::ReplayLook => operate::replay_look(self, session),
            Step::ReplayInsert => operate::replay_insert(self, session, rules),
            Step::ReplayNumber => operate::replay_number(self, session, rules),
            Step::Prune => operate::prune(self, session, rules),
            Step::EnqueueNumber => operate::enqueue_number(self, session, rules),
            Step::EnqueueWrite => operate::enqueue_write(self, session),
        }
    }

    #[expect(clippy::unnecessary_wraps, reason = "a step ends with it")]
    pub(super) fn answer(&mut self, session: usize, answer: u8) -> Result<(), Waits> {
        self.sessions[session].step = Step::Answered;
        self.sessions[session].answer = answer;
        Ok(())
    }

    #[expect(clippy::unnecessary_wraps, reason = "a step ends with it")]
    pub(super) fn next(&mut self, session: usize, step: Step) -> Result<(), Waits> {
        self.sessions[session].step = step;
        Ok(())
    }

    /// A delivery out of attempts becomes a dead letter. The session has it locked, and may read the messages: a letter takes
    /// some columns from its message.
    pub(super) fn bury(&mut self, session: usize, slot: usize, row: Delivery, rules: Rules) {
        self.message_table.shared |= bit(session);
        let parked = slot < LANE_SLOTS && rules.parks;
        if self.letters[slot].seen(session).is_some_and(|letter| !letter.given_up) {
            self.fault = Some(Fault::Conservation);
        }
        self.letters[slot].write(session, Some(Letter { parked, no: row.no, given_up: false }));
        let stays = parked && !rules.without(Mutant::NotParked);
        let head = Delivery { due: NEVER, token: 0, ends: 0, ..row };
        self.deliveries[slot].write(session, stays.then_some(head));
    }
}

/// Fails with who keeps a session from a row, if anybody.
pub(super) fn free(taken: bool, owner: u8) -> Result<(), Waits> {
    if taken { Err(1 << (owner - 1)) } else { Ok(()) }
}

pub(super) fn nobody(waits: Waits) -> Result<(), Waits> {
    if waits == 0 { Ok(()) } else { Err(waits) }
}

fn holds(state: &State, session: usize, row: Delivery, rules: Rules) -> bool {
    let one = &state.sessions[session];
    (rules.without(Mutant::NoToken) || (row.token == one.token && row.token != 0))
        && (rules.without(Mutant::NoExpiry) || row.ends > one.now)
}

/// complete, renew, release: which rows hold the token, as the statement's snapshot shows them.
fn held_look(state: &mut State, session: usize, rules: Rules) -> Result<(), Waits> {
    let found = each(state.sessions[session].memo)
        .filter(|slot| state.deliveries[*slot].seen(session).is_some_and(|row| holds(state, session, row, rules)))
        .fold(0, |set, slot| set | 1 << slot);
    state.sessions[session].candidates = found;
    (state.sessions[session].stale, state.sessions[session].deleted) = (0, 0);
    state.next(session, if found == 0 { Step::HeldWrite } else { Step::HeldLock })
}

/// One row after the other, in the order of ids: waited for, locked, and looked at again if it has changed. PostgreSQL locks
/// the newest version before it looks, and keeps the lock if that one is not meant.
fn held_lock(state: &mut State, session: usize, rules: Rules) -> Result<(), Waits> {
    let Some(slot) = each(state.sessions[session].candidates).next() else {
        return state.next(session, Step::HeldWrite);
    };
    let row = state.deliveries[slot];
    free(row.taken(session), row.owner)?;
    state.sessions[session].candidates &= !(1 << slot);
    if let Some(seen) = row.seen(session)
        && state.sessions[session].deleted & (1 << slot) == 0
    {
        state.deliveries[slot].lock(session);
        if holds(state, session, seen, rules) {
            state.sessions[session].got |= 1 << slot;
        }
    }
    if state.sessions[session].candidates == 0 { state.next(session, Step::HeldWrite) } else { Ok(()) }
}

fn held_write(state: &mut State, session: usize, rules: Rules) -> Result<(), Waits> {
    let one = state.sessions[session].clone();
    let Some(call) = one.call else { return Ok(()) };
    let records = matches!(call, Call::Complete(..)) && one.got != 0;
    if records {
        nobody(state.attempt_table.against_sharing(session))?;
        let counted = u8::from(rules.without(Mutant::CountAtOutcome));
        let dies = each(one.got)
            .filter_map(|slot| state.deliveries[slot].seen(session))
            .any(|row| matches!(call, Call::Complete(ending, _) if is_dead(ending, row.count + counted)));
        nobody(if dies { state.message_table.against_sharing(session) } else { 0 })?;
    }
    let (mut told, token) = one.will.unwrap_or((one.told, one.token));
    let mut changed = 0;
    for slot in each(one.got) {
        let Some(row) = state.deliveries[slot].seen(session) else { continue };
        // The renewal looks at the clock again now that it has its rows.
        let now =
            if matches!(call, Call::Renew(_)) && !rules.without(Mutant::RenewOldTime) { state.clock } else { one.now };
        if row.ends <= now && !rules.without(Mutant::NoExpiry) {
            continue;
        }
        if row.token != one.token || row.ends <= now {
            state.fault = Some(Fault::Fence);
        }
        changed |= 1 << slot;
        let free = Delivery { token: 0, ends: 0, ..row };
        match call {
            Call::Complete(ending, _) => complete(state, session, slot, ending, rules),
            Call::Renew(_) => {
                let ends = now + LEASE_TICKS;
                told[slot] = ends;
                state.deliveries[slot].write(session, Some(Delivery { ends, ..row }));
                continue;
            }
            _ => {
                let kept = u8::from(rules.without(Mutant::ReleaseKeepsCount));
                let row = Delivery { no: row.no.saturating_sub(1), count: row.count.saturating_sub(1) + kept, ..free };
                state.deliveries[slot].write(session, Some(row));
            }
        }
        told[slot] = 0;
    }
    // What is missing from the answer is lost.
    for slot in each(one.memo & !changed) {
        told[slot] = 0;
        state.sessions[session].told[slot] = 0;
    }
    state.sessions[session].will = Some((told, token));
    state.answer(session, size(changed))
}

/// How many are in a set.
fn size(set: Set) -> u8 {
    u8::try_from(set.count_ones()).unwrap_or(u8::MAX)
}

fn complete(state: &mut State, session: usize, slot: usize, ending: Ending, rules: Rules) {
    let Some(mut row) = state.deliveries[slot].seen(session) else { return };
    if rules.without(Mutant::CountAtOutcome) {
        row.count += 1;
    }
    state.record(session, slot, row.no, ending);
    if is_dead(ending, row.count) {
        state.bury(session, slot, row, rules);
    } else if ending == Ending::Dispatched {
        state.deliveries[slot].write(session, None);
    } else {
        let due = state.sessions[session].now + 1;
        state.deliveries[slot].write(session, Some(Delivery { due, token: 0, ends: 0, ..row }));
    }
}

fn is_dead(ending: Ending, count: u8) -> bool {
    ending == Ending::Failed || (ending == Ending::Retryable && count >= MAX_ATTEMPTS)
}

/// Ended leases that nobody else has locked.
fn repair_lock(state: &mut State, session: usize, rules: Rules) -> Result<(), Waits> {
    let now = state.sessions[session].now;
    for slot in 0..SLOTS {
        let ended = |row: Delivery| row.token != 0 && (row.ends <= now || rules.without(Mutant::RepairLive));
        let row = &mut state.deliveries[slot];
        if !row.taken(session) && row.seen(session).is_some_and(ended) {
            row.lock(session);
            state.sessions[session].got |= 1 << slot;
        }
    }
    state.next(session, Step::RepairWrite)
}

fn repair_write(state: &mut State, session: usize, rules: Rules) -> Result<(), Waits> {
    let got = state.sessions[session].got;
    if got != 0 {
        nobody(state.attempt_table.against_sharing(session))?;
        let spent = |row: Delivery| row.count >= MAX_ATTEMPTS;
        let dies = each(got).any(|slot| state.deliveries[slot].seen(session).is_some_and(spent));
        nobody(if dies { state.message_table.against_sharing(session) } else { 0 })?;
    }
    let mut ended = 0;
    for slot in each(got) {
        let Some(row) = state.deliveries[slot].seen(session) else { continue };
        ended += 1;
        if !rules.without(Mutant::RepairSilent) {
            state.record(session, slot, row.no, Ending::Zombie);
        }
        if row.count >= MAX_ATTEMPTS {
            state.bury(session, slot, row, rules);
        } else {
            state.deliveries[slot].write(session, Some(Delivery { token: 0, ends: 0, ..row }));
        }
    }
    state.answer(session, ended)
}
