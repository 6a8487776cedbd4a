//! What a sink does with messages that its destination does not take.

use postrider::Message;
use postrider::lifecycle::{Claimed, Content};
use postrider_relay::Verdict;

use super::hand::in_lane;
use super::outbox::Outbox;
use super::{Destination, claimed, deliver};

/// Each kind of refusal has its code and its class, and harms no other message.
pub async fn what_is_refused_is_classified<D: Destination>(destination: D) {
    let refusals = destination.refusals().await;
    assert!(!refusals.is_empty());
    for refusal in refusals {
        let why = refusal.why;
        let verdicts = deliver(&*refusal.sink, std::slice::from_ref(&refusal.message)).await;
        let [Verdict::Failed(failure)] = verdicts.as_slice() else { panic!("{why}: {verdicts:?}") };
        assert_eq!((failure.code.as_str(), failure.class), (refusal.code, refusal.class), "{why}: {failure:?}");
        assert!(!failure.message.is_empty(), "{why}: it says nothing to a person");
    }
    let fine = claimed("orders", "1");
    let verdicts = deliver(&*destination.sink().await, std::slice::from_ref(&fine)).await;
    assert!(matches!(verdicts.as_slice(), [Verdict::Delivered(_)]), "the next message goes: {verdicts:?}");
    let arrived = destination.arrived(1).await;
    assert_eq!(arrived.len(), 1, "what was refused did not arrive");
    assert_eq!(arrived[0].message_id, fine.message_id.to_string());
}

/// One message of a lane fails: those before it have arrived, those after it were not sent, other lanes are not touched.
pub async fn a_partial_failure_keeps_the_prefix_of_its_lane<D: Destination>(destination: D) {
    let sink = destination.sink().await;
    let mut messages: Vec<Claimed> = (1..=5).flat_map(|n| ["a", "b"].map(|lane| in_lane(lane, n))).collect();
    destination.spoil(&mut messages[4]);
    let verdicts = deliver(&*sink, &messages).await;
    for (message, verdict) in messages.iter().zip(&verdicts) {
        let expected = match (message.lane.as_deref(), message.sequence_id) {
            (Some("a"), Some(3)) => matches!(verdict, Verdict::Failed(_)),
            (Some("a"), Some(4 | 5)) => *verdict == Verdict::NotSent,
            _ => matches!(verdict, Verdict::Delivered(_)),
        };
        assert!(expected, "{:?} {:?}: {verdict:?}", message.lane, message.sequence_id);
    }
    let arrived = destination.arrived(7).await;
    assert_eq!(arrived.len(), 7, "two of lane a and five of lane b");
}

/// Through a relay: a message that fails is tried again and dies, and its neighbours are delivered once.
pub async fn only_what_failed_is_tried_again<D: Destination>(destination: D) {
    let mut spoiled = claimed("orders", "1");
    destination.spoil(&mut spoiled);
    let outbox = Outbox::open();
    let mut messages: Vec<Message> = (0..20).map(|n| Message::json("orders", &n).expect("JSON")).collect();
    messages.insert(10, as_enqueued(&spoiled));
    outbox.enqueue(&messages).await;
    let running = outbox.deliver_to(destination.sink().await, 2);
    outbox.until_settled(1).await;
    running.stop().await;
    let arrived = destination.arrived(20).await;
    assert_eq!(arrived.len(), 20, "each neighbour once");
}

/// The message as its producer would have said it.
fn as_enqueued(claimed: &Claimed) -> Message {
    let content_type = claimed.content_type.as_deref().unwrap_or("application/octet-stream");
    let mut message = match &claimed.content {
        Content::Json(json) => Message::json(&claimed.topic, json).expect("JSON"),
        Content::Bytes(bytes) => Message::bytes(&claimed.topic, bytes.clone(), content_type),
    };
    for (name, value) in &claimed.headers {
        message = message.header(name, value);
    }
    message
}
