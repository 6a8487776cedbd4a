//! Wakes the claimers when the store has news. Before they wait, the relay tells the store that it sleeps, so that
//! producers notify only when somebody sleeps. Where notifications cannot come, polling is enough; that is logged once.
//! Nothing here claims.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use postrider::{Inspect, Listener, Queue};
use tokio::sync::{Mutex, watch};
use tracing::{info, warn};

use crate::clock::Clock;
use crate::options::RelayOptions;
use crate::outage::Outage;
use crate::store_client::{StoreClient, StoreError};
use crate::telemetry::Telemetry;

/// For how long a relay announces that it sleeps. After a crash, producers notify nobody for this long.
const ANNOUNCED_FOR: Duration = Duration::from_mins(1);
/// When it is announced again, well before that is over.
const ANNOUNCE_AGAIN: Duration = Duration::from_secs(45);
/// When it is announced again after that failed.
const ANNOUNCE_RETRY: Duration = Duration::from_secs(1);
/// A wake-up is announced after this: first comes the claim that somebody waits for.
const WOKE_AFTER: Duration = Duration::from_millis(2);
/// Between two tries to listen.
const RECONNECT_MIN: Duration = Duration::from_millis(250);
const RECONNECT_MAX: Duration = Duration::from_secs(5);
/// Between two tries on a connection without notifications: the pooler in front may be removed one day.
const UNSUPPORTED_RETRY: Duration = Duration::from_mins(5);
/// The time limit for a connection that listens.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) struct Wake {
    store: Arc<StoreClient>,
    clock: Arc<dyn Clock>,
    options: Arc<RelayOptions>,
    news: watch::Sender<u64>,
    listening: AtomicBool,
    /// How many leases the reaper of this relay has ended.
    ended_leases: AtomicU64,
    /// What the store knows. Locked while the store is told, so that it hears things in order.
    announced: Mutex<Option<Announced>>,
}

/// The store knows that this relay sleeps.
struct Announced {
    said_at: Instant,
    again_at: Instant,
}

/// What a claimer that found nothing does.
pub(crate) enum Sleep {
    /// Claim once more: a producer may have checked for sleepers before the announcement.
    ClaimAgain,
    /// Sleep, at most until this time; then announce again.
    Until(Option<Instant>),
}

impl Wake {
    pub(crate) fn new(store: Arc<StoreClient>, clock: Arc<dyn Clock>, options: Arc<RelayOptions>) -> Self {
        let (news, listening, announced) = (watch::Sender::new(0), AtomicBool::new(false), Mutex::default());
        Self { store, clock, options, news, listening, ended_leases: AtomicU64::new(0), announced }
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.news.subscribe()
    }

    /// Announces that this relay sleeps, unless the store knows. `claimed_at` is when the caller last claimed: a claim from
    /// before the announcement proves nothing.
    pub(crate) async fn announce(&self, claimed_at: Instant) -> Sleep {
        if !self.listening.load(Ordering::Acquire) {
            return Sleep::Until(None);
        }
        let mut announced = self.announced.lock().await;
        let now = self.clock.now();
        if let Some(known) = &*announced
            && now < known.again_at
        {
            let covered = claimed_at >= known.said_at;
            return if covered { Sleep::Until(Some(known.again_at)) } else { Sleep::ClaimAgain };
        }
        let worker_id = &self.options.worker_id;
        match self.store.ask("announce sleep", |store| store.sleep(worker_id, ANNOUNCED_FOR)).await {
            Ok(()) => {
                *announced = Some(Announced { said_at: self.clock.now(), again_at: now + ANNOUNCE_AGAIN });
                Sleep::ClaimAgain
            }
            Err(_) => Sleep::Until(Some(self.clock.now() + ANNOUNCE_RETRY)),
        }
    }

    /// Wakes the claimers that wait for news.
    pub(crate) fn wake_claimers(&self) {
        self.news.send_modify(|count| *count += 1);
    }

    /// Wakes them for messages whose leases have just been ended: they are due since long ago, where claimers may not look.
    pub(crate) fn leases_ended(&self, leases: u64) {
        self.ended_leases.fetch_add(leases, Ordering::AcqRel);
        self.wake_claimers();
    }

    /// How many leases have been ended until now.
    pub(crate) fn ended_leases(&self) -> u64 {
        self.ended_leases.load(Ordering::Acquire)
    }

    /// Listens over every outage. Ends with the relay.
    pub(crate) async fn listen(self: Arc<Self>, telemetry: Telemetry) {
        let mut pause = RECONNECT_MIN;
        let (unsupported, broken) = (Outage::default(), Outage::default());
        loop {
            match self.store.ask_quietly(CONNECT_TIMEOUT, Queue::listen).await {
                Ok(listener) => {
                    if unsupported.back() | broken.back() {
                        info!("listening for notifications again");
                    }
                    pause = RECONNECT_MIN;
                    self.hear(listener, &telemetry).await;
                }
                Err(StoreError::Failed(error)) if error.kind() == postrider::ErrorKind::CannotListen => {
                    if unsupported.away(self.clock.now()).is_some() {
                        warn!(reason = error.reason(), poll = ?self.options.poll, "no notifications: polling alone");
                    }
                    pause = UNSUPPORTED_RETRY;
                }
                Err(error) => {
                    // If the store is away, that is logged where it is asked.
                    let there = self.store.ask("check the store", Inspect::now).await.is_ok();
                    if there && let Some(outages) = broken.away(self.clock.now()) {
                        let error = error.words();
                        warn!(error, outages, "cannot listen for notifications; polling until that works");
                    }
                    pause = (pause * 2).min(RECONNECT_MAX);
                }
            }
            self.clock.sleep_until(self.clock.now() + pause).await;
        }
    }

    /// Until the connection breaks.
    async fn hear(&self, mut listener: Box<dyn Listener>, telemetry: &Telemetry) {
        self.listening.store(true, Ordering::Release);
        // Something may have come before we listened.
        self.wake_claimers();
        while listener.news().await.is_ok() {
            telemetry.notify_wakeup();
            self.woke().await;
        }
        self.listening.store(false, Ordering::Release);
        *self.announced.lock().await = None;
        self.wake_claimers();
    }

    /// Wakes the claimers and tells the store that no more notifications are needed. The announcement is forgotten first,
    /// so that a claimer that finds nothing announces again after this.
    async fn woke(&self) {
        let mut announced = self.announced.lock().await;
        let was_announced = announced.take().is_some();
        self.wake_claimers();
        if was_announced {
            self.clock.sleep_until(self.clock.now() + WOKE_AFTER).await;
            // If that fails, producers notify a relay that is awake: a waste, not an error.
            drop(self.store.ask("announce waking", |store| store.woke(&self.options.worker_id)).await);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::Fixture;

    #[tokio::test]
    async fn a_claim_from_before_the_announcement_is_repeated() {
        let fixture = Fixture::new();
        let clock = Arc::new(crate::clock::TokioClock);
        let wake = Wake::new(Arc::clone(&fixture.store), clock.clone(), Arc::default());
        let before = clock.now();
        assert!(matches!(wake.announce(before).await, Sleep::Until(None)), "nobody listens");
        wake.listening.store(true, Ordering::Release);
        assert!(matches!(wake.announce(before).await, Sleep::ClaimAgain), "announced just now");
        assert!(matches!(wake.announce(before).await, Sleep::ClaimAgain));
        assert!(matches!(wake.announce(clock.now()).await, Sleep::Until(Some(_))));
        let mut news = wake.subscribe();
        wake.woke().await;
        assert!(news.has_changed().unwrap() && wake.announced.lock().await.is_none());
        news.mark_unchanged();
    }
}
