//! Which worlds are explored: where they begin, who may call what in them, and how much of it. The first has everything in it
//! and few calls; the others have more calls of fewer kinds. Called by tests and by the program `worlds`.

use super::explore::World;
use super::mutant::Rules;
use super::starts::{STARTS, prepare};
use super::state::{Call, Ending, SESSIONS, Which};

const CLAIM_ONE: Call = Call::Claim(1);
const CLAIM: Call = Call::Claim(2);
const DELIVERED: Call = Call::Complete(Ending::Dispatched, Which::First);
const ALL_DELIVERED: Call = Call::Complete(Ending::Dispatched, Which::All);
const AGAIN: Call = Call::Complete(Ending::Retryable, Which::First);
const FAILED: Call = Call::Complete(Ending::Failed, Which::First);
const RENEW: Call = Call::Renew(Which::All);
const RENEW_LAST: Call = Call::Renew(Which::Last);
const RELEASE: Call = Call::Release(Which::First);
const RELEASE_ALL: Call = Call::Release(Which::All);

/// What a worker calls.
pub const WORKER: &[Call] =
    &[CLAIM_ONE, CLAIM, DELIVERED, ALL_DELIVERED, AGAIN, FAILED, RENEW, RENEW_LAST, RELEASE, RELEASE_ALL];

/// What anybody else calls.
pub const OPERATOR: &[Call] = &[
    Call::Enqueue(true),
    Call::Enqueue(false),
    Call::Repair,
    Call::Redrive(0b1001),
    Call::Redrive(0b0011),
    Call::Discard(0b1001),
    Call::Discard(0b0011),
    Call::Replay(0),
    Call::Replay(1),
    Call::Replay(3),
    Call::Skip,
    Call::Prune,
];

/// A world by its name, before it is prepared.
#[derive(Clone, Debug)]
pub struct Scene {
    /// Its name.
    pub name: &'static str,
    /// Names of where it begins; none for everywhere.
    pub starts: &'static [&'static str],
    /// What each session may call.
    pub calls: [&'static [Call]; SESSIONS],
    /// Calls of each session, of all, and in one transaction.
    pub most: [u8; 3],
    /// Ticks of the clock.
    pub ticks: u8,
}

/// Nobody.
const NONE: &[Call] = &[];

/// All of them, the widest last.
pub const SCENES: &[Scene] = &[
    Scene {
        name: "a lane between workers",
        starts: &["two in a lane, one without", "a run in one hand", "a run in one hand and one behind"],
        calls: [
            &[CLAIM_ONE, CLAIM, DELIVERED, AGAIN, FAILED, RENEW_LAST, RELEASE],
            &[CLAIM, RELEASE, DELIVERED],
            &[CLAIM, Call::Repair],
        ],
        most: [2, 3, 1],
        ticks: 2,
    },
    Scene {
        name: "leases that have ended",
        starts: &["a lease that has ended", "out of attempts", "a head that is tried again"],
        calls: [
            &[DELIVERED, FAILED, RENEW, RELEASE],
            &[CLAIM_ONE, CLAIM, DELIVERED, RELEASE],
            &[CLAIM, Call::Repair, Call::Discard(0b0011), Call::Redrive(0b0011)],
        ],
        most: [2, 3, 1],
        ticks: 2,
    },
    Scene {
        name: "the front of a lane",
        starts: &[
            "dead and passed by, delivered, and one more",
            "dead and passed by, the rest in one hand",
            "dead at its place",
        ],
        calls: [
            &[CLAIM, DELIVERED, FAILED, RENEW],
            &[Call::Redrive(0b1001), Call::Discard(0b0011), Call::Skip, Call::Replay(1), CLAIM, DELIVERED],
            &[Call::Redrive(0b1001), Call::Replay(1), Call::Enqueue(true), Call::Skip],
        ],
        most: [2, 3, 2],
        ticks: 0,
    },
    Scene {
        name: "letters in two hands",
        starts: &["dead and passed by, delivered, and one more"],
        calls: [
            &[Call::Redrive(0b1001), Call::Redrive(0b0001)],
            &[Call::Redrive(0b1001), CLAIM_ONE, ALL_DELIVERED],
            NONE,
        ],
        most: [3, 4, 1],
        ticks: 0,
    },
    Scene {
        name: "again, and no more",
        starts: &["delivered", "delivered and again in one hand", "dead and passed by, delivered, and one more"],
        calls: [
            &[DELIVERED, FAILED, RELEASE, CLAIM],
            &[Call::Replay(0), Call::Replay(3), Call::Discard(0b1001)],
            &[Call::Prune, Call::Replay(0), Call::Enqueue(true)],
        ],
        most: [2, 3, 2],
        ticks: 1,
    },
    Scene { name: "any two calls", starts: &[], calls: [NONE; SESSIONS], most: [2, 2, 2], ticks: 2 },
];

/// The world of a scene.
#[must_use]
pub fn world(scene: &Scene, rules: Rules) -> World {
    // What is broken breaks what is done, not what was prepared.
    let sound = Rules { mutant: None, ..rules };
    let everything = [WORKER, OPERATOR].concat();
    World {
        rules,
        starts: STARTS
            .iter()
            .filter(|(name, _)| scene.starts.is_empty() || scene.starts.contains(name))
            .map(|(_, start)| prepare(start, sound))
            .collect(),
        calls: scene.calls.map(|calls| if scene.starts.is_empty() { everything.clone() } else { calls.to_vec() }),
        calls_each: scene.most[0],
        calls_in_all: scene.most[1],
        calls_in_transaction: scene.most[2],
        rollbacks: true,
        ticks: scene.ticks,
    }
}
