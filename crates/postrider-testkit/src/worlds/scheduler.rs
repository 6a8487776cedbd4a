//! Drives real sessions through every interleaving of their stories, one after the other: each step of a story is a call, the
//! way on from a place inside a function, a commit or a rollback, and the clock's ticks come at every moment. After each step
//! it waits until every session has answered or waits for a lock, and compares what is seen with the model and what is
//! committed with the promises. Called by tests and by the program `worlds`.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use super::follow::{Follower, Seen, words};
use super::mutant::Rules;
use super::place::Place;
use super::real::{Change, Lease, Real, rows, run};
use super::session::{Doing, Session};
use super::starts::{Before, STARTS, prepare};
use super::state::{Call, Letter, SESSIONS, SLOTS};

/// For a step to come to an answer or a wait. A wait for a lock shows at once; a machine under load is slow.
const STEP_DEADLINE: Duration = Duration::from_secs(20);
/// For a circle of waits to be resolved by the server, which looks for one after 100 ms.
const CIRCLE_DEADLINE: Duration = Duration::from_secs(3);
/// How long an answer is waited for before the server is asked whether the session waits.
const LOOK_AFTER: Duration = Duration::from_millis(2);

/// One step of a session's story.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Act {
    /// A call, stopped at a place if the story says so and the call comes by.
    Start(Call, Option<Place>),
    /// On from there.
    GoOn,
    /// Commit or, with `false`, roll back.
    End(bool),
}

/// Who does what, from where.
#[derive(Clone, Debug)]
pub struct Story {
    /// A name of [`STARTS`].
    pub start: &'static str,
    /// What a dead head does to its lane.
    pub parks: bool,
    /// What each session does, in this order.
    pub acts: [Vec<Act>; SESSIONS],
    /// Ticks of the clock, anywhere in between.
    pub ticks: u8,
}

/// What was found in all interleavings of a story.
#[derive(Clone, Debug, Default)]
pub struct Told {
    /// Interleavings that were run.
    pub runs: u32,
    /// Steps in them.
    pub steps: u32,
    /// The first that went wrong: how, and what led there.
    pub broken: Option<(String, Vec<String>)>,
}

/// One way through a story: at each step, which of how many possible ones was taken.
type Way = Vec<(usize, usize)>;

/// The server with its sessions.
pub struct Scheduler {
    real: Real,
    sessions: [Session; SESSIONS],
    ids: [Option<String>; SLOTS],
    saved: HashMap<(usize, bool), Saved>,
    stopper_pid: String,
}

type Saved = ([Option<String>; SLOTS], [BTreeMap<usize, Lease>; SESSIONS]);

impl Scheduler {
    /// Starts a server.
    pub async fn start() -> Self {
        let real = Real::start().await;
        let sessions = Self::sessions(&real).await;
        for session in 1..=SESSIONS {
            run(&real.stopper, &format!("select pg_advisory_lock({session})")).await;
        }
        let stopper_pid = rows(&real.stopper, "select pg_backend_pid()").await[0][0].clone();
        Self { real, sessions, ids: Default::default(), saved: HashMap::new(), stopper_pid }
    }

    async fn sessions(real: &Real) -> [Session; SESSIONS] {
        [
            Session::new(0, real.session(0).await).await,
            Session::new(1, real.session(1).await).await,
            Session::new(2, real.session(2).await).await,
        ]
    }

    /// Changes the functions for what comes next. What was prepared is prepared by sound ones.
    pub async fn change(&mut self, changes: &[Change]) {
        self.real.change(changes).await;
    }

    /// Runs a story in every way, at most `most`; stops at the first that goes wrong.
    ///
    /// # Panics
    ///
    /// If the preparation goes wrong.
    pub async fn tell(&mut self, story: &Story, most: u32) -> Told {
        let rules = Rules { parks: story.parks, mutant: None };
        let start =
            STARTS.iter().position(|(name, _)| *name == story.start).unwrap_or_else(|| panic!("{}", story.start));
        if !self.saved.contains_key(&(start, story.parks)) {
            self.prepare(start, rules).await;
        }
        let mut told = Told::default();
        let mut way = Way::new();
        while told.runs < most {
            told.runs += 1;
            let mut done: Vec<String> = Vec::new();
            let result = self.run(story, start, rules, &mut way, &mut done).await;
            told.steps += u32::try_from(done.len()).unwrap_or(u32::MAX);
            if let Err(wrong) = result {
                told.broken = Some((wrong, done));
                self.reconnect().await;
                break;
            }
            // The last step at which another one was possible.
            while way.last().is_some_and(|(taken, of)| taken + 1 == *of) {
                way.pop();
            }
            match way.last_mut() {
                Some((taken, _)) => *taken += 1,
                None => break,
            }
        }
        told
    }

    async fn prepare(&mut self, start: usize, rules: Rules) {
        self.real.empty(rules).await;
        self.ids = self.real.ids().await;
        for session in &mut self.sessions {
            session.told.clear();
        }
        for before in STARTS[start].1 {
            match *before {
                Before::Tick => self.real.tick().await,
                Before::Call(session, call) => {
                    self.sessions[session].start(call, None, &self.ids);
                    let wrong = self.settle().await.err();
                    assert_eq!(wrong, None, "{call:?} in the preparation of {:?}", STARTS[start].0);
                    let ended = self.sessions[session].end(true).await;
                    assert!(ended.is_ok(), "{ended:?}");
                    self.ids = self.real.ids().await;
                }
            }
        }
        let mut follower = Follower::new(prepare(STARTS[start].1, rules), rules);
        let read = self.real.committed(&self.ids).await;
        assert_eq!(follower.compare(&read), Ok(()), "the preparation of {:?}", STARTS[start].0);
        self.real.save(&saved_name(start, rules)).await;
        let told = self.sessions.each_ref().map(|session| session.told.clone());
        self.saved.insert((start, rules.parks), (self.ids.clone(), told));
    }

    /// One way through a story; `way` says how far it is given, and is made longer to its end.
    async fn run(
        &mut self,
        story: &Story,
        start: usize,
        rules: Rules,
        way: &mut Way,
        done: &mut Vec<String>,
    ) -> Result<(), String> {
        self.real.restore(&saved_name(start, rules), rules).await;
        let (ids, told) = self.saved[&(start, rules.parks)].clone();
        self.ids = ids;
        for (session, told) in self.sessions.iter_mut().zip(told) {
            session.told = told;
        }
        let mut follower = Follower::new(prepare(STARTS[start].1, rules), rules);
        let mut left: [&[Act]; SESSIONS] = std::array::from_fn(|session| &story.acts[session][..]);
        let mut ticks = story.ticks;
        loop {
            for (session, left) in self.sessions.iter().zip(&mut left) {
                // It did not come by the place.
                if left.first() == Some(&Act::GoOn) && matches!(session.doing, Doing::Answered(_)) {
                    *left = &left[1..];
                }
            }
            let mut able: Vec<Option<usize>> = (0..SESSIONS)
                .filter(|session| {
                    let (one, act) = (&self.sessions[*session], left[*session].first());
                    act.is_some() && (one.stopped || !matches!(one.doing, Doing::Calls(_)))
                })
                .map(Some)
                .collect();
            if ticks > 0 {
                able.push(None);
            }
            if able.is_empty() {
                if self.sessions.iter().all(|session| matches!(session.doing, Doing::Rests)) {
                    return Ok(());
                }
                self.wait_for_a_circle().await?;
                follower.settle(self.seen())?;
                continue;
            }
            if way.len() == done.len() {
                way.push((0, able.len()));
            }
            let (taken, of) = way[done.len()];
            assert_eq!(of, able.len(), "a story that goes another way when it is told again: {done:?}");
            let ends = match able[taken] {
                None => {
                    ticks -= 1;
                    done.push("the clock moves on".to_owned());
                    self.real.tick().await;
                    follower.tick();
                    true
                }
                Some(session) => {
                    let act = left[session][0];
                    left[session] = &left[session][1..];
                    done.push(format!("{session}: {act:?}"));
                    self.act(session, act, &mut follower).await?;
                    matches!(act, Act::End(_))
                }
            };
            self.settle().await?;
            follower.settle(self.seen())?;
            // Nothing else commits. While a prune holds the messages, nobody can read them.
            if ends && !self.sessions.iter().any(|session| session.prunes) {
                self.check(&mut follower).await?;
            }
        }
    }

    async fn act(&mut self, session: usize, act: Act, follower: &mut Follower) -> Result<(), String> {
        match act {
            Act::Start(call, stop) => {
                follower.start(session, call, stop);
                self.sessions[session].start(call, stop, &self.ids);
            }
            Act::GoOn => {
                follower.goes_on(session);
                self.sessions[session].stopped = false;
                let lock = session + 1;
                let sql = format!("select pg_advisory_unlock({lock}); select pg_advisory_lock({lock})");
                run(&self.real.stopper, &sql).await;
            }
            Act::End(commit) => {
                follower.end(session, commit);
                self.sessions[session].end(commit).await.map_err(|error| wrong(&error))?;
            }
        }
        Ok(())
    }

    fn seen(&self) -> [Seen; SESSIONS] {
        self.sessions.each_ref().map(|session| match session.doing {
            Doing::Rests => Seen::Rests,
            Doing::Answered(answer) => Seen::Answered(answer),
            Doing::Calls(_) if session.stopped => Seen::Stopped,
            Doing::Calls(_) => Seen::Waits,
        })
    }

    /// Until every call has answered, waits for a lock, or is stopped at its place.
    async fn settle(&mut self) -> Result<(), String> {
        let deadline = Instant::now() + STEP_DEADLINE;
        loop {
            self.take_answers(LOOK_AFTER).await?;
            let calling: Vec<String> = self
                .sessions
                .iter()
                .filter(|session| matches!(session.doing, Doing::Calls(_)) && !session.stopped)
                .map(|session| session.pid.clone())
                .collect();
            if calling.is_empty() {
                return Ok(());
            }
            let sql = format!(
                "select p, cardinality(b) > 0, {} = any (b) from unnest(array[{}]) p, pg_blocking_pids(p) b",
                self.stopper_pid,
                calling.join(",")
            );
            let looked = rows(&self.real.watcher, &sql).await;
            for row in looked.iter().filter(|row| row[1] == "t" && row[2] == "t") {
                if let Some(session) = self.sessions.iter_mut().find(|session| session.pid == row[0]) {
                    session.stopped = true;
                }
            }
            let waits = |pid: &str| self.sessions.iter().any(|session| session.pid == pid && session.may_wait());
            if looked.iter().all(|row| row[1] == "t" && waits(&row[0])) {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err("a call neither answers nor waits".to_owned());
            }
        }
    }

    /// Takes in the answers that come within this time from now.
    async fn take_answers(&mut self, within: Duration) -> Result<(), String> {
        for session in &mut self.sessions {
            let Doing::Calls(call) = &mut session.doing else { continue };
            if session.stopped && !call.is_finished() {
                continue;
            }
            match tokio::time::timeout(within, call).await {
                Err(_) => {}
                Ok(Ok(Ok(rows))) => session.answered(&rows, &self.ids),
                Ok(Ok(Err(error))) => return Err(wrong(&error)),
                Ok(Err(ended)) => return Err(ended.to_string()),
            }
        }
        Ok(())
    }

    /// Everybody waits: the server ends one of them, or nobody ever goes on.
    async fn wait_for_a_circle(&mut self) -> Result<(), String> {
        let deadline = Instant::now() + CIRCLE_DEADLINE;
        while Instant::now() < deadline {
            self.take_answers(Duration::from_millis(50)).await?;
            if self.sessions.iter().any(|session| matches!(session.doing, Doing::Answered(_))) {
                return Ok(());
            }
        }
        Err("everybody waits and nobody goes on".to_owned())
    }

    async fn check(&mut self, follower: &mut Follower) -> Result<(), String> {
        self.ids = merged(&self.ids, self.real.ids().await);
        let mut read = self.real.committed(&self.ids).await;
        let plain = read.clone();
        for (slot, given_up) in follower.given_up().into_iter().enumerate() {
            if given_up && read.letters[slot].committed.is_none() {
                read.letters[slot].committed = Some(Letter { parked: false, no: 0, given_up: true });
            }
        }
        if let Some(fault) = read.wrong() {
            return Err(format!("{fault:?}: {}", words(&plain)));
        }
        follower.compare(&plain)
    }

    /// After something went wrong: nobody knows where the sessions stand.
    async fn reconnect(&mut self) {
        for session in &self.sessions {
            rows(&self.real.watcher, &format!("select pg_terminate_backend({}, 5000)", session.pid)).await;
        }
        self.sessions = Self::sessions(&self.real).await;
    }
}

fn saved_name(start: usize, rules: Rules) -> String {
    format!("{start}_{}", if rules.parks { "parks" } else { "skips" })
}

fn wrong(error: &tokio_postgres::Error) -> String {
    error.as_db_error().map_or_else(|| error.to_string(), |db| format!("{} {}", db.code().code(), db.message()))
}

/// Ids of before stay known when their messages are pruned.
fn merged(before: &[Option<String>; SLOTS], now: [Option<String>; SLOTS]) -> [Option<String>; SLOTS] {
    let mut ids = before.clone();
    for (id, now) in ids.iter_mut().zip(now) {
        if now.is_some() {
            *id = now;
        }
    }
    ids
}
