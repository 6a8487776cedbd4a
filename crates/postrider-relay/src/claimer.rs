//! Claims for one sink, ahead of what is on its way, and hands what it gets to the dispatcher. It waits when nothing is
//! due, when memory is full, and when the breaker says so. A message that was in the hands of workers that died twice in
//! a row goes alone: nothing else is leased in this process while it is tried, so it can take nobody with it.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use postrider::{Claim, Claimed};
use tokio::sync::{OwnedRwLockReadGuard, OwnedSemaphorePermit, watch};
use tokio::task::JoinSet;
use tracing::{error, warn};

use crate::breaker::Allowed;
use crate::completer::Ended;
use crate::dispatcher;
use crate::leases::{Held, Hold};
use crate::outlet::Outlet;
use crate::relay::{Mode, Shared};
use crate::room::Places;
use crate::telemetry;

/// Between two claims while the store is away.
const STORE_AWAY_FIRST: Duration = Duration::from_millis(100);
const STORE_AWAY_MOST: Duration = Duration::from_secs(2);
/// A look from the beginning may take this part of the time: its cost decides how often it is done.
const SWEEP_SHARE: u32 = 20;

pub(crate) struct Claimer {
    shared: Arc<Shared>,
    outlet: Arc<Outlet>,
    mode: Mode,
    news: watch::Receiver<u64>,
    units: JoinSet<()>,
    /// The next claim takes one message and delivers it alone.
    wary: bool,
    away: Duration,
    /// Where the last full claim without lanes ended, and when to look from the beginning again.
    watermark: Option<SystemTime>,
    sweep_at: Instant,
}

/// What to do after a turn.
enum Next {
    Claim,
    /// Claim at that time, or when nudged.
    Gather(Instant),
    /// Nothing is due.
    Idle,
    /// The store or the breaker says: not before then.
    Wait(Instant),
    /// The relay stops, or everything is drained.
    Done,
}

/// What to wait for, besides a time.
#[derive(Clone, Copy, PartialEq, Eq)]
enum For {
    Nudge,
    /// Or until nothing is held.
    Empty,
    /// Or until the store has news.
    News,
}

impl Claimer {
    pub(crate) fn new(shared: Arc<Shared>, outlet: Arc<Outlet>, mode: Mode) -> Self {
        Self {
            news: shared.wake.subscribe(),
            units: JoinSet::new(),
            wary: false,
            away: STORE_AWAY_FIRST,
            watermark: None,
            sweep_at: shared.clock.now(),
            shared,
            outlet,
            mode,
        }
    }

    /// Claims until the relay stops, or until nothing is due if it only drains; then waits for what it started.
    pub(crate) async fn run(mut self) {
        while !self.shared.stopping.is_cancelled() {
            self.news.borrow_and_update();
            let next = if self.wary { self.turn_alone().await } else { self.turn().await };
            self.reap();
            match next {
                Next::Claim => {}
                Next::Gather(until) => self.wait(until, For::Nudge).await,
                Next::Wait(until) => self.wait(until, For::Empty).await,
                Next::Idle if self.mode == Mode::Drain => {
                    self.wait(self.shared.clock.now() + self.shared.options.poll, For::Empty).await;
                }
                Next::Idle => {
                    if !self.shared.wake.announce(&self.shared).await {
                        let now = self.shared.clock.now();
                        let poll = now + self.shared.options.poll;
                        let until = self.outlet.next_retry(now).map_or(poll, |retry| retry.min(poll));
                        self.wait(until, For::News).await;
                    }
                }
                Next::Done => break,
            }
        }
        while let Some(ended) = self.units.join_next().await {
            note(ended);
        }
    }

    /// One claim, as much as there is room for.
    async fn turn(&mut self) -> Next {
        let most = match self.allowed() {
            Ok(most) => most,
            Err(next) => return next,
        };
        let Some((ahead, places)) = self.room(most).await else { return Next::Done };
        let Some(beside_others) = self.unless_stopped(Arc::clone(&self.shared.quarantine).read_owned()).await else {
            return Next::Done;
        };
        let asked_at = self.shared.clock.now();
        let asked_for = places.count();
        let thorough = self.thorough();
        let claimed = match self.claim(asked_for, asked_at, thorough).await {
            Ok(claimed) => claimed,
            Err(next) => return next,
        };
        let count = claimed.len();
        if count == 0 {
            return self.nothing(thorough);
        }
        self.remember(&claimed, asked_for);
        let full = count >= asked_for as usize;
        let (batch, hold, _) = self.hold(claimed, asked_at, Some(beside_others), ahead, places);
        let batch = self.set_suspects_aside(batch).await;
        self.start(batch, &hold);
        match self.mode {
            _ if full => Next::Claim,
            Mode::Serve => Next::Gather(asked_at + self.shared.options.wake_gather),
            Mode::Drain => Next::Idle,
        }
    }

    /// A drain looks at every lane when the answer may be the last; nothing else pays for that.
    fn thorough(&self) -> bool {
        self.mode == Mode::Drain && self.outlet.held() == 0
    }

    fn nothing(&self, thorough: bool) -> Next {
        self.outlet.breaker().probe_unused();
        if thorough { Next::Done } else { Next::Idle }
    }

    /// One claim of one message, delivered while this process holds nothing else.
    async fn turn_alone(&mut self) -> Next {
        if let Err(next) = self.allowed() {
            return next;
        }
        let Some((ahead, places)) = self.room(1).await else { return Next::Done };
        let Some(_alone) = self.unless_stopped(Arc::clone(&self.shared.quarantine).write_owned()).await else {
            return Next::Done;
        };
        let asked_at = self.shared.clock.now();
        self.watermark = None;
        let thorough = self.thorough();
        let claimed = match self.claim(1, asked_at, thorough).await {
            Ok(claimed) => claimed,
            Err(next) => return next,
        };
        self.wary = claimed.iter().any(|message| message.lost_leases >= self.outlet.options.suspect_after());
        if claimed.is_empty() {
            return self.nothing(thorough);
        }
        let (batch, hold, ended) = self.hold(claimed, asked_at, None, ahead, places);
        self.start(batch, &hold);
        drop(hold);
        ended.cancelled().await;
        Next::Claim
    }

    /// How many the breaker lets through, or what to do instead.
    fn allowed(&self) -> Result<u32, Next> {
        let now = self.shared.clock.now();
        let most = match self.outlet.breaker().allowed(now) {
            Allowed::Everything => self.outlet.options.batch_size,
            // Counting what is on its way: the next come when these have ended.
            Allowed::Ramp(most) => match most.saturating_sub(u32::try_from(self.outlet.held()).unwrap_or(u32::MAX)) {
                0 => return Err(Next::Wait(now + self.shared.options.poll)),
                more => more.min(self.outlet.options.batch_size),
            },
            Allowed::Probe => 1,
            // A drain does not wait for a sink to come back.
            Allowed::NothingUntil(_) if self.mode == Mode::Drain => return Err(Next::Done),
            Allowed::NothingUntil(until) => return Err(Next::Wait(until)),
            Allowed::NothingYet => return Err(Next::Wait(now + self.shared.options.poll)),
        };
        // No more than is sent in a second: the rest would only grow old here.
        Ok(self.outlet.options.rate.map_or(most, |rate| most.min(rate.get())))
    }

    /// Places for a claim; `None` if the relay stops first.
    async fn room(&self, most: u32) -> Option<(OwnedSemaphorePermit, Places)> {
        let ahead = Arc::clone(&self.outlet.ahead).acquire_many_owned(most);
        let mut ahead = self.unless_stopped(ahead).await?.ok()?;
        let places = self.unless_stopped(self.shared.room.places(most)).await?;
        // Fewer places than wanted: what is over can be given back at once.
        let over = ahead.num_permits().saturating_sub(places.count() as usize);
        drop(ahead.split(over));
        Some((ahead, places))
    }

    async fn claim(&mut self, batch_size: u32, asked_at: Instant, thorough: bool) -> Result<Vec<Claimed>, Next> {
        let sweep = self.watermark.is_none() || asked_at >= self.sweep_at;
        let claim = Claim {
            worker_id: self.shared.options.worker_id.clone(),
            sink: self.outlet.name.clone(),
            batch_size,
            lease: self.shared.options.lease,
            max_attempts: self.outlet.options.retry.max_attempts,
            tenant_id: self.outlet.options.tenant_id,
            lane_run: self.outlet.options.lane_run,
            due_from: if sweep { None } else { self.watermark },
            thorough,
        };
        // Not given up when the relay stops: what it leases must be handed back.
        let Ok(claimed) = self.shared.ask("claim", self.shared.store.claim(&claim)).await else {
            self.outlet.breaker().probe_unused();
            let pause = self.away;
            self.away = (self.away * 2).min(STORE_AWAY_MOST);
            return Err(Next::Wait(self.shared.clock.now() + pause));
        };
        self.away = STORE_AWAY_FIRST;
        if sweep {
            let now = self.shared.clock.now();
            self.sweep_at = now + (now - asked_at) * SWEEP_SHARE;
        }
        Ok(claimed)
    }

    /// Where the next claim may begin to look. Only after a full claim of one priority is everything before it taken;
    /// late commits and retries stand before it too, and the sweep finds them.
    fn remember(&mut self, claimed: &[Claimed], asked_for: u32) {
        let mut without_lane = claimed.iter().filter(|message| message.lane.is_none());
        let Some(first) = without_lane.next() else { return };
        let last = without_lane.next_back().unwrap_or(first);
        let full = claimed.len() >= asked_for as usize;
        self.watermark = (full && first.priority == last.priority).then_some(last.due_at);
    }

    fn hold(
        &self,
        claimed: Vec<Claimed>,
        asked_at: Instant,
        beside_others: Option<OwnedRwLockReadGuard<()>>,
        ahead: OwnedSemaphorePermit,
        mut places: Places,
    ) -> (Vec<Held>, Arc<Hold>, tokio_util::sync::CancellationToken) {
        let count = claimed.len();
        self.shared.stats.claimed(count);
        telemetry::claimed(&self.outlet.name, count);
        let token = claimed[0].lease_token;
        let ids = claimed.iter().map(|message| message.message_id).collect();
        let (hold, ended) = Hold::new(token, ids, asked_at + self.shared.options.lease, beside_others);
        self.shared.leases.add(&hold);
        let mut ahead = ahead;
        let batch = claimed
            .into_iter()
            .map(|message| {
                self.outlet.one_more();
                Held {
                    _place: self.shared.room.take(&mut places, message.content.as_bytes().len()),
                    _ahead: ahead.split(1),
                    message: Arc::new(message),
                    hold: Arc::clone(&hold),
                    outlet: Arc::clone(&self.outlet),
                }
            })
            .collect();
        (batch, hold, ended)
    }

    /// Hands back what may be what kills its workers, and what follows it in its lane. The next claim takes it alone.
    async fn set_suspects_aside(&mut self, held: Vec<Held>) -> Vec<Held> {
        let after = self.outlet.options.suspect_after();
        if held.iter().all(|held| held.message.lost_leases < after) {
            return held;
        }
        self.wary = true;
        let mut kept = Vec::with_capacity(held.len());
        let mut lane_of_suspect = None;
        for held in held {
            let suspect = held.message.lost_leases >= after;
            let behind = held.message.lane.is_some() && held.message.lane == lane_of_suspect;
            if suspect || behind {
                lane_of_suspect.clone_from(&held.message.lane);
                if suspect {
                    warn!(message_id = %held.message.message_id, sink = held.message.sink, "this message was with workers that died: it is delivered alone");
                }
                self.shared.end(Ended::Unsent(held)).await;
            } else {
                kept.push(held);
            }
        }
        kept
    }

    fn start(&mut self, batch: Vec<Held>, hold: &Arc<Hold>) {
        for unit in dispatcher::units(batch, self.outlet.batching) {
            let (shared, outlet, hold) = (Arc::clone(&self.shared), Arc::clone(&self.outlet), Arc::clone(hold));
            self.units.spawn(dispatcher::deliver(shared, outlet, hold, unit));
        }
    }

    async fn wait(&mut self, until: Instant, wait_for: For) {
        tokio::select! {
            () = self.shared.clock.sleep_until(until) => {}
            () = self.outlet.nudge.notified() => {}
            () = self.outlet.emptied.notified(), if wait_for == For::Empty => {}
            _ = self.news.changed(), if wait_for == For::News => {}
            () = self.shared.stopping.cancelled() => {}
        }
    }

    async fn unless_stopped<T>(&self, future: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            value = future => Some(value),
            () = self.shared.stopping.cancelled() => None,
        }
    }

    fn reap(&mut self) {
        while let Some(ended) = self.units.try_join_next() {
            note(ended);
        }
    }
}

fn note(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended {
        error!(%error, "a unit of the dispatcher failed; its messages return when their leases end");
    }
}
