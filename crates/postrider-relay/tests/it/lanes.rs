//! Order: a lane's messages arrive one by one and in sequence, whoever delivers them; what goes wrong in one lane stays
//! in it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use postrider::inspect::DeadFilter;
use postrider::lifecycle::Claimed;
use postrider::operate::Action;
use postrider::{OnDead, Operate as _};
use postrider_relay::{Batching, Sink, SinkFailure, SinkOptions, Verdict, handler};

use crate::support::{
    Site, arrivals, arrivals_unless, laned, message, patiently, quick, retry, site, site_with, start,
};

fn sequences(arrived: &[Arc<Claimed>]) -> HashMap<String, Vec<i64>> {
    let mut lanes: HashMap<String, Vec<i64>> = HashMap::new();
    for message in arrived {
        if let (Some(lane), Some(sequence)) = (&message.lane, message.sequence_id) {
            lanes.entry(lane.clone()).or_default().push(sequence);
        }
    }
    lanes
}

/// The first rule of lanes, with three relays pulling at fifty lanes: one hand at a time, in sequence.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lane_is_in_one_hand_and_in_order() {
    let site = site_with(&laned(50, 40)).await;
    let busy: Arc<Mutex<HashMap<String, bool>>> = Arc::default();
    let arrived: Arc<Mutex<Vec<Arc<Claimed>>>> = Arc::default();
    let clash = Arc::new(AtomicBool::new(false));
    let mut relays = Vec::new();
    for _ in 0..3 {
        let (busy, arrived, clash) = (Arc::clone(&busy), Arc::clone(&arrived), Arc::clone(&clash));
        let sink = handler(move |message: Arc<Claimed>| {
            let (busy, arrived, clash) = (Arc::clone(&busy), Arc::clone(&arrived), Arc::clone(&clash));
            async move {
                let lane = message.lane.clone().unwrap_or_default();
                if busy.lock().expect("lock").insert(lane.clone(), true) == Some(true) {
                    clash.store(true, Ordering::Relaxed);
                }
                tokio::task::yield_now().await;
                arrived.lock().expect("lock").push(Arc::clone(&message));
                busy.lock().expect("lock").insert(lane, false);
                Ok::<(), SinkFailure>(())
            }
        });
        let options = SinkOptions::default().batch_size(60).lane_run(7);
        relays.push(start(site.relay().sink_with("default", sink, options).options(quick())));
    }
    site.until("select not exists (select from outbox.deliveries)").await;
    for relay in relays {
        relay.stop().await;
    }
    assert!(!clash.load(Ordering::Relaxed), "two hands in one lane");
    let lanes = sequences(&arrived.lock().expect("lock"));
    assert_eq!(lanes.len(), 50);
    for (lane, sequence) in lanes {
        assert_eq!(sequence, (1..=40).collect::<Vec<i64>>(), "{lane}");
    }
    assert_eq!(site.attempts().await, "DISPATCHED 2000");
}

/// A failing head holds its lane and only its lane, and costs the messages behind it no attempt.
#[tokio::test]
async fn a_failing_head_holds_its_lane_alone() {
    let site = site_with(&laned(2, 5)).await;
    let healed = Arc::new(AtomicBool::new(false));
    let well = Arc::clone(&healed);
    let (sink, mut arrivals) = arrivals_unless(move |message| {
        let sick = message.lane.as_deref() == Some("lane-0000") && !well.load(Ordering::Relaxed);
        sick.then(|| SinkFailure::retryable("SICK", "not yet"))
    });
    let options = SinkOptions::default().retry(retry(20, 50, 1_000));
    let relay = start(site.relay().sink_with("default", sink, options).options(quick()));
    site.until("select not exists (select from outbox.deliveries where lane = 'lane-0001')").await;
    site.until("select max(attempt_no) >= 3 from outbox.deliveries").await;
    assert_eq!(site.number("select count(*) from outbox.deliveries where lane = 'lane-0000'").await, 5);
    healed.store(true, Ordering::Relaxed);
    site.until("select not exists (select from outbox.deliveries)").await;
    relay.stop().await;
    let arrived = arrivals.until_now();
    let mut of_sick = sequences(&arrived).remove("lane-0000").expect("it arrived");
    of_sick.dedup();
    assert_eq!(of_sick, [1, 2, 3, 4, 5], "the head came again and again, and then the rest");
    let first_tries = "select count(*) from outbox.attempts a join outbox.messages m using (message_id) \
                       where m.lane = 'lane-0000' and m.sequence_id > 1 and a.attempt_no > 1";
    assert_eq!(site.number(first_tries).await, 0, "those behind the head were never tried before");
}

/// A dead head parks its lane until a person decides; with `skip` the lane goes on without it.
#[tokio::test]
async fn a_dead_head_parks_or_is_skipped() {
    let site = site_with(&laned(2, 3)).await;
    let (sink, mut arrivals) = arrivals_unless(|message| {
        let first = message.lane.as_deref() == Some("lane-0000") && message.sequence_id == Some(1);
        (first && message.attempt_no == 1).then(|| SinkFailure::terminal("NO", "refused"))
    });
    let relay = start(site.relay().sink("default", sink).options(quick()));
    site.until("select count(*) = 1 from outbox.dead_letters").await;
    site.until("select not exists (select from outbox.deliveries where lane = 'lane-0001')").await;
    assert_eq!(
        site.number("select count(*) from outbox.deliveries where lane = 'lane-0000' and state <> 'dead'").await,
        2
    );
    let redrive = Action::Redrive { which: DeadFilter::default(), at_most: 10 };
    assert_eq!(site.store.operate("ann", &redrive).await.expect("redrive").affected, 1);
    site.until("select not exists (select from outbox.deliveries)").await;
    assert_eq!(sequences(&arrivals.until_now()).remove("lane-0000").expect("arrived"), [1, 1, 2, 3]);

    let skip = Action::SetOnDead { sink: "default".to_owned(), on_dead: OnDead::Skip };
    site.store.operate("ann", &skip).await.expect("configure");
    site.enqueue(&[message("t").lane("lane-0002"), message("t").lane("lane-0002")]).await;
    arrivals.take(2).await;
    relay.stop().await;
}

struct Ordered {
    tell: tokio::sync::mpsc::UnboundedSender<Vec<(Option<String>, i64)>>,
    batching: Batching,
    fail_once: AtomicBool,
}

#[async_trait::async_trait]
impl Sink for Ordered {
    fn batching(&self) -> Batching {
        self.batching
    }

    /// Fails the third of lane-0000 once, and does not send what stands behind it.
    async fn deliver(&self, batch: &[Arc<Claimed>]) -> Vec<Verdict> {
        let names = batch.iter().map(|message| (message.lane.clone(), message.sequence_id.unwrap_or(0)));
        self.tell.send(names.collect()).expect("the test listens");
        let mut broken = false;
        batch
            .iter()
            .map(|message| {
                let sick_lane = message.lane.as_deref() == Some("lane-0000");
                if sick_lane && message.sequence_id == Some(3) && self.fail_once.swap(false, Ordering::Relaxed) {
                    broken = true;
                    return Verdict::Failed(SinkFailure::retryable("ONCE", "try again"));
                }
                if sick_lane && broken { Verdict::NotSent } else { Verdict::Delivered(().into()) }
            })
            .collect()
    }
}

/// Where the sink keeps order, a run goes as one batch; when one fails, those behind it are handed back untried.
#[tokio::test]
async fn an_ordered_sink_gets_a_run_as_one_batch() {
    let site = site_with(&laned(2, 5)).await;
    let (tell, mut batches) = tokio::sync::mpsc::unbounded_channel();
    let sink = Ordered { tell, batching: Batching::ordered(100), fail_once: AtomicBool::new(true) };
    let options = SinkOptions::default().retry(retry(20, 50, 3));
    let relay = start(site.relay().sink_with("default", sink, options).options(quick()));
    let first = patiently("a batch", batches.recv()).await.expect("a batch");
    assert_eq!(first.len(), 10, "both runs in one batch: {first:?}");
    let second = patiently("the retry", batches.recv()).await.expect("a batch");
    let third = patiently("the rest", batches.recv()).await.expect("a batch");
    let of_sick = |sequence| (Some("lane-0000".to_owned()), sequence);
    assert_eq!((second, third), (vec![of_sick(3)], vec![of_sick(4), of_sick(5)]), "what failed goes alone");
    site.until("select not exists (select from outbox.deliveries)").await;
    assert_eq!(site.attempts().await, "DISPATCHED 10, RETRYABLE 1", "those handed back were not counted");
    assert_eq!(relay.stop().await.released, 2);
}

/// A sink that takes batches but keeps no order gets at most one message of a lane at a time.
#[tokio::test]
async fn an_unordered_sink_gets_one_message_of_a_lane_at_a_time() {
    let site = site_with(&laned(4, 3)).await;
    let (tell, mut batches) = tokio::sync::mpsc::unbounded_channel();
    let sink = Ordered { tell, batching: Batching::unordered(100), fail_once: AtomicBool::new(false) };
    let relay = start(site.relay().sink("default", sink).options(quick()));
    for sequence in 1..=3 {
        let batch = patiently("a batch", batches.recv()).await.expect("a batch");
        assert_eq!(batch.len(), 4);
        assert!(batch.iter().all(|(_, number)| *number == sequence), "{batch:?}");
    }
    relay.stop().await;
}

/// One poisoned lane with 200,000 messages behind its failing head does not slow the other lanes by more than a tenth:
/// both are measured in one run, taking turns, and the least disturbed rounds are compared.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heavy_a_poisoned_lane_does_not_slow_the_others() {
    const ROUNDS: usize = 7;
    // A busy machine disturbs some rounds; what is really slower is slower in all of them.
    const MOST_ROUNDS: usize = 30;
    let site = site().await;
    let other = Site::on(site.database.cluster().database().await).await;
    for _ in 0..20 {
        site.enqueue(&vec![message("poison").lane("poisoned"); 10_000]).await;
    }
    site.client.batch_execute("vacuum analyze outbox.delivery").await.expect("vacuum");
    let (mut with, mut without): (Vec<Duration>, Vec<Duration>) = (Vec::new(), Vec::new());
    let mut ratio = f64::INFINITY;
    for round in 0..=MOST_ROUNDS {
        for (site, times) in [(&site, &mut with), (&other, &mut without)] {
            let taken = drain_beside_poison(site).await;
            // The first round warms up.
            if round > 0 {
                times.push(taken);
            }
        }
        if let (Some(with), Some(without)) = (with.iter().min(), without.iter().min()) {
            ratio = with.as_secs_f64() / without.as_secs_f64();
        }
        if round >= ROUNDS && ratio < 1.10 {
            break;
        }
    }
    println!("with {with:?}, without {without:?}: {ratio:.3}");
    assert!(ratio < 1.10, "with the poisoned lane {with:?}, without {without:?}: {ratio:.3}");
    assert_eq!(site.number("select count(*) from outbox.deliveries where lane = 'poisoned'").await, 200_000);
}

async fn drain_beside_poison(site: &Site) -> Duration {
    site.enqueue(&laned(100, 100)).await;
    site.enqueue(&laned(100, 100)).await;
    let (sink, _arrivals) =
        arrivals_unless(|message| (message.topic == "poison").then(|| SinkFailure::retryable("POISON", "never")));
    let options = SinkOptions::default().retry(retry(20, 50, 1_000_000));
    let began = Instant::now();
    let relay = start(site.relay().sink_with("default", sink, options).options(quick()));
    site.until("select not exists (select from outbox.deliveries where lane <> 'poisoned')").await;
    let taken = began.elapsed();
    relay.stop().await;
    taken
}

#[tokio::test]
async fn a_long_lane_goes_run_after_run_without_waiting_for_a_poll() {
    let site = site_with(&laned(1, 200)).await;
    let (sink, mut arrivals) = arrivals();
    let options = SinkOptions::default().lane_run(10);
    // Only the end of a run before it makes the claimer look again.
    let relay_options = postrider_relay::RelayOptions::default()
        .poll(Duration::from_mins(10))
        .lease(Duration::from_mins(30))
        .wake_gather(Duration::from_mins(1));
    let relay = start(site.relay().sink_with("default", sink, options).options(relay_options));
    let arrived = arrivals.take(200).await;
    assert_eq!(sequences(&arrived).remove("lane-0000").expect("it arrived"), (1..=200).collect::<Vec<i64>>());
    relay.stop().await;
}
