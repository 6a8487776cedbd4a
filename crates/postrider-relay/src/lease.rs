//! The leases of this relay, and until when it may rely on them. The messages of a claim share one token and are renewed
//! together. The relay counts from before it asked, the store from after it answered, so the relay's count ends first. The
//! store decides who holds a message, by token and its own clock; nothing here does.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use futures_util::stream::{self, StreamExt as _};
use postrider::lifecycle::{Claimed, LeaseToken};
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::Span;
use uuid::Uuid;

use crate::clock::Clock;
use crate::isolation::SharedGuard;
use crate::memory_budget::Allocation;
use crate::sink_runtime::SinkRuntime;
use crate::store_client::StoreClient;

/// How often leases are checked while one lasts.
const CHECKS: u32 = 6;
/// Renewals at once.
const CONCURRENCY: usize = 4;
/// The shortest time limit of a renewal, for very short leases.
const TIMEOUT_MIN: Duration = Duration::from_millis(500);

/// The lease of one claim; dropped when the last of its messages has ended.
pub(crate) struct Lease {
    token: LeaseToken,
    message_ids: Mutex<HashSet<Uuid>>,
    valid_until: watch::Sender<Instant>,
    /// The claim's span, for a tracer.
    pub(crate) span: Span,
    _ended: DropGuard,
}

/// A claimed message, until its outcome is recorded, it is released, or its lease is lost.
pub(crate) struct LeasedMessage {
    pub(crate) message: Arc<Claimed>,
    pub(crate) lease: Arc<Lease>,
    pub(crate) sink: Arc<SinkRuntime>,
    /// `None` for a message that is delivered alone.
    pub(crate) shared: Option<SharedGuard>,
    /// The delivery's span, for a tracer; none before it is sent.
    pub(crate) span: Span,
    pub(crate) _allocation: Allocation,
    pub(crate) _prefetch: Option<OwnedSemaphorePermit>,
}

impl Lease {
    /// Also a token that is cancelled when the lease is dropped.
    pub(crate) fn new(
        token: LeaseToken,
        message_ids: HashSet<Uuid>,
        valid_until: Instant,
        span: Span,
    ) -> (Arc<Self>, CancellationToken) {
        let ended = CancellationToken::new();
        let lease = Self {
            token,
            message_ids: Mutex::new(message_ids),
            valid_until: watch::Sender::new(valid_until),
            span,
            _ended: ended.clone().drop_guard(),
        };
        (Arc::new(lease), ended)
    }

    pub(crate) fn valid_until(&self) -> Instant {
        *self.valid_until.borrow()
    }

    /// As far as this relay knows.
    pub(crate) fn holds(&self, message_id: Uuid) -> bool {
        self.ids().contains(&message_id)
    }

    /// Tells of every renewal, and at once when all is lost.
    pub(crate) fn watch(&self) -> watch::Receiver<Instant> {
        self.valid_until.subscribe()
    }

    async fn renew(&self, store: &StoreClient, clock: &dyn Clock, lease: Duration) {
        let message_ids: Vec<Uuid> = self.ids().iter().copied().collect();
        if message_ids.is_empty() {
            return;
        }
        let asked_at = clock.now();
        // A renewal that hangs must leave time for the next.
        let timeout = (lease / CHECKS).max(TIMEOUT_MIN);
        let renewed =
            store.ask_within(timeout, "renew leases", |store| store.renew(self.token, &message_ids, lease)).await;
        let Ok(renewed) = renewed else { return };
        let renewed: HashSet<Uuid> = renewed.into_iter().collect();
        // What is lost is not sent any more. It is counted where it ends: its outcome may be recorded just now.
        self.ids().retain(|id| renewed.contains(id) || !message_ids.contains(id));
        // If all are lost, deliveries are cut off at once.
        self.valid_until.send_replace(if renewed.is_empty() { asked_at } else { asked_at + lease });
    }

    #[cfg(test)]
    pub(crate) fn insert(&self, message_id: Uuid) {
        self.ids().insert(message_id);
    }

    fn ids(&self) -> MutexGuard<'_, HashSet<Uuid>> {
        self.message_ids.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for LeasedMessage {
    fn drop(&mut self) {
        self.lease.ids().remove(&self.message.message_id);
        self.sink.message_ended();
    }
}

/// All leases of the relay.
#[derive(Default)]
pub(crate) struct Leases(Mutex<Vec<Weak<Lease>>>);

impl Leases {
    pub(crate) fn add(&self, lease: &Arc<Lease>) {
        let mut list = self.list();
        if list.len() == list.capacity() {
            list.retain(|lease| lease.strong_count() > 0);
        }
        list.push(Arc::downgrade(lease));
    }

    /// Renews leases when half of their time is over. Ends with the relay.
    pub(crate) async fn keep_renewing(
        self: Arc<Self>,
        store: Arc<StoreClient>,
        clock: Arc<dyn Clock>,
        lease: Duration,
    ) {
        loop {
            clock.sleep_until(clock.now() + lease / CHECKS).await;
            let leases = self.valid_before(clock.now() + lease / 2);
            let renew = |one: Arc<Lease>| {
                let (store, clock) = (&*store, &*clock);
                async move { one.renew(store, clock, lease).await }
            };
            stream::iter(leases).for_each_concurrent(CONCURRENCY, renew).await;
        }
    }

    fn valid_before(&self, time: Instant) -> Vec<Arc<Lease>> {
        let mut list = self.list();
        list.retain(|lease| lease.strong_count() > 0);
        list.iter().filter_map(Weak::upgrade).filter(|lease| lease.valid_until() < time).collect()
    }

    fn list(&self) -> MutexGuard<'_, Vec<Weak<Lease>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::Fixture;

    #[tokio::test]
    async fn a_renewal_forgets_what_the_store_no_longer_holds() {
        let fixture = Fixture::new();
        let claimed = fixture.claim(2).await;
        let clock = crate::clock::TokioClock;
        let stranger = Uuid::now_v7();
        let ids = claimed.iter().map(|one| one.message_id).chain([stranger]).collect();
        let (lease, ended) = Lease::new(claimed[0].lease_token, ids, clock.now(), Span::none());
        let before = clock.now();
        lease.renew(&fixture.store, &clock, Duration::from_mins(1)).await;
        assert!(lease.valid_until() >= before + Duration::from_mins(1));
        assert!(lease.holds(claimed[0].message_id) && lease.holds(claimed[1].message_id) && !lease.holds(stranger));
        drop(lease);
        assert!(ended.is_cancelled());
    }
}
