//! What this relay holds, and how long it may trust that it does. A claim's messages share one token and one lease, so
//! they are renewed together. The relay counts from before it asked, the store from after it answered: the trust ends
//! first. Nothing here decides who holds a message: the store does, by token and its own clock.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use futures_util::stream::{self, StreamExt as _};
use postrider::{Claimed, LeaseToken};
use tokio::sync::{OwnedRwLockReadGuard, watch};
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::Span;
use uuid::Uuid;

use crate::clock::Clock;
use crate::outlet::Outlet;
use crate::relay::Shared;
use crate::room::Place;

/// A lease is looked after this many times while it lasts.
const RENEWALS: u32 = 6;
/// Renewals at once.
const AT_ONCE: usize = 4;
/// The shortest time a renewal may take, for very short leases.
const SHORTEST_PATIENCE: Duration = Duration::from_millis(500);

/// What one claim brought and has not ended.
pub(crate) struct Hold {
    token: LeaseToken,
    message_ids: Mutex<HashSet<Uuid>>,
    trusted_until: watch::Sender<Instant>,
    /// The claim's, for a tracer; open until the last of its messages has ended.
    pub(crate) span: Span,
    _ended: DropGuard,
}

/// One claimed message, until its outcome is recorded, it is handed back, or it is given up as lost.
pub(crate) struct Held {
    pub(crate) message: Arc<Claimed>,
    pub(crate) hold: Arc<Hold>,
    pub(crate) outlet: Arc<Outlet>,
    /// What is delivered alone waits until no message has one of these.
    pub(crate) beside_others: Option<Arc<OwnedRwLockReadGuard<()>>>,
    /// Its delivery's, for a tracer; none unless it is on its way.
    pub(crate) span: Span,
    pub(crate) _place: Place,
    pub(crate) _ahead: Option<tokio::sync::OwnedSemaphorePermit>,
}

impl Hold {
    pub(crate) fn new(
        token: LeaseToken,
        message_ids: HashSet<Uuid>,
        trusted_until: Instant,
        span: Span,
    ) -> (Arc<Self>, CancellationToken) {
        let ended = CancellationToken::new();
        let hold = Self {
            token,
            message_ids: Mutex::new(message_ids),
            trusted_until: watch::Sender::new(trusted_until),
            span,
            _ended: ended.clone().drop_guard(),
        };
        (Arc::new(hold), ended)
    }

    pub(crate) fn trusted_until(&self) -> Instant {
        *self.trusted_until.borrow()
    }

    /// Whether, as far as is known, the message is still held.
    pub(crate) fn holds(&self, message_id: Uuid) -> bool {
        self.ids().contains(&message_id)
    }

    /// Waits until the lease can no longer be trusted, however often it is renewed before.
    pub(crate) async fn lost(&self, clock: &dyn Clock, margin: Duration) {
        let mut trust = self.trusted_until.subscribe();
        loop {
            let until = *trust.borrow_and_update();
            let end = until.checked_sub(margin).unwrap_or(until);
            tokio::select! {
                () = clock.sleep_until(end) => return,
                _ = trust.changed() => {}
            }
        }
    }

    fn ids(&self) -> std::sync::MutexGuard<'_, HashSet<Uuid>> {
        self.message_ids.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.hold.ids().remove(&self.message.message_id);
        self.outlet.one_less();
    }
}

/// All holds of the relay.
#[derive(Default)]
pub(crate) struct Leases(Mutex<Vec<Weak<Hold>>>);

impl Leases {
    pub(crate) fn add(&self, hold: &Arc<Hold>) {
        let mut list = self.list();
        if list.len() == list.capacity() {
            list.retain(|hold| hold.strong_count() > 0);
        }
        list.push(Arc::downgrade(hold));
    }

    fn list(&self) -> std::sync::MutexGuard<'_, Vec<Weak<Hold>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn to_renew(&self, before: Instant) -> Vec<Arc<Hold>> {
        let mut list = self.list();
        list.retain(|hold| hold.strong_count() > 0);
        list.iter().filter_map(Weak::upgrade).filter(|hold| hold.trusted_until() < before).collect()
    }
}

/// Renews what is held, when half of its lease is over. Ends with the relay.
pub(crate) async fn keep_renewing(shared: Arc<Shared>) {
    let lease = shared.options.lease;
    loop {
        shared.clock.sleep_until(shared.clock.now() + lease / RENEWALS).await;
        let holds = shared.leases.to_renew(shared.clock.now() + lease / 2);
        stream::iter(holds).for_each_concurrent(AT_ONCE, |hold| renew(&shared, hold, lease)).await;
    }
}

async fn renew(shared: &Shared, hold: Arc<Hold>, lease: Duration) {
    let message_ids: Vec<Uuid> = hold.ids().iter().copied().collect();
    if message_ids.is_empty() {
        return;
    }
    let asked_at = shared.clock.now();
    // A renewal that hangs must leave time for the next.
    let patience = (lease / RENEWALS).max(SHORTEST_PATIENCE);
    let call = shared.store.renew(hold.token, &message_ids, lease);
    // Trouble is said by `ask`, and the trust runs out by itself.
    let Ok(renewed) = shared.ask_within(patience, "renew leases", call).await else { return };
    let renewed: HashSet<Uuid> = renewed.into_iter().collect();
    // Taken out, so that it is not sent any more. Whoever ends it counts it: its outcome may be recorded just now.
    hold.ids().retain(|id| renewed.contains(id) || !message_ids.contains(id));
    // All gone: what is on its way is cut off at once.
    hold.trusted_until.send_replace(if renewed.is_empty() { asked_at } else { asked_at + lease });
}
