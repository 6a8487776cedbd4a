//! What makes a relay move: a notification at once, a poll where there is none, and either of them alone.

use std::sync::Arc;
use std::time::{Duration, Instant};

use postrider::{ErrorKind, Queue as _, Store};
use postrider_relay::{Relay, RelayOptions, SinkFailure, SinkOptions};
use postrider_testkit::{Cluster, PgBouncer};

use crate::support::{Site, arrivals, arrivals_unless, message, messages, quick, retry, site, start, store};

/// A poll that no test waits for.
fn by_notification_alone() -> RelayOptions {
    RelayOptions::default().poll(Duration::from_hours(1)).lease(Duration::from_hours(4))
}

async fn asleep(site: &Site) {
    site.until("select exists (select from outbox.sleeper where until > now() + interval '10 seconds')").await;
}

/// Proves P8: NOTIFY alone drives delivery (the poll is an hour away), again and again.
#[tokio::test]
async fn a_notification_alone_drives_delivery() {
    let site = site().await;
    let (relay, mut arrivals) = site.running(by_notification_alone());
    for _ in 0..5 {
        asleep(&site).await;
        site.enqueue(&messages(3)).await;
        arrivals.take(3).await;
    }
    relay.stop().await;
}

/// Proves P8: a poll alone drives delivery. A pooler in transaction mode takes LISTEN and loses the notifications; the
/// relay notices, says so once, and works.
#[tokio::test]
async fn a_poll_alone_drives_delivery_through_a_pooler() {
    let site = site().await;
    let bouncer = PgBouncer::start(&site.database).await;
    let pooled = store(&bouncer.url()).await;
    assert!(
        matches!(pooled.listen().await, Err(error) if error.kind() == ErrorKind::CannotListen),
        "the pooler loses notifications, and that is noticed"
    );
    let (sink, mut arrivals) = arrivals();
    let relay = start(Relay::builder(pooled as Arc<dyn Store>).sink("default", sink).options(quick()));
    for _ in 0..3 {
        site.enqueue(&messages(20)).await;
        arrivals.take(20).await;
    }
    let counts = relay.stop().await;
    assert_eq!((counts.delivered, counts.lost), (60, 0));
    assert_eq!(site.number("select count(*) from outbox.sleeper").await, 0, "it never asked to be notified");
}

/// Several sinks share one announcement: whichever is written to, its claimer hears of it, again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_sinks_wake_by_one_notification() {
    let site = site().await;
    let mut builder = site.relay().options(by_notification_alone());
    let mut sinks = Vec::new();
    for name in ["a", "b", "c", "d"] {
        let (sink, arrived) = arrivals();
        builder = builder.sink(name, sink).route(postrider::Route::new(name, name));
        sinks.push((name, arrived));
    }
    let relay = start(builder);
    site.until("select count(*) = 4 from outbox.route").await;
    for round in 0..40 {
        let (name, arrived) = &mut sinks[round % 4];
        site.enqueue(&[message(name)]).await;
        arrived.next().await;
    }
    relay.stop().await;
}

/// A producer that looked for sleepers before the relay slept, and commits after, notifies nobody: it is found soon all the
/// same, long before the poll.
#[tokio::test]
async fn a_commit_that_spans_the_falling_asleep_is_found_soon() {
    let site = site().await;
    let (sink, mut arrivals) = arrivals();
    site.client.batch_execute("begin; select outbox.enqueue('t', '1')").await.expect("enqueue");
    let relay = start(site.relay().sink("default", sink).options(by_notification_alone()));
    asleep(&Site::on(site.database.clone()).await).await;
    site.client.batch_execute("commit").await.expect("commit");
    arrivals.next().await;
    relay.stop().await;
}

/// Thousands of lanes that wait do not hide a free one behind them, though the poll is an hour away.
#[tokio::test]
async fn a_free_lane_behind_thousands_of_blocked_ones_is_found() {
    let site = site().await;
    let blocked: Vec<_> =
        (0..5_000).map(|lane| message("t").lane(format!("a{lane:05}")).delay(Duration::from_hours(2))).collect();
    site.enqueue(&blocked).await;
    let (relay, mut arrivals) = site.running(by_notification_alone());
    for _ in 0..3 {
        asleep(&site).await;
        site.enqueue(&[message("t").lane("zzz")]).await;
        arrivals.next().await;
    }
    relay.stop().await;
}

/// Retries come on time though no notification tells of them and the poll is an hour away.
#[tokio::test]
async fn a_retry_needs_no_poll() {
    let site = site().await;
    let (sink, mut arrivals) =
        arrivals_unless(|message| (message.attempt_no < 3).then(|| SinkFailure::retryable("AGAIN", "")));
    let options = SinkOptions::default().retry(retry(4_000, 4_000, 10));
    let relay = start(site.relay().sink_with("default", sink, options).options(by_notification_alone()));
    site.enqueue(&[message("t")]).await;
    for message in arrivals.take(3).await.iter().skip(1) {
        let late = message.claimed_at.duration_since(message.due_at).unwrap_or_default();
        assert!(late < Duration::from_millis(300), "{late:?} late");
    }
    site.until("select not exists (select from outbox.deliveries)").await;
    relay.stop().await;
}

/// After the server has crashed and come back, the relay listens again by itself.
#[tokio::test]
async fn listens_again_after_the_server_restarted() {
    let cluster = Cluster::start().await;
    let site = Site::on(cluster.database().await).await;
    let (relay, mut arrivals) = site.running(by_notification_alone());
    site.enqueue(&messages(1)).await;
    arrivals.next().await;
    for _ in 0..2 {
        cluster.kill9();
        cluster.restart().await;
        let again = Site::on(site.database.clone()).await;
        asleep(&again).await;
        again.client.batch_execute("select outbox.enqueue('t', '1')").await.expect("enqueue");
        arrivals.next().await;
    }
    relay.stop().await;
}

/// Proves P8: the first message is taken at once, those that follow gather: a hundred single commits within a few
/// hundred milliseconds cost a dozen claims, not a hundred.
#[tokio::test]
async fn a_burst_is_gathered() {
    let site = site().await;
    let (relay, mut arrivals) = site.running(by_notification_alone());
    asleep(&site).await;
    let began = Instant::now();
    for _ in 0..100 {
        site.enqueue(&messages(1)).await;
    }
    let burst = began.elapsed();
    let arrived = arrivals.take(100).await;
    let claims: std::collections::HashSet<_> = arrived.iter().map(|message| message.lease_token).collect();
    let gathers = usize::try_from(burst.as_millis() / 30).expect("few") + 3;
    assert!(claims.len() <= gathers, "{} claims in {burst:?}, at most {gathers}", claims.len());
    relay.stop().await;
}
