//! Bounds: what is in memory, what goes at once, how fast, and how long a lease is kept.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use postrider::lifecycle::Claimed;
use postrider::{Message, Route};
use postrider_relay::{Sink, SinkFailure, SinkOptions, handler};
use tokio::sync::Semaphore;

use crate::support::{arrivals, laned, messages, quick, site, site_with, start};

/// A sink that holds what it gets until the gate opens, and counts how many it holds at most.
fn gated(gate: &Arc<Semaphore>, most: &Arc<AtomicUsize>, now: &Arc<AtomicUsize>) -> impl Sink + use<> {
    let (gate, most, now) = (Arc::clone(gate), Arc::clone(most), Arc::clone(now));
    handler(move |_: Arc<Claimed>| {
        let (gate, most, now) = (Arc::clone(&gate), Arc::clone(&most), Arc::clone(&now));
        async move {
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            gate.acquire().await?.forget();
            now.fetch_sub(1, Ordering::SeqCst);
            Ok::<(), SinkFailure>(())
        }
    })
}

/// Proves P12: deliveries at once are bounded for each sink and for the process.
#[tokio::test]
async fn concurrency_is_bounded_per_sink_and_per_process() {
    let site = site().await;
    for (sink_cap, process_cap, expected) in [(3, 100, [3, 3]), (100, 4, [4, 4])] {
        let gate = Arc::new(Semaphore::new(0));
        let all = Arc::new(AtomicUsize::new(0));
        let counts = [Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0))];
        let mut builder = site.relay().options(quick().concurrency(process_cap));
        for (name, most) in ["a", "b"].iter().zip(&counts) {
            let now = if sink_cap < process_cap { Arc::default() } else { Arc::clone(&all) };
            let options = SinkOptions::default().concurrency(sink_cap);
            builder = builder.sink_with(*name, gated(&gate, most, &now), options).route(Route::new("t", *name));
        }
        let relay = start(builder);
        site.until("select count(*) = 2 from outbox.route").await;
        site.enqueue(&messages(50)).await;
        site.until("select count(*) = 100 from outbox.in_flight").await;
        gate.add_permits(1_000);
        site.until("select not exists (select from outbox.deliveries)").await;
        relay.stop().await;
        let most = counts.map(|most| most.load(Ordering::SeqCst));
        assert!(most.iter().zip(expected).all(|(most, expected)| *most <= expected), "{most:?} of {expected:?}");
        assert!(most.iter().any(|most| expected.contains(most)), "the bound is reached: {most:?} of {expected:?}");
    }
}

#[tokio::test]
async fn messages_in_memory_are_bounded() {
    let site = site_with(&messages(100)).await;
    let gate = Arc::new(Semaphore::new(0));
    let sink = gated(&gate, &Arc::default(), &Arc::default());
    let options = SinkOptions::default().batch_size(20);
    let relay = start(site.relay().sink_with("default", sink, options).options(quick().max_messages(15)));
    site.until("select count(*) = 15 from outbox.in_flight").await;
    gate.add_permits(5);
    site.until("select count(*) = 95 from outbox.deliveries").await;
    assert!(site.number("select count(*) from outbox.in_flight").await <= 15);
    gate.add_permits(1_000);
    site.until("select not exists (select from outbox.deliveries)").await;
    relay.stop().await;
}

/// A hundred messages of a megabyte with room for four: they all arrive, a few at a time.
#[tokio::test]
async fn bytes_in_memory_are_bounded() {
    let site = site().await;
    let large = Message::bytes("t", vec![7_u8; 1 << 20], "application/octet-stream");
    // The first claim does not know yet how large they are: it is a small one.
    site.enqueue(&vec![large; 40]).await;
    let gate = Arc::new(Semaphore::new(0));
    let sink = gated(&gate, &Arc::default(), &Arc::default());
    let options = SinkOptions::default().batch_size(4);
    let relay = start(site.relay().sink_with("default", sink, options).options(quick().max_bytes(5 << 20)));
    site.until("select count(*) >= 4 from outbox.in_flight").await;
    let mut most = 0;
    for _ in 0..40 {
        gate.add_permits(1);
        most = most.max(site.number("select count(*) from outbox.in_flight").await);
        tokio::task::yield_now().await;
    }
    site.until("select not exists (select from outbox.deliveries)").await;
    relay.stop().await;
    assert!(most <= 6, "at most five megabytes and the one that went past it: {most}");
}

#[tokio::test]
async fn a_rate_is_kept() {
    let site = site_with(&messages(60)).await;
    let (sink, mut arrivals) = arrivals();
    let options = SinkOptions::default().rate(NonZeroU32::new(20));
    let began = Instant::now();
    let relay = start(site.relay().sink_with("default", sink, options).options(quick()));
    arrivals.take(20).await;
    let held = site.number("select count(*) from outbox.in_flight").await;
    assert!(held <= 40, "no more is held than two seconds' worth: {held}");
    arrivals.take(40).await;
    let taken = began.elapsed();
    assert!(taken >= Duration::from_millis(1_900), "twenty at once and forty more at twenty a second: {taken:?}");
    relay.stop().await;
}

/// A run that takes longer than the lease: it is renewed, and each message is tried once.
#[tokio::test]
async fn leases_are_renewed_while_a_slow_run_is_on_its_way() {
    let site = site_with(&laned(1, 8)).await;
    let sink = handler(|_: Arc<Claimed>| async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        Ok::<(), SinkFailure>(())
    });
    let options = SinkOptions::default().deadline(Duration::from_millis(1_300));
    let relay_options = quick().lease(Duration::from_millis(1_500));
    let relay = start(site.relay().sink_with("default", sink, options).options(relay_options));
    site.until("select not exists (select from outbox.deliveries)").await;
    let counts = relay.stop().await;
    assert_eq!((counts.delivered, counts.lost), (8, 0));
    assert_eq!(site.attempts().await, "DISPATCHED 8");
}

/// A million pending messages, and less than 200 MB of the relay's process. (It is this process: the server is another.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heavy_a_million_pending_messages_fit_into_200_megabytes() {
    let site = site().await;
    let fill = "select count(*) from outbox.enqueue_many(topic => array_fill('t'::text, array[10000]), \
                payload => array_fill(jsonb_build_object('text', repeat('x', 200)), array[10000]))";
    for _ in 0..100 {
        site.client.batch_execute(fill).await.expect("fill");
    }
    let (sink, mut arrivals) = arrivals();
    let began = Instant::now();
    let relay = start(site.relay().sink("default", sink));
    let mut arrived = 0;
    while began.elapsed() < Duration::from_secs(10) {
        arrived += arrivals.until_now().len();
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    relay.stop().await;
    let status = std::fs::read_to_string("/proc/self/status").expect("status");
    let peak_kb: u64 = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .and_then(|rest| rest.trim().trim_end_matches(" kB").trim().parse().ok())
        .expect("VmHWM");
    println!("{arrived} messages in ten seconds, {} MB at most", peak_kb / 1024);
    assert!(arrived > 10_000, "it was at work: {arrived}");
    assert!(peak_kb < 200 * 1024, "{} MB", peak_kb / 1024);
}
