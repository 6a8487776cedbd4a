//! A sink that is down, and one that is paused: nothing is lost, no attempt is spent while it is left alone, and it
//! comes back gently.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use postrider::Operate as _;
use postrider::lifecycle::Claimed;
use postrider::operate::Action;
use postrider_relay::{Backoff, BreakerOptions, RelayOptions, SinkFailure, SinkOptions, handler};

use crate::support::{arrivals, messages, quick, retry, site, site_with, start};

fn options() -> SinkOptions {
    let breaker = BreakerOptions::default()
        .failures(10)
        .cool_down(Duration::from_millis(200))
        .cool_down_max(Duration::from_secs(2));
    SinkOptions::default().concurrency(8).retry(retry(100, 500, 10)).breaker(breaker)
}

/// A sink down for a minute and back. While its breaker is open only probes go out, so the messages keep their attempts
/// (with a backoff of half a second a minute would cost each more than a hundred), and none is lost. When it is back,
/// the flow grows from one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_a_sink_down_for_a_minute_comes_back() {
    const COUNT: usize = 2_000;
    let site = site_with(&messages(COUNT)).await;
    let up = Arc::new(AtomicBool::new(false));
    let calls: Arc<Mutex<Vec<Instant>>> = Arc::default();
    let (now, most_at_first) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let back_for = Arc::new(AtomicUsize::new(0));
    let sink = {
        let (up, calls, now) = (Arc::clone(&up), Arc::clone(&calls), Arc::clone(&now));
        let (most_at_first, back_for) = (Arc::clone(&most_at_first), Arc::clone(&back_for));
        handler(move |_: Arc<Claimed>| {
            let (up, calls, now) = (Arc::clone(&up), Arc::clone(&calls), Arc::clone(&now));
            let (most_at_first, back_for) = (Arc::clone(&most_at_first), Arc::clone(&back_for));
            async move {
                if !up.load(Ordering::SeqCst) {
                    calls.lock().expect("lock").push(Instant::now());
                    return Err(SinkFailure::retryable("DOWN", "connection refused"));
                }
                let at_once = now.fetch_add(1, Ordering::SeqCst) + 1;
                if back_for.fetch_add(1, Ordering::SeqCst) < 4 {
                    most_at_first.fetch_max(at_once, Ordering::SeqCst);
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
                now.fetch_sub(1, Ordering::SeqCst);
                Ok(())
            }
        })
    };
    let relay = start(site.relay().sink_with("default", sink, options()).options(quick()));
    tokio::time::sleep(Duration::from_mins(1)).await;
    let tried = calls.lock().expect("lock").len();
    // Ten to open it, up to seven more on their way at that time, and probes: 0.2, 0.4, 0.8, 1.6 seconds, then every two.
    assert!((30..=60).contains(&tried), "{tried} deliveries were tried in a minute of outage");
    let spent = site.number("select max(attempt_no)::bigint from outbox.deliveries").await;
    assert!(spent <= 10, "no message lost its budget: {spent}");
    assert_eq!(site.number("select count(*) from outbox.dead_letters").await, 0);

    up.store(true, Ordering::SeqCst);
    site.until("select not exists (select from outbox.deliveries)").await;
    let counts = relay.stop().await;
    assert_eq!(counts.delivered, COUNT as u64);
    assert!(most_at_first.load(Ordering::SeqCst) <= 2, "it came back gently: {most_at_first:?} at once");
}

/// While the breaker is open, what was claimed already is handed back, and its attempt with it.
#[tokio::test]
async fn what_was_claimed_when_the_breaker_opens_is_handed_back() {
    let site = site_with(&messages(300)).await;
    let sink = handler(|_: Arc<Claimed>| async { Err::<(), _>(SinkFailure::retryable("DOWN", "")) });
    let mut options = options();
    options.breaker.cool_down = Duration::from_mins(1);
    options.breaker.cool_down_max = Duration::from_mins(1);
    options.retry.backoff = Backoff::new(Duration::from_mins(10), Duration::from_mins(10));
    let relay = start(site.relay().sink_with("default", sink, options).options(quick()));
    site.until("select count(*) filter (where attempt_no > 0) between 10 and 18 and count(*) filter (where state = 'leased') = 0 and count(*) = 300 and (select count(*) >= 10 from outbox.attempts) from outbox.deliveries").await;
    let counts = relay.stop().await;
    assert!((10..=17).contains(&counts.retried), "{counts:?}");
    assert_eq!(counts.claimed, counts.retried + counts.released, "{counts:?}");
}

struct Fussy {
    sends: AtomicBool,
    calls: AtomicUsize,
}

#[async_trait::async_trait]
impl postrider_relay::Sink for Fussy {
    async fn deliver(&self, batch: &[Arc<Claimed>]) -> Vec<postrider_relay::Verdict> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        let sends = self.sends.load(Ordering::SeqCst);
        let verdict = || {
            if sends { postrider_relay::Verdict::Delivered(().into()) } else { postrider_relay::Verdict::NotSent }
        };
        batch.iter().map(|_| verdict()).collect()
    }
}

/// A sink that sends nothing is left alone too, instead of being asked again and again; its probes that were not sent do
/// not keep it from coming back, and nothing is counted against the messages.
#[tokio::test]
async fn a_sink_that_sends_nothing_is_left_alone_and_comes_back() {
    let site = site_with(&messages(50)).await;
    let sink = Arc::new(Fussy { sends: AtomicBool::new(false), calls: AtomicUsize::new(0) });
    let relay = start(site.relay().sink_with("default", Arc::clone(&sink), options()).options(quick()));
    tokio::time::sleep(Duration::from_secs(3)).await;
    let calls = sink.calls.load(Ordering::SeqCst);
    assert!((10..=40).contains(&calls), "ten to open, some on their way, and probes: {calls}");
    assert_eq!(site.number("select count(*) from outbox.attempts").await, 0);
    sink.sends.store(true, Ordering::SeqCst);
    site.until("select not exists (select from outbox.deliveries)").await;
    assert_eq!(relay.stop().await.delivered, 50);
}

/// Pause and resume last across restarts, and a resume is noticed at once.
#[tokio::test]
async fn a_paused_sink_stays_paused_over_a_restart() {
    let site = site().await;
    site.store.operate("ann", &Action::Pause { sink: "default".to_owned() }).await.expect("pause");
    site.enqueue(&messages(3)).await;
    let (relay, mut arrived) = site.running(quick());
    site.until("select exists (select from outbox.sleeper)").await;
    assert_eq!(relay.stop().await.claimed, 0);

    let (sink, mut later) = arrivals();
    let hourly = RelayOptions::default().poll(Duration::from_hours(1)).lease(Duration::from_hours(4));
    let relay = start(site.relay().sink("default", sink).options(hourly));
    site.until("select exists (select from outbox.sleeper)").await;
    site.store.operate("ann", &Action::Resume { sink: "default".to_owned() }).await.expect("resume");
    later.take(3).await;
    relay.stop().await;
    assert!(arrived.until_now().is_empty(), "nothing went out while it was paused");
}
