//! Where small worlds begin: what a few calls in a row have left, each committed before the next. Also what sessions may
//! call in them. Called by the explorer's callers and by the scheduler of real sessions, which makes the same calls.

use super::mutant::Rules;
use super::state::{Call, Ending, SESSIONS, State, Step, Which};

/// One call of the preparation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Before {
    /// A session makes a call and commits.
    Call(usize, Call),
    /// The clock moves on.
    Tick,
}

use Before::{Call as By, Tick};

const LANE: Before = By(2, Call::Enqueue(true));
const PLAIN: Before = By(2, Call::Enqueue(false));

/// A prepared world by its name.
pub type Start = (&'static str, &'static [Before]);

/// All of them. Sessions 0 and 1 may hold something; session 2 has prepared it.
pub const STARTS: &[Start] = &[
    ("empty", &[Tick]),
    ("two in a lane, one without", &[LANE, LANE, PLAIN, Tick]),
    ("three in a lane", &[LANE, LANE, LANE, Tick]),
    ("a run in one hand", &[LANE, LANE, PLAIN, Tick, By(0, Call::Claim(2))]),
    ("a run in one hand and one behind", &[LANE, LANE, LANE, Tick, By(0, Call::Claim(2))]),
    (
        "a head that is tried again",
        &[LANE, LANE, LANE, Tick, By(0, Call::Claim(3)), By(0, Call::Complete(Ending::Retryable, Which::First)), Tick],
    ),
    ("a lease that has ended", &[LANE, LANE, PLAIN, Tick, By(0, Call::Claim(2)), Tick, Tick]),
    ("out of attempts", &[LANE, LANE, Tick, By(1, Call::Claim(1)), Tick, Tick, By(0, Call::Claim(2)), Tick, Tick]),
    (
        "dead and passed by, delivered, and one more",
        &[
            LANE,
            LANE,
            LANE,
            PLAIN,
            Tick,
            By(0, Call::Claim(2)),
            By(0, Call::Complete(Ending::Failed, Which::First)),
            By(2, Call::Skip),
            By(0, Call::Complete(Ending::Dispatched, Which::All)),
            Tick,
        ],
    ),
    (
        "dead and passed by, the rest in one hand",
        &[
            LANE,
            LANE,
            LANE,
            Tick,
            By(0, Call::Claim(1)),
            By(0, Call::Complete(Ending::Failed, Which::First)),
            By(2, Call::Skip),
            By(0, Call::Claim(2)),
        ],
    ),
    (
        "dead at its place",
        &[LANE, LANE, PLAIN, Tick, By(0, Call::Claim(1)), By(0, Call::Complete(Ending::Failed, Which::All)), Tick],
    ),
    (
        "delivered",
        &[LANE, LANE, PLAIN, Tick, By(0, Call::Claim(2)), By(0, Call::Complete(Ending::Dispatched, Which::All)), Tick],
    ),
    (
        "delivered, the rest in one hand",
        &[
            LANE,
            LANE,
            LANE,
            Tick,
            By(0, Call::Claim(1)),
            By(0, Call::Complete(Ending::Dispatched, Which::First)),
            By(0, Call::Claim(2)),
        ],
    ),
    (
        "delivered and again in one hand",
        &[
            LANE,
            PLAIN,
            Tick,
            By(0, Call::Claim(1)),
            By(0, Call::Complete(Ending::Dispatched, Which::All)),
            By(2, Call::Replay(0)),
            By(2, Call::Replay(3)),
            By(0, Call::Claim(1)),
        ],
    ),
];

/// The state that a preparation leaves. The calls are forgotten, what workers believe is not.
///
/// # Panics
///
/// If a call waits, or breaks a promise.
pub fn prepare(start: &[Before], rules: Rules) -> State {
    let mut state = State { clock: 1, ..State::default() };
    for before in start {
        match *before {
            Before::Tick => state.clock += 1,
            Before::Call(session, call) => {
                state.start(session, call);
                while state.sessions[session].step != Step::Answered {
                    assert!(state.step(session, rules).is_ok(), "{call:?} waits in the preparation {start:?}");
                }
                state.end(session, true);
            }
        }
    }
    for session in 0..SESSIONS {
        state.sessions[session].calls = 0;
    }
    state
}
