//! What a sink does with a server that is away, stands still, or dies in the middle.

use std::time::Duration;

use postrider::Message;
use postrider::lifecycle::Claimed;
use postrider_relay::{FailureClass, Sink, SinkFailure, Verdict};

use super::hand::in_lane;
use super::outbox::Outbox;
use super::{Destination, assert_lanes_in_order, deliver, distinct};

/// So often that no message dies of an outage.
const MAX_ATTEMPTS: u32 = 1_000;
const LANES: usize = 100;
const PER_LANE: usize = 100;

/// The sink is made while its server is away: deliveries fail in a way that may be retried, soon, and go when it is there.
pub async fn a_server_that_is_down_at_the_start<D: Destination>(mut destination: D) {
    destination.kill().await;
    let sink = destination.sink().await;
    let message = in_lane("a", 1);
    let verdicts = deliver(&*sink, std::slice::from_ref(&message)).await;
    let [Verdict::Failed(failure)] = verdicts.as_slice() else { panic!("{verdicts:?}") };
    assert_eq!(
        (failure.code.as_str(), failure.class),
        (SinkFailure::UNREACHABLE, FailureClass::Retryable),
        "{failure:?}"
    );
    destination.restart().await;
    until_delivered(&*sink, &message).await;
    assert_eq!(distinct(&destination.arrived(1).await), 1);
}

/// A server that neither answers nor hangs up: the relay gives up at the deadline, and tries again.
pub async fn a_server_that_stands_still_is_left_at_the_deadline<D: Destination>(destination: D) {
    let outbox = Outbox::open();
    let sink = destination.sink().await;
    until_delivered(&*sink, &in_lane("warm", 1)).await;
    destination.stall();
    outbox.enqueue(&[Message::json("orders", &1).expect("JSON").lane("a")]).await;
    let running = outbox.deliver_to(sink, MAX_ATTEMPTS);
    outbox.until_a_failure().await;
    destination.resume();
    outbox.until_settled(0).await;
    running.stop().await;
    assert_eq!(distinct(&destination.arrived(2).await), 2);
}

/// A delivery is dropped in the middle, as at a deadline. When it is tried again it arrives before what comes after it, and
/// nothing of the first try goes on beyond what was on the wire.
pub async fn a_cancelled_delivery_leaves_nothing_behind<D: Destination>(destination: D) {
    let sink = destination.sink().await;
    until_delivered(&*sink, &in_lane("warm", 1)).await;
    let messages: Vec<Claimed> = (1..=3).map(|number| in_lane("a", number)).collect();
    destination.stall();
    let cut_off = tokio::time::timeout(Duration::from_millis(500), deliver(&*sink, &messages[..1])).await;
    assert!(cut_off.is_err(), "a server that stands still confirms nothing: {cut_off:?}");
    destination.resume();
    for message in &messages {
        until_delivered(&*sink, message).await;
    }
    let arrived = destination.arrived(4).await;
    assert_lanes_in_order(&arrived);
    let first = messages[0].message_id.to_string();
    let times = arrived.iter().filter(|message| message.message_id == first).count();
    assert!(times <= 2 + TRIES, "it was sent {times} times");
}

/// 10,000 messages in 100 lanes, and the server is killed twice and started again: nothing is missing at the consumer, and
/// the first arrivals of each lane are in order.
pub async fn heavy_killed_in_the_middle_and_started_again<D: Destination>(mut destination: D) {
    let outbox = Outbox::open();
    for number in 0..PER_LANE {
        let messages: Vec<Message> = (0..LANES)
            .map(|lane| Message::json("orders", &number).expect("JSON").lane(format!("lane-{lane:03}")))
            .collect();
        outbox.enqueue(&messages).await;
    }
    let running = outbox.deliver_to(destination.sink().await, MAX_ATTEMPTS);
    for part in [1, 2] {
        let arrived = destination.arrived(LANES * PER_LANE * part / 4).await;
        assert!(distinct(&arrived) < LANES * PER_LANE, "the server is killed while there is something to deliver");
        destination.kill().await;
        destination.restart().await;
    }
    outbox.until_settled(0).await;
    running.stop().await;
    let arrived = destination.arrived(LANES * PER_LANE).await;
    assert_lanes_in_order(&arrived);
}

/// A few tries of a connection that is coming back.
const TRIES: usize = 40;

/// Delivers one message, tried again as the relay would while the connection comes back.
async fn until_delivered(sink: &dyn Sink, message: &Claimed) {
    let mut last = None;
    for _ in 0..TRIES {
        let mut verdicts = deliver(sink, std::slice::from_ref(message)).await;
        match verdicts.pop() {
            Some(Verdict::Delivered(_)) => return,
            other => last = other,
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    panic!("not delivered in {TRIES} tries: {last:?}");
}
