//! An embedded outbox and a relay on it: for cases that need retries, lanes and a deadline.

use std::sync::Arc;
use std::time::Duration;

use postrider::inspect::SinkStatus;
use postrider::{Inspect as _, Message, Queue as _, SqliteStore, Store};
use postrider_relay::{Backoff, BreakerOptions, Counts, Relay, RelayOptions, RetryOptions, Sink, SinkOptions};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Longer than any outage of a test.
const PATIENCE: Duration = Duration::from_mins(3);
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How long a relay of these tests gives one delivery.
const DEADLINE: Duration = Duration::from_secs(5);

pub(super) struct Outbox {
    _directory: TempDir,
    store: Arc<SqliteStore>,
}

/// A relay that runs beside the test.
pub(super) struct Running {
    shutdown: CancellationToken,
    task: JoinHandle<Result<Counts, postrider_relay::Error>>,
}

impl Outbox {
    pub(super) fn open() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        let store = SqliteStore::open(directory.path().join("outbox.db")).expect("a fresh file can be opened");
        Self { _directory: directory, store: Arc::new(store) }
    }

    pub(super) async fn enqueue(&self, messages: &[Message]) {
        self.store.enqueue(messages).await.expect("enqueue");
    }

    /// Starts a relay with short waits between attempts and without a breaker.
    pub(super) fn deliver_to(&self, sink: Arc<dyn Sink>, max_attempts: u32) -> Running {
        let backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(1));
        let options = SinkOptions::default()
            .batch_size(1_000)
            .deadline(DEADLINE)
            .retry(RetryOptions::default().backoff(backoff).max_attempts(max_attempts))
            .breaker(BreakerOptions::default().failures(0));
        let relay = Relay::builder(Arc::clone(&self.store) as Arc<dyn Store>)
            .options(RelayOptions::default().poll(Duration::from_millis(100)))
            .sink_with("default", sink, options)
            .build()
            .expect("a relay");
        let shutdown = CancellationToken::new();
        Running { task: tokio::spawn(relay.run(shutdown.clone())), shutdown }
    }

    /// Waits until nothing is on its way any more, and so many are dead.
    pub(super) async fn until_settled(&self, dead: i64) {
        self.until("everything is delivered or dead", |sink| sink.pending + sink.leased == 0 && sink.dead == dead)
            .await;
    }

    /// Waits until an attempt has failed in a way that may be retried.
    pub(super) async fn until_a_failure(&self) {
        self.until("an attempt fails", |sink| sink.recent.retryable > 0).await;
    }

    async fn until(&self, what: &str, reached: impl Fn(&SinkStatus) -> bool) {
        let waiting = async {
            while !self.store.status().await.expect("status").iter().any(&reached) {
                tokio::time::sleep(LOOK_EVERY).await;
            }
        };
        let in_time = tokio::time::timeout(PATIENCE, waiting).await.is_ok();
        assert!(in_time, "waited {PATIENCE:?} in vain: {what}; {:?}", self.store.status().await);
    }
}

impl Running {
    pub(super) async fn stop(self) -> Counts {
        self.shutdown.cancel();
        self.task.await.expect("no panic").expect("no error")
    }
}
