//! From the store to the sink and back: what is due arrives, is recorded, in few round trips, by many relays at once.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use postrider::{Message, Route, Store};
use postrider_relay::{Batching, Relay, Sink, SinkFailure, SinkOptions, Verdict, handler};
use postrider_testkit::WireCounter;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::support::{
    Arrivals, arrivals, drain, gated, message, messages, patiently, quick, relay_at, site, site_with, start,
};

/// Proves M9: a background task of the application, with an async callback, until a token fires.
#[tokio::test]
async fn an_application_embeds_a_relay_in_a_few_lines() {
    let site = site().await;
    let (done, mut heard) = tokio::sync::mpsc::unbounded_channel();
    let shutdown = CancellationToken::new();
    let relay = Relay::builder(Arc::clone(&site.store) as Arc<dyn Store>)
        .sink(
            "default",
            handler(move |message| {
                let done = done.clone();
                async move {
                    let id: u64 = message.json()?;
                    done.send((message.topic.clone(), id))
                        .map_err(|_| SinkFailure::retryable("GONE", "no receiver"))?;
                    Ok::<(), SinkFailure>(())
                }
            }),
        )
        .build()
        .expect("a relay");
    let stats = relay.stats();
    let running = tokio::spawn(relay.run(shutdown.clone()));

    site.enqueue(&[Message::json("order.placed", &7).expect("json")]).await;
    assert_eq!(patiently("the order", heard.recv()).await, Some(("order.placed".to_owned(), 7)));
    site.until("select not exists (select from outbox.deliveries)").await;
    assert_eq!(site.attempts().await, "DISPATCHED 1");
    shutdown.cancel();
    let counts = patiently("the end", running).await.expect("no panic").expect("no error");
    assert_eq!((counts.claimed, counts.delivered, counts.lost), (1, 1, 0));
    assert_eq!(stats.counts(), counts);
}

/// Proves H5: claim, deliver, finalize: two round trips for a hundred messages, counted on the wire.
#[tokio::test]
async fn a_hundred_messages_cost_two_round_trips() {
    let site = site().await;
    let counter = WireCounter::start(site.database.cluster().port()).await;
    let url = counter.url(&site.database);
    let mut trips = Vec::new();
    for count in [0, 100] {
        site.enqueue(&messages(count)).await;
        let (relay, (sink, _arrivals)) = (relay_at(&url).await, arrivals());
        let options = quick().complete_gather(Duration::from_secs(5));
        let before = counter.round_trips();
        let counts = drain(relay.sink("default", sink).options(options)).await;
        assert_eq!(counts.delivered, count as u64);
        trips.push(counter.round_trips() - before);
    }
    assert_eq!(trips[1] - trips[0], 2, "draining nothing took {}, draining a hundred {}", trips[0], trips[1]);
}

/// Proves E2: replicas share one outbox; nothing is claimed twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_share_the_work_without_a_duplicate() {
    let site = site_with(&messages(3_000)).await;
    let options = SinkOptions::default().batch_size(50);
    let (mut relays, mut sinks) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let (sink, arrivals) = arrivals();
        relays.push(start(site.relay().sink_with("default", sink, options.clone()).options(quick())));
        sinks.push(arrivals);
    }
    site.until("select not exists (select from outbox.deliveries)").await;
    let mut delivered = 0;
    for relay in relays {
        let counts = relay.stop().await;
        assert!(counts.delivered > 0, "every replica had a share");
        delivered += counts.delivered;
    }
    assert_eq!(delivered, 3_000);
    assert_eq!(site.attempts().await, "DISPATCHED 3000");
    let arrived: Vec<_> = sinks.iter_mut().flat_map(Arrivals::until_now).collect();
    let ids: HashSet<_> = arrived.iter().map(|message| message.message_id).collect();
    assert_eq!((arrived.len(), ids.len()), (3_000, 3_000));
}

/// Proves E7: priority first, then `occurred_at`, for messages without a lane.
#[tokio::test]
async fn priority_goes_first_then_age() {
    let site = site().await;
    let now = std::time::SystemTime::now();
    let at = |topic: &str, priority, age_secs| {
        message(topic).priority(priority).occurred_at(now - Duration::from_secs(age_secs))
    };
    site.enqueue(&[at("e", 0, 10), at("d", 0, 20), at("c", 0, 30), at("b", 5, 1), at("a", 9, 0)]).await;
    let (sink, mut arrivals) = arrivals();
    let options = SinkOptions::default().concurrency(1);
    let relay = start(site.relay().sink_with("default", sink, options).options(quick()));
    let topics: Vec<String> = arrivals.take(5).await.iter().map(|message| message.topic.clone()).collect();
    assert_eq!(topics, ["a", "b", "c", "d", "e"]);
    relay.stop().await;
}

#[tokio::test]
async fn the_next_batch_is_claimed_while_this_one_is_on_its_way() {
    let site = site_with(&messages(30)).await;
    let gate = Arc::new(Semaphore::new(0));
    let (sink, _at_the_gate) = gated(&gate);
    let options = SinkOptions::default().batch_size(10).concurrency(10);
    let relay = start(site.relay().sink_with("default", sink, options).options(quick()));
    site.until("select count(*) = 20 from outbox.in_flight").await;
    gate.add_permits(30);
    site.until("select not exists (select from outbox.deliveries)").await;
    assert_eq!(relay.stop().await.delivered, 30);
}

/// One message, two sinks: each has its own deliveries, retries and order.
#[tokio::test]
async fn routes_send_one_message_to_several_sinks() {
    let site = site().await;
    let (mail, mut mailed) = arrivals();
    let (audit, mut audited) = arrivals();
    let (rest, mut others) = arrivals();
    let relay = start(
        site.relay()
            .sink("mail", mail)
            .sink("audit", audit)
            .sink("default", rest)
            .route(Route::new("order.*", "mail"))
            .route(Route::new("order.*", "audit"))
            .options(quick()),
    );
    site.until("select count(*) = 2 from outbox.route").await;
    site.enqueue(&[message("order.placed"), message("other")]).await;
    assert_eq!(mailed.next().await.topic, "order.placed");
    assert_eq!(audited.next().await.topic, "order.placed");
    assert_eq!(others.next().await.topic, "other");
    assert_eq!(relay.stop().await.delivered, 3);
    // A second relay with the same route finds it, and does not write it down again.
    drain(site.relay().sink("mail", arrivals().0).route(Route::new("order.*", "mail")).options(quick())).await;
    let added = "select count(*) from outbox.audit_log where action = 'add_route' and actor like 'relay:%'";
    assert_eq!((site.number(added).await, site.number("select count(*) from outbox.audit_log").await), (2, 2));
}

struct Batches(tokio::sync::mpsc::UnboundedSender<usize>, Batching);

#[async_trait::async_trait]
impl Sink for Batches {
    fn batching(&self) -> Batching {
        self.1
    }

    async fn deliver(&self, batch: &[Arc<postrider::lifecycle::Claimed>]) -> Vec<Verdict> {
        self.0.send(batch.len()).expect("the test listens");
        batch.iter().map(|_| Verdict::Delivered(().into())).collect()
    }
}

#[tokio::test]
async fn a_sink_gets_batches_of_the_size_it_asks_for() {
    let site = site().await;
    for (batching, batches) in [(Batching::unordered(40), 3), (Batching::unordered(40).max_bytes(10), 10)] {
        site.enqueue(&vec![message("t"); 100]).await;
        let (tell, mut sizes) = tokio::sync::mpsc::unbounded_channel();
        drain(site.relay().sink("default", Batches(tell, batching)).options(quick())).await;
        let mut seen = Vec::new();
        while let Some(size) = sizes.recv().await {
            seen.push(size);
        }
        assert_eq!((seen.iter().sum::<usize>(), seen.len()), (100, batches), "{batching:?}: {seen:?}");
    }
}
