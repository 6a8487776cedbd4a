//! Parts for unit tests: a store in a file, a sink, a lease, and a dispatcher whose results the test receives.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use postrider::lifecycle::{Claim, Claimed, LeaseToken};
use postrider::{Message, Queue as _, SqliteStore};
use postrider_testkit::sink_contract::claimed;
use tempfile::TempDir;
use tokio::sync::{Notify, Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use tracing::Span;
use uuid::Uuid;

use crate::attempt::Attempt;
use crate::clock::{Clock, TokioClock};
use crate::completer::{self, Completer, CompleterHandle, Disposition};
use crate::dispatcher::Dispatcher;
use crate::jitter::Jitter;
use crate::lease::{Lease, LeasedMessage};
use crate::memory_budget::MemoryBudget;
use crate::options::{RelayOptions, SinkOptions};
use crate::results::Results;
use crate::sink::handler::handler;
use crate::sink::{Sink, SinkFailure};
use crate::sink_runtime::SinkRuntime;
use crate::slots::Slots;
use crate::store_client::StoreClient;
use crate::telemetry::Telemetry;

pub(crate) struct Fixture {
    pub(crate) directory: TempDir,
    pub(crate) raw_store: Arc<SqliteStore>,
    pub(crate) store: Arc<StoreClient>,
    pub(crate) sink: Arc<SinkRuntime>,
    pub(crate) memory: Arc<MemoryBudget>,
    pub(crate) lease: Arc<Lease>,
    pub(crate) dispatcher: Arc<Dispatcher>,
    pub(crate) completer: CompleterHandle,
    pub(crate) ended: mpsc::Receiver<Disposition>,
}

fn options() -> RelayOptions {
    RelayOptions { worker_id: "worker".to_owned(), lease: LEASE, ..RelayOptions::default() }
}

pub(crate) fn runtime(options: SinkOptions) -> SinkRuntime {
    let sink = handler(|_: Arc<Claimed>| async { Ok::<(), SinkFailure>(()) });
    SinkRuntime::new("default".to_owned(), Arc::new(sink), options, 100, Telemetry::new("test"), Arc::default())
}

impl Fixture {
    pub(crate) fn new() -> Self {
        Self::with(handler(|_: Arc<Claimed>| async { Ok::<(), SinkFailure>(()) }))
    }

    pub(crate) fn with(sink: impl Sink) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let raw_store = Arc::new(SqliteStore::open(directory.path().join("outbox.db")).expect("open"));
        let clock: Arc<dyn Clock> = Arc::new(TokioClock);
        let cut_short = CancellationToken::new();
        let store = StoreClient::new(raw_store.clone(), Arc::clone(&clock), &options(), cut_short.clone());
        let store = Arc::new(store);
        let (name, options, telemetry) = ("default".to_owned(), SinkOptions::default(), Telemetry::new("test"));
        let sink = Arc::new(SinkRuntime::new(name, Arc::new(sink), options, 100, telemetry, Arc::<Notify>::default()));
        let (completer, ended) = completer::channel();
        let (lease, _) = Lease::new(LeaseToken::random(), [].into(), clock.now() + LEASE, Span::none());
        let dispatcher = Dispatcher {
            sink: Arc::clone(&sink),
            slots: Slots {
                process: Arc::new(Semaphore::new(10)),
                isolation: Arc::default(),
                stopping: CancellationToken::new(),
            },
            attempt: Attempt { clock: Arc::clone(&clock), lease_margin: Duration::ZERO, cut_short, propagate: None },
            results: Results {
                sink: Arc::clone(&sink),
                store: Arc::clone(&store),
                clock,
                jitter: Arc::new(Jitter::new(Some(1))),
                completer: completer.clone(),
            },
        };
        let memory = Arc::new(MemoryBudget::new(1_000, usize::MAX, 1));
        Self { directory, raw_store, store, sink, memory, lease, dispatcher: Arc::new(dispatcher), completer, ended }
    }

    /// A message that the store does not know, under the fixture's lease.
    pub(crate) fn message(&self, change: impl FnOnce(&mut Claimed)) -> LeasedMessage {
        let mut message = claimed("t", "1");
        message.message_id = Uuid::now_v7();
        message.attempt_count = 1;
        change(&mut message);
        self.lease.insert(message.message_id);
        self.sink.message_claimed();
        let mut memory = self.memory.reserve(1).now_or_never().expect("there is room");
        LeasedMessage {
            _allocation: memory.allocate(message.size()),
            _prefetch: None,
            message: Arc::new(message),
            lease: Arc::clone(&self.lease),
            sink: Arc::clone(&self.sink),
            shared: None,
            span: Span::none(),
        }
    }

    /// New messages of the store.
    pub(crate) async fn claim(&self, count: usize) -> Vec<Claimed> {
        self.claim_for(count, LEASE).await
    }

    pub(crate) async fn claim_for(&self, count: usize, lease: Duration) -> Vec<Claimed> {
        let messages = vec![Message::json("t", &1).expect("json"); count];
        self.raw_store.enqueue(&messages).await.expect("enqueue");
        self.raw_store.claim(&Claim::new("worker").lease(lease)).await.expect("claim")
    }

    pub(crate) fn new_completer(&self) -> Completer {
        Completer {
            store: Arc::clone(&self.store),
            clock: Arc::new(TokioClock),
            options: Arc::new(options()),
            memory: Arc::clone(&self.memory),
            stats: Arc::default(),
            telemetry: Telemetry::new("test"),
            cut_short: CancellationToken::new(),
        }
    }
}

const LEASE: Duration = Duration::from_mins(1);
