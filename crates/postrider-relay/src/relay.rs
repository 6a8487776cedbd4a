//! Puts the parts of a relay together, runs them until it is told to stop, and takes them down so that no message stays
//! leased that could have been recorded or released.

use std::sync::Arc;

use postrider::{Route, Store};
use tokio::sync::{Notify, Semaphore, mpsc};
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::warn;

use crate::attempt::Attempt;
use crate::claimer::{self, Claimer, Mode};
use crate::clock::{Clock, TokioClock};
use crate::completer::{self, Completer, CompleterHandle, Disposition};
use crate::dispatcher::Dispatcher;
use crate::error::Error;
use crate::handle::RelayHandle;
use crate::isolation::Isolation;
use crate::jitter::Jitter;
use crate::lease::Leases;
use crate::memory_budget::MemoryBudget;
use crate::options::{RelayOptions, SinkOptions};
use crate::results::Results;
use crate::sink::Sink;
use crate::sink_runtime::SinkRuntime;
use crate::slots::Slots;
use crate::stats::{Counts, Stats};
use crate::store_client::{StoreClient, TIMEOUT_MIN};
use crate::telemetry::Telemetry;
use crate::trace::Propagate;
use crate::wake::Wake;
use crate::{keeper, reaper, reporter};

/// Moves messages from a store to sinks.
pub struct Relay {
    handle: RelayHandle,
    routes: Vec<Route>,
    store: Arc<StoreClient>,
    telemetry: Telemetry,
    jitter: Arc<Jitter>,
    breakers_changed: Arc<Notify>,
    leases: Arc<Leases>,
    claimers: Vec<claimer::Parts>,
    completer: Completer,
    completions: (CompleterHandle, mpsc::Receiver<Disposition>),
    shutdown: Shutdown,
}

/// The two steps of a shutdown.
#[derive(Clone, Default)]
struct Shutdown {
    /// Claim no more, and send nothing that is not being sent.
    stopping: CancellationToken,
    /// The grace period is over: cut off what is being sent.
    cut_short: CancellationToken,
}

/// How the claimers ended.
#[derive(Default)]
struct Ended {
    failed: Option<Error>,
    /// Why a drain ended before it knew that nothing is due.
    gave_up: Option<String>,
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

    /// Counts of what it has done; may be kept and read while it runs.
    #[must_use]
    pub fn stats(&self) -> Arc<Stats> {
        self.handle.stats()
    }

    /// To ask it and to wake it while it runs.
    #[must_use]
    pub fn handle(&self) -> RelayHandle {
        self.handle.clone()
    }

    /// Delivers until `shutdown` is cancelled, and returns when everything is recorded or released. Deliveries in flight
    /// get the grace period to finish. While the store is away, it waits and goes on by itself.
    ///
    /// Dropping the future ends everything at once and loses nothing: messages come back when their leases end.
    pub async fn run(self, shutdown: CancellationToken) -> Result<Counts, Error> {
        self.start(shutdown, Mode::Serve).await
    }

    /// Delivers what is due and returns: for a scheduler. It does not wait for retries, for a sink whose breaker is open, or
    /// for a store that stays away for some seconds: that is [`ErrorKind::StoreAway`](crate::ErrorKind::StoreAway).
    pub async fn drain(self, shutdown: CancellationToken) -> Result<Counts, Error> {
        self.start(shutdown, Mode::Drain).await
    }

    async fn start(self, shutdown: CancellationToken, mode: Mode) -> Result<Counts, Error> {
        let RelayHandle { sinks, options, stats, .. } = self.handle();
        self.telemetry.begin(sinks.iter().map(|sink| sink.name.as_str()));
        self.store.add_routes(&self.routes).await?;
        let all_ended = CancellationToken::new();
        let mut background = self.start_background(mode);
        let reporter = (mode == Mode::Serve).then(|| self.start_reporter(&all_ended));
        let Self { store, claimers, completer, completions: (completions, inbox), shutdown: steps, .. } = self;
        let mut completer = AbortOnDropHandle::new(tokio::spawn(completer.run(inbox, all_ended.clone())));
        let mut tasks: JoinSet<_> = claimers.into_iter().map(|parts| Claimer::new(parts, mode).run()).collect();

        let mut ended = Ended::default();
        let failed = tokio::select! {
            () = shutdown.cancelled() => None,
            () = ended.join(&mut tasks, true) => None,
            Some(Err(error)) = background.join_next() => Some(internal("background task", Err(error))),
            joined = &mut completer => Some(internal("completer", joined)),
        };
        ended.failed = ended.failed.or(failed);

        steps.stopping.cancel();
        let stop_by = Instant::now() + options.grace;
        if timeout_at(stop_by, ended.join(&mut tasks, false)).await.is_err() {
            warn!(grace = ?options.grace, "the grace period is over: cutting deliveries short");
            steps.cut_short.cancel();
            // If the store hangs, messages come back when their leases end.
            drop(timeout(TIMEOUT_MIN, ended.join(&mut tasks, false)).await);
        }
        drop(completions);
        all_ended.cancel();
        let stop_by = stop_by.max(Instant::now() + TIMEOUT_MIN);
        if !completer.is_finished() && timeout_at(stop_by, &mut completer).await.is_err() {
            steps.cut_short.cancel();
            drop(timeout(TIMEOUT_MIN, completer).await);
        }
        if let Some(reporter) = reporter {
            drop(store.ask_quietly(TIMEOUT_MIN, |store| store.woke(&options.worker_id)).await);
            // It signs off after its last report.
            drop(timeout(TIMEOUT_MIN, reporter).await);
        }
        match ended.failed.or(ended.gave_up.map(Error::store_away)) {
            Some(error) => Err(error),
            None => Ok(stats.counts()),
        }
    }

    fn start_background(&self, mode: Mode) -> JoinSet<()> {
        let RelayHandle { clock, options, wake, .. } = self.handle();
        let (store, telemetry) = (|| Arc::clone(&self.store), || self.telemetry.clone());
        let mut tasks = JoinSet::new();
        tasks.spawn(Arc::clone(&self.leases).keep_renewing(store(), Arc::clone(&clock), options.lease));
        let jitter = Arc::clone(&self.jitter);
        tasks.spawn(reaper::run(
            store(),
            Arc::clone(&clock),
            jitter,
            telemetry(),
            Arc::clone(&wake),
            Arc::clone(&options),
        ));
        if mode == Mode::Serve {
            tasks.spawn(wake.listen(telemetry()));
            tasks.spawn(keeper::run(store(), Arc::clone(&clock), options.keep_every));
            tasks.spawn(reporter::measure(store(), clock, telemetry(), options.report_every));
        }
        tasks
    }

    fn start_reporter(&self, all_ended: &CancellationToken) -> AbortOnDropHandle<()> {
        let (store, telemetry) = (Arc::clone(&self.store), self.telemetry.clone());
        let changed = Arc::clone(&self.breakers_changed);
        let report = reporter::report(self.handle(), store, telemetry, changed, all_ended.clone());
        AbortOnDropHandle::new(tokio::spawn(report))
    }
}

impl Ended {
    /// Waits for all claimers, or for the first that failed.
    async fn join(&mut self, tasks: &mut JoinSet<Option<String>>, first_failure: bool) {
        while let Some(joined) = tasks.join_next().await {
            match joined {
                Ok(reason) => self.gave_up = self.gave_up.take().or(reason),
                Err(error) => self.failed = self.failed.take().or(Some(internal("claimer", Err(error)))),
            }
            if first_failure && self.failed.is_some() {
                return;
            }
        }
    }
}

fn internal(part: &'static str, ended: Result<(), JoinError>) -> Error {
    Error::internal(part, ended.err().map_or_else(|| "it ended".to_owned(), |error| error.to_string()))
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
            return Err(Error::options("it has no sink: add one with .sink(\"default\", …)"));
        }
        let Self { options, clock, .. } = self;
        let shutdown = Shutdown::default();
        let store = StoreClient::new(self.store, Arc::clone(&clock), &options, shutdown.cut_short.clone());
        let (store, options, stats) = (Arc::new(store), Arc::new(options), Arc::<Stats>::default());
        let memory = MemoryBudget::new(options.max_messages, options.max_bytes, self.sinks.len());
        let memory = Arc::new(memory);
        let telemetry = Telemetry::new(&options.database);
        let breakers_changed = Arc::new(Notify::new());
        let mut sinks: Vec<Arc<SinkRuntime>> = Vec::new();
        for (name, sink, sink_options) in self.sinks {
            if sinks.iter().any(|sink| sink.name == name) {
                return Err(Error::options(format!("there are two sinks named {name:?}")));
            }
            sink_options.check(&name, &options)?;
            warn_of_short_deadline(&name, &*sink, &sink_options);
            let changed = Arc::clone(&breakers_changed);
            let sink = SinkRuntime::new(name, sink, sink_options, memory.max_claim(), telemetry.clone(), changed);
            sinks.push(Arc::new(sink));
        }

        let (leases, isolation) = (Arc::<Leases>::default(), Arc::<Isolation>::default());
        let jitter = Arc::new(Jitter::new(self.seed));
        let wake = Arc::new(Wake::new(Arc::clone(&store), Arc::clone(&clock), Arc::clone(&options)));
        let completions = completer::channel();
        let slots = Slots {
            process: Arc::new(Semaphore::new(options.concurrency)),
            isolation: Arc::clone(&isolation),
            stopping: shutdown.stopping.clone(),
        };
        let attempt = Attempt {
            clock: Arc::clone(&clock),
            lease_margin: options.lease_margin(),
            cut_short: shutdown.cut_short.clone(),
            propagate: self.propagate,
        };
        let claimer = |sink: &Arc<SinkRuntime>| {
            let results = Results {
                sink: Arc::clone(sink),
                store: Arc::clone(&store),
                clock: Arc::clone(&clock),
                jitter: Arc::clone(&jitter),
                completer: completions.0.clone(),
            };
            let (slots, attempt) = (slots.clone(), attempt.clone());
            claimer::Parts {
                sink: Arc::clone(sink),
                store: Arc::clone(&store),
                clock: Arc::clone(&clock),
                options: Arc::clone(&options),
                memory: Arc::clone(&memory),
                leases: Arc::clone(&leases),
                wake: Arc::clone(&wake),
                isolation: Arc::clone(&isolation),
                dispatcher: Arc::new(Dispatcher { sink: Arc::clone(sink), slots, attempt, results }),
                completer: completions.0.clone(),
                stats: Arc::clone(&stats),
                stopping: shutdown.stopping.clone(),
            }
        };
        let claimers = sinks.iter().map(claimer).collect();
        let completer = Completer {
            store: Arc::clone(&store),
            clock: Arc::clone(&clock),
            options: Arc::clone(&options),
            memory,
            stats: Arc::clone(&stats),
            telemetry: telemetry.clone(),
            cut_short: shutdown.cut_short.clone(),
        };
        let handle = RelayHandle { sinks: sinks.into(), clock, options, wake, stats };
        let routes = self.routes;
        Ok(Relay {
            handle,
            routes,
            store,
            telemetry,
            jitter,
            breakers_changed,
            leases,
            claimers,
            completer,
            completions,
            shutdown,
        })
    }
}

fn warn_of_short_deadline(name: &str, sink: &dyn Sink, options: &SinkOptions) {
    let deadline = options.deadline;
    if let Some(longest) = sink.longest().filter(|longest| *longest > deadline) {
        warn!(
            sink = name,
            ?longest,
            ?deadline,
            "deliveries may be cut off before the sink gives up by itself, and then arrive twice: raise the deadline, or \
             lower the sink's timeout"
        );
    }
}
