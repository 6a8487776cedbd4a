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
    Wait(Instant),
    Done,
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
                Next::Gather(until) | Next::Wait(until) => self.wait(until, false).await,
                Next::Idle => {
                    if self.mode == Mode::Drain {
                        if self.drained().await {
                            break;
                        }
                    } else if !self.shared.wake.announce(&self.shared).await {
                        let now = self.shared.clock.now();
                        let poll = now + self.shared.options.poll;
                        let until = self.outlet.next_retry(now).map_or(poll, |retry| retry.min(poll));
                        self.wait(until, true).await;
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
        let claimed = match self.claim(asked_for, asked_at).await {
            Ok(claimed) => claimed,
            Err(next) => return next,
        };
        let count = claimed.len();
        if count == 0 {
            self.outlet.breaker().probe_unused();
            return Next::Idle;
        }
        self.remember(&claimed, asked_for);
        let full = count >= asked_for as usize;
        let (held, hold, _) = self.hold(claimed, asked_at, Some(beside_others), ahead, places);
        let held = self.set_suspects_aside(held).await;
        self.start(held, &hold);
        if full { Next::Claim } else { Next::Gather(asked_at + self.shared.options.wake_gather) }
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
        let claimed = match self.claim(1, asked_at).await {
            Ok(claimed) => claimed,
            Err(next) => return next,
        };
        self.wary = claimed.iter().any(|message| message.lost_leases >= self.outlet.options.suspect_after());
        if claimed.is_empty() {
            self.outlet.breaker().probe_unused();
            return Next::Idle;
        }
        let (held, hold, ended) = self.hold(claimed, asked_at, None, ahead, places);
        self.start(held, &hold);
        drop(hold);
        ended.cancelled().await;
        Next::Claim
    }

    /// How many the breaker lets through, or what to do instead.
    fn allowed(&self) -> Result<u32, Next> {
        let now = self.shared.clock.now();
        let most = match self.outlet.breaker().allowed(now) {
            Allowed::Everything => self.outlet.options.batch_size,
            Allowed::Ramp(most) => most.min(self.outlet.options.batch_size),
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

    async fn claim(&mut self, batch_size: u32, asked_at: Instant) -> Result<Vec<Claimed>, Next> {
        let sweep = self.watermark.is_none() || asked_at >= self.sweep_at;
        let due_from = if sweep { None } else { self.watermark };
        let claim = Claim { due_from, ..self.claim_of(batch_size) };
        // Not given up when the relay stops: what it leases must be handed back.
        match self.shared.ask("claim", self.shared.store.claim(&claim)).await {
            Ok(claimed) => {
                self.away = STORE_AWAY_FIRST;
                if sweep {
                    let now = self.shared.clock.now();
                    self.sweep_at = now + (now - asked_at) * SWEEP_SHARE;
                }
                Ok(claimed)
            }
            Err(_) => {
                self.outlet.breaker().probe_unused();
                let pause = self.away;
                self.away = (self.away * 2).min(STORE_AWAY_MOST);
                Err(Next::Wait(self.shared.clock.now() + pause))
            }
        }
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
        let held = claimed
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
        (held, hold, ended)
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

    fn start(&mut self, held: Vec<Held>, hold: &Arc<Hold>) {
        for unit in dispatcher::units(held, self.outlet.batching) {
            let (shared, outlet, hold) = (Arc::clone(&self.shared), Arc::clone(&self.outlet), Arc::clone(hold));
            self.units.spawn(dispatcher::deliver(shared, outlet, hold, unit));
        }
    }

    /// Whether nothing is due, looked at as thoroughly as it takes. Waits for what is on its way first.
    async fn drained(&mut self) -> bool {
        if self.outlet.held() > 0 {
            let soon = self.shared.clock.now() + self.shared.options.poll;
            self.wait(soon, false).await;
            return false;
        }
        let claim = Claim { thorough: true, ..self.claim_of(1) };
        let Some((ahead, places)) = self.room(1).await else { return true };
        let asked_at = self.shared.clock.now();
        let beside_others = Arc::clone(&self.shared.quarantine).read_owned().await;
        match self.shared.ask("claim", self.shared.store.claim(&claim)).await {
            Ok(claimed) if claimed.is_empty() => true,
            Ok(claimed) => {
                let (held, hold, _) = self.hold(claimed, asked_at, Some(beside_others), ahead, places);
                let held = self.set_suspects_aside(held).await;
                self.start(held, &hold);
                false
            }
            Err(_) => {
                self.wait(asked_at + STORE_AWAY_MOST, false).await;
                false
            }
        }
    }

    fn claim_of(&self, batch_size: u32) -> Claim {
        Claim {
            worker_id: self.shared.options.worker_id.clone(),
            sink: self.outlet.name.clone(),
            batch_size,
            lease: self.shared.options.lease,
            max_attempts: self.outlet.options.retry.max_attempts,
            tenant_id: self.outlet.options.tenant_id,
            lane_run: self.outlet.options.lane_run,
            due_from: None,
            thorough: false,
        }
    }

    async fn wait(&mut self, until: Instant, for_news: bool) {
        tokio::select! {
            () = self.shared.clock.sleep_until(until) => {}
            () = self.outlet.nudge.notified() => {}
            _ = self.news.changed(), if for_news => {}
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
