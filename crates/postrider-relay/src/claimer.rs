//! Claims for one sink, ahead of what is on its way, and hands what it gets to the dispatcher. It waits when nothing is
//! due, when memory is full, and when the breaker says so. A message that was in the hands of workers that died twice in
//! a row goes alone: nothing else is leased in this process while it is tried, so it can take nobody with it.
//!
//! A claim that fails is made smaller, down to one message; and if one alone cannot be claimed, it is claimed without its
//! content, which is then read by itself. So whatever a row holds, it stops no other. A claim that is not answered is
//! abandoned before the next: what it may have leased is not left to nobody.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use postrider::{Claim, Claimed, Completion, Failure, LeaseToken, Outcome};
use tokio::sync::{OwnedRwLockReadGuard, OwnedSemaphorePermit, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{Span, error, info, warn};
use uuid::Uuid;

use crate::breaker::Allowed;
use crate::completer::Ended;
use crate::dispatcher;
use crate::leases::{Held, Hold};
use crate::look::{Gaze, Look};
use crate::outlet::Outlet;
use crate::relay::{ANSWER_MOST, Mode, Shared, Trouble};
use crate::room::Places;
use crate::sink::SinkFailure;
use crate::trace;
use crate::wake::Sleep;

/// Between two claims while the store is away.
const STORE_AWAY_FIRST: Duration = Duration::from_millis(100);
const STORE_AWAY_MOST: Duration = Duration::from_secs(2);
/// So many claims of a size go well before the next is twice as large: what made them small may stand right behind.
const TRUSTED_AFTER: u32 = 3;
/// So often in a row a message is asked for in vain before that is its own failure.
const BLAMED_AFTER: u32 = 3;
/// How long a drain waits for messages that are due and locked by somebody.
const LOCKED_MOST: Duration = Duration::from_secs(30);
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
    /// Claims that failed were made smaller: this many messages at most, and this part of the bytes.
    shrunk: Option<Shrunk>,
    /// The message that could not be read last, and how often in a row.
    unread: Option<(Uuid, u32)>,
    /// Claims that were not answered, and that may have leased something.
    unanswered: Vec<Unanswered>,
    away: Duration,
    /// Until when a drain waits for messages that others have locked.
    locked_until: Option<Instant>,
}

/// A claim that may have leased something.
#[derive(Debug, Clone, Copy)]
struct Unanswered {
    token: LeaseToken,
    /// Its leases, if there are any, have ended then.
    over_at: Instant,
}

/// How small claims are after some have failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shrunk {
    /// So many messages, and as much of the bytes as of the messages; and how many such claims went well since.
    To(u32, u32),
    /// One, without its content: one with it was refused.
    Blind,
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
            shrunk: None,
            unread: None,
            unanswered: Vec::new(),
            away: STORE_AWAY_FIRST,
            locked_until: None,
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
        // A last try; what is not taken back returns when its lease ends.
        drop(self.abandon().await);
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
        if let Err(trouble) = self.abandon().await {
            return self.store_trouble(&trouble);
        }
        let Some(guard) = self.unless_stopped(Arc::clone(&self.shared.quarantine).read_owned()).await else {
            return Next::Done;
        };
        // A drain's empty answer is the last only if nothing is on its way that could free a lane.
        let may_be_last = self.mode == Mode::Drain && self.outlet.held() == 0;
        let span = trace::claim(&self.outlet);
        let (gaze, claimed, full) = match self.claim(&places).await {
            Ok(answer) => answer,
            Err(next) => return next,
        };
        if claimed.is_empty() {
            self.outlet.breaker().probe_unused();
            let saw_everything = may_be_last && gaze.sees_everything();
            return if saw_everything { self.drained().await } else { Next::Idle(gaze) };
        }
        self.quiet = 0;
        self.locked_until = None;
        let claimed = match self.read_content(claimed).await {
            Ok(claimed) => claimed,
            Err(next) => return next,
        };
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

    /// A drain's last look found nothing. It passed by what others have locked, so the store is asked whether that is all.
    async fn drained(&mut self) -> Next {
        let has_due = self.shared.store.has_due(&self.outlet.name, self.outlet.options.tenant_id);
        match self.shared.ask("ask what is due", has_due).await {
            Ok(false) => Next::Done,
            Ok(true) => {
                let now = self.shared.clock.now();
                if now < *self.locked_until.get_or_insert(now + LOCKED_MOST) {
                    return Next::Wait(now + STORE_AWAY_FIRST);
                }
                self.shared.end_drain(&Trouble::Locked);
                Next::Done
            }
            Err(trouble) => self.store_trouble(&trouble),
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

    /// Takes back what unanswered claims may have leased. What cannot be taken back ends with its lease: it must not keep the
    /// claimer from its work for longer than that.
    async fn abandon(&mut self) -> Result<(), Trouble> {
        while let Some(Unanswered { token, over_at }) = self.unanswered.last().copied() {
            match self.shared.ask("abandon a claim", self.shared.store.abandon(token)).await {
                Ok(0) => {}
                Ok(messages) => {
                    info!(sink = self.outlet.name, messages, "took back what an unanswered claim had leased");
                }
                Err(trouble) if trouble.is_an_answer() || self.shared.clock.now() > over_at => {
                    let error = trouble.words();
                    warn!(
                        sink = self.outlet.name,
                        error, "what an unanswered claim leased returns when its lease ends"
                    );
                }
                Err(trouble) => return Err(trouble),
            }
            self.unanswered.pop();
        }
        Ok(())
    }

    /// Remembers a claim whose answer did not come.
    fn not_answered(&mut self, token: LeaseToken) {
        let over_at = self.shared.clock.now() + self.shared.options.lease + ANSWER_MOST;
        self.unanswered.push(Unanswered { token, over_at });
    }

    /// One claim; says also whether it brought as much as it asked for.
    async fn claim(&mut self, places: &Places) -> Result<(Gaze, Vec<Claimed>, bool), Next> {
        let asked_at = self.shared.clock.now();
        let gaze = self.look.next(asked_at);
        let most = places.count();
        let batch_size = match self.shrunk {
            None => most,
            Some(Shrunk::To(fewer, _)) => fewer.min(most),
            Some(Shrunk::Blind) => 1,
        };
        // A smaller claim brings less in bytes, too: it may be the bytes that took too long.
        let max_bytes = (places.bytes() / u64::from(most) * u64::from(batch_size)).max(1);
        let token = LeaseToken::random();
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
            max_bytes: Some(max_bytes),
            lease_token: Some(token),
            with_content: self.shrunk != Some(Shrunk::Blind),
        };
        // Not given up when the relay stops: what it leases must be handed back.
        let claimed = match self.shared.ask("claim", self.shared.store.claim(&claim)).await {
            Ok(claimed) => claimed,
            Err(trouble) => {
                self.outlet.breaker().probe_unused();
                self.look.put_off(gaze, self.shared.clock.now());
                if trouble.may_have_happened() {
                    self.not_answered(token);
                }
                let smaller = self.shrink(batch_size, &trouble);
                // The store is there: the next claim need not wait.
                return Err(if smaller && trouble.is_an_answer() { Next::Claim } else { self.store_trouble(&trouble) });
            }
        };
        self.away = STORE_AWAY_FIRST;
        self.looked_at = asked_at;
        self.shrunk = match self.shrunk {
            Some(Shrunk::To(size, _)) if size >= most => None,
            Some(Shrunk::To(size, went_well)) if went_well < TRUSTED_AFTER => Some(Shrunk::To(size, went_well + 1)),
            Some(Shrunk::To(size, _)) => Some(Shrunk::To(size * 2, 0)),
            other => other,
        };
        // Fewer than asked for may be all that is due, or all that there was room for.
        let bytes: u64 = claimed.iter().map(|message| message.size() as u64).sum();
        let full = claimed.len() >= batch_size as usize || bytes * 2 >= max_bytes;
        self.look.learn(gaze, &claimed, full, asked_at, self.shared.clock.now());
        Ok((gaze, claimed, full))
    }

    /// The store could not be asked: waits a little longer each time. A drain gives up after some seconds.
    fn store_trouble(&mut self, trouble: &Trouble) -> Next {
        if self.mode == Mode::Drain && self.away >= STORE_AWAY_MOST {
            self.shared.end_drain(trouble);
            return Next::Done;
        }
        let pause = self.away;
        self.away = (self.away * 2).min(STORE_AWAY_MOST);
        Next::Wait(self.shared.clock.now() + pause)
    }

    /// After a claim that failed the next is half as large: it may have been too much at once, or there is one among them that
    /// cannot be handed out. False: it cannot be made smaller.
    fn shrink(&mut self, batch_size: u32, trouble: &Trouble) -> bool {
        if !trouble.is_about_the_claim() {
            return false;
        }
        let before = self.shrunk;
        self.shrunk = match batch_size {
            0 | 1 => Some(Shrunk::Blind),
            more => Some(Shrunk::To(more / 2, 0)),
        };
        self.shrunk != before
    }

    /// What was claimed without its content gets it now. If it cannot be read, that is its outcome: dead if the store said so,
    /// and otherwise to be tried again later, while others go on. `Err`: there is nothing to deliver.
    async fn read_content(&mut self, mut claimed: Vec<Claimed>) -> Result<Vec<Claimed>, Next> {
        let (Some(Shrunk::Blind), Some(message)) = (self.shrunk, claimed.first_mut()) else { return Ok(claimed) };
        let (token, message_id) = (message.lease_token, message.message_id);
        let read = self.shared.ask("read a message", self.shared.store.content(token, message_id)).await;
        match read {
            Ok(Some(parcel)) => {
                self.shrunk = Some(Shrunk::To(1, 0));
                (message.headers, message.content) = (parcel.headers, parcel.content);
                return Ok(claimed);
            }
            // Its lease has ended meanwhile.
            Ok(None) => {}
            // Perhaps it is not the message.
            Err(trouble) if !self.is_to_blame(message_id, &trouble) => {
                self.not_answered(token);
                return Err(self.store_trouble(&trouble));
            }
            Err(trouble) => {
                self.shrunk = Some(Shrunk::To(1, 0));
                let words = trouble.words();
                let outcome = if trouble.is_about_the_content() {
                    error!(%message_id, sink = self.outlet.name, error = words, "this message cannot be read: it is dead now");
                    Outcome::Failed(Failure::new(SinkFailure::UNREADABLE, words))
                } else {
                    warn!(%message_id, sink = self.outlet.name, error = words, "this message could not be read: later again");
                    let retry = &self.outlet.options.retry;
                    let retry_after =
                        retry.backoff.delay(message.attempt_count.unsigned_abs(), &mut *self.shared.dice());
                    Outcome::Retryable { retry_after, failure: Failure::new(SinkFailure::UNREADABLE, words) }
                };
                let completion = Completion::new(message, outcome);
                let record =
                    self.shared.store.complete(&self.shared.options.worker_id, std::slice::from_ref(&completion));
                if self.shared.ask("record outcomes", record).await.is_err() {
                    self.not_answered(token);
                }
            }
        }
        Err(Next::Claim)
    }

    /// Whether a message is why it could not be read: the store says so, or it was asked for several times in vain.
    fn is_to_blame(&mut self, message_id: Uuid, trouble: &Trouble) -> bool {
        if trouble.is_about_the_content() {
            return true;
        }
        // A right that is missing, for instance, or nobody was asked.
        if trouble.is_an_answer() || !trouble.is_about_the_claim() {
            return false;
        }
        let times = self.unread.filter(|(unread, _)| *unread == message_id).map_or(1, |(_, times)| times + 1);
        self.unread = Some((message_id, times));
        times >= BLAMED_AFTER
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
                    _place: self.shared.room.take(&mut places, message.size()),
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
