//! The stories that are told to a real server: every pair of calls from every start, with every place at which the first can
//! be stopped and both of its ends; pairs while leases end; and three sessions. Called by tests and by the program `worlds`.

use super::mutant::Rules;
use super::place::Place;
use super::scenes::{OPERATOR, WORKER};
use super::scheduler::{Act, Story};
use super::starts::{STARTS, prepare};
use super::state::{Call, LANE_SLOTS, SESSIONS, SLOTS, State};

/// A call and its end.
#[must_use]
pub fn call(call: Call, stop: Option<Place>, commit: bool) -> Vec<Act> {
    let go_on = stop.map(|_| Act::GoOn);
    [Act::Start(call, stop)].into_iter().chain(go_on).chain([Act::End(commit)]).collect()
}

/// Several calls one after the other, each committed.
#[must_use]
pub fn calls(calls: &[Call]) -> Vec<Act> {
    calls.iter().flat_map(|one| call(*one, None, true)).collect()
}

/// Whether a session can make a call of use: a worker's call needs something that it holds.
fn can(held: bool, call: Call) -> bool {
    held || !matches!(call, Call::Complete(..) | Call::Renew(_) | Call::Release(_))
}

/// Whether what is enqueued has a place in the world.
fn fits(state: &State, calls: &[Call]) -> bool {
    let new = |lane: bool| calls.iter().filter(|call| **call == Call::Enqueue(lane)).count();
    let in_lane = usize::from(state.counter.committed.unwrap_or(0)) + new(true);
    let without = usize::from(state.messages[LANE_SLOTS].committed.is_some()) + new(false);
    in_lane <= LANE_SLOTS && without <= SLOTS - LANE_SLOTS
}

/// Two sessions with a call each. The first stops at each place of its call, and ends in both ways.
#[must_use]
pub fn pairs() -> Vec<Story> {
    let everything = [WORKER, OPERATOR].concat();
    let mut stories = Vec::new();
    for (start, before) in STARTS {
        for parks in [true, false] {
            let state = prepare(before, Rules { parks, mutant: None });
            let held: [bool; SESSIONS] = std::array::from_fn(|session| state.sessions[session].held() != 0);
            for &first in everything.iter().filter(|one| can(held[0], **one)) {
                let stops = [None].into_iter().chain(Place::of(first).iter().copied().map(Some));
                for (stop, commit) in stops.flat_map(|stop| [(stop, true), (stop, false)]) {
                    let fits = |second: Call| can(held[1], second) && fits(&state, &[first, second]);
                    for &second in everything.iter().filter(|one| fits(**one)) {
                        let acts = [call(first, stop, commit), call(second, None, true), Vec::new()];
                        stories.push(Story { start, parks, acts, ticks: 0 });
                    }
                }
            }
        }
    }
    stories
}

/// Each pair of a worker's call and another while leases end.
#[must_use]
pub fn pairs_in_time() -> Vec<Story> {
    let held = ["a run in one hand", "dead and passed by, the rest in one hand", "delivered and again in one hand"];
    let seconds = [Call::Claim(1), Call::Claim(2), Call::Repair];
    let mut stories = Vec::new();
    for start in held {
        for &first in &WORKER[2..] {
            for stop in [None].into_iter().chain(Place::of(first).iter().copied().map(Some)) {
                for second in seconds {
                    for other in [None].into_iter().chain(Place::of(second).iter().copied().map(Some)) {
                        let acts = [call(first, stop, true), call(second, other, true), Vec::new()];
                        stories.push(Story { start, parks: true, acts, ticks: 2 });
                    }
                }
            }
        }
    }
    stories
}

/// Three sessions with a call each: a holder or a claim, a claim, and somebody else.
#[must_use]
pub fn triples() -> Vec<Story> {
    let mut stories = Vec::new();
    for (start, before) in STARTS {
        let state = prepare(before, Rules { parks: true, mutant: None });
        let held = state.sessions[0].held() != 0;
        for &first in WORKER.iter().filter(|one| can(held, **one)) {
            for second in [Call::Claim(1), Call::Claim(2), Call::Repair] {
                for &third in OPERATOR.iter().filter(|third| fits(&state, &[**third])) {
                    let acts = [call(first, None, true), call(second, None, true), call(third, None, true)];
                    stories.push(Story { start, parks: true, acts, ticks: 0 });
                }
            }
        }
    }
    stories
}
