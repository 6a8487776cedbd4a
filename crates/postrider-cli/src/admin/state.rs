//! What every request can ask: the databases by name, their relays if this process has any, who may come in. Made once by
//! `run` and `serve`, shared by all requests, changed by none.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use postrider::inspect::SinkStatus;
use postrider::operate::{Action, Done};
use postrider::{Enqueued, Error, ErrorKind, Message, Store};
use postrider_relay::RelayHandle;
use postrider_relay::outage::Outage;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::access::Access;
use super::error::ApiError;
use super::health::Readiness;
use super::reading::Reading;
use crate::server::guard::Guard;
use crate::{format, output};

/// Requests that are being answered at once; the next is asked to come again.
pub(super) const MAX_REQUESTS: usize = 64;
/// Questions to the stores at once: fewer than a store has connections, so that operators never keep the relay from them.
const MAX_QUESTIONS: usize = 3;
static QUESTIONS: Semaphore = Semaphore::const_new(MAX_QUESTIONS);
/// How long the store may take for one question, waiting for its turn included.
const STORE_TIMEOUT: Duration = Duration::from_secs(30);

/// Wakes a relay.
pub(crate) trait Trigger: Send + Sync {
    /// Has it look at once for what is due.
    fn wake(&self);
}

impl Trigger for RelayHandle {
    fn wake(&self) {
        Self::wake(self);
    }
}

/// One outbox that is served.
pub(crate) struct Served {
    pub(super) name: String,
    pub(crate) store: Arc<dyn Store>,
    /// What to call it; without a password.
    pub(crate) place: String,
    /// This process's relay on it, if there is one.
    pub(super) relay: Option<Arc<dyn Trigger>>,
    reading: Reading,
    outage: Outage,
}

/// All that requests share.
pub(super) struct Admin {
    /// At least one; the first is asked when none is named.
    pub(super) databases: Vec<Served>,
    pub(super) guard: Guard,
    pub(super) access: Access,
    /// Fires when the process was asked to stop.
    pub(super) stopping: CancellationToken,
    pub(super) room: Semaphore,
    pub(super) readiness: Readiness,
}

impl Admin {
    /// The database that a request names, or the first.
    pub(super) fn database(&self, name: Option<&str>) -> Result<&Served, ApiError> {
        let found = match name {
            None => self.databases.first(),
            Some(name) => self.databases.iter().find(|database| database.name == name),
        };
        found.ok_or_else(|| {
            let known = self.databases.iter().map(|database| database.name.as_str()).collect::<Vec<_>>().join(", ");
            ApiError::not_found("there is no database of that name").hint(format!("there are: {known}"))
        })
    }
}

impl Served {
    pub(crate) fn new(name: String, store: Arc<dyn Store>, place: String, relay: Option<Arc<dyn Trigger>>) -> Self {
        Self { name, store, place, relay, reading: Reading::default(), outage: Outage::default() }
    }

    /// What the store answers, if it does so in time. What is given up the store ends by itself.
    pub(super) async fn ask<T>(&self, question: impl Future<Output = Result<T, Error>>) -> Result<T, ApiError> {
        self.answered(in_turn(question)).await?.ok_or_else(too_long)
    }

    /// The same for an action: nobody knows whether one that was given up was carried out.
    async fn change<T>(&self, change: impl Future<Output = Result<T, Error>>) -> Result<T, ApiError> {
        let unknown = "it may be carried out anyway: check the audit";
        let done = self.answered(in_turn(change)).await;
        self.reading.outdated();
        done?.ok_or_else(|| too_long().hint(unknown))
    }

    /// `None`: it took too long.
    async fn answered<T>(&self, question: impl Future<Output = Result<T, Error>>) -> Result<Option<T>, ApiError> {
        let answer = timeout(STORE_TIMEOUT, question).await;
        match &answer {
            Ok(Err(error)) if !is_the_callers(error) => self.away(&error.in_short(), error.is_refusal()),
            Err(_) => self.away(&format!("no answer in {}", format::span(STORE_TIMEOUT)), false),
            Ok(_) if self.outage.back() && self.relay.is_none() => {
                info!(database = self.name, "the database answers again");
            }
            Ok(_) => {}
        }
        Ok(answer.ok().transpose()?)
    }

    /// An outage is said when it begins, however often the store is asked meanwhile. The relay of this process says it, if
    /// there is one; what the store itself refuses to answer may concern us alone.
    fn away(&self, error: &str, ours_alone: bool) {
        if let Some(outages) = self.outage.away(Instant::now())
            && (ours_alone || self.relay.is_none())
        {
            let error = output::printable(error);
            warn!(database = self.name, error, outages, "the database cannot be asked; trying until it can");
        }
    }

    /// How every sink stands; of a long queue a moment ago.
    pub(super) async fn sinks(&self) -> Result<Vec<SinkStatus>, ApiError> {
        // Who waits for another's reading needs no turn.
        self.answered(self.reading.sinks(in_turn(self.store.status()))).await?.ok_or_else(too_long)
    }

    /// Carries an action out, in this name.
    pub(super) async fn operate(&self, actor: &str, action: &Action) -> Result<Done, ApiError> {
        self.change(self.store.operate(actor, action)).await
    }

    /// Enqueues, in this name.
    pub(super) async fn enqueue(&self, actor: &str, message: &Message) -> Result<Enqueued, ApiError> {
        self.change(self.store.enqueue_as(actor, message)).await
    }
}

/// What is wrong with the request, or with the rights of this process, and is told to whoever asks.
fn is_the_callers(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Refused | ErrorKind::InvalidMessage | ErrorKind::BatchTooLarge | ErrorKind::Denied
    )
}

async fn in_turn<T>(question: impl Future<Output = T>) -> T {
    // It is never closed; if it were, nobody would have to wait.
    let _turn = QUESTIONS.acquire().await;
    question.await
}

fn too_long() -> ApiError {
    ApiError::unavailable(format!("the database took longer than {}", format::span(STORE_TIMEOUT)))
}
