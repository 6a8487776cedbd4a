//! Places in the functions between two statements, or between a statement's snapshot and its locks, where the scheduler can
//! stop a session; and the step of the model that comes next there. Called by `real`, which writes them into the functions,
//! and by `follow`. A place whose text is no longer in its function fails at once.

use super::state::{Call, Ending, Session, Step};

/// Where a session is stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// claim: the snapshot of the lanes is taken, and no row of them is locked.
    ClaimLock,
    /// claim: everything is locked, and nothing is leased.
    ClaimLease,
    /// complete, with a failure: the rows are locked, and nothing is written.
    FailedWrite,
    /// renew: the rows are locked, and the clock is not looked at again.
    RenewWrite,
    /// repair: the rows are locked, and nothing is written.
    RepairWrite,
    /// redrive, discard: the letters are found, and none is locked.
    LetterLock,
    /// redrive, discard: the letters are locked, and not the front of the lanes.
    LetterFront,
    /// redrive, discard: all is locked, and nothing is written.
    LetterWrite,
    /// replay: the front of the lanes is locked, and nothing was looked at.
    ReplayLook,
    /// replay: the delivery is put back, without its number.
    ReplayNumber,
    /// enqueue: the lane's number is taken, and nothing is written.
    EnqueueWrite,
}

/// A function, what stands there, and what stands there with the place.
type Text = (&'static str, &'static str, &'static str);

impl Place {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::ClaimLock,
        Self::ClaimLease,
        Self::FailedWrite,
        Self::RenewWrite,
        Self::RepairWrite,
        Self::LetterLock,
        Self::LetterFront,
        Self::LetterWrite,
        Self::ReplayLook,
        Self::ReplayNumber,
        Self::EnqueueWrite,
    ];

    /// What is written into the functions.
    pub(super) fn text(self) -> &'static [Text] {
        match self {
            Self::ClaimLock => &[
                (
                    "claim_lane_runs",
                    "where w.free and d.xmin = w.version",
                    "where w.free and d.xmin = w.version and outbox.world_pause('ClaimLock')",
                ),
                (
                    "claim_lane_runs",
                    "and (w.leased or w.nth is not null) and d.xmin = w.version",
                    "and (w.leased or w.nth is not null) and d.xmin = w.version and outbox.world_pause('ClaimLock')",
                ),
            ],
            Self::ClaimLease => &[(
                "claim",
                "v_leased_at := outbox.world_clock();",
                "perform outbox.world_pause('ClaimLease'); v_leased_at := outbox.world_clock();",
            )],
            Self::FailedWrite => &[(
                "complete_failed",
                "return query\n    with held as materialized",
                "perform outbox.world_pause('FailedWrite');\n    return query\n    with held as materialized",
            )],
            Self::RenewWrite => &[(
                "renew",
                "v_now := outbox.world_clock();",
                "perform outbox.world_pause('RenewWrite'); v_now := outbox.world_clock();",
            )],
            Self::RepairWrite => &[(
                "end_stale_leases",
                "v_ended := v_ended + settle(",
                "perform outbox.world_pause('RepairWrite'); v_ended := v_ended + settle(",
            )],
            Self::LetterLock => &[(
                "change_letters",
                "perform refuse_stale_snapshot() where v_redrive;",
                "perform refuse_stale_snapshot() where v_redrive; perform outbox.world_pause('LetterLock');",
            )],
            Self::LetterFront => &[(
                "change_letters",
                "perform hold_lane_fronts(v_lanes) where v_redrive;",
                "perform outbox.world_pause('LetterFront'); perform hold_lane_fronts(v_lanes) where v_redrive;",
            )],
            Self::LetterWrite => &[(
                "change_letters",
                "v_now := outbox.world_clock();",
                "perform outbox.world_pause('LetterWrite'); v_now := outbox.world_clock();",
            )],
            Self::ReplayLook => &[(
                "replay_batch",
                "perform hold_lane_fronts(array[replay_batch.sink]);",
                "perform hold_lane_fronts(array[replay_batch.sink]); perform outbox.world_pause('ReplayLook');",
            )],
            Self::ReplayNumber => &[(
                "replay_batch",
                "delete from delivery d using dead_letter l",
                "perform outbox.world_pause('ReplayNumber') where v_ids is not null; delete from delivery d using dead_letter l",
            )],
            Self::EnqueueWrite => &[(
                "enqueue",
                "insert into message (id,",
                "perform outbox.world_pause('EnqueueWrite'); insert into message (id,",
            )],
        }
    }

    /// The places on the way of a call.
    #[must_use]
    pub fn of(call: Call) -> &'static [Self] {
        match call {
            Call::Enqueue(_) => &[Self::EnqueueWrite],
            Call::Claim(_) => &[Self::ClaimLock, Self::ClaimLease],
            Call::Complete(Ending::Dispatched, _) | Call::Release(_) | Call::Skip | Call::Prune => &[],
            Call::Complete(..) => &[Self::FailedWrite],
            Call::Renew(_) => &[Self::RenewWrite],
            Call::Repair => &[Self::RepairWrite],
            Call::Redrive(_) | Call::Discard(_) => &[Self::LetterLock, Self::LetterFront, Self::LetterWrite],
            Call::Replay(_) => &[Self::ReplayLook, Self::ReplayNumber],
        }
    }

    /// Whether a session of the model that is to stop here has come here.
    #[must_use]
    pub fn reached(self, one: &Session) -> bool {
        let step = match self {
            Self::ClaimLock => Step::ClaimLock,
            Self::ClaimLease => Step::ClaimLease,
            Self::FailedWrite | Self::RenewWrite => Step::HeldWrite,
            Self::RepairWrite => Step::RepairWrite,
            Self::LetterLock => Step::LetterLock,
            Self::LetterFront => Step::LetterFront,
            Self::LetterWrite => Step::LetterWrite,
            Self::ReplayLook => Step::ReplayLook,
            Self::ReplayNumber => Step::ReplayNumber,
            Self::EnqueueWrite => Step::EnqueueWrite,
        };
        // These are passed by where nothing was found.
        let found = !matches!(self, Self::ClaimLease | Self::RepairWrite) || one.got != 0;
        one.step == step && found
    }
}
