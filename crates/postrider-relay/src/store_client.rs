//! Asks the store, with a time limit for every call. An outage is logged when it begins and when it ends, not at every
//! call. All parts of the relay reach the store through this.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use postrider::operate::Action;
use postrider::{Route, Store, limit};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::clock::Clock;
use crate::options::RelayOptions;
use crate::outage::Outage;

/// The time limit of a call is half a lease, within these bounds.
pub(crate) const TIMEOUT_MAX: Duration = Duration::from_secs(30);
pub(crate) const TIMEOUT_MIN: Duration = Duration::from_secs(5);

pub(crate) struct StoreClient {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    timeout: Duration,
    /// How the audit names this relay.
    actor: String,
    /// Once this is cancelled, the shortest time limit applies.
    hurry: CancellationToken,
    outage: Outage,
}

/// Why a call of the store brought no answer.
#[derive(Debug)]
pub(crate) enum StoreError {
    Failed(postrider::Error),
    TimedOut,
}

impl StoreError {
    pub(crate) fn words(&self) -> String {
        match self {
            Self::Failed(error) => error.in_short(),
            Self::TimedOut => "it does not answer".to_owned(),
        }
    }

    /// The store itself said no. Otherwise it could not be reached, or did not answer.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(self, Self::Failed(error) if error.is_refusal())
    }

    /// The call may have been carried out, or may yet be.
    pub(crate) fn may_have_happened(&self) -> bool {
        match self {
            Self::Failed(error) => !error.changed_nothing(),
            Self::TimedOut => true,
        }
    }

    /// The content of a message is the cause.
    pub(crate) fn is_about_content(&self) -> bool {
        matches!(self, Self::Failed(error) if error.is_about_content())
    }

    /// A smaller claim might succeed: the store was reached and takes writes.
    pub(crate) fn may_depend_on_size(&self) -> bool {
        use postrider::ErrorKind::{Connect, NoFreeConnection, ReadOnly};
        !matches!(self, Self::Failed(error) if matches!(error.kind(), Connect | NoFreeConnection | ReadOnly))
    }
}

impl StoreClient {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        options: &RelayOptions,
        hurry: CancellationToken,
    ) -> Self {
        let timeout = (options.lease / 2).clamp(TIMEOUT_MIN, TIMEOUT_MAX);
        Self { store, clock, timeout, actor: actor(&options.worker_id), hurry, outage: Outage::default() }
    }

    /// Adds the routes that the store does not have yet. This happens before anything is started: an error ends the
    /// start, and there is no time limit.
    pub(crate) async fn add_routes(&self, routes: &[Route]) -> Result<(), postrider::Error> {
        if routes.is_empty() {
            return Ok(());
        }
        let known = self.store.routes().await?;
        for route in routes.iter().filter(|route| !known.contains(route)) {
            self.store.operate(&self.actor, &Action::AddRoute { route: route.clone() }).await?;
        }
        Ok(())
    }

    /// Does what an operator could do, and the audit says that this relay did it.
    pub(crate) async fn operate(&self, what: &'static str, action: &Action) -> Result<(), StoreError> {
        self.ask(what, |store| store.operate(&self.actor, action)).await.map(drop)
    }

    pub(crate) async fn ask<'a, T, F>(
        &'a self,
        what: &'static str,
        call: impl FnOnce(&'a dyn Store) -> F,
    ) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, postrider::Error>>,
    {
        let timeout = if self.hurry.is_cancelled() { TIMEOUT_MIN } else { self.timeout };
        self.ask_within(timeout, what, call).await
    }

    pub(crate) async fn ask_within<'a, T, F>(
        &'a self,
        timeout: Duration,
        what: &'static str,
        call: impl FnOnce(&'a dyn Store) -> F,
    ) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, postrider::Error>>,
    {
        let answer = self.ask_quietly(timeout, call).await;
        match &answer {
            Ok(_) if self.outage.back() => info!("the store answers again"),
            Ok(_) => {}
            Err(error) => {
                if let Some(outages) = self.outage.away(self.clock.now()) {
                    warn!(what, error = error.words(), outages, "the store cannot be asked; trying until it can");
                }
            }
        }
        answer
    }

    /// Logs nothing: for calls that deliveries do not depend on.
    pub(crate) async fn ask_quietly<'a, T, F>(
        &'a self,
        timeout: Duration,
        call: impl FnOnce(&'a dyn Store) -> F,
    ) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, postrider::Error>>,
    {
        match tokio::time::timeout(timeout, call(&*self.store)).await {
            Ok(answer) => answer.map_err(StoreError::Failed),
            Err(_) => Err(StoreError::TimedOut),
        }
    }
}

/// A long name is cut to what the audit takes.
fn actor(worker_id: &str) -> String {
    let mut actor = format!("relay:{worker_id}");
    actor.truncate(actor.floor_char_boundary(limit::NAME_BYTES));
    actor
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;
    use crate::clock::TokioClock;

    #[tokio::test(start_paused = true)]
    async fn a_call_is_given_up_after_half_a_lease_and_sooner_when_it_hurries() {
        let hurry = CancellationToken::new();
        let store = crate::fixtures::Fixture::new().raw_store;
        let options = RelayOptions { lease: Duration::from_secs(40), ..RelayOptions::default() };
        let client = StoreClient::new(store, Arc::new(TokioClock), &options, hurry.clone());
        let started = tokio::time::Instant::now();
        let answer = client.ask::<(), _>("wait", |_| pending()).await;
        assert!(matches!(answer, Err(StoreError::TimedOut)));
        assert_eq!(started.elapsed().as_secs(), 20);
        hurry.cancel();
        client.ask::<(), _>("wait", |_| pending()).await.unwrap_err();
        assert_eq!(started.elapsed().as_secs(), 25);
    }

    #[test]
    fn an_error_says_what_may_be_done_about_it() {
        let refused = StoreError::Failed(postrider::Error::new(postrider::ErrorKind::Refused, "no"));
        let connect = StoreError::Failed(postrider::Error::new(postrider::ErrorKind::Connect, "away"));
        let tell = |error: &StoreError| [error.is_refusal(), error.may_have_happened(), error.may_depend_on_size()];
        assert_eq!(tell(&refused), [true, false, true]);
        assert_eq!(tell(&connect), [false, false, false]);
        assert_eq!(tell(&StoreError::TimedOut), [false, true, true]);
    }

    #[test]
    fn a_long_name_is_cut_for_the_audit() {
        assert_eq!(actor("site-7"), "relay:site-7");
        assert_eq!(actor(&"ü".repeat(200)).len(), 254, "between two characters");
    }
}
