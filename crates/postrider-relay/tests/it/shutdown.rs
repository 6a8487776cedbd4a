//! How a relay ends: what is on its way may finish, what is not goes back untouched, and nothing is lost even if it ends
//! at once. And a drain, which ends by itself.

use std::sync::Arc;
use std::time::{Duration, Instant};

use postrider_relay::{ErrorKind, RetryOptions, SinkFailure, SinkOptions};
use tokio::sync::Semaphore;

use crate::support::{
    arrivals, arrivals_unless, drain, gated, laned, message, messages, patiently, quick, relay_at, retry, site,
    site_with, start,
};

#[tokio::test]
async fn what_is_on_its_way_finishes_and_the_rest_goes_back() {
    let site = site_with(&messages(20)).await;
    site.enqueue(&laned(1, 5)).await;
    let gate = Arc::new(Semaphore::new(0));
    let options = SinkOptions::default().concurrency(3);
    let (sink, mut at_the_gate) = gated(&gate);
    let relay = start(site.relay().sink_with("default", sink, options).options(quick()));
    site.until("select count(*) = 25 from outbox.in_flight").await;
    at_the_gate.take(3).await;
    relay.ask_to_stop();
    site.until("select count(*) <= 3 from outbox.in_flight").await;
    gate.add_permits(3);
    let counts = relay.ended().await;
    // A claim that was under way when it was asked to stop may take some of what was handed back, and hand it back again.
    assert_eq!((counts.delivered, counts.claimed - counts.released), (3, 3), "{counts:?}");
    assert_eq!(site.attempts().await, "DISPATCHED 3");
    let untouched = "select bool_and(state = 'pending' and attempt_no = 0) and count(*) = 22 from outbox.deliveries";
    assert!(site.client.query_one(untouched, &[]).await.expect("query").get::<_, bool>(0), "as if never claimed");
}

#[tokio::test]
async fn after_the_grace_period_deliveries_are_cut_short() {
    let site = site_with(&messages(5)).await;
    let (sink, mut at_the_gate) = gated(&Arc::new(Semaphore::new(0)));
    let options = quick().grace(Duration::from_millis(300));
    let relay = start(site.relay().sink("default", sink).options(options));
    at_the_gate.take(5).await;
    let began = Instant::now();
    let counts = relay.stop().await;
    assert!(began.elapsed() >= Duration::from_millis(300), "they had their grace period");
    assert_eq!((counts.delivered, counts.retried), (0, 5), "they may have been sent, so they count: {counts:?}");
    assert_eq!(site.number("select count(*) from outbox.deliveries where state = 'pending'").await, 5);
    assert_eq!(site.number("select count(*) from outbox.attempts where error_code = 'CUT_SHORT'").await, 5);
}

/// The second signal: the relay is gone at once. What it held comes back when the leases end.
#[tokio::test]
async fn ending_at_once_loses_nothing() {
    let site = site_with(&messages(10)).await;
    let (sink, _at_the_gate) = gated(&Arc::new(Semaphore::new(0)));
    let options = quick().lease(Duration::from_secs(2));
    let sink_options = SinkOptions::default().deadline(Duration::from_secs(1));
    let relay = start(site.relay().sink_with("default", sink, sink_options.clone()).options(options.clone()));
    site.until("select count(*) = 10 from outbox.in_flight").await;
    relay.end_at_once();
    let (sink, mut arrivals) = arrivals();
    let relay = start(site.relay().sink_with("default", sink, sink_options).options(options));
    arrivals.take(10).await;
    relay.stop().await;
    assert_eq!(site.attempts().await, "DISPATCHED 10, ZOMBIE_REQUEUE 10");
}

/// Proves H6: a scheduler starts a drain; it delivers what is due, run after run of every lane, and ends by itself.
#[tokio::test]
async fn a_drain_delivers_what_is_due_and_ends() {
    let site = site_with(&messages(50)).await;
    site.enqueue(&laned(20, 10)).await;
    site.enqueue(&[message("later").delay(Duration::from_hours(1))]).await;
    let (sink, mut arrivals) =
        arrivals_unless(|message| (message.sequence_id == Some(7)).then(|| SinkFailure::retryable("NO", "not today")));
    let options = SinkOptions::default().retry(retry(3_600_000, 3_600_000, 10)).lane_run(3).batch_size(10);
    let counts = drain(site.relay().sink_with("default", sink, options).options(quick())).await;
    assert_eq!((counts.delivered, counts.retried), (50 + 20 * 6, 20));
    assert_eq!(arrivals.until_now().len(), 50 + 20 * 7);
    assert_eq!(site.number("select count(*) from outbox.deliveries").await, 20 * 4 + 1);
    assert_eq!(site.number("select count(*) from outbox.in_flight").await, 0);
}

/// More blocked lanes than a claim looks at stand before the one that is free: a drain finds it all the same.
#[tokio::test]
async fn a_drain_looks_behind_thousands_of_blocked_lanes() {
    let site = site().await;
    site.client
        .batch_execute(
            "select outbox.enqueue_many(topic => array_fill('t'::text, array[5000]), payload => array_fill('1'::jsonb, array[5000]), \
             lane => (select array_agg('a' || lpad(n::text, 5, '0')) from generate_series(1, 5000) n), \
             delay_seconds => array_fill(3600::numeric, array[5000]))",
        )
        .await
        .expect("enqueue");
    site.enqueue(&[message("t").lane("zzz")]).await;
    let (sink, _arrivals) = arrivals();
    assert_eq!(drain(site.relay().sink("default", sink).options(quick())).await.delivered, 1);
}

/// What is less urgent and older stands before where a full claim of the urgent ended: a drain looks there too.
#[tokio::test]
async fn a_drain_leaves_no_lower_priority_behind() {
    let site = site().await;
    let now = std::time::SystemTime::now();
    let old = message("t").priority(0).occurred_at(now - Duration::from_mins(1));
    let mut all = vec![message("t").priority(5); 500];
    all.push(old);
    site.enqueue(&all).await;
    let (sink, _arrivals) = arrivals();
    assert_eq!(drain(site.relay().sink("default", sink).options(quick())).await.delivered, 501);
}

/// What is found dead when it is claimed hides nothing behind it.
#[tokio::test]
async fn a_drain_goes_on_behind_what_it_buries() {
    let site = site_with(&messages(40)).await;
    site.client
        .batch_execute(
            "select outbox.complete(message_id, lease_token, 'w', 'RETRYABLE') from outbox.claim('w', 20, 60)",
        )
        .await
        .expect("one attempt each");
    let (sink, _arrivals) = arrivals();
    let retry = RetryOptions::default().max_attempts(1);
    let options = SinkOptions::default().retry(retry).batch_size(5);
    let counts = drain(site.relay().sink_with("default", sink, options).options(quick())).await;
    assert_eq!(counts.delivered, 20);
    assert_eq!(site.number("select count(*) from outbox.dead_letters").await, 20);
}

/// A drain does not wait for a store that is away: it says so and ends, and what was due still is.
#[tokio::test]
async fn a_drain_gives_up_on_a_store_that_is_away() {
    let cluster = postrider_testkit::Cluster::start().await;
    let database = cluster.database().await;
    let relay = relay_at(&database.url()).await;
    cluster.kill9();
    let (sink, _arrivals) = arrivals();
    let relay = relay.sink("default", sink).build();
    let drained = relay.expect("a relay").drain(tokio_util::sync::CancellationToken::new());
    let ended = patiently("the drain ends", drained).await;
    assert!(ended.as_ref().is_err_and(|error| error.kind() == ErrorKind::StoreAway), "{ended:?}");
}

/// A drain does not wait for a sink that is down.
#[tokio::test]
async fn a_drain_gives_up_on_a_sink_that_is_down() {
    let site = site_with(&messages(500)).await;
    let (sink, _arrivals) = arrivals_unless(|_| Some(SinkFailure::retryable("DOWN", "")));
    let options = SinkOptions::default().concurrency(4);
    let counts = drain(site.relay().sink_with("default", sink, options).options(quick())).await;
    assert!((20..=24).contains(&counts.retried), "until the breaker opened: {counts:?}");
    assert_eq!(site.number("select count(*) from outbox.deliveries where state = 'pending'").await, 500);
}
