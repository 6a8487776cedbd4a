//! What the tests share: a fresh store, a sink that reports what arrives, a running relay that can be stopped. No
//! assertion about the relay lives here.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use postrider::lifecycle::Claimed;
use postrider::{Message, PostgresStore, Queue as _, Schema, Store};
use postrider_relay::{
    Backoff, Counts, Error, Relay, RelayBuilder, RelayHandle, RelayOptions, RetryOptions, Sink, SinkFailure, handler,
};
use postrider_testkit::Database;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio_postgres::Client;
use tokio_util::sync::CancellationToken;

/// Longer than anything a test waits for takes, even on a loaded machine.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// A fresh outbox in PostgreSQL.
pub(crate) struct Site {
    pub(crate) database: Database,
    pub(crate) client: Client,
    pub(crate) store: Arc<PostgresStore>,
}

pub(crate) async fn site() -> Site {
    Site::on(postrider_testkit::database().await).await
}

/// A fresh outbox with these messages in it.
pub(crate) async fn site_with(messages: &[Message]) -> Site {
    let site = site().await;
    site.enqueue(messages).await;
    site
}

pub(crate) async fn store(url: &str) -> Arc<PostgresStore> {
    Arc::new(PostgresStore::connect(url, Schema::default()).await.expect("connect"))
}

impl Site {
    pub(crate) async fn on(database: Database) -> Self {
        Self { client: database.connect().await, store: store(&database.url()).await, database }
    }

    pub(crate) fn relay(&self) -> RelayBuilder {
        Relay::builder(Arc::clone(&self.store) as Arc<dyn Store>)
    }

    /// A relay with a sink that takes everything, running.
    pub(crate) fn running(&self, options: RelayOptions) -> (Running, Arrivals) {
        let (sink, arrivals) = arrivals();
        (start(self.relay().sink("default", sink).options(options)), arrivals)
    }

    pub(crate) async fn enqueue(&self, messages: &[Message]) {
        self.store.enqueue(messages).await.expect("enqueue");
    }

    /// Waits until the query says true.
    pub(crate) async fn until(&self, sql: &str) {
        let reached = async {
            while !self.client.query_one(sql, &[]).await.expect("query").get::<_, bool>(0) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        patiently(sql, reached).await;
    }

    pub(crate) async fn number(&self, sql: &str) -> i64 {
        self.client.query_one(sql, &[]).await.expect("query").get(0)
    }

    /// The attempts of the whole outbox, by state, such as `DISPATCHED 3, RETRYABLE 1`.
    pub(crate) async fn attempts(&self) -> String {
        let sql = "select coalesce(string_agg(state || ' ' || n, ', ' order by state), '') from \
                   (select state::text, count(*) n from outbox.attempts group by 1) a";
        self.client.query_one(sql, &[]).await.expect("query").get(0)
    }
}

pub(crate) fn message(topic: &str) -> Message {
    Message::json(topic, &1).expect("json")
}

pub(crate) fn messages(count: usize) -> Vec<Message> {
    (0..count).map(|n| Message::json("t", &n).expect("json")).collect()
}

/// `per_lane` messages in each of `lanes` lanes, round and round.
pub(crate) fn laned(lanes: usize, per_lane: usize) -> Vec<Message> {
    (0..lanes * per_lane).map(|n| message("t").lane(format!("lane-{:04}", n % lanes))).collect()
}

/// Short times, for tests.
pub(crate) fn quick() -> RelayOptions {
    RelayOptions::default().poll(Duration::from_millis(100)).lease(Duration::from_mins(1))
}

/// A relay on a store of its own, at this address.
pub(crate) async fn relay_at(url: &str) -> RelayBuilder {
    Relay::builder(store(url).await as Arc<dyn Store>)
}

/// So many tries, with waits from `base_ms` to `max_ms` between them.
pub(crate) fn retry(base_ms: u64, max_ms: u64, max_attempts: u32) -> RetryOptions {
    let backoff = Backoff::new(Duration::from_millis(base_ms), Duration::from_millis(max_ms));
    RetryOptions::default().backoff(backoff).max_attempts(max_attempts)
}

/// What has arrived at a sink, in order.
pub(crate) struct Arrivals(mpsc::UnboundedReceiver<Arc<Claimed>>);

impl Arrivals {
    pub(crate) async fn next(&mut self) -> Arc<Claimed> {
        patiently("a message arrives", self.0.recv()).await.expect("the sink is alive")
    }

    pub(crate) async fn take(&mut self, count: usize) -> Vec<Arc<Claimed>> {
        let mut taken = Vec::with_capacity(count);
        while taken.len() < count {
            taken.push(self.next().await);
        }
        taken
    }

    /// What has arrived and was not taken.
    pub(crate) fn until_now(&mut self) -> Vec<Arc<Claimed>> {
        std::iter::from_fn(|| self.0.try_recv().ok()).collect()
    }
}

/// A sink that takes everything.
pub(crate) fn arrivals() -> (impl Sink, Arrivals) {
    arrivals_unless(|_| None)
}

/// A sink that takes everything but what `refuse` says no to; refused messages arrive too.
pub(crate) fn arrivals_unless(
    refuse: impl Fn(&Claimed) -> Option<SinkFailure> + Send + Sync + 'static,
) -> (impl Sink, Arrivals) {
    let (tell, arrived) = mpsc::unbounded_channel();
    let sink = handler(move |message: Arc<Claimed>| {
        let refusal = refuse(&message);
        drop(tell.send(message));
        async move { refusal.map_or(Ok(()), Err) }
    });
    (sink, Arrivals(arrived))
}

/// A sink that holds every message until the gate has a permit for it; what stands there has arrived.
pub(crate) fn gated(gate: &Arc<Semaphore>) -> (impl Sink + use<>, Arrivals) {
    let (gate, (tell, arrived)) = (Arc::clone(gate), mpsc::unbounded_channel());
    let sink = handler(move |message: Arc<Claimed>| {
        let gate = Arc::clone(&gate);
        drop(tell.send(message));
        async move {
            gate.acquire().await?.forget();
            Ok::<(), SinkFailure>(())
        }
    });
    (sink, Arrivals(arrived))
}

/// A relay that runs beside the test.
pub(crate) struct Running {
    pub(crate) handle: RelayHandle,
    shutdown: CancellationToken,
    task: JoinHandle<Result<Counts, Error>>,
}

pub(crate) fn start(relay: RelayBuilder) -> Running {
    let relay = relay.build().expect("a relay");
    let (handle, shutdown) = (relay.handle(), CancellationToken::new());
    Running { handle, task: tokio::spawn(relay.run(shutdown.clone())), shutdown }
}

impl Running {
    pub(crate) fn ask_to_stop(&self) {
        self.shutdown.cancel();
    }

    pub(crate) async fn stop(self) -> Counts {
        self.shutdown.cancel();
        self.ended().await
    }

    pub(crate) async fn ended(self) -> Counts {
        patiently("the relay ends", self.task).await.expect("no panic").expect("no error")
    }

    /// As a second signal would.
    pub(crate) fn end_at_once(self) {
        self.task.abort();
    }
}

pub(crate) async fn drain(relay: RelayBuilder) -> Counts {
    let relay = relay.build().expect("a relay");
    patiently("a drain ends", relay.drain(CancellationToken::new())).await.expect("drained")
}

pub(crate) async fn patiently<T>(what: &str, future: impl Future<Output = T>) -> T {
    let Ok(value) = tokio::time::timeout(PATIENCE, future).await else {
        panic!("waited {PATIENCE:?} in vain: {what}");
    };
    value
}
