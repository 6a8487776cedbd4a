//! The steps of what operators and producers call: redrive, discard, skip, replay, prune, enqueue. Called by `calls`; see there
//! for what a step is.

use super::calls::{Waits, free, nobody};
use super::mutant::{Mutant, Rules};
use super::state::{
    ATTEMPTS, Call, Delivery, Ending, Fault, LANE_SLOTS, Letter, NEVER, SLOTS, State, Step, bit, each, number,
};

/// redrive, discard: which of them are dead.
pub(super) fn letter_look(state: &mut State, session: usize) -> Result<(), Waits> {
    let dead = each(state.sessions[session].memo)
        .filter(|slot| state.letters[*slot].seen(session).is_some_and(|letter| !letter.given_up))
        .fold(0, |set, slot| set | 1 << slot);
    state.sessions[session].candidates = dead;
    state.next(session, Step::LetterLock)
}

/// Their letters, one after the other in the order of ids.
pub(super) fn letter_lock(state: &mut State, session: usize, rules: Rules) -> Result<(), Waits> {
    let left = state.sessions[session].candidates;
    let backwards = rules.without(Mutant::NamedOrder) && session % 2 == 1;
    let slot = if backwards { each(left).last() } else { each(left).next() };
    let Some(slot) = slot else { return state.next(session, Step::LetterFront) };
    let letter = state.letters[slot];
    if rules.without(Mutant::NoLetterLock) {
        state.sessions[session].got |= 1 << slot;
        state.sessions[session].memo = letter.seen(session).map_or(0, |letter| letter.no);
    } else {
        free(letter.taken(session), letter.owner)?;
        if letter.seen(session).is_some_and(|letter| !letter.given_up) {
            state.letters[slot].lock(session);
            state.sessions[session].got |= 1 << slot;
        }
    }
    state.sessions[session].candidates &= !(1 << slot);
    Ok(())
}

pub(super) fn letter_front(state: &mut State, session: usize) -> Result<(), Waits> {
    let one = &state.sessions[session];
    let in_lane = each(one.got).any(|slot| slot < LANE_SLOTS);
    if in_lane && matches!(one.call, Some(Call::Redrive(_))) && !state.fronts.take_alone(session)? {
        return Ok(());
    }
    state.next(session, Step::LetterWrite)
}

/// One statement with one snapshot.
pub(super) fn letter_write(state: &mut State, session: usize, rules: Rules) -> Result<(), Waits> {
    let got = state.sessions[session].got;
    let redrive = matches!(state.sessions[session].call, Some(Call::Redrive(_)));
    for slot in each(got) {
        let row = state.deliveries[slot];
        free(
            row.taken(session) && (row.dirty.is_some() || row.committed.is_some_and(|row| row.due == NEVER)),
            row.owner,
        )?;
        free(state.letters[slot].taken(session), state.letters[slot].owner)?;
    }
    let reach = if rules.without(Mutant::NoReach) { 0 } else { state.reach(session) };
    // Unlocked, a letter is as an older snapshot showed it.
    let older = rules.without(Mutant::NoLetterLock).then_some(Letter {
        parked: false,
        no: state.sessions[session].memo,
        given_up: false,
    });
    let mut changed = 0;
    for slot in each(got) {
        let Some(letter) = state.letters[slot].seen(session).filter(|letter| !letter.given_up).or(older) else {
            continue;
        };
        changed += 1;
        let row = state.deliveries[slot].seen(session);
        let after = if redrive { None } else { Some(Letter { given_up: true, parked: false, ..letter }) };
        state.letters[slot].write(session, after);
        let due = state.clock;
        match row {
            Some(row) if letter.parked && redrive => {
                state.deliveries[slot].write(session, Some(Delivery { due, count: 0, base: row.no, ..row }));
            }
            Some(_) if letter.parked => state.deliveries[slot].write(session, None),
            None if redrive && !letter.parked => {
                let tail = if slot < LANE_SLOTS { reach } else { 0 };
                let row = Delivery { due, no: letter.no, base: letter.no, tail, ..Delivery::default() };
                state.deliveries[slot].write(session, Some(row));
            }
            _ => {}
        }
    }
    state.answer(session, changed)
}

pub(super) fn skip_look(state: &mut State, session: usize) -> Result<(), Waits> {
    let Some((slot, row)) = state.head(session) else { return state.answer(session, 0) };
    if row.due != NEVER || !state.letters[slot].seen(session).is_some_and(|letter| letter.parked) {
        return state.answer(session, 0);
    }
    state.sessions[session].got = 1 << slot;
    state.next(session, Step::SkipWrite)
}

/// Waits for the letter and looks again.
pub(super) fn skip_write(state: &mut State, session: usize, rules: Rules) -> Result<(), Waits> {
    let Some(slot) = each(state.sessions[session].got).next() else { return state.answer(session, 0) };
    let letter = state.letters[slot];
    free(letter.taken(session), letter.owner)?;
    let Some(seen) = letter.seen(session).filter(|letter| !letter.given_up) else { return state.answer(session, 0) };
    if !seen.parked && !rules.without(Mutant::NoLetterLock) {
        state.letters[slot].lock(session);
        return state.answer(session, 0);
    }
    state.letters[slot].write(session, Some(Letter { parked: false, ..seen }));
    let row = state.deliveries[slot];
    free(row.taken(session), row.owner)?;
    if row.seen(session).is_some() {
        state.deliveries[slot].write(session, None);
    }
    state.answer(session, 1)
}

pub(super) fn replay_front(state: &mut State, session: usize) -> Result<(), Waits> {
    if !state.fronts.take_alone(session)? {
        return Ok(());
    }
    state.next(session, Step::ReplayLook)
}

/// What its snapshot shows: whether the message was delivered and is not dead, and how far leases reach.
pub(super) fn replay_look(state: &mut State, session: usize) -> Result<(), Waits> {
    nobody(state.message_table.against_sharing(session))?;
    state.message_table.shared |= bit(session);
    let Some(Call::Replay(slot)) = state.sessions[session].call else { return Ok(()) };
    let slot = usize::from(slot);
    let delivered = state.attempts[slot].iter().any(|attempt| attempt.seen(session) == Some(Ending::Dispatched));
    let dead = state.letters[slot].seen(session).is_some_and(|letter| !letter.given_up);
    if state.messages[slot].seen(session).is_none() || !delivered || dead {
        return state.answer(session, 0);
    }
    state.sessions[session].memo = state.reach(session);
    state.sessions[session].candidates = last_attempt(state, session, slot);
    state.next(session, Step::ReplayInsert)
}

/// Waits for whoever is just changing the delivery; one that is there is left alone.
pub(super) fn replay_insert(state: &mut State, session: usize, rules: Rules) -> Result<(), Waits> {
    let Some(Call::Replay(slot)) = state.sessions[session].call else { return Ok(()) };
    let slot = usize::from(slot);
    let row = state.deliveries[slot];
    free(row.taken(session) && row.dirty.is_some(), row.owner)?;
    if row.seen(session).is_some() {
        return state.answer(session, 0);
    }
    let tail = if slot < LANE_SLOTS && !rules.without(Mutant::NoReach) { state.sessions[session].memo } else { 0 };
    let no = state.sessions[session].candidates;
    let row = Delivery { due: state.sessions[session].now, no, base: no, tail, ..Delivery::default() };
    state.deliveries[slot].write(session, Some(row));
    state.next(session, Step::ReplayNumber)
}

fn last_attempt(state: &State, session: usize, slot: usize) -> u8 {
    state.attempts[slot].iter().rposition(|attempt| attempt.seen(session).is_some()).map_or(0, number)
}

/// A new statement: what the wait was for is seen now.
pub(super) fn replay_number(state: &mut State, session: usize, rules: Rules) -> Result<(), Waits> {
    let Some(Call::Replay(slot)) = state.sessions[session].call else { return Ok(()) };
    let slot = usize::from(slot);
    if rules.without(Mutant::ReplayOnce) {
        return state.answer(session, 1);
    }
    if state.letters[slot].seen(session).is_some_and(|letter| !letter.given_up) {
        state.deliveries[slot].write(session, None);
        return state.answer(session, 0);
    }
    let no = last_attempt(state, session, slot);
    if let Some(row) = state.deliveries[slot].seen(session) {
        state.deliveries[slot].write(session, Some(Delivery { no, base: no, ..row }));
    }
    state.answer(session, 1)
}

/// Locks at once or not at all, then looks.
pub(super) fn prune(state: &mut State, session: usize, rules: Rules) -> Result<(), Waits> {
    if state.partitions.against_alone(session) != 0 {
        return state.answer(session, 0);
    }
    state.partitions.alone |= bit(session);
    let old = |state: &State, slot: usize| state.messages[slot].seen(session).is_some_and(|born| born < state.clock);
    let mut gone = 0;
    let free = state.message_table.against_alone(session) == 0 || rules.without(Mutant::PruneNoLock);
    if (0..SLOTS).any(|slot| old(state, slot)) && free {
        if !rules.without(Mutant::PruneNoLock) {
            state.message_table.alone |= bit(session);
        }
        for slot in 0..SLOTS {
            let dead = state.letters[slot].seen(session).is_some_and(|letter| !letter.given_up);
            if old(state, slot)
                && state.deliveries[slot].seen(session).is_none()
                && (!dead || rules.without(Mutant::PruneDead))
                && !state.messages[slot].taken(session)
            {
                state.messages[slot].write(session, None);
                gone += 1;
            }
        }
    }
    // Attempts of messages that are gone, if nobody is just writing some.
    let orphans: Vec<(usize, usize)> = (0..SLOTS)
        .filter(|slot| state.messages[*slot].seen(session).is_none())
        .flat_map(|slot| (0..ATTEMPTS).map(move |no| (slot, no)))
        .filter(|(slot, no)| state.attempts[*slot][*no].seen(session).is_some())
        .collect();
    if !orphans.is_empty() && state.attempt_table.against_alone(session) == 0 {
        state.attempt_table.alone |= bit(session);
        for (slot, no) in orphans {
            state.attempts[slot][no].write(session, None);
            gone += 1;
        }
    }
    state.answer(session, gone)
}

/// The lane's counter, locked until the transaction ends.
pub(super) fn enqueue_number(state: &mut State, session: usize, rules: Rules) -> Result<(), Waits> {
    let counter = state.counter;
    let last = if rules.without(Mutant::CounterUnlocked) {
        counter.committed.unwrap_or(0)
    } else {
        free(counter.taken(session), counter.owner)?;
        counter.seen(session).unwrap_or(0)
    };
    if usize::from(last) >= LANE_SLOTS {
        state.beyond = true;
        return Ok(());
    }
    state.counter.write(session, Some(last + 1));
    state.sessions[session].memo = last;
    state.next(session, Step::EnqueueWrite)
}

pub(super) fn enqueue_write(state: &mut State, session: usize) -> Result<(), Waits> {
    nobody(state.message_table.against_sharing(session))?;
    let lane = state.sessions[session].call == Some(Call::Enqueue(true));
    let slot = if lane { usize::from(state.sessions[session].memo) } else { LANE_SLOTS };
    if state.messages[slot].committed.is_some() || state.messages[slot].owner != 0 {
        // The one message without a lane is there already; a number that is there is given out twice.
        if lane {
            state.fault = Some(Fault::Gap);
        } else {
            state.beyond = true;
        }
        return Ok(());
    }
    state.message_table.shared |= bit(session);
    let clock = state.clock;
    state.messages[slot].write(session, Some(clock));
    state.deliveries[slot].write(session, Some(Delivery { due: clock, ..Delivery::default() }));
    state.answer(session, number(slot))
}
