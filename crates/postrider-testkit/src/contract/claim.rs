//! What a claim hands out, in which order, and on which terms: order, tenants, due times, paused sinks, limits, and what
//! can be seen of a lease while it lasts.

use std::collections::HashSet;
use std::time::Duration;

use postrider::{Claim, Error, OnDead, SinkChange};
use uuid::Uuid;

use super::Fixture;
use super::hand::{Hand, LONG, ids, message, numbers, topics};

const HOUR: Duration = Duration::from_hours(1);

/// Proves H1, M11, E7: oldest first, whatever the order of writing.
pub async fn oldest_first<F: Fixture>() {
    let (_outbox, hand) = F::one_hand().await;
    let now = hand.now().await.expect("now");
    for (topic, age) in [("three", 1), ("one", 3), ("two", 2)] {
        hand.put(message(topic).occurred_at(now - age * HOUR)).await;
    }
    assert_eq!(topics(&hand.take(10).await), ["one", "two", "three"]);
}

/// Proves E7, M11: priority first, then age, then the order of enqueueing.
pub async fn priority_then_age_then_id<F: Fixture>() {
    let (_outbox, hand) = F::one_hand().await;
    let now = hand.now().await.expect("now");
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
pub async fn a_small_batch_takes_the_best<F: Fixture>() {
    let (_outbox, hand) = F::one_hand().await;
    hand.put_plain(50).await;
    let best = hand.put(message("best").priority(1)).await.message_id;
    let held = hand.take(3).await;
    assert_eq!((held.len(), held[0].message_id), (3, best));
    assert_eq!(hand.counts().await, (48, 3, 0));
}

/// Proves H1, M2: one tenant's claim takes that tenant's, with and without lanes, and nobody else's.
pub async fn of_one_tenant_only<F: Fixture>() {
    let (_outbox, hand) = F::one_hand().await;
    let [ours, theirs] = [Uuid::from_u128(1), Uuid::from_u128(2)];
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
    let held = hand.take_as(&Claim { tenant_id: Some(ours), ..hand.wants(100) }).await;
    assert_eq!(held.len(), 10);
    assert!(held.iter().all(|one| one.topic == "ours"), "{held:?}");
    let priorities: Vec<i32> = held.iter().filter(|one| one.lane.is_none()).map(|one| one.priority).collect();
    assert_eq!(priorities, [4, 3, 2, 1, 0]);
    assert_eq!(hand.take(100).await.len(), 15, "everybody else's is still there for a claim without a tenant");
}

/// A lane that two tenants share stays in order: one tenant's claim waits for the other's number.
pub async fn a_shared_lane_keeps_its_order_under_a_tenant_filter<F: Fixture>() {
    let (_outbox, hand) = F::one_hand().await;
    let [ours, theirs] = [Uuid::from_u128(1), Uuid::from_u128(2)];
    for tenant in [theirs, ours, ours] {
        hand.put(message("t").lane("shared").tenant(tenant)).await;
    }
    let ours = Claim { tenant_id: Some(ours), ..hand.wants(10) };
    assert_eq!(hand.take_as(&ours).await.len(), 0, "number 1 is the other tenant's");
    let first = hand.take_as(&Claim { tenant_id: Some(theirs), ..hand.wants(10) }).await;
    assert_eq!(numbers(&first), [1], "a run ends where the tenant changes");
    assert_eq!(hand.take_as(&ours).await.len(), 0, "the lane is in one hand");
    hand.deliver(&first).await;
    assert_eq!(numbers(&hand.take_as(&ours).await), [2, 3]);
}

/// Proves L1, L2, L7: a claimed delivery stays visible, with its holder and the end of its lease.
pub async fn a_lease_is_visible<F: Fixture>() {
    let (_outbox, hand, other) = F::two_hands().await;
    let id = hand.put(message("t")).await.message_id;
    let before = hand.now().await.expect("now");
    let held = hand.take(1).await.remove(0);
    let after = hand.now().await.expect("now");
    assert_eq!((held.message_id, held.attempt_no, held.attempt_count, held.lost_leases), (id, 1, 1, 0));
    assert!(before <= held.claimed_at && held.claimed_at <= after, "by the store's clock");
    assert_eq!(held.lease_expires_at, held.claimed_at + LONG);
    let seen = other.show(id).await.expect("show").expect("it is there").deliveries.remove(0);
    assert_eq!((seen.state.as_str(), seen.claimed_by.as_deref()), ("leased", Some(hand.worker())));
    assert_eq!(seen.lease_expires_at, Some(held.lease_expires_at));
    assert_eq!((seen.attempt_no, seen.attempt_count), (1, 1));
}

/// What is not due is not handed out; when its time comes by the store's clock, it is.
pub async fn not_before_it_is_due<F: Fixture>() {
    let (_outbox, hand) = F::one_hand().await;
    let now = hand.now().await.expect("now");
    hand.put(message("later").delay(HOUR).priority(100)).await;
    hand.put(message("scheduled").due_at(now + HOUR)).await;
    hand.put(message("in a lane").delay(HOUR).lane("a")).await;
    let soon = hand.put(message("soon").delay(Duration::from_secs(1))).await.message_id;
    assert_eq!(topics(&hand.take(10).await), [] as [&str; 0]);
    hand.until(hand.now().await.expect("now") + Duration::from_millis(1001)).await;
    assert_eq!(ids(&hand.take(10).await), [soon]);
    let past = hand.put(message("past").due_at(now - HOUR)).await.message_id;
    assert_eq!(ids(&hand.take(10).await), [past]);
}

/// Waiting deliveries of higher priorities, in front of the index, do not stand in the way.
pub async fn what_is_not_due_does_not_hide_what_is<F: Fixture>() {
    let (_outbox, hand) = F::one_hand().await;
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
pub async fn a_paused_sink_hands_out_nothing<F: Fixture>() {
    let (_outbox, hand, other) = F::two_hands().await;
    hand.put_plain(2).await;
    hand.put_lane("a", 1).await;
    let held = hand.take(1).await;
    hand.configure_sink("default", SinkChange::pause()).await.expect("pause");
    assert!(other.status_of("default").await.paused);
    assert_eq!(other.take(10).await.len(), 0);
    hand.deliver(&held).await;
    hand.configure_sink("default", SinkChange::resume()).await.expect("resume");
    assert_eq!(other.take(10).await.len(), 2);
}

/// What is not said about a sink stays as it is.
pub async fn a_paused_sink_keeps_its_other_settings<F: Fixture>() {
    let (_outbox, hand) = F::one_hand().await;
    hand.configure_sink("default", SinkChange { paused: None, on_dead: Some(OnDead::Skip) }).await.expect("skip");
    hand.configure_sink("default", SinkChange::pause()).await.expect("pause");
    hand.configure_sink("default", SinkChange::default()).await.expect("nothing");
    assert!(hand.status_of("default").await.paused);
    hand.configure_sink("default", SinkChange::resume()).await.expect("resume");
    hand.put_lane("a", 2).await;
    hand.fail(&hand.take(1).await).await;
    assert_eq!(numbers(&hand.take(10).await), [2], "it still skips");
}

/// Proves H1, E2: two hands at once share everything and overlap nowhere.
pub async fn two_hands_never_overlap<F: Fixture>() {
    let (_outbox, hand, other) = F::two_hands().await;
    let plain = hand.put_plain(400).await;
    hand.put_lanes(50, 4).await;
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
    let (one, two) = tokio::join!(tokio::spawn(drain(hand.clone())), tokio::spawn(drain(other.clone())));
    let (one, two) = (one.expect("no panic"), two.expect("no panic"));
    let mut all = ids(&one);
    all.extend(ids(&two));
    let distinct: HashSet<Uuid> = all.iter().copied().collect();
    assert_eq!(distinct.len(), all.len(), "one message, one holder");
    assert!(plain.iter().all(|id| distinct.contains(id)), "what has no lane is all handed out");
    let lanes_of = |held: &[postrider::Claimed]| held.iter().filter_map(|one| one.lane.clone()).collect::<HashSet<_>>();
    assert!(lanes_of(&one).is_disjoint(&lanes_of(&two)), "one lane, one hand");
}

/// Proves M5: a claim with a lower limit buries what has had so many attempts, and hands out the rest.
pub async fn a_lower_limit_buries<F: Fixture>() {
    let (_outbox, hand) = F::one_hand().await;
    let tired = hand.put(message("tired").priority(1)).await.message_id;
    let other = hand.put(message("other")).await.message_id;
    hand.retry(&hand.take(1).await, Duration::ZERO).await;
    let held = hand.take_as(&Claim { max_attempts: 1, ..hand.wants(10) }).await;
    assert_eq!(ids(&held), [other]);
    assert_eq!(
        (hand.stands(tired).await, hand.attempts(tired).await),
        (vec!["default dead".to_owned()], vec!["1 RETRYABLE".to_owned()])
    );
}

/// Every argument has its range; what is outside is refused before anything happens.
pub async fn wrong_arguments_are_refused<F: Fixture>() {
    let (_outbox, hand) = F::one_hand().await;
    hand.put_plain(1).await;
    let good = hand.wants(10);
    let wrong = [
        Claim { worker_id: String::new(), ..good.clone() },
        Claim { worker_id: "w".repeat(256), ..good.clone() },
        Claim { sink: String::new(), ..good.clone() },
        Claim { batch_size: 0, ..good.clone() },
        Claim { batch_size: 10_001, ..good.clone() },
        Claim { lease: Duration::ZERO, ..good.clone() },
        Claim { lease: Duration::from_hours(25), ..good.clone() },
        Claim { max_attempts: 0, ..good.clone() },
        Claim { lane_run: 0, ..good.clone() },
    ];
    for claim in wrong {
        let refused = hand.claim(&claim).await;
        assert!(matches!(refused, Err(Error::Refused { .. })), "{claim:?}: {refused:?}");
    }
    let held = hand.take_as(&good).await;
    for lease in [Duration::ZERO, Duration::from_hours(25)] {
        let refused = hand.renew(held[0].lease_token, &ids(&held), lease).await;
        assert!(matches!(refused, Err(Error::Refused { .. })), "{lease:?}: {refused:?}");
    }
    assert!(matches!(hand.repair_expired_leases(0).await, Err(Error::Refused { .. })));
    assert!(matches!(hand.configure_sink("", SinkChange::pause()).await, Err(Error::Refused { .. })));
    assert!(matches!(hand.add_route(&postrider::Route::new("", "s")).await, Err(Error::Refused { .. })));
    assert!(matches!(hand.sleep("", HOUR).await, Err(Error::Refused { .. })));
    assert!(matches!(hand.unclaim_stuck(Duration::MAX).await, Err(Error::Refused { .. })));
    assert!(matches!(hand.prune(Some(Duration::MAX)).await, Err(Error::Refused { .. })));
    assert_eq!(hand.counts().await, (0, 1, 0));
}
