//! The steps of a claim: the lock of the lanes, what has no lane, the snapshot of the lane, the lock of each row of it, and the
//! leases. It follows `claim`, `pick_due`, `claim_lane_runs` and `settle`. Called by `calls`.

use super::calls::{Waits, free, nobody};
use super::mutant::{Mutant, Rules};
use super::state::{
    Call, Delivery, Ending, LANE_SLOTS, LEASE_TICKS, MAX_ATTEMPTS, SLOTS, State, Step, bit, each, number,
};

/// Tokens of one session, so many that none is met twice while anybody knows it.
pub(super) const TOKENS: u8 = 16;

fn over(row: Delivery, now: u8) -> bool {
    row.token == 0 || row.ends <= now
}

/// Whether lanes wait and nobody puts messages in front of them.
pub(super) fn begin(state: &mut State, session: usize, rules: Rules) -> Result<(), Waits> {
    let lanes_wait = state.head(session).is_some();
    let free = state.fronts.against_sharing(session) == 0;
    let one = &mut state.sessions[session];
    (one.candidates, one.leased, one.wanted, one.unsettled, one.got) = (0, 0, 0, 0, 0);
    one.memo = u8::from(lanes_wait && (free || rules.without(Mutant::NoLaneLock)));
    if lanes_wait && free && !rules.without(Mutant::NoLaneLock) {
        state.fronts.shared |= bit(session);
    }
    state.next(session, Step::ClaimDue)
}

/// `pick_due`: a row that has changed is looked at as it is when it is locked.
pub(super) fn due(state: &mut State, session: usize, rules: Rules) -> Result<(), Waits> {
    let now = state.sessions[session].now;
    let row = state.deliveries[LANE_SLOTS];
    let open = |row: Delivery| row.due <= now && over(row, now);
    if rules.without(Mutant::NoSkipLocked) && row.committed.is_some_and(open) {
        free(row.taken(session), row.owner)?;
    }
    if !row.taken(session)
        && let Some(seen) = row.seen(session).filter(|row| open(*row))
    {
        state.deliveries[LANE_SLOTS].lock(session);
        let one = &mut state.sessions[session];
        one.got |= 1 << LANE_SLOTS;
        if seen.token != 0 || seen.count >= MAX_ATTEMPTS {
            one.unsettled |= 1 << LANE_SLOTS;
        }
    }
    let lanes = state.sessions[session].memo == 1;
    state.next(session, if lanes { Step::ClaimLook } else { Step::ClaimLease })
}

/// `claim_lane_runs`, as its snapshot shows the lane.
pub(super) fn look(state: &mut State, session: usize, rules: Rules) -> Result<(), Waits> {
    (state.sessions[session].stale, state.sessions[session].deleted) = (0, 0);
    state.sessions[session].memo = 0;
    let now = state.sessions[session].now;
    let Some(Call::Claim(run)) = state.sessions[session].call else { return Ok(()) };
    let rows: Vec<(usize, Delivery)> =
        (0..LANE_SLOTS).filter_map(|slot| state.deliveries[slot].seen(session).map(|row| (slot, row))).collect();
    let Some(&(_, head)) = rows.first().filter(|(_, head)| head.due <= now && over(*head, now)) else {
        return state.next(session, Step::ClaimLease);
    };
    let never_out = |row: Delivery| row.tail == 0 && row.token == 0 && row.count == 0;
    let fresh = never_out(head);
    let (lowest, behind) = rows.split_at(rows.len().min(usize::from(run)));
    let (mut candidates, mut leased, mut wanted, mut unsettled, mut lives) = (0, 0, 0, 0, false);
    // The run has no gap; what is free behind one is locked and not handed out.
    let (mut all_free, mut exhausted, mut unbroken) = (true, false, true);
    for (nth, &(slot, row)) in lowest.iter().enumerate() {
        if fresh {
            let free = row.due <= now && never_out(row);
            unbroken &= free;
            candidates |= u8::from(free) << slot;
            wanted |= u8::from(unbroken) << slot;
            continue;
        }
        all_free &= row.due <= now && over(row, now);
        exhausted |= row.count >= MAX_ATTEMPTS;
        let alone = exhausted || (head.count > 0 && head.due > row.due);
        let free = all_free && (nth == 0 || !alone);
        unbroken &= free;
        candidates |= u8::from(free) << slot;
        wanted |= u8::from(unbroken) << slot;
        if row.token != 0 {
            leased |= 1 << slot;
            lives |= row.ends > now;
        }
        if row.token != 0 || exhausted {
            unsettled |= 1 << slot;
        }
    }
    if !fresh && !rules.without(Mutant::NoTail) {
        for &(slot, row) in behind.iter().filter(|(slot, row)| number(*slot) <= head.tail && row.token != 0) {
            leased |= 1 << slot;
            lives |= row.ends > now;
        }
    }
    if !fresh {
        candidates = if lives && !rules.without(Mutant::NoLivingLease) { 0 } else { candidates | leased };
    }
    let one = &mut state.sessions[session];
    (one.candidates, one.leased, one.wanted) = (candidates, leased, wanted);
    one.unsettled |= unsettled & wanted;
    state.next(session, if candidates == 0 { Step::ClaimLease } else { Step::ClaimLock })
}

/// One row of the lane: locked if nobody else has it and it has not changed since the snapshot.
pub(super) fn lock(state: &mut State, session: usize, rules: Rules) -> Result<(), Waits> {
    let one = &state.sessions[session];
    let Some(slot) = each(one.candidates).next() else { return Ok(()) };
    let row = state.deliveries[slot];
    if rules.without(Mutant::NoSkipLocked) {
        free(row.taken(session), row.owner)?;
    }
    let changed = one.stale & (1 << slot) != 0 && !rules.without(Mutant::NoVersion);
    let deleted = one.deleted & (1 << slot) != 0;
    // PostgreSQL locks the newest version before it looks at it, and keeps the lock of one that is not taken.
    if !row.taken(session) && !deleted && row.seen(session).is_some() {
        state.deliveries[slot].lock(session);
        state.sessions[session].got |= u8::from(!changed) << slot;
    }
    let one = &mut state.sessions[session];
    one.candidates &= !(1 << slot);
    if one.candidates != 0 {
        return Ok(());
    }
    // The run ends before the first that could not be locked; the whole lane stays if one that is leased could not.
    let lanes = (1 << LANE_SLOTS) - 1;
    let all = one.leased & one.got == one.leased || rules.without(Mutant::NotAllLocked);
    let mut run = 0;
    if all {
        for slot in each(one.wanted) {
            if one.got & (1 << slot) == 0 {
                break;
            }
            run |= 1 << slot;
        }
    }
    one.got = (one.got & !lanes) | run;
    state.next(session, Step::ClaimLease)
}

/// `settle` and the leases.
pub(super) fn lease(state: &mut State, session: usize, rules: Rules) -> Result<(), Waits> {
    let got = state.sessions[session].got;
    if got == 0 {
        return state.answer(session, 0);
    }
    nobody(state.message_table.against_sharing(session))?;
    let unsettled = state.sessions[session].unsettled & got;
    if unsettled != 0 {
        nobody(state.attempt_table.against_sharing(session))?;
    }
    state.message_table.shared |= bit(session);
    let token = fresh_token(state, session);
    let ends = state.clock + LEASE_TICKS;
    let tail = each(got).filter(|slot| *slot < LANE_SLOTS).last().map_or(0, number);
    let mut told = [0; SLOTS];
    let mut leased = 0;
    for slot in each(got) {
        let Some(row) = state.deliveries[slot].seen(session) else { continue };
        if unsettled & (1 << slot) != 0 {
            let spent = row.count >= MAX_ATTEMPTS;
            if row.token != 0 && !(spent && rules.without(Mutant::BurySilent)) {
                state.record(session, slot, row.no, Ending::Zombie);
            }
            if spent {
                state.bury(session, slot, row, rules);
                continue;
            }
        }
        let count = row.count + u8::from(!rules.without(Mutant::CountAtOutcome));
        let tail = if slot < LANE_SLOTS { tail } else { 0 };
        let row = Delivery { no: row.no + 1, count, token, ends, tail, ..row };
        state.deliveries[slot].write(session, Some(row));
        told[slot] = ends;
        leased += 1;
    }
    if leased == 0 {
        // All that was picked is buried: there may be something behind it.
        return state.next(session, Step::ClaimBegin);
    }
    state.sessions[session].will = Some((told, token));
    state.answer(session, leased)
}

/// One that no row and no worker knows.
fn fresh_token(state: &State, session: usize) -> u8 {
    let first = number(session) * TOKENS;
    let known = |token: u8| {
        state.deliveries.iter().any(|row| {
            row.committed.is_some_and(|row| row.token == token)
                || row.dirty.flatten().is_some_and(|row| row.token == token)
        }) || state.sessions.iter().any(|one| one.token == token || one.will.is_some_and(|(_, will)| will == token))
    };
    (first..first + TOKENS).find(|token| !known(*token)).unwrap_or(first)
}
