//! The model, broken on purpose: each variant leaves one guard of the SQL out. Read by `calls` and `claim`; the explorer must
//! find what each one breaks.

/// A guard that is left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mutant {
    /// A completion, a release or a renewal does not ask for the token.
    NoToken,
    /// Nor, here, whether the lease has ended.
    NoExpiry,
    /// A claim does not share the lock of the lanes' front.
    NoLaneLock,
    /// A claim waits for a locked row.
    NoSkipLocked,
    /// A claim does not ask whether a row has changed since its snapshot.
    NoVersion,
    /// A claim does not look at leases behind its run.
    NoTail,
    /// What is put in front of a lane does not know how far leases reach.
    NoReach,
    /// A claim does not ask whether a lease in the lane lives.
    NoLivingLease,
    /// A claim takes a lane although it could not lock an ended lease in it.
    NotAllLocked,
    /// The count goes up when an outcome is recorded.
    CountAtOutcome,
    /// A release gives back the number and not the count.
    ReleaseKeepsCount,
    /// A renewal uses the time from before it waited.
    RenewOldTime,
    /// Repair records nothing.
    RepairSilent,
    /// Repair ends leases that live.
    RepairLive,
    /// Prune looks before it locks, and locks nothing.
    PruneNoLock,
    /// Prune does not look for dead letters.
    PruneDead,
    /// A replay does not look again after it has waited.
    ReplayOnce,
    /// A redrive, a discard or a skip does not lock the letter.
    NoLetterLock,
    /// Letters are locked in the order in which they are named.
    NamedOrder,
    /// A producer reads the lane's counter without a lock.
    CounterUnlocked,
    /// A dead head leaves its lane although the sink parks.
    NotParked,
    /// A claim buries what is out of attempts without an attempt for its last lease.
    BurySilent,
}

impl Mutant {
    /// All of them.
    pub const ALL: [Self; 22] = [
        Self::NoToken,
        Self::NoExpiry,
        Self::NoLaneLock,
        Self::NoSkipLocked,
        Self::NoVersion,
        Self::NoTail,
        Self::NoReach,
        Self::NoLivingLease,
        Self::NotAllLocked,
        Self::CountAtOutcome,
        Self::ReleaseKeepsCount,
        Self::RenewOldTime,
        Self::RepairSilent,
        Self::RepairLive,
        Self::PruneNoLock,
        Self::PruneDead,
        Self::ReplayOnce,
        Self::NoLetterLock,
        Self::NamedOrder,
        Self::CounterUnlocked,
        Self::NotParked,
        Self::BurySilent,
    ];
}

/// What every call of a world goes by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rules {
    /// `on_dead` of the sink.
    pub parks: bool,
    /// What is broken.
    pub mutant: Option<Mutant>,
}

impl Rules {
    /// Whether this guard is left out.
    pub fn without(self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }
}
