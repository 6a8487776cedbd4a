//! The relay as a whole: put together by the builder, run until it is told to stop, and then taken down so that nothing
//! is left leased that could have been recorded or handed back. The parts are in their own files; this one starts and
//! stops them and holds what they share.

use std::future::Future;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use postrider::{Action, Route, Store};
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use tokio::sync::{Notify, RwLock, Semaphore, mpsc};
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::{info, warn};

use crate::claimer::Claimer;
use crate::clock::{Clock, TokioClock};
use crate::completer::{self, Ended};
use crate::dispatcher::actor;
use crate::error::Error;
use crate::handle::RelayHandle;
use crate::leases::{self, Leases};
use crate::options::{RelayOptions, SinkOptions};
use crate::outage::Outage;
use crate::outlet::Outlet;
use crate::room::Room;
use crate::sink::Sink;
use crate::stats::{Counts, Stats};
use crate::telemetry::Telemetry;
use crate::trace::Propagate;
use crate::wake::{self, Wake};
use crate::{keeper, reaper, reporter};

/// Outcomes on their way to the completer. Messages are bounded elsewhere; this only evens out.
const ENDED_CAPACITY: usize = 4_096;
/// The longest an answer of the store is waited for, and the shortest: half a lease, within these.
pub(crate) const ANSWER_MOST: Duration = Duration::from_secs(30);
pub(crate) const ANSWER_LEAST: Duration = Duration::from_secs(5);

/// Moves messages from a store to sinks.
pub struct Relay {
    shared: Arc<Shared>,
    outlets: Arc<[Arc<Outlet>]>,
    routes: Vec<Route>,
    inbox: mpsc::Receiver<Ended>,
}

/// Puts a relay together: see [`Relay::builder`].
pub struct RelayBuilder {
    store: Arc<dyn Store>,
    options: RelayOptions,
    clock: Arc<dyn Clock>,
    seed: Option<u64>,
    sinks: Vec<(String, Arc<dyn Sink>, SinkOptions)>,
    routes: Vec<Route>,
    propagate: Option<Arc<dyn Propagate>>,
}

/// Whether to go on when nothing is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Serve,
    Drain,
}

/// What the parts share.
pub(crate) struct Shared {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) options: RelayOptions,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) room: Room,
    pub(crate) concurrency: Semaphore,
    pub(crate) leases: Leases,
    pub(crate) wake: Wake,
    pub(crate) stats: Arc<Stats>,
    pub(crate) telemetry: Telemetry,
    /// Some breaker opened or closed.
    pub(crate) breakers_changed: Arc<Notify>,
    /// How traces go on, if there is a tracer.
    pub(crate) propagate: Option<Arc<dyn Propagate>>,
    /// Read while a claim's messages are here, written to deliver one message alone.
    pub(crate) quarantine: Arc<RwLock<()>>,
    /// Whose message goes alone, and whether others are to make way for it.
    pub(crate) alone: Arc<tokio::sync::Mutex<()>>,
    pub(crate) make_way: AtomicBool,
    /// Claim no more, send nothing that is not on its way.
    pub(crate) stopping: CancellationToken,
    /// Drop what is on its way too.
    pub(crate) cut_short: CancellationToken,
    dice: Mutex<StdRng>,
    ended: mpsc::Sender<Ended>,
    store_outage: Outage,
    /// Why a drain ended before it could know that nothing is due.
    drain_trouble: Mutex<Option<String>>,
}

/// Why the store gave no answer.
pub(crate) enum Trouble {
    Store(postrider::Error),
    Unanswered,
    /// Messages are due that nobody holds, and a transaction keeps them locked.
    Locked,
}

impl Trouble {
    pub(crate) fn words(&self) -> String {
        match self {
            Self::Store(error) => error.in_short(),
            Self::Unanswered => "it does not answer".to_owned(),
            Self::Locked => "messages are due, and another transaction keeps them locked".to_owned(),
        }
    }

    /// Whether the store itself said no, rather than being away.
    pub(crate) fn is_an_answer(&self) -> bool {
        matches!(self, Self::Store(error) if error.is_an_answer())
    }

    /// Whether what was asked for may have been done all the same, or may yet be.
    pub(crate) fn may_have_happened(&self) -> bool {
        match self {
            Self::Store(error) => !error.nothing_happened(),
            Self::Unanswered => true,
            Self::Locked => false,
        }
    }

    /// Whether the content of a message is why it cannot be handed out.
    pub(crate) fn is_about_the_content(&self) -> bool {
        matches!(self, Self::Store(error) if error.is_about_the_content())
    }

    /// Whether a smaller question might have been answered: the store was reached, and can be written to.
    pub(crate) fn is_about_the_claim(&self) -> bool {
        use postrider::Error::{Connect, NoFreeConnection, ReadOnly};
        !matches!(self, Self::Store(Connect { .. } | NoFreeConnection { .. } | ReadOnly { .. }) | Self::Locked)
    }
}

impl Shared {
    /// Asks the store, not for ever. Trouble is logged when it begins and ends, not each time, and once in a while at most.
    pub(crate) async fn ask<T>(
        &self,
        what: &'static str,
        call: impl Future<Output = Result<T, postrider::Error>>,
    ) -> Result<T, Trouble> {
        let hurry = self.cut_short.is_cancelled();
        let patience = if hurry { ANSWER_LEAST } else { (self.options.lease / 2).clamp(ANSWER_LEAST, ANSWER_MOST) };
        self.ask_within(patience, what, call).await
    }

    pub(crate) async fn ask_within<T>(
        &self,
        patience: Duration,
        what: &'static str,
        call: impl Future<Output = Result<T, postrider::Error>>,
    ) -> Result<T, Trouble> {
        let trouble = match tokio::time::timeout(patience, call).await {
            Ok(Ok(answer)) => {
                if self.store_outage.back() {
                    info!("the store answers again");
                }
                return Ok(answer);
            }
            Ok(Err(error)) => Trouble::Store(error),
            Err(_) => Trouble::Unanswered,
        };
        if let Some(outages) = self.store_outage.away(self.clock.now()) {
            warn!(what, error = trouble.words(), outages, "the store cannot be asked; trying until it can");
        }
        Err(trouble)
    }

    /// Adds the routes of the configuration that the store does not have yet.
    async fn add_routes(&self, routes: Vec<Route>) -> Result<(), Error> {
        if routes.is_empty() {
            return Ok(());
        }
        let known = self.store.routes().await?;
        for route in routes.into_iter().filter(|route| !known.contains(route)) {
            self.store.operate(&actor(&self.options.worker_id), &Action::AddRoute { route }).await?;
        }
        Ok(())
    }

    /// Hands a message to the completer.
    pub(crate) async fn end(&self, ended: Ended) {
        // The completer outlives every sender, unless the whole relay is dropped.
        let _sent = self.ended.send(ended).await;
    }

    /// A drain does not wait for a store that is away: whoever started it starts it again.
    pub(crate) fn end_drain(&self, trouble: &Trouble) {
        *self.drain_trouble.lock().unwrap_or_else(PoisonError::into_inner) = Some(trouble.words());
    }

    pub(crate) fn dice(&self) -> MutexGuard<'_, StdRng> {
        self.dice.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Relay {
    /// A relay for this store.
    #[must_use]
    pub fn builder(store: Arc<dyn Store>) -> RelayBuilder {
        RelayBuilder {
            store,
            options: RelayOptions::default(),
            clock: Arc::new(TokioClock),
            seed: None,
            sinks: Vec::new(),
            routes: Vec::new(),
            propagate: None,
        }
    }

    /// What it has done until now; may be kept and read while it runs.
    #[must_use]
    pub fn stats(&self) -> Arc<Stats> {
        Arc::clone(&self.shared.stats)
    }

    /// To ask it and to wake it while it runs.
    #[must_use]
    pub fn handle(&self) -> RelayHandle {
        RelayHandle { shared: Arc::clone(&self.shared), outlets: Arc::clone(&self.outlets) }
    }

    /// Delivers until `shutdown` fires, and returns when everything is recorded or handed back: what is on its way gets
    /// the grace period to finish. While the store is away it waits and goes on by itself.
    ///
    /// Dropping the future ends everything at once and loses nothing: what was held returns when its lease ends.
    pub async fn run(self, shutdown: CancellationToken) -> Result<Counts, Error> {
        self.go(shutdown, Mode::Serve).await
    }

    /// Delivers what is due and returns when nothing is: for a scheduler. What fails is due again later and not waited
    /// for, and neither is a sink that its breaker leaves alone, nor a store that stays away for some seconds: that is
    /// [`Error::StoreAway`].
    pub async fn drain(self, shutdown: CancellationToken) -> Result<Counts, Error> {
        self.go(shutdown, Mode::Drain).await
    }

    async fn go(self, shutdown: CancellationToken, mode: Mode) -> Result<Counts, Error> {
        let handle = self.handle();
        let Self { shared, outlets, routes, inbox } = self;
        shared.telemetry.begin(outlets.iter().map(|outlet| outlet.name.as_str()));
        shared.add_routes(routes).await?;
        let all_ended = CancellationToken::new();
        let mut completer =
            AbortOnDropHandle::new(tokio::spawn(completer::run(Arc::clone(&shared), inbox, all_ended.clone())));
        let mut beside = JoinSet::new();
        beside.spawn(leases::keep_renewing(Arc::clone(&shared)));
        beside.spawn(reaper::run(Arc::clone(&shared)));
        if mode == Mode::Serve {
            beside.spawn(wake::listen(Arc::clone(&shared)));
            beside.spawn(keeper::run(Arc::clone(&shared)));
            beside.spawn(reporter::measure(Arc::clone(&shared)));
        }
        let reporter = (mode == Mode::Serve)
            .then(|| AbortOnDropHandle::new(tokio::spawn(reporter::report(handle, all_ended.clone()))));
        let mut claimers = JoinSet::new();
        for outlet in &*outlets {
            claimers.spawn(Claimer::new(Arc::clone(&shared), Arc::clone(outlet), mode).run());
        }

        let mut failed = tokio::select! {
            () = shutdown.cancelled() => None,
            ended = all_or_first_error(&mut claimers) => ended.err().map(|error| internal("claimer", &error)),
            Some(Err(error)) = beside.join_next() => Some(internal("background task", &error)),
            joined = &mut completer => Some(internal_end("completer", joined)),
        };

        shared.stopping.cancel();
        let stop_by = tokio::time::Instant::now() + shared.options.grace;
        if tokio::time::timeout_at(stop_by, all(&mut claimers)).await.is_err() {
            warn!(grace = ?shared.options.grace, "the grace period is over: cutting deliveries short");
            shared.cut_short.cancel();
            // Each has a second to notice; if the store hangs, what it holds comes back when the leases end.
            let ended = tokio::time::timeout(ANSWER_LEAST, all(&mut claimers)).await;
            failed = failed.or(ended.ok().and_then(Result::err).map(|error| internal("claimer", &error)));
        }
        all_ended.cancel();
        let stop_by = stop_by.max(tokio::time::Instant::now() + ANSWER_LEAST);
        if !completer.is_finished() && tokio::time::timeout_at(stop_by, &mut completer).await.is_err() {
            shared.cut_short.cancel();
            drop(tokio::time::timeout(ANSWER_LEAST, completer).await);
        }
        if mode == Mode::Serve {
            drop(tokio::time::timeout(ANSWER_LEAST, shared.store.woke(&shared.options.worker_id)).await);
        }
        if let Some(reporter) = reporter {
            // It says good-bye by itself, after what it was about to say.
            drop(tokio::time::timeout(ANSWER_LEAST, reporter).await);
        }
        let trouble = shared.drain_trouble.lock().unwrap_or_else(PoisonError::into_inner).take();
        match failed.or(trouble.map(|reason| Error::StoreAway { reason })) {
            Some(error) => Err(error),
            None => Ok(shared.stats.counts()),
        }
    }
}

/// Waits for all of them.
async fn all(tasks: &mut JoinSet<()>) -> Result<(), JoinError> {
    let mut first_error = Ok(());
    while let Some(ended) = tasks.join_next().await {
        first_error = first_error.and(ended);
    }
    first_error
}

/// Waits for all of them, or for the first that failed.
async fn all_or_first_error(tasks: &mut JoinSet<()>) -> Result<(), JoinError> {
    while let Some(ended) = tasks.join_next().await {
        ended?;
    }
    Ok(())
}

fn internal(part: &'static str, error: &JoinError) -> Error {
    Error::Internal { part, reason: error.to_string() }
}

fn internal_end(part: &'static str, ended: Result<(), JoinError>) -> Error {
    Error::Internal { part, reason: ended.err().map_or_else(|| "it ended".to_owned(), |error| error.to_string()) }
}

impl RelayBuilder {
    /// Adds a sink with the default options. Messages go to it by the store's routes; what has no route goes to the sink
    /// named `default`.
    #[must_use]
    pub fn sink(self, name: impl Into<String>, sink: impl Sink) -> Self {
        self.sink_with(name, sink, SinkOptions::default())
    }

    /// Adds a sink.
    #[must_use]
    pub fn sink_with(mut self, name: impl Into<String>, sink: impl Sink, options: SinkOptions) -> Self {
        self.sinks.push((name.into(), Arc::new(sink), options));
        self
    }

    /// Adds a route to the store when the relay starts. It concerns new messages only, and it stays.
    #[must_use]
    pub fn route(mut self, route: Route) -> Self {
        self.routes.push(route);
        self
    }

    /// Sets what concerns the whole relay.
    #[must_use]
    pub fn options(mut self, options: RelayOptions) -> Self {
        self.options = options;
        self
    }

    /// Another clock than tokio's.
    #[must_use]
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Makes spans of deliveries, and lets the traces of messages go on through them: see [`Propagate`].
    #[must_use]
    pub fn propagate(mut self, propagate: impl Propagate) -> Self {
        self.propagate = Some(Arc::new(propagate));
        self
    }

    /// Makes the jitter of retries repeatable.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Checks everything and puts the relay together. Nothing is started yet.
    pub fn build(self) -> Result<Relay, Error> {
        self.options.check()?;
        if self.sinks.is_empty() {
            return Err(Error::Options { reason: "it has no sink: add one with .sink(\"default\", …)".to_owned() });
        }
        let room = Room::new(self.options.max_messages, self.options.max_bytes, self.sinks.len());
        let breakers_changed = Arc::new(Notify::new());
        let mut outlets: Vec<Arc<Outlet>> = Vec::new();
        let telemetry = Telemetry::new(&self.options.database);
        for (name, sink, options) in self.sinks {
            if outlets.iter().any(|outlet| outlet.name == name) {
                return Err(Error::Options { reason: format!("there are two sinks named {name:?}") });
            }
            options.check(&name, &self.options)?;
            if let Some(longest) = sink.longest().filter(|longest| *longest > options.deadline) {
                let deadline = options.deadline;
                warn!(
                    sink = name,
                    ?longest,
                    ?deadline,
                    "deliveries may be cut off before the sink gives up by itself, and \
                      then arrive twice: raise the deadline, or lower the sink's timeout"
                );
            }
            let changed = Arc::clone(&breakers_changed);
            outlets.push(Arc::new(Outlet::new(name, sink, options, room.max_claim(), telemetry.clone(), changed)));
        }
        let (ended, inbox) = mpsc::channel(ENDED_CAPACITY);
        let shared = Shared {
            room,
            concurrency: Semaphore::new(self.options.concurrency),
            leases: Leases::default(),
            wake: Wake::default(),
            stats: Arc::default(),
            telemetry,
            breakers_changed,
            propagate: self.propagate,
            quarantine: Arc::default(),
            alone: Arc::default(),
            make_way: AtomicBool::new(false),
            stopping: CancellationToken::new(),
            cut_short: CancellationToken::new(),
            dice: Mutex::new(self.seed.map_or_else(StdRng::from_os_rng, StdRng::seed_from_u64)),
            ended,
            store_outage: Outage::default(),
            drain_trouble: Mutex::default(),
            store: self.store,
            options: self.options,
            clock: self.clock,
        };
        Ok(Relay { shared: Arc::new(shared), outlets: outlets.into(), routes: self.routes, inbox })
    }
}
