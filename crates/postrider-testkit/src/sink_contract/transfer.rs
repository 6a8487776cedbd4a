//! What a sink does with a server that is well.

use std::sync::Arc;

use postrider::lifecycle::{Claimed, Content};
use postrider_relay::Verdict;

use super::hand::in_lane;
use super::{Arrived, Destination, assert_lanes_in_order, claimed, deliver};

const DEDUPE_KEY: &str = "postrider-dedupe-key";

/// The content arrives byte for byte, JSON in its producer's spelling, and every header with it.
pub async fn bytes_and_headers_arrive_exactly<D: Destination>(destination: D) {
    let sink = destination.sink().await;
    let mut messages = vec![
        claimed("orders", "{ \"a\" : 1.0,\n \"b\":\"\\u00e9 \u{1F40E}\" }"),
        claimed("orders", "null"),
        claimed("orders", &format!("\"{}\"", "x".repeat(200_000))),
        claimed("orders", "1"),
        claimed("orders", "2"),
    ];
    messages[3].content = Content::Bytes((0..=255).collect());
    messages[3].content_type = Some("image/png".to_owned());
    messages[4].content = Content::Bytes(Vec::new());
    for message in &mut messages {
        message.tenant_id = Some("tenant-1".to_owned());
        "shop".clone_into(&mut message.namespace);
        message.lane = Some(format!("konto ü/{}", message.message_id));
        message.sequence_id = Some(1);
        let traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        message.headers.insert("traceparent".to_owned(), traceparent.to_owned());
        message.headers.insert("x-note".to_owned(), "two  spaces, \"quotes\" = and; more".to_owned());
        message.headers.insert("postrider-topic".to_owned(), "a forgery".to_owned());
    }
    let verdicts = deliver(&*sink, &messages).await;
    assert!(verdicts.iter().all(|verdict| matches!(verdict, Verdict::Delivered(_))), "{verdicts:?}");
    let arrived = destination.arrived(messages.len()).await;
    assert_eq!(arrived.len(), messages.len(), "each once");
    for message in &messages {
        let id = message.message_id.to_string();
        let found = arrived.iter().find(|arrived| arrived.message_id == id).expect("it arrived");
        assert!(found.body == message.content.as_bytes(), "{id}: {} bytes came", found.body.len());
        assert_headers(message, found);
    }
}

fn assert_headers(message: &Claimed, found: &Arrived) {
    let header = |name: &str| found.headers.get(name).map(|value| String::from_utf8_lossy(value).into_owned());
    assert_eq!(header("postrider-tenant-id"), message.tenant_id);
    assert_eq!(header("postrider-topic").as_deref(), Some("orders"), "a producer cannot forge what is ours");
    assert_eq!(header("postrider-namespace").as_deref(), Some("shop"));
    assert_eq!(found.lane, message.lane.clone().zip(message.sequence_id));
    assert_eq!(header("traceparent").as_ref(), message.headers.get("traceparent"));
    assert_eq!(header("x-note").as_ref(), message.headers.get("x-note"));
    let expected = match &message.content {
        Content::Json(_) => "application/json",
        Content::Bytes(_) => message.content_type.as_deref().unwrap_or("application/octet-stream"),
    };
    assert_eq!(header("content-type").as_deref(), Some(expected));
}

/// The producer's own key arrives as it was given, in any script and at its full length; a producer's header of that name
/// does not replace it. A message without a key has none.
pub async fn the_dedupe_key_arrives<D: Destination>(destination: D) {
    let sink = destination.sink().await;
    let longest = "ü".repeat(256);
    let keys = [Some("order-7/placed"), Some("konto ü/100%  \"x\" \u{1F40E}"), Some(&longest), None];
    let messages = keys.map(|key| {
        let mut message = claimed("orders", "1");
        message.dedupe_key = key.map(str::to_owned);
        message.headers.extend(key.map(|_| (DEDUPE_KEY.to_owned(), "a forgery".to_owned())));
        message
    });
    let verdicts = deliver(&*sink, &messages).await;
    assert!(verdicts.iter().all(|verdict| matches!(verdict, Verdict::Delivered(_))), "{verdicts:?}");
    let arrived = destination.arrived(messages.len()).await;
    for message in &messages {
        let id = message.message_id.to_string();
        let found = arrived.iter().find(|arrived| arrived.message_id == id).expect("it arrived");
        let key = found.headers.get(DEDUPE_KEY).map(|key| String::from_utf8_lossy(key).into_owned());
        assert_eq!(key, message.dedupe_key);
    }
}

/// Messages of one lane arrive by number, whatever lies between them.
pub async fn a_batch_keeps_its_order<D: Destination>(destination: D) {
    let sink = destination.sink().await;
    let messages: Vec<Claimed> = (1..=50).flat_map(|n| ["a", "b", "c"].map(|lane| in_lane(lane, n))).collect();
    let verdicts = deliver(&*sink, &messages).await;
    assert!(verdicts.iter().all(|verdict| matches!(verdict, Verdict::Delivered(_))), "{verdicts:?}");
    let arrived = destination.arrived(messages.len()).await;
    assert_eq!(arrived.len(), messages.len(), "each once");
    assert_lanes_in_order(&arrived);
}

/// A sink is called from several tasks at once.
pub async fn one_sink_serves_many_tasks<D: Destination>(destination: D) {
    let sink = destination.sink().await;
    let mut tasks = tokio::task::JoinSet::new();
    for lane in 0..8 {
        let sink = Arc::clone(&sink);
        tasks.spawn(async move {
            let messages: Vec<Claimed> = (1..=25).map(|number| in_lane(&format!("lane-{lane}"), number)).collect();
            deliver(&*sink, &messages).await
        });
    }
    for verdicts in tasks.join_all().await {
        assert!(verdicts.iter().all(|verdict| matches!(verdict, Verdict::Delivered(_))), "{verdicts:?}");
    }
    let arrived = destination.arrived(8 * 25).await;
    assert_eq!(arrived.len(), 8 * 25, "each once");
    assert_lanes_in_order(&arrived);
}
