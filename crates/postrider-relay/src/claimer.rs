//! Claims for one sink, ahead of what is on its way, and hands what it gets to the dispatcher. It waits when nothing is
//! due, when memory is full, and when the breaker says so. A message that was in the hands of workers that died twice in
//! a row goes alone: nothing else is leased in this process while it is tried, so it can take nobody with it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use postrider::{Claim, Claimed};
use tokio::sync::{OwnedRwLockReadGuard, OwnedSemaphorePermit, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{Span, error, warn};

use crate::breaker::Allowed;
use crate::completer::Ended;
use crate::dispatcher;
use crate::leases::{Held, Hold};
use crate::look::{Gaze, Look};
use crate::outlet::Outlet;
use crate::relay::{Mode, Shared};
use crate::room::Places;
use crate::trace;
use crate::wake::Sleep;

/// Between two claims while the store is away.
const STORE_AWAY_FIRST: Duration = Duration::from_millis(100);
const STORE_AWAY_MOST: Duration = Duration::from_secs(2);
/// The shortest wait of a claimer that found nothing. It doubles up to the poll interval: a producer that looked for
/// sleepers just before we slept, and commits only now, is found soon.
const QUIET_FIRST: Duration = Duration::from_millis(20);

pub(crate) struct Claimer {
    shared: Arc<Shared>,
    outlet: Arc<Outlet>,
    mode: Mode,
    news: watch::Receiver<u64>,
    units: JoinSet<()>,
    look: Look,
    /// When the last claim was asked for: what was said or came due after that, it did not see.
    looked_at: Instant,
    /// Claims in a row that found nothing.
    quiet: u32,
    /// The last claim brought a message that may be what kills its workers: claim one by one.
    wary: bool,
    away: Duration,
}

/// What to do after a turn.
enum Next {
    Claim,
    /// Claim at that time, or when nudged.
    Gather(Instant),
    /// Nothing was found.
    Idle(Gaze),
    /// The store or the breaker says: not before then, unless what is held has ended.
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
        let now = shared.clock.now();
        Self {
            news: shared.wake.subscribe(),
            units: JoinSet::new(),
            look: Look::new(now),
            looked_at: now,
            quiet: 0,
            wary: false,
            away: STORE_AWAY_FIRST,
            shared,
            outlet,
            mode,
        }
    }

    /// Claims until the relay stops, or until nothing is due if it only drains; then waits for what it started.
    pub(crate) async fn run(mut self) {
        while !self.shared.stopping.is_cancelled() {
            self.news.borrow_and_update();
            let next = self.turn().await;
            self.reap();
            match next {
                Next::Claim => {}
                Next::Gather(until) => self.wait(until, For::Nudge).await,
                Next::Wait(until) => self.wait(until, For::Empty).await,
                Next::Idle(gaze) => self.idle(gaze).await,
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
        if self.outlet.breaker().is_open() {
            return Next::Claim;
        }
        let Some(guard) = self.unless_stopped(Arc::clone(&self.shared.quarantine).read_owned()).await else {
            return Next::Done;
        };
        // A drain's empty answer is the last only if nothing is on its way that could free a lane.
        let may_be_last = self.mode == Mode::Drain && self.outlet.held() == 0;
        let asked_for = places.count();
        let span = trace::claim(&self.outlet);
        let (gaze, claimed) = match self.claim(asked_for).await {
            Ok(answer) => answer,
            Err(next) => return next,
        };
        if claimed.is_empty() {
            self.outlet.breaker().probe_unused();
            return if may_be_last && gaze.sees_everything() { Next::Done } else { Next::Idle(gaze) };
        }
        self.quiet = 0;
        let full = claimed.len() >= asked_for as usize;
        trace::claimed(&span, claimed.len());
        let (batch, hold, ended) = self.hold(claimed, &Arc::new(guard), ahead, places, span);
        let (batch, suspect) = self.set_suspects_aside(batch).await;
        self.start(batch, &hold);
        if let Some(suspect) = suspect {
            return self.deliver_alone(suspect, hold, ended).await;
        }
        match self.mode {
            _ if full => Next::Claim,
            Mode::Serve => Next::Gather(self.looked_at + self.shared.options.wake_gather),
            Mode::Drain => Next::Idle(gaze),
        }
    }

    /// Waits until something may be due again.
    async fn idle(&mut self, gaze: Gaze) {
        let now = self.shared.clock.now();
        let poll = now + self.shared.options.poll;
        if self.mode == Mode::Drain {
            self.look.forget(now);
            if self.outlet.held() > 0 {
                self.wait(poll, For::Empty).await;
            }
            return;
        }
        if gaze.due_from.is_some() {
            // A look from the watermark proves nothing.
            return self.look.forget(now);
        }
        let Sleep::Until(say_again) = self.shared.wake.announce(&self.shared, self.looked_at).await else { return };
        let quiet = QUIET_FIRST.saturating_mul(1 << self.quiet.min(20));
        self.quiet = self.quiet.saturating_add(1);
        let every_lane = (!gaze.every_lane).then(|| self.look.every_lane_at());
        let retry = self.outlet.next_retry(self.looked_at);
        let until = [say_again, every_lane, retry, Some(now + quiet)].into_iter().flatten().fold(poll, Instant::min);
        self.wait(until, For::News).await;
    }

    /// How many the breaker lets through, or what to do instead.
    fn allowed(&self) -> Result<u32, Next> {
        let now = self.shared.clock.now();
        let allowed = self.outlet.breaker().allowed(now);
        let held = u32::try_from(self.outlet.held()).unwrap_or(u32::MAX);
        let most = match allowed {
            Allowed::Everything => self.outlet.claim_size,
            // Counting what is on its way: the next come when these have ended.
            Allowed::Ramp(most) if most > held => (most - held).min(self.outlet.claim_size),
            Allowed::Probe => 1,
            // A drain does not wait for a sink to come back.
            Allowed::NothingUntil(_) if self.mode == Mode::Drain => return Err(Next::Done),
            Allowed::NothingUntil(until) => return Err(Next::Wait(until)),
            Allowed::NothingYet if held == 0 => {
                // The probe ended without an answer: its lease was lost.
                self.outlet.breaker().probe_unused();
                return Err(Next::Claim);
            }
            Allowed::Ramp(_) | Allowed::NothingYet => return Err(Next::Wait(now + self.shared.options.poll)),
        };
        Ok(if self.wary { 1 } else { most })
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

    async fn claim(&mut self, batch_size: u32) -> Result<(Gaze, Vec<Claimed>), Next> {
        let asked_at = self.shared.clock.now();
        let gaze = self.look.next(asked_at);
        let claim = Claim {
            worker_id: self.shared.options.worker_id.clone(),
            sink: self.outlet.name.clone(),
            batch_size,
            lease: self.shared.options.lease,
            max_attempts: self.outlet.options.retry.max_attempts,
            tenant_id: self.outlet.options.tenant_id,
            lane_run: self.outlet.options.lane_run,
            due_from: gaze.due_from,
            thorough: gaze.every_lane,
        };
        // Not given up when the relay stops: what it leases must be handed back.
        let claimed = match self.shared.ask("claim", self.shared.store.claim(&claim)).await {
            Ok(claimed) => claimed,
            Err(trouble) => {
                self.outlet.breaker().probe_unused();
                self.look.put_off(gaze, self.shared.clock.now());
                if self.mode == Mode::Drain && self.away >= STORE_AWAY_MOST {
                    self.shared.end_drain(&trouble);
                    return Err(Next::Done);
                }
                let pause = self.away;
                self.away = (self.away * 2).min(STORE_AWAY_MOST);
                return Err(Next::Wait(self.shared.clock.now() + pause));
            }
        };
        self.away = STORE_AWAY_FIRST;
        self.looked_at = asked_at;
        let full = claimed.len() >= batch_size as usize;
        self.look.learn(gaze, &claimed, full, asked_at, self.shared.clock.now());
        Ok((gaze, claimed))
    }

    fn hold(
        &self,
        claimed: Vec<Claimed>,
        guard: &Arc<OwnedRwLockReadGuard<()>>,
        mut ahead: OwnedSemaphorePermit,
        mut places: Places,
        span: Span,
    ) -> (Vec<Held>, Arc<Hold>, CancellationToken) {
        let count = claimed.len();
        self.shared.stats.claimed(count);
        self.outlet.telemetry.claimed(&self.outlet.name, count);
        let token = claimed[0].lease_token;
        let ids = claimed.iter().map(|message| message.message_id).collect();
        let (hold, ended) = Hold::new(token, ids, self.looked_at + self.shared.options.lease, span);
        self.shared.leases.add(&hold);
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
                    beside_others: Some(Arc::clone(guard)),
                    span: Span::none(),
                }
            })
            .collect();
        (batch, hold, ended)
    }

    /// Keeps one message that may be what kills its workers; hands back the others of that kind, and what follows any of
    /// them in its lane.
    async fn set_suspects_aside(&mut self, batch: Vec<Held>) -> (Vec<Held>, Option<Held>) {
        let after = self.outlet.options.suspect_after();
        self.wary = false;
        if batch.iter().all(|held| held.message.lost_leases < after) {
            return (batch, None);
        }
        let mut kept = Vec::with_capacity(batch.len());
        let mut kept_lane = None;
        let (mut suspect, mut lane_of_suspect) = (None, None);
        for held in batch {
            let lane = held.message.lane.clone();
            let suspicious = held.message.lost_leases >= after;
            let behind = lane.is_some() && lane == lane_of_suspect;
            if !suspicious && !behind {
                kept_lane = lane;
                kept.push(held);
                continue;
            }
            let first_of_lane = lane.is_none() || (!behind && lane != kept_lane);
            lane_of_suspect = lane;
            if suspicious && suspect.is_none() && first_of_lane {
                suspect = Some(held);
            } else {
                self.wary |= suspicious;
                self.shared.end(Ended::Unsent(held)).await;
            }
        }
        self.wary |= suspect.is_some();
        (kept, suspect)
    }

    /// Delivers one message while this process holds nothing else. Its lease is renewed while it waits for that.
    async fn deliver_alone(&mut self, mut suspect: Held, hold: Arc<Hold>, ended: CancellationToken) -> Next {
        warn!(
            message_id = %suspect.message.message_id,
            sink = suspect.message.sink,
            "this message was with workers that died: it is delivered alone"
        );
        // One in the whole process: a second, leased and waiting, would die with the first.
        let Ok(_turn) = Arc::clone(&self.shared.alone).try_lock_owned() else {
            self.shared.end(Ended::Unsent(suspect)).await;
            return Next::Claim;
        };
        // It does not wait for itself, and others make way.
        suspect.beside_others = None;
        let shared = Arc::clone(&self.shared);
        let _making_way = MakeWay::ask(&shared.make_way);
        let Some(_alone) = self.unless_stopped(Arc::clone(&self.shared.quarantine).write_owned()).await else {
            self.shared.end(Ended::Unsent(suspect)).await;
            return Next::Done;
        };
        self.start(vec![suspect], &hold);
        drop(hold);
        ended.cancelled().await;
        Next::Claim
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

/// Asks that nothing more is sent until one message has gone alone.
struct MakeWay<'a>(&'a AtomicBool);

impl<'a> MakeWay<'a> {
    fn ask(flag: &'a AtomicBool) -> Self {
        flag.store(true, Ordering::Release);
        Self(flag)
    }
}

impl Drop for MakeWay<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

fn note(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended {
        error!(%error, "a unit of the dispatcher failed; its messages return when their leases end");
    }
}
