//! What can be asked of a relay while it runs, and what it tells the store about itself.

use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant};

use postrider::Inspect as _;
use postrider::inspect::{RelayReport, SinkReport};
use postrider_relay::clock::Clock;
use postrider_relay::{BreakerOptions, RelayHandle, SinkFailure, SinkOptions};

use crate::support::{Site, arrivals, arrivals_unless, message, patiently, quick, site, start};

/// A clock that stands still: who waits for a time waits for ever.
struct Stopped(Instant);

impl Clock for Stopped {
    fn now(&self) -> Instant {
        self.0
    }

    fn sleep_until(&self, _: Instant) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(std::future::pending())
    }
}

#[tokio::test]
async fn a_handle_has_it_claim_at_once() {
    let site = site().await;
    let (sink, mut arrivals) = arrivals();
    let relay = start(site.relay().sink("default", sink).options(quick()).clock(Stopped(Instant::now())));
    let handle = relay.handle.clone();
    site.until("select exists (select from outbox.sleeper)").await;
    // Nobody sleeps, so nobody is notified; and the clock stands still, so nobody polls.
    site.client.batch_execute("delete from outbox.sleeper").await.expect("delete");
    site.enqueue(&[message("t")]).await;
    let woken = async {
        loop {
            handle.wake();
            if let Ok(arrived) = tokio::time::timeout(Duration::from_millis(100), arrivals.next()).await {
                return arrived;
            }
        }
    };
    assert_eq!(patiently("it claims", woken).await.topic, "t");
    site.until("select not exists (select from outbox.deliveries)").await;
    assert_eq!(handle.stats().counts().delivered, 1);
    relay.stop().await;
    handle.wake();
}

/// Fails at the first message, and is then left alone for an hour.
fn touchy() -> SinkOptions {
    let hour = Duration::from_hours(1);
    SinkOptions::default()
        .breaker(BreakerOptions::default().failures(1).cool_down(hour).cool_down_max(hour))
        .rate(Some(std::num::NonZeroU32::MAX))
}

async fn open_breaker(site: &Site, handle: &RelayHandle) -> SinkReport {
    site.enqueue(&[message("t")]).await;
    let opened = async {
        loop {
            let report = handle.sinks().remove(0);
            if report.breaker != "closed" && report.held == 0 {
                return report;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    patiently("the breaker opens", opened).await
}

#[tokio::test]
async fn a_handle_tells_how_the_sinks_are() {
    let site = site().await;
    let (sink, _arrivals) = arrivals_unless(|_| Some(SinkFailure::retryable("DOWN", "away")));
    let relay = start(site.relay().sink_with("default", sink, touchy()).options(quick()));
    let closed = SinkReport {
        sink: "default".to_owned(),
        kind: "handler".to_owned(),
        breaker: "closed".to_owned(),
        open_for: None,
        held: 0,
        rate: Some(u32::MAX),
        last_error: None,
    };
    assert_eq!(relay.handle.sinks(), std::slice::from_ref(&closed));
    let report = open_breaker(&site, &relay.handle).await;
    let left = report.open_for.expect("the time that is left");
    assert!(left > Duration::from_mins(50) && left <= Duration::from_hours(1), "{left:?}");
    let last_error = Some("DOWN: away".to_owned());
    assert_eq!(report, SinkReport { breaker: "open".to_owned(), open_for: Some(left), last_error, ..closed });
    relay.stop().await;
}

async fn until_reported(site: &Site, what: &str, wanted: impl Fn(&[RelayReport]) -> bool) {
    let reported = async {
        loop {
            let relays = site.store.relays().await.expect("relays");
            if wanted(&relays.into_iter().map(|relay| relay.report).collect::<Vec<_>>()) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    patiently(what, reported).await;
}

/// The beat is an hour here: what comes sooner came because something happened.
#[tokio::test]
async fn a_relay_reports_when_it_starts_when_a_breaker_opens_and_when_it_ends() {
    let site = site().await;
    let (sink, _arrivals) = arrivals_unless(|_| Some(SinkFailure::retryable("DOWN", "away")));
    let every = Duration::from_hours(1);
    let options = quick().report_every(every).worker_id("site-7".to_owned());
    let relay = start(site.relay().sink_with("default", sink, touchy()).options(options));
    until_reported(&site, "the first report", |relays| {
        let [relay] = relays else { return false };
        relay.worker_id == "site-7" && relay.every == every && relay.sinks[0].breaker == "closed"
    })
    .await;
    open_breaker(&site, &relay.handle).await;
    until_reported(&site, "the open breaker is reported", |relays| relays[0].sinks[0].breaker == "open").await;
    relay.stop().await;
    until_reported(&site, "it has signed off", <[RelayReport]>::is_empty).await;
}

/// A store that takes no reports: its rights were taken away.
#[tokio::test]
async fn a_report_that_is_refused_stops_no_delivery() {
    let site = site().await;
    let drop = "drop function if exists outbox.report; drop function if exists outbox.measure";
    site.client.batch_execute(drop).await.expect("drop");
    let (relay, mut arrivals) = site.running(quick().report_every(Duration::from_millis(10)));
    for _ in 0..3 {
        site.enqueue(&[message("t")]).await;
        assert_eq!(arrivals.next().await.topic, "t");
    }
    assert_eq!(relay.stop().await.delivered, 3);
}
