//! Many messages in one request: what it looks like, what each kind of answer means, and that no message dies of another.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use postrider::Message;
use postrider::lifecycle::Claimed;
use postrider_relay::sink::http::{HttpBody, HttpOptions, HttpSink};
use postrider_relay::{Batching, FailureClass, Sink as _, SinkFailure, Verdict};
use postrider_testkit::sink_contract::claimed;
use serde_json::{Value, json};
use uuid::Uuid;

use super::receiver::{Received, Receiver, Reply};
use super::{deliver, sink};
use crate::support::{PATIENCE, patiently, quick, site, start};

fn batches(receiver: &Receiver) -> HttpOptions {
    HttpOptions::edge(&receiver.url("/api/v1/edge/batch")).expect("options")
}

fn ids(received: &Received) -> Vec<String> {
    let document: Value = serde_json::from_slice(&received.body).expect("JSON");
    let events = document["events"].as_array().expect("events").clone();
    events.iter().map(|event| event["event_id"].as_str().expect("an id").to_owned()).collect()
}

fn several(count: usize) -> Vec<Claimed> {
    (0..count).map(|number| claimed("order.placed", &format!("{{\"number\":{number}}}"))).collect()
}

/// Proves E1: through a real relay, a site's messages go in batches to an endpoint that keeps one of each
/// `(tenant_id, event_id)`; the event id is the message id, over retries too, and nothing is missing or doubled.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_edge_site_forwards_batches_and_the_cloud_deduplicates() {
    const COUNT: usize = 250;
    let kept: &'static Mutex<HashMap<(String, String), Value>> = Box::leak(Box::default());
    // Every second answer is lost: the batch is kept, and the site hears 503.
    let receiver = Receiver::start(move |received| {
        let document: Value = serde_json::from_slice(&received.body).expect("JSON");
        let mut kept = kept.lock().expect("lock");
        let before = kept.len();
        for event in document["events"].as_array().expect("events") {
            let key = |name: &str| event[name].as_str().expect("text").to_owned();
            kept.insert((key("tenant_id"), key("event_id")), event.clone());
        }
        Reply::status(if kept.len() > before { 503 } else { 202 })
    })
    .await;
    let site = site().await;
    let tenant = "tenant-1";
    let messages: Vec<Message> = (0..COUNT)
        .map(|number| Message::json("order.placed", &json!({ "number": number })).expect("JSON").tenant(tenant))
        .collect();
    site.enqueue(&messages).await;
    let http = sink(&batches(&receiver));
    let running = start(site.relay().options(quick()).sink_with("default", http, super::outcomes::patient(10)));
    site.until("select not exists (select from outbox.delivery)").await;
    running.stop().await;
    assert_eq!(site.number("select count(*) from outbox.dead_letter").await, 0);
    let kept = kept.lock().expect("lock").clone();
    assert_eq!(kept.len(), COUNT, "each once");
    for message in site.client.query("select message_id, payload from outbox.messages", &[]).await.expect("query") {
        let (id, payload): (Uuid, Value) = (message.get(0), message.get(1));
        let event = &kept[&(tenant.to_string(), id.to_string())];
        assert_eq!((&event["payload"], &event["event_type"]), (&payload, &json!("order.placed")));
    }
    let most = receiver.received().iter().map(|request| ids(request).len()).max();
    assert_eq!(most, Some(100), "batches are full");
}

#[tokio::test]
async fn a_batch_is_one_request_in_its_producers_spelling() {
    let receiver = Receiver::accepting().await;
    let mut messages = several(2);
    messages[0] = claimed("a", "{ \"x\" : 1.0 }");
    messages[0].lane = Some("l".to_owned());
    messages[0].sequence_id = Some(4);
    messages[0].headers.insert("traceparent".to_owned(), "00-ab".to_owned());
    messages[1].content = postrider::lifecycle::Content::Bytes(vec![0xff, 0]);
    let source = Some("site-7".parse().expect("a template"));
    let http = sink(&batches(&receiver).source(source));
    let verdicts = deliver(&http, &messages).await;
    assert!(verdicts.iter().all(|verdict| matches!(verdict, Verdict::Delivered(_))), "{verdicts:?}");
    let request = receiver.only();
    let text = std::str::from_utf8(&request.body).expect("UTF-8");
    assert!(text.contains("\"payload\":{ \"x\" : 1.0 }"), "{text}");
    let document: Value = serde_json::from_str(text).expect("JSON");
    let [first, second] = document["events"].as_array().expect("events").as_slice() else { panic!("{document}") };
    assert_eq!((&first["lane"], &first["sequence_id"]), (&json!("l"), &json!(4)));
    assert_eq!((&first["namespace"], &first["content_type"]), (&json!("default"), &json!("application/json")));
    assert_eq!(first["headers"], json!({ "traceparent": "00-ab" }));
    assert_eq!((&second["body"], &second["content_type"]), (&json!("/wA="), &json!("application/octet-stream")));
    assert_eq!((first.get("tenant_id"), second.get("payload"), second.get("lane")), (None, None, None));
    assert_eq!((&first["source"], &second["source"]), (&json!("site-7"), &json!("site-7")));
    assert_eq!(request.header("content-type"), Some("application/json"));
    // The same messages have the same key; other messages have another.
    deliver(&http, &messages).await;
    deliver(&http, &messages[..1]).await;
    let keys: Vec<String> = receiver
        .received()
        .iter()
        .map(|request| request.header("idempotency-key").expect("a key").to_owned())
        .collect();
    assert!(keys[0] == keys[1] && keys[1] != keys[2], "{keys:?}");
}

#[tokio::test]
async fn each_event_has_its_own_answer() {
    let receiver = Receiver::start(|received| {
        let ids = ids(received);
        let results = json!({ "results": [
            { "event_id": ids[4], "status": "retry", "code": "BUSY" },
            { "event_id": ids[0], "status": "accepted" },
            { "event_id": ids[1], "status": "duplicate", "code": "SEEN" },
            { "event_id": ids[2], "status": "rejected", "code": "BAD_TOTAL" },
            { "event_id": ids[5], "status": "perhaps" },
            { "event_id": "no id", "status": "rejected" },
            17,
        ] });
        Reply { headers: vec![("retry-after", "9".to_owned())], ..Reply::json(207, &results) }
    })
    .await;
    let verdicts = deliver(&sink(&batches(&receiver)), &several(6)).await;
    let said: Vec<(String, Option<FailureClass>, Option<String>)> = verdicts
        .into_iter()
        .map(|verdict| match verdict {
            Verdict::Delivered(receipt) => (receipt.code.expect("a code"), None, None),
            Verdict::Failed(failure) => (failure.code, Some(failure.class), failure.reply_code),
            other => panic!("{other:?}"),
        })
        .collect();
    let code = |code: &str| Some(code.to_owned());
    let expected = [
        ("accepted", None, None),
        ("SEEN", None, None),
        ("REJECTED", Some(FailureClass::Terminal), code("BAD_TOTAL")),
        ("NO_ANSWER", Some(FailureClass::Retryable), None),
        ("RETRY", Some(FailureClass::Retryable), code("BUSY")),
        ("RETRY", Some(FailureClass::Retryable), None),
    ];
    assert_eq!(said, expected.map(|(code, class, reply)| (code.to_owned(), class, reply)));
}

#[tokio::test]
async fn an_answer_for_all_is_for_all_only_if_it_was_read_to_its_end() {
    let receiver = Receiver::start(|received| match ids(received).len() {
        1 => Reply { body: b"<html>thank you</html>".to_vec(), ..Reply::status(200) },
        2 => Reply { body: vec![b' '; 100_000], ..Reply::status(200) },
        3 => Reply::status(207),
        4 => Reply::json(200, &json!({ "results": "fine" })),
        _ => Reply::json(200, &json!({ "accepted": 5 })),
    })
    .await;
    let http = sink(&batches(&receiver));
    for (count, expected) in
        [(1, None), (2, Some("NO_ANSWER")), (3, Some("NO_ANSWER")), (4, Some("NO_ANSWER")), (5, None)]
    {
        for verdict in deliver(&http, &several(count)).await {
            let code = match verdict {
                Verdict::Failed(failure) => Some(failure.code),
                Verdict::Delivered(_) => None,
                other => panic!("{other:?}"),
            };
            assert_eq!(code.as_deref(), expected, "{count}");
        }
    }
}

/// A request that is refused as a whole is sent again in halves: one message is to blame, and one fails.
#[tokio::test]
async fn no_message_dies_of_its_neighbour() {
    for body in [HttpBody::Batch, HttpBody::CloudeventsBatch] {
        let receiver = Receiver::start(|received| {
            let text = std::str::from_utf8(&received.body).expect("UTF-8");
            Reply::status(if text.contains("poison") || text.len() > 12_000 { 400 } else { 200 })
        })
        .await;
        let mut messages = several(100);
        messages[63] = claimed("t", "\"poison\"");
        let verdicts = deliver(&sink(&batches(&receiver).body(body)), &messages).await;
        for (index, verdict) in verdicts.iter().enumerate() {
            match verdict {
                Verdict::Failed(failure) => assert_eq!((index, failure.code.as_str()), (63, "HTTP_400")),
                Verdict::Delivered(_) => assert_ne!(index, 63),
                other => panic!("{index}: {other:?}"),
            }
        }
        assert!(receiver.received().len() < 40, "{} requests", receiver.received().len());
    }
}

/// The search for the one to blame ends with the delivery's time, and until then nobody is to blame.
#[tokio::test]
async fn the_search_for_the_one_to_blame_has_an_end() {
    let receiver = Receiver::start(|received| Reply::status(if ids(received).len() > 1 { 400 } else { 503 })).await;
    let verdicts = deliver(&sink(&batches(&receiver)), &several(8)).await;
    let count = |wanted: &dyn Fn(&Verdict) -> bool| verdicts.iter().filter(|verdict| wanted(verdict)).count();
    let retryable = |verdict: &Verdict| matches!(verdict, Verdict::Failed(failure) if failure.code == "HTTP_503" && failure.class == FailureClass::Retryable);
    assert_eq!(count(&retryable), 1, "{verdicts:?}");
    assert_eq!(
        count(&|verdict| *verdict == Verdict::NotSent),
        7,
        "what was not sent alone is handed back: {verdicts:?}"
    );
    let hopeless = Receiver::start(|received| {
        let slow = std::time::Instant::now();
        while slow.elapsed() < Duration::from_millis(200) {
            std::thread::yield_now();
        }
        Reply::status(if ids(received).len() > 1 { 400 } else { 200 })
    })
    .await;
    let options = batches(&hopeless).timeout(Duration::from_millis(700));
    for verdict in deliver(&sink(&options), &several(64)).await {
        let terminal = matches!(&verdict, Verdict::Failed(failure) if failure.class == FailureClass::Terminal);
        assert!(!terminal, "{verdict:?}");
    }
}

/// A receiver that breaks the rule of `lanes_in_order` and takes what stands behind a refused event: it is handed back all
/// the same, so the relay sends it again after the one before.
#[tokio::test]
async fn what_stands_behind_a_failure_of_its_lane_is_handed_back() {
    let receiver = Receiver::start(|received| {
        let result = |(index, id): (usize, &String)| {
            json!({ "event_id": id, "status": if index == 1 { "rejected" } else { "accepted" } })
        };
        Reply::json(200, &json!({ "results": ids(received).iter().enumerate().map(result).collect::<Vec<_>>() }))
    })
    .await;
    let options = batches(&receiver).lanes_in_order(true);
    let mut messages = several(4);
    for (number, message) in (1..).zip(&mut messages[..3]) {
        message.lane = Some("a".to_owned());
        message.sequence_id = Some(number);
    }
    let verdicts = deliver(&sink(&options), &messages).await;
    assert!(matches!(
        verdicts.as_slice(),
        [Verdict::Delivered(_), Verdict::Failed(_), Verdict::NotSent, Verdict::Delivered(_)]
    ));
}

/// When the one to blame has been found, what stands behind it in its lane is in no further request.
#[tokio::test]
async fn what_stands_behind_the_one_to_blame_is_not_sent() {
    let receiver = Receiver::start(|received| {
        let poisoned = std::str::from_utf8(&received.body).expect("UTF-8").contains("poison");
        Reply::status(if poisoned { 422 } else { 200 })
    })
    .await;
    let mut messages = several(8);
    messages[1] = claimed("t", "\"poison\"");
    for (number, message) in (1..).zip(&mut messages[..7]) {
        message.lane = Some("a".to_owned());
        message.sequence_id = Some(number);
    }
    let verdicts = deliver(&sink(&batches(&receiver).lanes_in_order(true)), &messages).await;
    let delivered: Vec<usize> = (0..8).filter(|index| matches!(verdicts[*index], Verdict::Delivered(_))).collect();
    assert_eq!(delivered, [0, 7], "{verdicts:?}");
    assert!(verdicts[2..7].iter().all(|verdict| *verdict == Verdict::NotSent), "{verdicts:?}");
    let last = receiver.received().pop().expect("a request");
    assert_eq!(ids(&last), [messages[7].message_id.to_string()], "the lane is held");
}

#[test]
fn a_batch_holds_one_message_of_a_lane_unless_the_receiver_keeps_order() {
    let options = HttpOptions::edge("https://example.org/batch").expect("options");
    let unordered = sink(&options).batching();
    assert_eq!(unordered, Batching::unordered(100).max_bytes(1024 * 1024));
    assert!(sink(&options.clone().lanes_in_order(true)).batching().ordered);
    let error = HttpSink::new(options.clone().max_batch(1_000)).expect_err("too many").to_string();
    assert!(error.contains("256 bytes for each result"), "{error}");
    let fields = options.url("https://example.org/{topic}".parse().expect("a template"));
    assert!(HttpSink::new(fields).expect_err("fields").to_string().contains("take the fields out"));
    assert!(HttpOptions::edge("https://example.org/{what}").is_err());
}

/// The request is dropped in the middle: nothing of it goes on, and the sink is as good as before.
#[tokio::test]
async fn a_search_that_is_cut_off_sends_nothing_more() {
    let receiver = Receiver::start(|_| Reply::status(400)).await;
    let http = std::sync::Arc::new(sink(&batches(&receiver)));
    let task = {
        let (http, messages) = (std::sync::Arc::clone(&http), several(100));
        tokio::spawn(async move { deliver(&http, &messages).await })
    };
    receiver.until_received(5).await;
    receiver.stall(true);
    task.abort();
    drop(patiently("the task ends", task).await);
    let before = receiver.received().len();
    receiver.stall(false);
    let verdicts = tokio::time::timeout(PATIENCE, deliver(&http, &several(1))).await.expect("in time");
    let failure_codes: Vec<&str> = verdicts
        .iter()
        .map(|verdict| if let Verdict::Failed(SinkFailure { code, .. }) = verdict { code } else { "" })
        .collect();
    assert_eq!(failure_codes, ["HTTP_400"]);
    let after = receiver.received().len() - before;
    assert!((1..=2).contains(&after), "{after} requests: the new one, and the one that was on the wire");
}
