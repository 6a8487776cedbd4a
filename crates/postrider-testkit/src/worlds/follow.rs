//! Follows a real server with the model: every state that the model can be in after what was seen so far. If none is left, the
//! server has done what the model cannot. Called by `scheduler`, after each step that a real session took.

use std::collections::HashSet;

use super::mutant::Rules;
use super::place::Place;
use super::real::as_read;
use super::state::{Call, SESSIONS, SLOTS, State, Step};

/// More states than any world of a few calls can be in at once.
const MOST_STATES: usize = 20_000;

/// What is seen of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Seen {
    /// It has no call under way.
    Rests,
    /// Its call waits.
    Waits,
    /// Its call is stopped at its place.
    Stopped,
    /// Its call has answered.
    Answered(u8),
}

pub(super) struct Follower {
    rules: Rules,
    states: Vec<State>,
    stops: [Option<Place>; SESSIONS],
}

impl Follower {
    pub(super) fn new(start: State, rules: Rules) -> Self {
        Self { rules, states: vec![start], stops: [None; SESSIONS] }
    }

    pub(super) fn start(&mut self, session: usize, call: Call, stop: Option<Place>) {
        self.stops[session] = stop;
        self.states.iter_mut().for_each(|state| state.start(session, call));
    }

    pub(super) fn goes_on(&mut self, session: usize) {
        self.stops[session] = None;
    }

    pub(super) fn end(&mut self, session: usize, commit: bool) {
        self.states.iter_mut().for_each(|state| state.end(session, commit));
    }

    pub(super) fn tick(&mut self) {
        self.states.iter_mut().for_each(|state| state.clock += 1);
    }

    fn is_stopped(&self, state: &State, session: usize) -> bool {
        self.stops[session].is_some_and(|place| place.reached(&state.sessions[session]))
    }

    /// Lets every session of the model go as far as it can, in every order, and keeps what agrees with what is seen.
    pub(super) fn settle(&mut self, seen: [Seen; SESSIONS]) -> Result<(), String> {
        let mut known: HashSet<State> = self.states.iter().cloned().collect();
        let mut open: Vec<State> = std::mem::take(&mut self.states);
        let mut rests: Vec<State> = Vec::new();
        while let Some(state) = open.pop() {
            let mut moved = false;
            for session in 0..SESSIONS {
                if matches!(state.sessions[session].step, Step::Idle | Step::Answered)
                    || self.is_stopped(&state, session)
                {
                    continue;
                }
                let mut next = state.clone();
                if next.step(session, self.rules).is_ok() {
                    moved = true;
                    if known.len() < MOST_STATES && known.insert(next.clone()) {
                        open.push(next);
                    }
                }
            }
            if !moved {
                rests.push(state);
            }
        }
        let agrees = |state: &State| {
            (0..SESSIONS).all(|session| {
                let one = &state.sessions[session];
                match seen[session] {
                    Seen::Rests => one.step == Step::Idle,
                    Seen::Answered(answer) => one.step == Step::Answered && one.answer == answer,
                    Seen::Stopped => self.is_stopped(state, session),
                    Seen::Waits => !matches!(one.step, Step::Idle | Step::Answered) && !self.is_stopped(state, session),
                }
            })
        };
        let (kept, lost): (Vec<State>, Vec<State>) = rests.into_iter().partition(|state| agrees(state));
        if kept.is_empty() {
            let could: HashSet<String> = lost.iter().map(sessions_of).collect();
            return Err(format!("seen {seen:?}; the model comes to {could:?}"));
        }
        self.states = kept;
        Ok(())
    }

    /// Keeps the states in which this is what is committed.
    pub(super) fn compare(&mut self, read: &State) -> Result<(), String> {
        let (kept, lost): (Vec<State>, Vec<State>) =
            std::mem::take(&mut self.states).into_iter().partition(|state| as_read(state) == *read);
        self.states = kept;
        match (self.states.first(), lost.first()) {
            (None, Some(other)) => {
                Err(format!("committed is {}; the model has {}", words(read), words(&as_read(other))))
            }
            _ => Ok(()),
        }
    }

    /// Slots that somebody has given up: no row tells.
    pub(super) fn given_up(&self) -> [bool; SLOTS] {
        std::array::from_fn(|slot| {
            self.states.iter().any(|state| state.letters[slot].committed.is_some_and(|letter| letter.given_up))
        })
    }
}

fn sessions_of(state: &State) -> String {
    format!("{:?}", state.sessions.each_ref().map(|one| (one.step, one.answer)))
}

/// What is committed, in one line.
pub(super) fn words(state: &State) -> String {
    let mut words = vec![format!("clock {}", state.clock)];
    for slot in 0..SLOTS {
        let attempts: Vec<String> = state.attempts[slot]
            .iter()
            .filter_map(|attempt| attempt.committed)
            .map(|ending| format!("{ending:?}"))
            .collect();
        words.push(format!(
            "[{slot}: {} {:?} {:?} {}]",
            if state.messages[slot].committed.is_some() { "there" } else { "not there" },
            state.deliveries[slot].committed,
            state.letters[slot].committed,
            attempts.join(" ")
        ));
    }
    words.join(" ")
}
