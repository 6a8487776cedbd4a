//! Wakes the claimers when the store has news. Before they wait they say so to the store, so that producers notify only
//! when somebody sleeps. Where notifications cannot come, polling does it alone; that is said once. Nothing here claims.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::{Mutex, watch};
use tracing::{info, warn};

use crate::outage::Outage;
use crate::relay::Shared;

/// For how long a relay says it sleeps. A crashed one makes producers notify nobody for this long.
const ANNOUNCED_FOR: Duration = Duration::from_mins(1);
/// And how often it says so, long before that is over.
const ANNOUNCE_AGAIN: Duration = Duration::from_secs(45);
/// Between two tries to listen.
const RECONNECT_FIRST: Duration = Duration::from_millis(250);
const RECONNECT_MOST: Duration = Duration::from_secs(5);
/// A store that hears nothing may be reached without its pooler one day.
const ASK_AGAIN: Duration = Duration::from_mins(5);

/// Until it is said again after that failed.
const ANNOUNCE_RETRY: Duration = Duration::from_secs(1);
/// The longest a connection that listens may take to stand.
const CONNECT_MOST: Duration = Duration::from_secs(30);

#[derive(Default)]
pub(crate) struct Wake {
    news: watch::Sender<u64>,
    listening: AtomicBool,
    /// What the store knows. Locked while the store is told, so that what it hears is in order.
    announced: Mutex<Option<Announced>>,
}

/// The store knows that we sleep.
struct Announced {
    said_at: Instant,
    /// When to say it again.
    again_at: Instant,
}

/// What a claimer that found nothing does.
pub(crate) enum Sleep {
    /// Claim once more: a producer may have looked for sleepers before this was said.
    LookAgain,
    /// Sleep; if there is a time, until then at most, and say it again.
    Until(Option<Instant>),
}

impl Wake {
    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.news.subscribe()
    }

    /// Says that this relay sleeps, unless the store knows. `looked_at` is when the caller last asked for messages: a
    /// look from before it was said proves nothing.
    pub(crate) async fn announce(&self, shared: &Shared, looked_at: Instant) -> Sleep {
        if !self.listening.load(Ordering::Acquire) {
            return Sleep::Until(None);
        }
        let mut announced = self.announced.lock().await;
        let now = shared.clock.now();
        if let Some(known) = &*announced
            && now < known.again_at
        {
            let covered = looked_at >= known.said_at;
            return if covered { Sleep::Until(Some(known.again_at)) } else { Sleep::LookAgain };
        }
        match shared.ask("say that it sleeps", shared.store.sleep(&shared.options.worker_id, ANNOUNCED_FOR)).await {
            Ok(()) => {
                *announced = Some(Announced { said_at: shared.clock.now(), again_at: now + ANNOUNCE_AGAIN });
                Sleep::LookAgain
            }
            Err(_) => Sleep::Until(Some(shared.clock.now() + ANNOUNCE_RETRY)),
        }
    }

    /// Wakes the claimers that wait for news.
    pub(crate) fn tell(&self) {
        self.news.send_modify(|count| *count += 1);
    }
}

/// Listens, for ever and over every outage. Ends with the relay.
pub(crate) async fn listen(shared: Arc<Shared>) {
    let wake = &shared.wake;
    let mut pause = RECONNECT_FIRST;
    // No notifications at all is another thing than a connection that breaks.
    let (deaf, broken) = (Outage::default(), Outage::default());
    loop {
        match tokio::time::timeout(CONNECT_MOST, shared.store.listen()).await {
            Ok(Ok(mut listener)) => {
                if deaf.back() | broken.back() {
                    info!("listening for notifications again");
                }
                pause = RECONNECT_FIRST;
                wake.listening.store(true, Ordering::Release);
                // Whatever came before we listened.
                wake.tell();
                while listener.news().await.is_ok() {
                    shared.telemetry.notify_wakeup();
                    woke(&shared).await;
                }
                wake.listening.store(false, Ordering::Release);
                *wake.announced.lock().await = None;
                wake.tell();
            }
            Ok(Err(postrider::Error::CannotListen { reason })) => {
                if deaf.away(shared.clock.now()).is_some() {
                    warn!(%reason, poll = ?shared.options.poll, "no notifications: polling alone");
                }
                pause = ASK_AGAIN;
            }
            trouble => {
                // A store that is away is said where it is asked; here only that it cannot be listened to.
                let there = shared.ask("look whether it is there", shared.store.now()).await.is_ok();
                if there && let Some(outages) = broken.away(shared.clock.now()) {
                    let error = match trouble {
                        Ok(Err(error)) => error.in_short(),
                        _ => format!("no answer within {CONNECT_MOST:?}"),
                    };
                    warn!(error, outages, "cannot listen for notifications; polling until that works");
                }
                pause = (pause * 2).min(RECONNECT_MOST);
            }
        }
        shared.clock.sleep_until(shared.clock.now() + pause).await;
    }
}

/// Wakes the claimers, and tells the store that it need not tell us more for now. It is forgotten first that we sleep, so
/// that a claimer that finds nothing says it again, after this.
async fn woke(shared: &Shared) {
    let mut announced = shared.wake.announced.lock().await;
    let was_said = announced.take().is_some();
    shared.wake.tell();
    if was_said {
        // If that fails, producers notify a relay that is awake: a waste, not an error.
        drop(shared.ask("say that it is awake", shared.store.woke(&shared.options.worker_id)).await);
    }
}
