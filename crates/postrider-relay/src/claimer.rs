//! Claims for one sink, one batch ahead of what is delivered, and starts the delivery of what it gets. It waits when
//! nothing is due, when the memory budget is used up, and when the breaker is open. Of messages that may kill their
//! workers it delivers one at a time, alone (`isolation.rs`). What it does after a failed claim is in `claim_recovery.rs`.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use postrider::lifecycle::{Claim, Claimed, LeaseToken};
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{Span, error, warn};

use crate::batches::group;
use crate::breaker::Allowed;
use crate::claim_recovery::{BACKOFF_MIN, ClaimRecovery, ContentRead};
use crate::clock::Clock;
use crate::completer::CompleterHandle;
use crate::dispatcher::Dispatcher;
use crate::isolation::{Isolation, SharedGuard, split_suspects};
use crate::lease::{Lease, LeasedMessage, Leases};
use crate::memory_budget::{MemoryBudget, Reservation};
use crate::options::RelayOptions;
use crate::scan_plan::{LaneRun, Scan, ScanPlan};
use crate::sink_runtime::SinkRuntime;
use crate::stats::Stats;
use crate::store_client::{StoreClient, StoreError};
use crate::trace;
use crate::wake::{Sleep, Wake};

/// How long a drain waits for messages that are due and locked by another transaction.
const LOCKED_MAX: Duration = Duration::from_secs(30);
/// The first wait of a claimer that found nothing. It doubles up to the poll interval. A producer that checked for
/// sleepers just before we slept, and commits only now, is found soon.
const IDLE_MIN: Duration = Duration::from_millis(20);

/// What a claimer works with.
pub(crate) struct Parts {
    pub(crate) sink: Arc<SinkRuntime>,
    pub(crate) store: Arc<StoreClient>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) options: Arc<RelayOptions>,
    pub(crate) memory: Arc<MemoryBudget>,
    pub(crate) leases: Arc<Leases>,
    pub(crate) wake: Arc<Wake>,
    pub(crate) isolation: Arc<Isolation>,
    pub(crate) dispatcher: Arc<Dispatcher>,
    pub(crate) completer: CompleterHandle,
    pub(crate) stats: Arc<Stats>,
    pub(crate) stopping: CancellationToken,
}

pub(crate) struct Claimer {
    parts: Parts,
    mode: Mode,
    news: watch::Receiver<u64>,
    deliveries: JoinSet<()>,
    plan: ScanPlan,
    lane_run: LaneRun,
    recovery: ClaimRecovery,
    /// When the last claim was sent: it did not see what became due after that.
    asked_at: Instant,
    /// Claims in a row that found nothing.
    empty_claims: u32,
    /// How many leases the reaper had ended when this last claimed.
    ended_leases: u64,
    /// The last claim brought a suspect: claim one message at a time.
    one_by_one: bool,
    /// Until when a drain waits for messages that others have locked.
    locked_until: Option<Instant>,
}

/// What a claimer does when nothing is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Serve,
    Drain,
}

/// What to do after a turn.
enum Next {
    Claim,
    /// Claim at that time, or when told to claim again.
    Gather(Instant),
    /// Nothing was found.
    Idle(Scan),
    /// Not before that time, unless the last message ends.
    Wait(Instant),
    /// The relay stops, or everything is drained.
    Done,
    /// The drain cannot go on, for this reason.
    GiveUp(String),
}

/// What to wait for, besides a time and being told to claim again.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Until {
    Time,
    Empty,
    News,
}

/// What a claim brought.
struct Answer {
    scan: Scan,
    claimed: Vec<Claimed>,
    /// As much as was asked for: there may be more.
    full: bool,
}

impl Claimer {
    pub(crate) fn new(parts: Parts, mode: Mode) -> Self {
        let now = parts.clock.now();
        let (store, clock) = (Arc::clone(&parts.store), Arc::clone(&parts.clock));
        Self {
            news: parts.wake.subscribe(),
            deliveries: JoinSet::new(),
            plan: ScanPlan::new(now),
            lane_run: LaneRun::new(parts.sink.options.lane_run),
            recovery: ClaimRecovery::new(store, clock, parts.sink.name.clone(), parts.options.lease),
            asked_at: now,
            empty_claims: 0,
            ended_leases: 0,
            one_by_one: false,
            locked_until: None,
            parts,
            mode,
        }
    }

    /// Claims until the relay stops, or a drain finds nothing due. Then waits for the deliveries it started. Returns why a
    /// drain ended before it knew that nothing is due.
    pub(crate) async fn run(mut self) -> Option<String> {
        let mut gave_up = None;
        while !self.parts.stopping.is_cancelled() {
            self.news.borrow_and_update();
            let next = self.turn().await;
            while let Some(ended) = self.deliveries.try_join_next() {
                log_panic(ended);
            }
            match next {
                Next::Claim => {}
                Next::Gather(until) => self.wait(until, Until::Time).await,
                Next::Wait(until) => self.wait(until, Until::Empty).await,
                Next::Idle(scan) => self.idle(scan).await,
                Next::Done => break,
                Next::GiveUp(reason) => {
                    gave_up = Some(reason);
                    break;
                }
            }
        }
        while let Some(ended) = self.deliveries.join_next().await {
            log_panic(ended);
        }
        // A last try; what is not taken back returns when its lease ends.
        drop(self.recovery.abandon().await);
        gave_up
    }

    /// One claim, as large as allowed.
    async fn turn(&mut self) -> Next {
        let most = match self.allowed() {
            Ok(most) => most,
            Err(next) => return next,
        };
        let Some((prefetch, memory)) = self.reserve(most).await else { return Next::Done };
        if self.parts.sink.breaker().is_open() {
            return Next::Claim;
        }
        if let Err(error) = self.recovery.abandon().await {
            return self.store_away(&error);
        }
        let shared = self.parts.stopping.run_until_cancelled(self.parts.isolation.share()).await;
        let Some(shared) = shared else { return Next::Done };
        // The empty answer of a drain is the last only if no message is held whose end could free a lane.
        let may_be_last = self.mode == Mode::Drain && self.parts.sink.held() == 0;
        let span = trace::claim(&self.parts.sink);
        let Answer { scan, mut claimed, full } = match self.claim(&memory).await {
            Ok(answer) => answer,
            Err(next) => return next,
        };
        if claimed.is_empty() {
            self.parts.sink.breaker().probe_unused();
            return if may_be_last && scan.is_full() { self.drained().await } else { Next::Idle(scan) };
        }
        self.empty_claims = 0;
        self.locked_until = None;
        let unreadable = match self.recovery.read_content(&mut claimed).await {
            ContentRead::Done => None,
            ContentRead::Unreadable(error) => Some(error),
            ContentRead::LeaseEnded => return Next::Claim,
            ContentRead::StoreAway(error) => return self.store_away(&error),
        };
        trace::claimed(&span, claimed.len());
        let (batch, lease, ended) = self.lease(claimed, &shared, prefetch, memory, span);
        drop(shared);
        if let Some(error) = unreadable {
            self.parts.dispatcher.results.unreadable(batch, &error).await;
            return Next::Claim;
        }
        let suspects = split_suspects(batch, self.parts.sink.options.suspect_after());
        self.one_by_one = suspects.more;
        self.parts.completer.release(suspects.release).await;
        self.start(suspects.normal, &lease);
        if let Some(message) = suspects.alone {
            return self.deliver_alone(message, lease, ended).await;
        }
        match self.mode {
            _ if full => Next::Claim,
            Mode::Serve => Next::Gather(self.asked_at + self.parts.options.wake_gather),
            Mode::Drain => Next::Idle(scan),
        }
    }

    /// The last scan of a drain found nothing. It skipped what others have locked, so the store is asked for that.
    async fn drained(&mut self) -> Next {
        let (sink, tenant_id) = (&self.parts.sink.name, self.parts.sink.options.tenant_id.as_deref());
        match self.parts.store.ask("ask what is due", |store| store.has_due(sink, tenant_id)).await {
            Ok(false) => Next::Done,
            Ok(true) => {
                let now = self.parts.clock.now();
                if now < *self.locked_until.get_or_insert(now + LOCKED_MAX) {
                    return Next::Wait(now + BACKOFF_MIN);
                }
                Next::GiveUp("messages are due, and another transaction keeps them locked".to_owned())
            }
            Err(error) => self.store_away(&error),
        }
    }

    /// Waits until something may be due again.
    async fn idle(&mut self, scan: Scan) {
        let now = self.parts.clock.now();
        let poll = now + self.parts.options.poll;
        if self.mode == Mode::Drain {
            self.plan.force_full(now);
            if self.parts.sink.held() > 0 {
                self.wait(poll, Until::Empty).await;
            }
            return;
        }
        if scan.due_from.is_some() {
            return self.plan.force_full(now);
        }
        let Sleep::Until(announce_at) = self.parts.wake.announce(self.asked_at).await else { return };
        let pause = IDLE_MIN.saturating_mul(1 << self.empty_claims.min(20));
        self.empty_claims = self.empty_claims.saturating_add(1);
        let every_lane = (!scan.every_lane).then(|| self.plan.every_lane_at());
        let retry = self.parts.sink.next_retry(self.asked_at);
        let until = [announce_at, every_lane, retry, Some(now + pause)].into_iter().flatten().fold(poll, Instant::min);
        self.wait(until, Until::News).await;
    }

    /// How many messages the breaker lets through, or what to do instead.
    fn allowed(&self) -> Result<u32, Next> {
        let (sink, now) = (&self.parts.sink, self.parts.clock.now());
        let allowed = sink.breaker().allowed(now);
        let held = u32::try_from(sink.held()).unwrap_or(u32::MAX);
        let most = match allowed {
            Allowed::Everything => sink.claim_size,
            Allowed::Ramp(most) if most > held => (most - held).min(sink.claim_size),
            Allowed::Probe => 1,
            // A drain does not wait for a sink to come back.
            Allowed::NothingUntil(_) if self.mode == Mode::Drain => return Err(Next::Done),
            Allowed::NothingUntil(until) => return Err(Next::Wait(until)),
            Allowed::NothingYet if held == 0 => {
                // The probe ended without an answer: its lease was lost.
                sink.breaker().probe_unused();
                return Err(Next::Claim);
            }
            Allowed::Ramp(_) | Allowed::NothingYet => return Err(Next::Wait(now + self.parts.options.poll)),
        };
        Ok(if self.one_by_one { 1 } else { most })
    }

    /// `None` if the relay stops first.
    async fn reserve(&self, most: u32) -> Option<(OwnedSemaphorePermit, Reservation)> {
        let reserve = async {
            let mut prefetch = Arc::clone(&self.parts.sink.prefetch).acquire_many_owned(most).await.ok()?;
            let memory = self.parts.memory.reserve(most).await;
            let over = prefetch.num_permits().saturating_sub(memory.messages() as usize);
            drop(prefetch.split(over));
            Some((prefetch, memory))
        };
        self.parts.stopping.run_until_cancelled(reserve).await?
    }

    async fn claim(&mut self, memory: &Reservation) -> Result<Answer, Next> {
        let Parts { sink, store, clock, options, wake, .. } = &self.parts;
        let asked_at = clock.now();
        let ended_leases = wake.ended_leases();
        if std::mem::replace(&mut self.ended_leases, ended_leases) != ended_leases {
            self.plan.look_behind();
        }
        let scan = self.plan.next(asked_at);
        if sink.take_lane_broke() {
            self.lane_run.failed();
        }
        let size = self.recovery.size(memory.messages(), memory.bytes());
        let token = LeaseToken::random();
        let claim = Claim::new(&options.worker_id)
            .sink(sink.name.clone())
            .batch_size(size.messages)
            .lease(options.lease)
            .max_attempts(sink.options.retry.max_attempts)
            .tenant_id(sink.options.tenant_id.clone())
            .lane_run(self.lane_run.now())
            .due_from(scan.due_from)
            .thorough(scan.every_lane)
            .max_bytes(Some(size.bytes))
            .lease_token(Some(token))
            .with_content(size.with_content);
        // Not cancelled when the relay stops: what it leases must be handed back.
        let claimed = match store.ask("claim", |store| store.claim(&claim)).await {
            Ok(claimed) => claimed,
            Err(error) => {
                sink.breaker().probe_unused();
                self.plan.failed(scan, asked_at, clock.now());
                let at_once = self.recovery.failed(size, token, &error);
                return Err(if at_once { Next::Claim } else { self.store_away(&error) });
            }
        };
        self.asked_at = asked_at;
        self.recovery.succeeded(memory.messages());
        // Fewer than asked for may be all that is due, or all that the bytes allowed.
        let bytes: u64 = claimed.iter().map(|message| message.size() as u64).sum();
        let full = claimed.len() >= size.messages as usize || bytes * 2 >= size.bytes;
        self.plan.succeeded(scan, &claimed, full, asked_at, clock.now());
        if !claimed.is_empty() {
            self.lane_run.succeeded(&claimed, full);
        }
        Ok(Answer { scan, claimed, full })
    }

    /// Waits a little longer each time. A drain gives up after some seconds.
    fn store_away(&mut self, error: &StoreError) -> Next {
        let (pause, longest) = self.recovery.backoff();
        if self.mode == Mode::Drain && longest {
            return Next::GiveUp(error.words());
        }
        Next::Wait(self.parts.clock.now() + pause)
    }

    /// Also a token that is cancelled when the last of the messages has ended.
    fn lease(
        &self,
        claimed: Vec<Claimed>,
        shared: &SharedGuard,
        mut prefetch: OwnedSemaphorePermit,
        mut memory: Reservation,
        span: Span,
    ) -> (Vec<LeasedMessage>, Arc<Lease>, CancellationToken) {
        let Parts { sink, options, leases, stats, .. } = &self.parts;
        stats.claimed(claimed.len());
        sink.telemetry.claimed(&sink.name, claimed.len());
        let ids = claimed.iter().map(|message| message.message_id).collect();
        let (lease, ended) = Lease::new(claimed[0].lease_token, ids, self.asked_at + options.lease, span);
        leases.add(&lease);
        let leased = |message: Claimed| {
            sink.message_claimed();
            LeasedMessage {
                _allocation: memory.allocate(message.size()),
                _prefetch: prefetch.split(1),
                message: Arc::new(message),
                lease: Arc::clone(&lease),
                sink: Arc::clone(sink),
                shared: Some(Arc::clone(shared)),
                span: Span::none(),
            }
        };
        (claimed.into_iter().map(leased).collect(), lease, ended)
    }

    /// Delivers one message while this process holds nothing else. Its lease is renewed while it waits for that.
    async fn deliver_alone(&mut self, mut message: LeasedMessage, lease: Arc<Lease>, ended: CancellationToken) -> Next {
        let message_id = message.message.message_id;
        warn!(%message_id, sink = self.parts.sink.name, "this message was with workers that died: it is delivered alone");
        let Some(exclusive) = self.parts.isolation.request() else {
            self.parts.completer.release([message]).await;
            return Next::Claim;
        };
        // It must not wait for itself.
        message.shared = None;
        let Some(_alone) = self.parts.stopping.run_until_cancelled(exclusive.wait()).await else {
            self.parts.completer.release([message]).await;
            return Next::Done;
        };
        self.start(vec![message], &lease);
        drop(lease);
        ended.cancelled().await;
        Next::Claim
    }

    fn start(&mut self, batch: Vec<LeasedMessage>, lease: &Arc<Lease>) {
        let groups = group(batch, self.parts.sink.batching);
        let dispatcher = &self.parts.dispatcher;
        let workers = dispatcher.workers(groups.len());
        let groups = Arc::new(Mutex::new(groups.into_iter()));
        for _ in 0..workers {
            self.deliveries.spawn(Arc::clone(dispatcher).work(Arc::clone(lease), Arc::clone(&groups)));
        }
    }

    async fn wait(&mut self, time: Instant, until: Until) {
        let Parts { sink, clock, stopping, .. } = &self.parts;
        tokio::select! {
            () = clock.sleep_until(time) => {}
            () = sink.claim_again.notified() => {}
            () = sink.emptied.notified(), if until == Until::Empty => {}
            _ = self.news.changed(), if until == Until::News => {}
            () = stopping.cancelled() => {}
        }
    }
}

fn log_panic(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended {
        error!(%error, "a delivery task failed; its messages return when their leases end");
    }
}
