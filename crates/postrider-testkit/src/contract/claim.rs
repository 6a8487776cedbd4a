//! What a claim hands out, in which order, and on which terms: order, tenants, due times, paused sinks, limits, and what
//! can be seen of a lease while it lasts.

use std::collections::HashSet;
use std::time::Duration;

use postrider::lifecycle::LeaseToken;
use postrider::{ErrorKind, Message, OnDead};
use uuid::Uuid;

use super::hand::{Hand, LONG, ids, message, numbers, topics};

const HOUR: Duration = Duration::from_hours(1);

/// Proves H1, H7, M11, E7: oldest first, whatever the order of writing.
pub async fn oldest_first(hand: Hand) {
    let now = hand.clock().await;
    for (topic, age) in [("three", 1), ("one", 3), ("two", 2)] {
        hand.put(message(topic).occurred_at(now - age * HOUR)).await;
    }
    assert_eq!(topics(&hand.take(10).await), ["one", "two", "three"]);
}

/// Proves E7, M11: priority first, then age, then the order of enqueueing.
pub async fn priority_then_age_then_id(hand: Hand) {
    let now = hand.clock().await;
    hand.put_all(&[
        message("low").priority(-5),
        message("young").priority(7),
        message("old").priority(7).occurred_at(now - HOUR),
        message("first"),
        message("second"),
        message("top").priority(100),
        message("bottom").priority(-100),
        message("ahead").occurred_at(now + HOUR),
    ])
    .await;
    let order = ["top", "old", "young", "first", "second", "ahead", "low", "bottom"];
    assert_eq!(topics(&hand.take(10).await), order, "what is to occur later is due now");
}

/// Proves H1: a claim takes no more than it is asked for, and the best ones.
pub async fn a_small_batch_takes_the_best(hand: Hand) {
    hand.put_plain(50).await;
    let best = hand.put(message("best").priority(1)).await.message_id;
    let held = hand.take(3).await;
    assert_eq!((held.len(), held[0].message_id), (3, best));
    assert_eq!(hand.counts().await, (48, 3, 0));
}

/// Proves H1, M2: one tenant's claim takes that tenant's, with and without lanes, and nobody else's.
pub async fn of_one_tenant_only(hand: Hand) {
    let [ours, theirs] = ["tenant-1", "tenant-10"];
    for n in 0..5 {
        hand.put_all(&[
            message("ours").tenant(ours).priority(n),
            message("theirs").tenant(theirs).priority(50),
            message("nobody").priority(60),
            message("ours").tenant(ours).lane(format!("ours-{}", n % 2)),
            message("theirs").tenant(theirs).lane(format!("a-{n}")),
            message("ours").tenant(ours).delay(HOUR).priority(100),
        ])
        .await;
    }
    let held = hand.take_as(&hand.wants(100).tenant_id(Some(ours.to_owned()))).await;
    assert_eq!(held.len(), 10);
    assert!(held.iter().all(|one| one.topic == "ours"), "{held:?}");
    let priorities: Vec<i32> = held.iter().filter(|one| one.lane.is_none()).map(|one| one.priority).collect();
    assert_eq!(priorities, [4, 3, 2, 1, 0]);
    assert_eq!(hand.take(100).await.len(), 15, "everybody else's is still there for a claim without a tenant");
}

/// A lane that two tenants share stays in order: one tenant's claim waits for the other's number.
pub async fn a_shared_lane_keeps_its_order_under_a_tenant_filter(hand: Hand) {
    let [ours, theirs] = ["tenant-1", "tenant-10"];
    for tenant in [theirs, ours, ours] {
        hand.put(message("t").lane("shared").tenant(tenant)).await;
    }
    let ours = hand.wants(10).tenant_id(Some(ours.to_owned()));
    assert_eq!(hand.take_as(&ours).await.len(), 0, "number 1 is the other tenant's");
    let first = hand.take_as(&hand.wants(10).tenant_id(Some(theirs.to_owned()))).await;
    assert_eq!(numbers(&first), [1], "a run ends where the tenant changes");
    assert_eq!(hand.take_as(&ours).await.len(), 0, "the lane is in one hand");
    hand.deliver(&first).await;
    assert_eq!(numbers(&hand.take_as(&ours).await), [2, 3]);
}

/// Proves L1, L2, L7: a claimed delivery stays visible, with its holder and the end of its lease.
pub async fn a_lease_is_visible(hand: Hand) {
    let other = hand.another().await;
    let id = hand.put(message("t")).await.message_id;
    let before = hand.clock().await;
    let held = hand.take(1).await.remove(0);
    let after = hand.clock().await;
    assert_eq!((held.message_id, held.attempt_no, held.attempt_count, held.lost_leases), (id, 1, 1, 0));
    assert!(before <= held.claimed_at && held.claimed_at <= after, "by the store's clock");
    assert_eq!(held.lease_expires_at, held.claimed_at + LONG);
    let seen = other.shown(id).await.deliveries.remove(0);
    assert_eq!((seen.state.as_str(), seen.claimed_by.as_deref()), ("leased", Some(hand.worker())));
    assert_eq!(seen.lease_expires_at, Some(held.lease_expires_at));
    assert_eq!((seen.attempt_no, seen.attempt_count), (1, 1));
}

/// What is not due is not handed out; when its time comes by the store's clock, it is.
pub async fn not_before_it_is_due(hand: Hand) {
    let now = hand.clock().await;
    hand.put(message("later").delay(HOUR).priority(100)).await;
    hand.put(message("scheduled").due_at(now + HOUR)).await;
    hand.put(message("in a lane").delay(HOUR).lane("a")).await;
    let soon = hand.put(message("soon").delay(Duration::from_secs(1))).await.message_id;
    assert_eq!(topics(&hand.take(10).await), [] as [&str; 0]);
    hand.until(hand.clock().await + Duration::from_millis(1001)).await;
    assert_eq!(ids(&hand.take(10).await), [soon]);
    let past = hand.put(message("past").due_at(now - HOUR)).await.message_id;
    assert_eq!(ids(&hand.take(10).await), [past]);
}

/// Waiting deliveries of higher priorities, in front of the index, do not stand in the way.
pub async fn what_is_not_due_does_not_hide_what_is(hand: Hand) {
    for priority in [-100, -1, 0, 1, 100] {
        hand.put_all(&(0..20).map(|_| message("later").priority(priority).delay(HOUR)).collect::<Vec<_>>()).await;
    }
    for priority in [-50, 0, 50] {
        hand.put(message("due").priority(priority)).await;
    }
    let held = hand.take(10).await;
    assert_eq!(held.iter().map(|one| one.priority).collect::<Vec<_>>(), [50, 0, -50]);
}

/// A paused sink hands out nothing, and lets what is in flight be completed; resumed, it goes on.
pub async fn a_paused_sink_hands_out_nothing(hand: Hand) {
    let other = hand.another().await;
    hand.put_plain(2).await;
    hand.put_lane("a", 1).await;
    let held = hand.take(1).await;
    hand.pause("default").await.expect("pause");
    assert!(other.status_of("default").await.paused);
    assert_eq!(other.take(10).await.len(), 0);
    hand.deliver(&held).await;
    hand.resume("default").await.expect("resume");
    assert_eq!(other.take(10).await.len(), 2);
}

/// What is not said about a sink stays as it is.
pub async fn a_paused_sink_keeps_its_other_settings(hand: Hand) {
    hand.on_dead(OnDead::Skip).await.expect("skip");
    hand.pause("default").await.expect("pause");
    assert!(hand.status_of("default").await.paused);
    hand.resume("default").await.expect("resume");
    hand.put_lane("a", 2).await;
    hand.fail(&hand.take(1).await).await;
    assert_eq!(numbers(&hand.take(10).await), [2], "it still skips");
}

/// Proves H1, H7, E2: many hands at once share everything and overlap nowhere.
pub async fn hands_never_overlap(hand: Hand) {
    let plain = hand.put_plain(2_000).await;
    hand.put_lanes(100, 10).await;
    let drain = async |hand: Hand| {
        let mut mine = Vec::new();
        loop {
            let held = hand.take(30).await;
            if held.is_empty() {
                return mine;
            }
            mine.extend(held);
        }
    };
    let mut draining = tokio::task::JoinSet::new();
    for _ in 0..8 {
        draining.spawn(drain(hand.another().await));
    }
    let shares = draining.join_all().await;
    let all: Vec<Uuid> = shares.iter().flat_map(|share| ids(share)).collect();
    let distinct: HashSet<Uuid> = all.iter().copied().collect();
    assert_eq!(distinct.len(), all.len(), "one message, one holder");
    assert!(plain.iter().all(|id| distinct.contains(id)), "what has no lane is all handed out");
    let lanes_of = |share: &Vec<postrider::lifecycle::Claimed>| {
        share.iter().filter_map(|one| one.lane.clone()).collect::<HashSet<_>>().into_iter().collect::<Vec<_>>()
    };
    let lanes: Vec<String> = shares.iter().flat_map(lanes_of).collect();
    assert_eq!(lanes.iter().collect::<HashSet<_>>().len(), lanes.len(), "one lane, one hand");
}

/// Proves M5: a claim with a lower limit buries what has had so many attempts, and hands out the rest.
pub async fn a_lower_limit_buries(hand: Hand) {
    let tired = hand.put(message("tired").priority(1)).await.message_id;
    let other = hand.put(message("other")).await.message_id;
    hand.retry(&hand.take(1).await, Duration::ZERO).await;
    let held = hand.take_as(&hand.wants(10).max_attempts(1)).await;
    assert_eq!(ids(&held), [other]);
    assert_eq!(
        (hand.stands(tired).await, hand.attempts(tired).await),
        (vec!["default dead".to_owned()], vec!["1 RETRYABLE".to_owned()])
    );
}

/// Every argument has its range; what is outside is refused before anything happens.
pub async fn wrong_arguments_are_refused(hand: Hand) {
    hand.put_plain(1).await;
    let good = hand.wants(10);
    let wrong = [
        good.clone().worker_id(String::new()),
        good.clone().worker_id("w".repeat(256)),
        good.clone().sink(String::new()),
        good.clone().batch_size(0),
        good.clone().batch_size(10_001),
        good.clone().lease(Duration::ZERO),
        good.clone().lease(Duration::from_hours(25)),
        good.clone().max_attempts(0),
        good.clone().lane_run(0),
    ];
    for claim in wrong {
        let refused = hand.claim(&claim).await;
        assert!(matches!(&refused, Err(error) if error.kind() == ErrorKind::Refused), "{claim:?}: {refused:?}");
    }
    let held = hand.take_as(&good).await;
    for lease in [Duration::ZERO, Duration::from_hours(25)] {
        let refused = hand.renew(held[0].lease_token, &ids(&held), lease).await;
        assert!(matches!(&refused, Err(error) if error.kind() == ErrorKind::Refused), "{lease:?}: {refused:?}");
    }
    assert!(matches!(hand.repair_expired_leases(0).await, Err(error) if error.kind() == ErrorKind::Refused));
    assert!(matches!(hand.pause("").await, Err(error) if error.kind() == ErrorKind::Refused));
    assert!(
        matches!(hand.add_route(&postrider::Route::new("", "s")).await, Err(error) if error.kind() == ErrorKind::Refused)
    );
    assert!(matches!(hand.sleep("", HOUR).await, Err(error) if error.kind() == ErrorKind::Refused));
    assert!(matches!(hand.unclaim_stuck(Duration::MAX).await, Err(error) if error.kind() == ErrorKind::Refused));
    assert!(matches!(hand.prune(Duration::MAX).await, Err(error) if error.kind() == ErrorKind::Refused));
    assert_eq!(hand.counts().await, (0, 1, 0));
}

/// A message of about so many bytes.
fn large(topic: &str, bytes: usize) -> Message {
    Message::bytes(topic, vec![7; bytes], "application/octet-stream")
}

/// A claim brings no more bytes than it asks for, headers included; the first comes however large it is.
pub async fn a_claim_is_bounded_in_bytes(hand: Hand) {
    let mut messages = vec![large("t", 1_000); 5];
    messages.push(large("headed", 10).header("h", "v".repeat(1_000)));
    messages.push(large("huge", 50_000));
    messages.push(large("t", 1_000));
    hand.put_all(&messages).await;
    let wants = |bytes| hand.wants(100).max_bytes(Some(bytes));
    assert_eq!(hand.take_as(&wants(2_500)).await.len(), 2);
    let held = hand.take_as(&wants(4_500)).await;
    assert_eq!(topics(&held), ["t", "t", "t", "headed"]);
    assert!(held.iter().map(postrider::lifecycle::Claimed::size).sum::<usize>() <= 4_500);
    assert_eq!(topics(&hand.take_as(&wants(2_500)).await), ["huge"], "it is larger than any share, so it goes alone");
    assert_eq!(hand.take_as(&wants(1)).await.len(), 1);
    assert_eq!(hand.take_as(&wants(1)).await.len(), 0);
    assert!(hand.claim(&wants(0)).await.is_err());
}

/// Bytes are shared like places: lanes and others come in turn, every lane comes to its turn, and a run that is cut goes on
/// with its next number.
pub async fn large_lanes_and_others_take_turns(hand: Hand) {
    for n in 0..6 {
        for lane in ["a", "b", "c"] {
            hand.put(large(&format!("{lane}{n}"), 1_000).lane(lane)).await;
        }
        hand.put(large(&format!("-{n}"), 1_000)).await;
    }
    let wants = hand.wants(100).max_bytes(Some(1_500));
    let mut came = Vec::new();
    loop {
        let held = hand.take_as(&wants).await;
        if held.is_empty() {
            break;
        }
        assert_eq!(held.len(), 1);
        came.extend(topics(&held).into_iter().map(str::to_owned));
        hand.deliver(&held).await;
    }
    assert_eq!(came.len(), 24, "{came:?}");
    for kind in ["a", "b", "c", "-"] {
        let of_kind: Vec<usize> =
            came.iter().enumerate().filter(|(_, one)| one.starts_with(kind)).map(|(at, _)| at).collect();
        let in_order: Vec<&str> = came.iter().filter(|one| one.starts_with(kind)).map(|one| &one[1..]).collect();
        assert_eq!(in_order, ["0", "1", "2", "3", "4", "5"], "{came:?}");
        assert!(of_kind[0] < 8, "{kind} comes to its turn: {came:?}");
    }
}

/// One that is larger than the share of its kind comes in its turn, and holds up nothing behind it.
pub async fn a_large_head_holds_up_no_lane(hand: Hand) {
    for lane in ["a", "b", "c", "d"] {
        hand.put(large(lane, if lane == "b" { 3_000 } else { 100 }).lane(lane)).await;
    }
    let wants = hand.wants(100).max_bytes(Some(2_000));
    let mut came = HashSet::new();
    for _ in 0..10 {
        // There is always something without a lane.
        hand.put_all(&vec![large("-", 100); 30]).await;
        let held = hand.take_as(&wants).await;
        came.extend(topics(&held).into_iter().map(str::to_owned));
        hand.deliver(&held).await;
    }
    assert_eq!(came, ["-", "a", "b", "c", "d"].map(str::to_owned).into());
}

/// A claim that was given up: its messages are as if they had not been claimed, and the token is of no use any more.
pub async fn an_abandoned_claim_leaves_nothing(hand: Hand) {
    hand.put_plain(2).await;
    hand.put_lane("a", 2).await;
    let token = LeaseToken::random();
    let claim = hand.wants(10).lease_token(Some(token)).max_attempts(1);
    let held = hand.take_as(&claim).await;
    assert_eq!((held.len(), held[0].lease_token), (4, token));
    assert_eq!(hand.abandon(token).await.expect("abandon"), 4);
    assert_eq!(hand.abandon(token).await.expect("abandon"), 0);
    assert_eq!(hand.counts().await, (4, 0, 0));
    assert_eq!(hand.finish_all(&held, &postrider::lifecycle::Outcome::Dispatched).await, [], "its holder has lost it");
    let again = hand.take_as(&claim.lease_token(None)).await;
    assert_eq!(again.iter().map(|one| (one.attempt_no, one.attempt_count)).collect::<Vec<_>>(), [(1, 1); 4]);
    assert_eq!(hand.abandon(LeaseToken::random()).await.expect("abandon"), 0, "nobody else's");
    assert_eq!(hand.counts().await, (0, 4, 0));
}

/// Claimed without its content, a message can be read by who holds it.
pub async fn content_is_read_by_itself(hand: Hand) {
    hand.put(Message::json("t", &[1, 2]).expect("json").header("h", "v")).await;
    hand.put(large("b", 3)).await;
    let blind = hand.take_as(&hand.wants(10).with_content(false)).await;
    for held in &blind {
        assert!(held.headers.is_empty() && held.content.as_bytes().is_empty());
    }
    let read = |at: usize| hand.content(blind[at].lease_token, blind[at].message_id);
    let first = read(0).await.expect("content").expect("it is held");
    assert_eq!(first.headers.get("h").map(String::as_str), Some("v"));
    assert_eq!(serde_json::from_slice::<Vec<i32>>(first.content.as_bytes()).expect("json"), [1, 2]);
    assert_eq!(read(1).await.expect("content").expect("it is held").content.as_bytes(), [7, 7, 7]);
    let other = hand.content(LeaseToken::random(), blind[0].message_id).await.expect("content");
    assert!(other.is_none(), "who does not hold it reads nothing");
}

/// Whether something is due can be asked without taking it.
pub async fn what_is_due_can_be_asked(hand: Hand) {
    let has_due = async |tenant_id| hand.has_due("default", tenant_id).await.expect("has_due");
    assert!(!has_due(None).await);
    hand.put(message("later").delay(HOUR)).await;
    hand.put(message("later").delay(HOUR).lane("a")).await;
    assert!(!has_due(None).await);
    hand.put_lane("a", 1).await;
    assert!(!has_due(None).await, "its lane waits");
    let tenant = "tenant-1";
    hand.put(message("t").tenant(tenant)).await;
    assert!(has_due(None).await && has_due(Some(tenant)).await && !has_due(Some("tenant-2")).await);
    hand.pause("default").await.expect("pause");
    assert!(!has_due(None).await);
    hand.resume("default").await.expect("resume");
    hand.take(10).await;
    assert!(!has_due(None).await, "somebody holds it");
    hand.put_lane("b", 2).await;
    assert!(has_due(None).await);
}
