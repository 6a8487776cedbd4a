//! For the tests of an application: a relay that delivers what is due and ends, over a store whose time the test moves, and a
//! sink that answers by a script. Belongs to the feature `testing`, among the dev-dependencies. The relay is the one that runs
//! in production: nothing here delivers by itself.

use std::collections::VecDeque;
use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use postrider::lifecycle::Claimed;
use postrider::testing::MovableClock;
use postrider::{SqliteStore, Store};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use crate::error::Error;
use crate::options::SinkOptions;
use crate::relay::{Relay, RelayBuilder};
use crate::sink::{Receipt, Sink, SinkFailure, Verdict};
use crate::stats::Counts;

/// Drains of one [`TestRelay::run_until_idle`]. Each delivers all that is due, so more are needed only while deliveries lead to
/// further messages.
const MAX_DRAINS: usize = 100;

/// How long a delivery to the sink of [`TestRelay::temporary`] may take, and so how long a [`Answer::Hang`] is waited for.
const DEADLINE: Duration = Duration::from_millis(200);

/// A relay for tests, and its store.
///
/// ```
/// use std::time::Duration;
///
/// use postrider::{Message, Queue};
/// use postrider_relay::testing::{Answer, ScriptedSink, TestRelay};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let sink = ScriptedSink::new([Answer::Retryable, Answer::Ok]);
/// let relay = TestRelay::temporary(sink.clone())?;
/// relay.store().enqueue(&[Message::json("order.placed", &7)?]).await?;
///
/// assert_eq!(relay.run_until_idle().await?.retried, 1);
/// relay.advance(Duration::from_secs(1)).await?; // past the backoff
/// assert_eq!(relay.run_until_idle().await?.delivered, 1);
/// assert_eq!(sink.received().len(), 2);
/// # Ok(())
/// # }
/// ```
pub struct TestRelay<S> {
    store: Arc<S>,
    build: Box<dyn Fn(Arc<dyn Store>) -> RelayBuilder + Send + Sync>,
    /// Removed when the test ends.
    _directory: Option<TempDir>,
}

impl TestRelay<SqliteStore> {
    /// A relay of one sink, `default`, and an outbox of its own: a SQLite file in a temporary directory, which goes with this.
    /// Messages reach the sink one at a time, in the order of their claim.
    pub fn temporary(sink: impl Sink) -> Result<Self, Error> {
        let unusable = |error: std::io::Error| {
            let why = format!("there is no directory for a temporary outbox: {error}");
            postrider::Error::new(postrider::ErrorKind::FileUnusable, why)
        };
        let directory = tempfile::tempdir().map_err(unusable)?;
        let store = SqliteStore::open(directory.path().join("outbox.db"))?;
        let sink = Arc::new(sink);
        let options = SinkOptions::default().concurrency(1).deadline(DEADLINE);
        let build = move |store| Relay::builder(store).sink_with("default", Arc::clone(&sink), options.clone());
        Ok(Self { _directory: Some(directory), ..Self::new(store, build) })
    }
}

impl<S: MovableClock + 'static> TestRelay<S> {
    /// Over this store, as the application builds its relay: with its routes, its sinks or scripted ones, its options. Each run
    /// builds it anew.
    pub fn new(store: S, build: impl Fn(Arc<dyn Store>) -> RelayBuilder + Send + Sync + 'static) -> Self {
        Self { store: Arc::new(store), build: Box::new(build), _directory: None }
    }

    /// The store: to enqueue, and to ask what became of it.
    #[must_use]
    pub fn store(&self) -> &S {
        &self.store
    }

    /// Delivers what is due, and what that leads to, until nothing is due. It waits for no retry: see [`Self::advance`].
    pub async fn run_until_idle(&self) -> Result<Counts, Error> {
        let mut all = Counts::default();
        for _ in 0..MAX_DRAINS {
            let relay = (self.build)(Arc::clone(&self.store) as Arc<dyn Store>).build()?;
            let counts = relay.drain(CancellationToken::new()).await?;
            all = all.plus(counts);
            if counts.claimed == 0 {
                return Ok(all);
            }
        }
        let reason =
            format!("after {MAX_DRAINS} of them something is still due: does a delivery enqueue its own like?");
        Err(Error::internal("drain", reason))
    }

    /// As if so much time had passed, for the store: see [`MovableClock::advance`].
    pub async fn advance(&self, by: Duration) -> Result<(), Error> {
        Ok(self.store.advance(by).await?)
    }
}

/// What a [`ScriptedSink`] does with a message.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Answer {
    /// It takes it.
    Ok,
    /// It fails, and another try may help. The code is `SCRIPTED`.
    Retryable,
    /// It fails, and no other try will help. The code is `SCRIPTED`.
    Terminal,
    /// It does not answer: the relay gives up at the sink's deadline, in real time.
    Hang,
    /// It fails like this.
    Failure(SinkFailure),
}

/// A sink that answers by a script, one answer for each message it gets, and [`Answer::Ok`] when the script is at its end. It
/// remembers what it got. Clones are one sink.
#[derive(Debug, Clone, Default)]
pub struct ScriptedSink(Arc<Mutex<Script>>);

#[derive(Debug, Default)]
struct Script {
    answers: VecDeque<Answer>,
    received: Vec<Arc<Claimed>>,
}

impl ScriptedSink {
    /// With these answers, in their order.
    pub fn new(answers: impl IntoIterator<Item = Answer>) -> Self {
        let sink = Self::default();
        sink.then(answers);
        sink
    }

    /// Adds answers to the script.
    pub fn then(&self, answers: impl IntoIterator<Item = Answer>) {
        self.script().answers.extend(answers);
    }

    /// What it got until now, in its order: once for each attempt.
    #[must_use]
    pub fn received(&self) -> Vec<Arc<Claimed>> {
        self.script().received.clone()
    }

    fn script(&self) -> MutexGuard<'_, Script> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn receive(&self, message: &Arc<Claimed>) -> Answer {
        let mut script = self.script();
        script.received.push(Arc::clone(message));
        script.answers.pop_front().unwrap_or(Answer::Ok)
    }
}

#[async_trait]
impl Sink for ScriptedSink {
    fn kind(&self) -> &'static str {
        "scripted"
    }

    async fn deliver(&self, batch: &[Arc<Claimed>]) -> Vec<Verdict> {
        const CODE: &str = "SCRIPTED";
        let mut verdicts = Vec::with_capacity(batch.len());
        for message in batch {
            verdicts.push(match self.receive(message) {
                Answer::Ok => Verdict::Delivered(Receipt::default()),
                Answer::Retryable => Verdict::Failed(SinkFailure::retryable(CODE, "the script says so")),
                Answer::Terminal => Verdict::Failed(SinkFailure::terminal(CODE, "the script says so")),
                Answer::Hang => pending().await,
                Answer::Failure(failure) => Verdict::Failed(failure),
            });
        }
        verdicts
    }
}
