//! What a small world holds: the rows that matter, as committed and as one open transaction has left them, the table
//! locks, a clock, and three sessions, each in the middle of some call. Made and stepped by `calls` and `claim`, judged by
//! `checks`. It must hold nothing that a real row or a real session does not, but for what a check needs to remember.

pub use super::row::{Row, TableLock, bit, number};

/// Numbers 1 to 3 of the one lane.
pub const LANE_SLOTS: usize = 3;
/// Those, and one message without a lane.
pub const SLOTS: usize = 4;
/// Attempts of a message that a world follows; a step beyond them is not taken.
pub const ATTEMPTS: usize = 4;
/// Sessions at most.
pub const SESSIONS: usize = 3;
/// What every claim says.
pub const MAX_ATTEMPTS: u8 = 2;
/// How long every lease lasts, in ticks of the clock.
pub const LEASE_TICKS: u8 = 2;
/// The due time of a dead head that parks its lane.
pub const NEVER: u8 = u8::MAX;
/// How a set of slots or sessions is written: a bit for each.
pub type Set = u8;

/// The slots of a set, lowest first.
pub fn each(set: Set) -> impl Iterator<Item = usize> {
    (0..SLOTS).filter(move |slot| set & (1 << slot) != 0)
}

/// A row of `delivery`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Delivery {
    /// When it is due, or [`NEVER`].
    pub due: u8,
    /// `attempt_no`.
    pub no: u8,
    /// `attempt_count`.
    pub count: u8,
    /// 0 for none.
    pub token: u8,
    /// When the lease ends; 0 for none.
    pub ends: u8,
    /// `lane_tail`; 0 for none.
    pub tail: u8,
    /// Not a column: the number at which the budget last began. Only for the books.
    pub base: u8,
}

/// A row of `dead_letter`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Letter {
    /// Whether its delivery row parks the lane.
    pub parked: bool,
    /// `attempt_no`.
    pub no: u8,
    /// Not a row: an operator has discarded it. Only for the books.
    pub given_up: bool,
}

/// How an attempt ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Ending {
    /// The lease ended.
    Zombie,
    /// To be tried again.
    Retryable,
    /// For good.
    Failed,
    /// Delivered.
    Dispatched,
}

/// Which of what a worker holds.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Which {
    /// The lowest.
    First,
    /// The highest.
    Last,
    /// All of it.
    All,
}

/// One call of a function.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Call {
    /// `enqueue`, into the lane or without one.
    Enqueue(bool),
    /// `claim`, with this `lane_run`.
    Claim(u8),
    /// `complete_many` with one outcome.
    Complete(Ending, Which),
    /// `renew`.
    Renew(Which),
    /// `release`.
    Release(Which),
    /// `repair_expired_leases`.
    Repair,
    /// `redrive` of these slots.
    Redrive(Set),
    /// `discard` of these slots.
    Discard(Set),
    /// `replay` of one slot.
    Replay(u8),
    /// `skip` of the lane.
    Skip,
    /// `prune(0)`.
    Prune,
}

/// Where in its call a session stands: the next step that it takes. Between two of them others may go on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Step {
    /// No transaction is open.
    #[default]
    Idle,
    /// The call has answered; the transaction is open.
    Answered,
    /// Tries the lock of the lanes.
    ClaimBegin,
    /// Locks what has no lane.
    ClaimDue,
    /// Takes the snapshot of the lane.
    ClaimLook,
    /// Locks the next row of the lane.
    ClaimLock,
    /// Settles and leases.
    ClaimLease,
    /// Takes the snapshot of what is held.
    HeldLook,
    /// Locks the next of it.
    HeldLock,
    /// Writes the outcome, the renewal or the release.
    HeldWrite,
    /// Locks ended leases.
    RepairLock,
    /// Ends them.
    RepairWrite,
    /// Looks which are dead.
    LetterLook,
    /// Locks the next letter.
    LetterLock,
    /// Locks the front of the lanes.
    LetterFront,
    /// Writes.
    LetterWrite,
    /// Looks at the head.
    SkipLook,
    /// Locks its letter and writes.
    SkipWrite,
    /// Locks the front of the lanes.
    ReplayFront,
    /// Looks what was delivered.
    ReplayLook,
    /// Puts the delivery back.
    ReplayInsert,
    /// Looks again and numbers it.
    ReplayNumber,
    /// Locks at once, looks and deletes.
    Prune,
    /// Takes the number of the lane.
    EnqueueNumber,
    /// Writes message and delivery.
    EnqueueWrite,
}

/// A session: what it is doing, and what it believes to hold.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Session {
    /// Where it stands.
    pub step: Step,
    /// What it has called.
    pub call: Option<Call>,
    /// Calls made so far.
    pub calls: u8,
    /// Calls made in this transaction.
    pub in_transaction: u8,
    /// The clock as the call has read it.
    pub now: u8,
    /// What is still to be looked at.
    pub candidates: Set,
    /// What others have changed since this statement's snapshot.
    pub stale: Set,
    /// What others have deleted since then: a new row in its place is another one.
    pub deleted: Set,
    /// Of the candidates of a claim: leased when the snapshot was taken.
    pub leased: Set,
    /// Of the candidates of a claim: those that may be handed out.
    pub wanted: Set,
    /// Of the candidates of a claim: those that need more than a lease.
    pub unsettled: Set,
    /// What was locked or chosen.
    pub got: Set,
    /// A number that one step leaves for the next.
    pub memo: u8,
    /// What the call answered.
    pub answer: u8,
    /// Until when it believes to hold each slot; 0 for not.
    pub told: [u8; SLOTS],
    /// Under this token.
    pub token: u8,
    /// The same, once this transaction has committed.
    pub will: Option<([u8; SLOTS], u8)>,
}

impl Session {
    /// What it believes to hold, ended or not.
    pub fn held(&self) -> Set {
        (0..SLOTS).filter(|slot| self.told[*slot] > 0).fold(0, |set, slot| set | 1 << slot)
    }

    /// A part of that.
    pub fn part(&self, which: Which) -> Set {
        let held = self.held();
        match which {
            Which::All => held,
            Which::First => held & held.wrapping_neg(),
            Which::Last => each(held).last().map_or(0, |slot| 1 << slot),
        }
    }
}

/// A promise that is broken.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Fault {
    /// One lane in two hands.
    TwoHands,
    /// Two workers believe to hold one message.
    TwoHolders,
    /// A claim passed over a lower number.
    OutOfOrder,
    /// Somebody without the lease has changed the delivery.
    Fence,
    /// Attempts are not 1, 2, 3 …, or do not agree with the counter.
    Attempts,
    /// Two attempts with one number.
    DoubleAttempt,
    /// More attempts than the budget.
    Budget,
    /// A message that is in no state, or in two.
    Conservation,
    /// Dead and never claimed.
    DeadUnclaimed,
    /// A parked head and its letter do not agree.
    Parked,
    /// Something undelivered without its message.
    Pruned,
    /// Numbers of a lane with a gap, or twice.
    Gap,
    /// Sessions wait in a circle.
    Deadlock,
    /// A claim waits for a row.
    ClaimWaits,
    /// Something is due and no claim will ever take it.
    Stuck,
}

/// A world at one moment.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct State {
    /// The database's clock.
    pub clock: u8,
    /// `message`: when each was written.
    pub messages: [Row<u8>; SLOTS],
    /// `delivery`.
    pub deliveries: [Row<Delivery>; SLOTS],
    /// `dead_letter`.
    pub letters: [Row<Letter>; SLOTS],
    /// `attempt`.
    pub attempts: [[Row<Ending>; ATTEMPTS]; SLOTS],
    /// `lane_sequence`.
    pub counter: Row<u8>,
    /// The lock of the front of the lanes.
    pub fronts: TableLock,
    /// The lock of the table `message`.
    pub message_table: TableLock,
    /// The lock of the table `attempt`.
    pub attempt_table: TableLock,
    /// `lock_partitions`.
    pub partitions: TableLock,
    /// The sessions.
    pub sessions: [Session; SESSIONS],
    /// What was found to be broken on the way here.
    pub fault: Option<Fault>,
    /// A step went beyond what this world follows.
    pub beyond: bool,
}

impl State {
    /// Ends a session's transaction.
    pub fn end(&mut self, session: usize, commit: bool) {
        let (mut changed, mut deleted) = (0, 0);
        for slot in 0..SLOTS {
            self.messages[slot].end(session, commit);
            if let Some(now) = self.deliveries[slot].end(session, commit) {
                changed |= 1 << slot;
                deleted |= u8::from(!now) << slot;
            }
            self.letters[slot].end(session, commit);
            for attempt in &mut self.attempts[slot] {
                attempt.end(session, commit);
            }
        }
        self.counter.end(session, commit);
        for lock in [&mut self.fronts, &mut self.message_table, &mut self.attempt_table, &mut self.partitions] {
            lock.shared &= !bit(session);
            lock.alone &= !bit(session);
        }
        for other in &mut self.sessions {
            if !matches!(other.step, Step::Idle | Step::Answered) {
                other.stale |= changed;
                other.deleted |= deleted;
            }
        }
        let old = std::mem::take(&mut self.sessions[session]);
        let (told, token) = if commit { old.will.unwrap_or((old.told, old.token)) } else { (old.told, old.token) };
        self.sessions[session] = Session { calls: old.calls, told, token, ..Session::default() };
    }

    /// The lowest number of the lane as a session sees it.
    pub fn head(&self, session: usize) -> Option<(usize, Delivery)> {
        (0..LANE_SLOTS).find_map(|slot| self.deliveries[slot].seen(session).map(|row| (slot, row)))
    }

    /// `lane_reach`.
    pub fn reach(&self, session: usize) -> u8 {
        let leased = (0..LANE_SLOTS)
            .filter(|slot| self.deliveries[*slot].seen(session).is_some_and(|row| row.token != 0))
            .max()
            .map_or(0, number);
        leased.max(self.head(session).map_or(0, |(_, row)| row.tail))
    }

    /// Adds an attempt.
    pub fn record(&mut self, session: usize, slot: usize, no: u8, ending: Ending) {
        let Some(attempt) = usize::from(no).checked_sub(1).and_then(|no| self.attempts[slot].get_mut(no)) else {
            self.beyond = true;
            return;
        };
        if attempt.committed.is_some() || attempt.owner != 0 {
            self.fault = Some(Fault::DoubleAttempt);
        }
        attempt.write(session, Some(ending));
        self.attempt_table.shared |= bit(session);
    }
}
