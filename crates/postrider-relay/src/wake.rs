//! Wakes the claimers when the store has news. Before they wait they say so to the store, so that producers notify only
//! when somebody sleeps. Where notifications cannot come, polling does it alone; that is said once. Nothing here claims.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::{Mutex, watch};
use tracing::{info, warn};

use crate::relay::Shared;
use crate::telemetry;

/// For how long a relay says it sleeps. A crashed one makes producers notify nobody for this long.
const ANNOUNCED_FOR: Duration = Duration::from_mins(1);
/// Said again when less than this is left.
const ANNOUNCE_AGAIN: Duration = Duration::from_secs(10);
/// Between two tries to listen.
const RECONNECT_FIRST: Duration = Duration::from_millis(250);
const RECONNECT_MOST: Duration = Duration::from_secs(5);
/// A store that hears nothing may be reached without its pooler one day.
const ASK_AGAIN: Duration = Duration::from_mins(5);

#[derive(Default)]
pub(crate) struct Wake {
    news: watch::Sender<u64>,
    listening: AtomicBool,
    /// Until when the store knows that we sleep. Locked while the store is told, so that what it hears is in order.
    announced_until: Mutex<Option<Instant>>,
}

impl Wake {
    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.news.subscribe()
    }

    /// Says that this relay sleeps, if the store does not know. True: it has just been said, so claim once more; a
    /// producer may have looked just before.
    pub(crate) async fn announce(&self, shared: &Shared) -> bool {
        if !self.listening.load(Ordering::Acquire) {
            return false;
        }
        let mut announced_until = self.announced_until.lock().await;
        let now = shared.clock.now();
        if announced_until.is_some_and(|until| until > now + ANNOUNCE_AGAIN) {
            return false;
        }
        match shared.ask("say that it sleeps", shared.store.sleep(&shared.options.worker_id, ANNOUNCED_FOR)).await {
            Ok(()) => {
                *announced_until = Some(now + ANNOUNCED_FOR);
                true
            }
            Err(_) => false,
        }
    }

    fn tell(&self) {
        self.news.send_modify(|count| *count += 1);
    }
}

/// Listens, for ever and over every outage. Ends with the relay.
pub(crate) async fn listen(shared: Arc<Shared>) {
    let wake = &shared.wake;
    let mut pause = RECONNECT_FIRST;
    let mut said = false;
    loop {
        match shared.store.listen().await {
            Ok(mut listener) => {
                if said {
                    info!("listening for notifications again");
                }
                said = false;
                pause = RECONNECT_FIRST;
                wake.listening.store(true, Ordering::Release);
                // Whatever came before we listened.
                wake.tell();
                while let Ok(()) = listener.news().await {
                    telemetry::notify_wakeup();
                    wake.tell();
                    woke(&shared).await;
                }
                wake.listening.store(false, Ordering::Release);
                *wake.announced_until.lock().await = None;
            }
            Err(postrider::Error::CannotListen { reason }) => {
                if !said {
                    warn!(%reason, poll = ?shared.options.poll, "no notifications: polling alone");
                    said = true;
                }
                pause = ASK_AGAIN;
            }
            Err(error) => {
                if !said {
                    warn!(error = error.in_short(), "cannot listen for notifications; polling until that works");
                    said = true;
                }
                pause = (pause * 2).min(RECONNECT_MOST);
            }
        }
        shared.clock.sleep_until(shared.clock.now() + pause).await;
    }
}

/// The store need not tell us more for now. Claimers that find nothing say again that they sleep, after this.
async fn woke(shared: &Shared) {
    let mut announced_until = shared.wake.announced_until.lock().await;
    if announced_until.take().is_some() {
        // If that fails, producers notify a relay that is awake: a waste, not an error.
        drop(shared.ask("say that it is awake", shared.store.woke(&shared.options.worker_id)).await);
    }
}
