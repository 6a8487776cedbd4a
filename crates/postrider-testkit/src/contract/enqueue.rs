//! What a producer is promised: the message as it was said, one for each dedupe key, lanes numbered without a hole, and a
//! delivery for each sink its topic is routed to.

use std::collections::HashSet;
use std::time::{Duration, SystemTime};

use postrider::inspect::{ListFilter, PageRequest};
use postrider::lifecycle::{Content, Outcome};
use postrider::{ErrorKind, InvalidMessage, MAX_BATCH_MESSAGES, Message, Route};
use uuid::Uuid;

use super::hand::{Hand, ids, message, numbers};

/// Proves M2: namespace and topic address a message, the tenant is optional, and a worker gets what was said.
pub async fn what_was_said_is_what_is_claimed(hand: Hand) {
    let tenant = "tenant-1";
    let said = serde_json::json!({
        "text": "Grüße \u{1F40E} \\u0000 \"'", "big": 123_456_789_012_345_678_u64, "none": null, "list": [1.5, []]
    });
    let bytes: Vec<u8> = (0..=255).cycle().take(70_000).collect();
    let occurred = SystemTime::UNIX_EPOCH + Duration::from_micros(1_700_000_000_123_456);
    let enqueued = hand
        .put_all(&[
            Message::json("json", &said).expect("JSON").header("trace", "00-ü").header("b", ""),
            Message::bytes("bytes", bytes.clone(), "application/x-thing").namespace("billing").tenant(tenant),
            Message::bytes("empty", Vec::new(), "x/y").priority(-100).dedupe_key("k"),
            Message::json("null", &()).expect("JSON").occurred_at(occurred).lane("a").priority(100),
        ])
        .await;
    let claimed = hand.take(10).await;
    let find = |topic: &str| claimed.iter().find(|one| one.topic == topic).expect("it was claimed");
    for (at, topic) in ["json", "bytes", "empty", "null"].iter().enumerate() {
        assert_eq!(find(topic).message_id, enqueued[at].message_id);
        assert_eq!(find(topic).sequence_id, enqueued[at].sequence_id);
    }
    let expected =
        [("json", Ok(said)), ("null", Ok(serde_json::Value::Null)), ("bytes", Err(bytes)), ("empty", Err(vec![]))];
    for (topic, expected) in expected {
        let found = match &find(topic).content {
            Content::Json(raw) => Ok(serde_json::from_str::<serde_json::Value>(raw.get()).expect("JSON")),
            Content::Bytes(bytes) => Err(bytes.clone()),
        };
        assert_eq!(found, expected, "{topic}");
    }
    let headers: Vec<_> = find("json").headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(headers, [("b", ""), ("trace", "00-ü")]);
    let bytes = find("bytes");
    assert_eq!((bytes.namespace.as_str(), bytes.tenant_id.as_deref()), ("billing", Some(tenant)));
    assert_eq!(bytes.content_type.as_deref(), Some("application/x-thing"));
    assert_eq!((find("json").namespace.as_str(), find("json").tenant_id.as_deref()), ("default", None));
    assert_eq!((find("empty").priority, find("empty").dedupe_key.as_deref()), (-100, Some("k")));
    assert_eq!((find("null").occurred_at, find("null").lane.as_deref()), (occurred, Some("a")));
}

/// Proves M3, P6: a known key answers with the first id and number and writes nothing, whatever became of the message.
pub async fn a_known_key_returns_the_first_message(hand: Hand) {
    let keyed = || message("t").lane("a").dedupe_key("k");
    let first = hand.put(keyed()).await;
    assert!(first.created);
    let again = async |when: &str| {
        let found = hand.put(keyed()).await;
        assert_eq!((found.message_id, found.sequence_id, found.created), (first.message_id, Some(1), false), "{when}");
    };
    again("pending").await;
    let held = hand.take(10).await;
    assert_eq!(held.len(), 1);
    again("leased").await;
    hand.fail(&held).await;
    again("dead").await;
    assert_eq!(hand.redrive_all().await, 1);
    hand.deliver(&hand.take(10).await).await;
    again("delivered").await;
    let written = hand.list(&ListFilter::default(), &PageRequest::first(10)).await.expect("list").items.len();
    assert_eq!((written, hand.take(10).await.len()), (1, 0), "nothing was written");
    // The key belongs to its namespace and topic, and minds its case; the lane goes on with the next number.
    let others =
        [message("u").dedupe_key("k"), message("t").dedupe_key("k").namespace("n"), message("t").dedupe_key("K")];
    for (number, other) in (2..).zip(others) {
        let found = hand.put(other.lane("a")).await;
        assert_eq!((found.created, found.sequence_id), (true, Some(number)));
    }
}

/// Proves M3, P1, P6: a batch answers row by row, in input order: lanes, known keys, and keys that repeat inside it.
pub async fn a_mixed_batch_answers_in_input_order(hand: Hand) {
    let known = hand.put(message("t").lane("b").dedupe_key("known")).await.message_id;
    let batch = ["b z", "- -", "a -", "b known", "b z", "- y", "b -", "a x", "- y"].map(|lane_and_key| {
        let mut words = lane_and_key.split(' ').map(|word| (word != "-").then_some(word));
        let with_lane = words.next().flatten().map_or_else(|| message("t"), |lane| message("t").lane(lane));
        match words.next().flatten() {
            Some(key) => with_lane.dedupe_key(key),
            None => with_lane,
        }
    });
    let rows = hand.put_all(&batch).await;
    let answers: Vec<_> = rows.iter().map(|row| (row.sequence_id, row.created)).collect();
    let (new, old) = (true, false);
    assert_eq!(
        answers,
        [
            (Some(2), new),
            (None, new),
            (Some(1), new),
            (Some(1), old),
            (Some(2), old),
            (None, new),
            (Some(3), new),
            (Some(2), new),
            (None, old)
        ]
    );
    assert_eq!(
        (rows[3].message_id, rows[4].message_id, rows[8].message_id),
        (known, rows[0].message_id, rows[5].message_id)
    );
    let repeat = [0, 3, 4, 5, 7].map(|at: usize| batch[at].clone());
    assert!(hand.put_all(&repeat).await.iter().all(|row| !row.created));
    assert_eq!(hand.counts().await.0, 7, "the known one and six new ones");
    assert_eq!(hand.put(message("t").lane("b")).await.sequence_id, Some(4), "no number was spent");
}

/// Proves M2: one wrong message, and nothing of its batch is written: no row, no key, no number.
pub async fn a_batch_is_written_as_a_whole(hand: Hand) {
    let good = || message("t").lane("a").dedupe_key("k");
    let error = hand.enqueue(&[good(), message("")]).await.expect_err("the second has no topic");
    assert_eq!(error.batch_index(), Some(1), "{error:?}");
    assert_eq!(hand.counts().await, (0, 0, 0));
    let found = hand.put(good()).await;
    assert_eq!((found.created, found.sequence_id), (true, Some(1)));
    assert_eq!(hand.put_all(&[]).await, []);
}

/// Proves M2, P6: what breaks a rule is refused with a typed error, and nothing is written.
pub async fn limits_are_refused(hand: Hand) {
    let long = "x".repeat(256);
    let year_10000 = SystemTime::UNIX_EPOCH + Duration::from_hours(70_389_528);
    let before_year_1 = SystemTime::UNIX_EPOCH - Duration::from_secs(62_135_596_801);
    let cases: Vec<(Message, InvalidMessage)> = vec![
        (message(&long), InvalidMessage::TooLong { field: "topic", bytes: 256, max: 255 }),
        (message("t").namespace(""), InvalidMessage::Empty { field: "namespace" }),
        (message("t").tenant(""), InvalidMessage::Empty { field: "tenant_id" }),
        (message("t").tenant(&long), InvalidMessage::TooLong { field: "tenant_id", bytes: 256, max: 255 }),
        (message("t").lane("\0"), InvalidMessage::Nul { field: "lane" }),
        (
            message("t").dedupe_key("k".repeat(513)),
            InvalidMessage::TooLong { field: "dedupe_key", bytes: 513, max: 512 },
        ),
        (message("t").priority(101), InvalidMessage::Priority { priority: 101, min: -100, max: 100 }),
        (message("t").delay(Duration::MAX), InvalidMessage::TimeOutOfRange { field: "delay" }),
        (message("t").occurred_at(year_10000), InvalidMessage::TimeOutOfRange { field: "occurred_at" }),
        (message("t").due_at(year_10000), InvalidMessage::TimeOutOfRange { field: "due_at" }),
        (message("t").occurred_at(before_year_1), InvalidMessage::TimeOutOfRange { field: "occurred_at" }),
    ];
    for (wrong, expected) in cases {
        let error = hand.enqueue(&[wrong]).await.expect_err("it breaks a rule");
        assert_eq!(error.invalid_message(), Some(&expected), "{error:?}");
    }
    let many: Vec<Message> = (0..=MAX_BATCH_MESSAGES).map(|_| message("t")).collect();
    let error = hand.enqueue(&many).await.expect_err("one too many");
    assert_eq!(error.kind(), ErrorKind::BatchTooLarge, "{error:?}");
    let name = "ü".repeat(127);
    let longest = message(&name).namespace(&name).lane(&name).dedupe_key("k".repeat(512)).priority(100);
    assert!(hand.put(longest).await.created, "at the limits nothing is wrong");
    assert_eq!(hand.counts().await, (1, 0, 0));
}

/// Proves M4: the key begins with the tenant's id and "/"; a UUID may stand there as 32 digits, too.
pub async fn a_dedupe_key_belongs_to_its_tenant(hand: Hand) {
    let uuid = Uuid::from_u128(0xabcd_ef01);
    let (hyphens, digits) = (uuid.to_string(), uuid.simple().to_string());
    let good = [
        ("tenant-1", "tenant-1/1".to_owned()),
        ("tenant-1", "tenant-1/".to_owned()),
        ("eu/grüße", "eu/grüße/1".to_owned()),
        (&hyphens, format!("{hyphens}/1")),
        (&hyphens, format!("{digits}/1")),
        (&digits, format!("{digits}/1")),
    ];
    for (tenant, key) in &good {
        assert!(hand.put(message("t").tenant(*tenant).dedupe_key(key)).await.created, "{tenant} {key}");
    }
    let bad = [
        ("tenant-1", "1".to_owned()),
        ("tenant-1", "tenant-1".to_owned()),
        ("tenant-1", "tenant-10/1".to_owned()),
        ("tenant-1", "tenant1/1".to_owned()),
        ("tenant-1", "Tenant-1/1".to_owned()),
        (&hyphens, format!("{}/1", hyphens.to_uppercase())),
        (&digits, format!("{hyphens}/1")),
    ];
    for (tenant, key) in &bad {
        let error = hand.enqueue(&[message("t").tenant(*tenant).dedupe_key(key)]).await.expect_err("a foreign key");
        assert!(matches!(error.invalid_message(), Some(InvalidMessage::ForeignDedupeKey { .. })), "{error:?}");
    }
    assert_eq!(hand.counts().await.0, i64::try_from(good.len()).expect("few"));
}

/// Proves M3, M4: the tenant is part of what is unique. Whoever names no tenant and spells a tenant's key takes nothing away
/// from it, in whatever order they come, and each finds its own message again.
pub async fn nobody_takes_the_key_of_a_tenant(hand: Hand) {
    let tenant = "tenant-1";
    let (stranger, owner) = (
        |key: &str| message("t").dedupe_key(format!("{tenant}/{key}")),
        |key: &str| message("t").dedupe_key(format!("{tenant}/{key}")).tenant(tenant),
    );
    let taken = hand.put(stranger("order-1")).await;
    let own = hand.put(owner("order-1")).await;
    assert!(taken.created && own.created, "the tenant's message is not dropped");
    assert_ne!(taken.message_id, own.message_id);
    let batch = [stranger("order-1"), owner("order-1"), owner("order-2"), stranger("order-2"), owner("order-2")];
    let rows = hand.put_all(&batch).await;
    assert_eq!(rows.iter().map(|row| row.created).collect::<Vec<_>>(), [false, false, true, true, false]);
    assert_eq!((rows[0].message_id, rows[1].message_id), (taken.message_id, own.message_id));
    assert_eq!(rows[4].message_id, rows[2].message_id);
    assert_eq!(hand.counts().await.0, 4);
}

/// Proves P1: two producers of the same lanes, and each lane is numbered 1, 2, 3 without a hole.
pub async fn producers_of_one_lane_leave_no_hole(hand: Hand) {
    let other = hand.another().await;
    let produce = async |hand: &Hand| {
        let mut sequences = Vec::new();
        for round in 0..20 {
            let batch: Vec<Message> = (0..3).map(|n| message("t").lane(format!("lane-{}", (n + round) % 2))).collect();
            sequences.extend(
                hand.put_all(&batch).await.iter().enumerate().map(|(n, row)| ((n + round) % 2, row.sequence_id)),
            );
        }
        sequences
    };
    let (mut all, others) = tokio::join!(produce(&hand), produce(&other));
    all.extend(others);
    for lane in 0..2 {
        let mut found: Vec<_> = all.iter().filter(|(of, _)| *of == lane).filter_map(|(_, number)| *number).collect();
        found.sort_unstable();
        assert_eq!(found, (1..=60).collect::<Vec<i64>>(), "lane {lane}");
    }
}

/// Proves M3, P6: two producers, one key: one message, and both know it.
pub async fn producers_race_on_a_dedupe_key(hand: Hand) {
    let other = hand.another().await;
    for round in 0..20 {
        let keyed = || message("t").dedupe_key(format!("k-{round}"));
        let (one, two) = tokio::join!(hand.put(keyed()), other.put(keyed()));
        assert_eq!(one.message_id, two.message_id);
        assert_ne!(one.created, two.created);
    }
    assert_eq!(hand.counts().await.0, 20);
}

/// Proves M11: ids are UUIDv7 in the order of the batch, and that is the order of the claim.
pub async fn ids_keep_the_order_of_the_batch(hand: Hand) {
    let put = hand.put_plain(1000).await;
    assert!(put.windows(2).all(|pair| pair[0] < pair[1]));
    assert!(put.iter().all(|id| id.get_version_num() == 7 && id.get_variant() == uuid::Variant::RFC4122));
    assert_eq!(ids(&hand.take(1000).await), put);
}

/// Proves P2: retry, expiry, redrive and replay keep the id and the number.
pub async fn id_and_sequence_are_kept_for_ever(hand: Hand) {
    let id = hand.put_lane("a", 1).await[0];
    for (attempt_no, end) in (1..).zip(["retry", "expiry", "failure", "success", "success"]) {
        let held = if end == "expiry" { hand.lose(1).await } else { hand.take(1).await };
        assert_eq!((ids(&held), numbers(&held), held[0].attempt_no), (vec![id], vec![1], attempt_no), "{end}");
        match end {
            "retry" => hand.retry(&held, Duration::ZERO).await,
            "failure" => {
                hand.fail(&held).await;
                assert_eq!(hand.redrive_all().await, 1);
            }
            "success" => {
                hand.deliver(&held).await;
                let replayed = hand.replay("default", &[id]).await.expect("replay");
                assert_eq!(replayed, 1);
            }
            _ => {}
        }
    }
    let story = ["1 RETRYABLE", "2 ZOMBIE_REQUEUE", "3 FAILED", "4 DISPATCHED", "5 DISPATCHED"];
    assert_eq!(hand.attempts(id).await, story);
}

/// One message to several sinks: each is delivered, retried and buried for itself.
pub async fn routes_fan_out(hand: Hand) {
    for sink in ["audit", "mail"] {
        assert!(hand.add_route(&Route::new("order.*", sink)).await.expect("add_route"));
    }
    let id = hand.put(message("order.placed").lane("a")).await.message_id;
    assert_eq!(hand.take(10).await.len(), 0, "nothing for the sink default");
    hand.retry(&hand.take_from("mail", 10).await, Duration::ZERO).await;
    hand.deliver(&hand.take_from("audit", 10).await).await;
    assert_eq!(hand.stands(id).await, ["mail pending"]);
    hand.fail(&hand.take_from("mail", 10).await).await;
    assert_eq!(hand.attempts(id).await, ["1 DISPATCHED", "1 RETRYABLE", "2 FAILED"], "audit, then mail");
    assert_eq!(hand.stands(id).await, ["mail dead"]);
    assert_eq!((hand.status_of("mail").await.dead, hand.status_of("audit").await.dead), (1, 0));
}

/// Patterns are names in which only `*` means something; routes concern new messages only.
pub async fn routes_come_and_go(hand: Hand) {
    let all = Route::new("*", "audit");
    let routes = [
        Route::new("order.*", "mail"),
        all.clone(),
        Route::new("order.placed", "audit"),
        Route::new("a_b%\\[?", "odd"),
        Route::new("order.*", "bills").namespace("billing"),
    ];
    for route in &routes {
        assert!(hand.add_route(route).await.expect("add_route"), "{route:?}");
    }
    assert!(!hand.add_route(&all).await.expect("add_route"), "it is there");
    let listed = hand.routes().await.expect("routes");
    let listed: Vec<(&str, &str)> = listed.iter().map(|route| (route.topic.as_str(), route.sink.as_str())).collect();
    let expected =
        [("*", "audit"), ("a_b%\\[?", "odd"), ("order.*", "mail"), ("order.placed", "audit"), ("order.*", "bills")];
    assert_eq!(listed, expected, "by namespace, topic and sink");
    let sinks = async |message: Message| -> String {
        let id = hand.put(message).await.message_id;
        hand.stands(id).await.join(" ").replace(" pending", "")
    };
    assert_eq!(sinks(message("order.placed")).await, "audit mail");
    assert_eq!(sinks(message("order.placed").namespace("billing")).await, "audit bills mail");
    assert_eq!(sinks(message("border.placed")).await, "audit");
    assert_eq!(sinks(message("Order.placed")).await, "audit", "a route minds the case");
    assert_eq!(sinks(message("a_b%\\[?")).await, "audit odd");
    for near in ["axb%\\[?", "a_bx\\[?", "a_b%\\[x", "a_b%\\x?"] {
        assert_eq!(sinks(message(near)).await, "audit", "{near}");
    }
    assert_eq!(hand.remove_route(&all).await.expect("remove_route"), 1);
    assert_eq!(hand.remove_route(&all).await.expect("remove_route"), 0);
    assert_eq!(sinks(message("user.created")).await, "default", "no route left");
    let kept: HashSet<Uuid> = ids(&hand.take_from("audit", 100).await).into_iter().collect();
    assert_eq!(kept.len(), 9, "what was routed before keeps its sink");
    assert_eq!(hand.finish_all(&[], &Outcome::Dispatched).await, []);
}
