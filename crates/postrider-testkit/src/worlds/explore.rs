//! Visits every state that a world can come to, breadth first, each once, and stops at the first broken promise, with the
//! shortest way to it. States are told apart by 128 bits of their hash. Called by tests and by the program `worlds`.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use super::checks::in_a_circle;
use super::mutant::Rules;
use super::state::{Call, Fault, SESSIONS, State, Step};

/// One step of somebody.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// A session makes a call.
    Start(usize, Call),
    /// A session takes the next step of its call.
    Goes(usize, Step),
    /// A session commits.
    Commit(usize),
    /// A session rolls back.
    Rollback(usize),
    /// The clock moves on.
    Tick,
}

/// How far a world goes.
#[derive(Clone, Debug)]
pub struct World {
    /// What calls go by.
    pub rules: Rules,
    /// Where it begins.
    pub starts: Vec<State>,
    /// What each session may call.
    pub calls: [Vec<Call>; SESSIONS],
    /// Calls that each session makes at most.
    pub calls_each: u8,
    /// Calls that all of them make at most.
    pub calls_in_all: u8,
    /// Calls in one transaction at most.
    pub calls_in_transaction: u8,
    /// Whether transactions are rolled back, too.
    pub rollbacks: bool,
    /// Ticks of the clock at most.
    pub ticks: u8,
}

/// What was found.
#[derive(Clone, Debug)]
pub struct Explored {
    /// Distinct states.
    pub states: usize,
    /// Steps between them.
    pub steps: usize,
    /// Steps from a start to the farthest.
    pub depth: usize,
    /// Whether there was nothing more to visit.
    pub complete: bool,
    /// What is broken, and the way there.
    pub broken: Option<(Fault, Vec<Event>)>,
}

/// Visits at most `most` states. With `trace`, it remembers the way.
pub fn explore(world: &World, most: usize, trace: bool) -> Explored {
    let mut seen: HashSet<u128> = HashSet::new();
    let mut came: HashMap<u128, (u128, Event)> = HashMap::new();
    let mut queue: VecDeque<(State, u8, usize)> = VecDeque::new();
    let mut found = Explored { states: 0, steps: 0, depth: 0, complete: true, broken: None };
    for start in &world.starts {
        if seen.insert(key(start)) {
            queue.push_back((start.clone(), start.clock, 0));
        }
    }
    while let Some((state, began, depth)) = queue.pop_front() {
        found.depth = found.depth.max(depth);
        let here = key(&state);
        let mut broken = None;
        successors(world, &state, began, |event, next, fault| {
            found.steps += 1;
            if broken.is_some() {
                return;
            }
            if let Some(fault) = fault {
                broken = Some((fault, event));
                return;
            }
            let there = key(&next);
            if seen.len() < most && seen.insert(there) {
                if trace {
                    came.insert(there, (here, event));
                }
                queue.push_back((next, began, depth + 1));
            } else if seen.len() >= most {
                found.complete = false;
            }
        });
        if let Some((fault, event)) = broken {
            let mut way = vec![event];
            let mut at = here;
            while let Some((before, event)) = came.get(&at) {
                way.push(*event);
                at = *before;
            }
            way.reverse();
            found.broken = Some((fault, way));
            break;
        }
    }
    found.states = seen.len();
    found
}

fn key(state: &State) -> u128 {
    let mut low = DefaultHasher::new();
    state.hash(&mut low);
    let mut high = DefaultHasher::new();
    high.write_u8(1);
    state.hash(&mut high);
    u128::from(low.finish()) | u128::from(high.finish()) << 64
}

/// Every step that somebody can take from here, and what it breaks.
fn successors(world: &World, state: &State, began: u8, mut to: impl FnMut(Event, State, Option<Fault>)) {
    let mut waits = [0; SESSIONS];
    for (session, waiting) in waits.iter_mut().enumerate() {
        let one = &state.sessions[session];
        match one.step {
            Step::Idle => calls(world, state, session, &mut to),
            Step::Answered => {
                if one.in_transaction < world.calls_in_transaction {
                    calls(world, state, session, &mut to);
                }
                ends(world, state, session, &mut to);
            }
            step => {
                let mut next = state.clone();
                match next.step(session, world.rules) {
                    Ok(()) if next.beyond => {}
                    Ok(()) => {
                        let fault = next.fault;
                        to(Event::Goes(session, step), next, fault);
                    }
                    Err(whom) => *waiting = whom,
                }
            }
        }
    }
    for (session, waiting) in waits.iter().enumerate() {
        let step = state.sessions[session].step;
        if *waiting != 0 && matches!(step, Step::ClaimDue | Step::ClaimLock) {
            to(Event::Goes(session, step), state.clone(), Some(Fault::ClaimWaits));
        }
    }
    // Whoever makes several calls in one transaction may lock in any order; the server then ends one of them.
    let one_call = |session: usize| state.sessions[session].in_transaction == 1;
    if in_a_circle(std::array::from_fn(|session| if one_call(session) { waits[session] } else { 0 })) {
        to(Event::Tick, state.clone(), Some(Fault::Deadlock));
    }
    if state.clock < began + world.ticks {
        let mut next = state.clone();
        next.clock += 1;
        let fault = next.wrong();
        to(Event::Tick, next, fault);
    }
}

fn calls(world: &World, state: &State, session: usize, to: &mut impl FnMut(Event, State, Option<Fault>)) {
    let made: u8 = state.sessions.iter().map(|one| one.calls).sum();
    if state.sessions[session].calls >= world.calls_each || made >= world.calls_in_all {
        return;
    }
    for &call in &world.calls[session] {
        // Nothing to do it with.
        if matches!(call, Call::Complete(..) | Call::Renew(_) | Call::Release(_)) && state.sessions[session].held() == 0
        {
            continue;
        }
        let mut next = state.clone();
        next.start(session, call);
        to(Event::Start(session, call), next, None);
    }
}

fn ends(world: &World, state: &State, session: usize, to: &mut impl FnMut(Event, State, Option<Fault>)) {
    let mut next = state.clone();
    let claimed = matches!(state.sessions[session].call, Some(Call::Claim(_)));
    next.end(session, true);
    let passed = if claimed { next.passed_over(session) } else { None };
    let stuck = next.is_stuck(world.rules).then_some(Fault::Stuck);
    let fault = next.wrong().or(passed).or(stuck);
    to(Event::Commit(session), next, fault);
    // What answered 0 has changed nothing: both ends are the same.
    if world.rollbacks && state.sessions[session].answer > 0 {
        let mut next = state.clone();
        next.end(session, false);
        let fault = next.wrong();
        to(Event::Rollback(session), next, fault);
    }
}
