//! Workers that lost their lease, however late they wake: they change nothing. Leases that ran out: every one is recorded
//! once, by the next claim or by a repair, and counts.

use std::time::Duration;

use postrider::ErrorKind;
use postrider::lifecycle::{Claimed, Completion, Failure, LeaseToken, Outcome};
use uuid::Uuid;

use super::hand::{Hand, LONG, NO_IDS, ids, message, token};

fn outcomes() -> [Outcome; 3] {
    let failure = Failure::new("E", "e");
    [
        Outcome::Dispatched,
        Outcome::Retryable { retry_after: Duration::ZERO, failure: failure.clone() },
        Outcome::Failed(failure),
    ]
}

/// Every write a holder has is refused, and says so.
async fn assert_is_refused(hand: &Hand, stale: &Claimed, when: &str) {
    let one = std::slice::from_ref(stale);
    for outcome in outcomes() {
        assert_eq!(hand.finish_all(one, &outcome).await, [], "complete {when}");
        let lost = hand.finish(hand.worker(), stale, outcome).await;
        let lost = lost.expect_err(when);
        assert_eq!(lost.kind(), ErrorKind::LeaseLost, "{when}");
        assert!(lost.to_string().contains(&stale.message_id.to_string()), "{when}: {lost}");
    }
    assert!(
        matches!(hand.ack(hand.worker(), stale).await, Err(error) if error.kind() == ErrorKind::LeaseLost),
        "ack {when}"
    );
    let nack = hand.nack(hand.worker(), stale, Duration::ZERO, Failure::default()).await;
    assert!(matches!(&nack, Err(error) if error.kind() == ErrorKind::LeaseLost), "nack {when}");
    assert_eq!(hand.renew(stale.lease_token, &ids(one), LONG).await.expect("renew"), NO_IDS, "renew {when}");
    assert_eq!(hand.release(stale.lease_token, &ids(one)).await.expect("release"), NO_IDS, "release {when}");
}

/// Proves L2, L4, L5, M5: an expired lease is claimable again; the claim records the lost attempt and takes the next
/// number, under a new token.
pub async fn an_expired_lease_is_taken_over(hand: Hand) {
    let other = hand.another().await;
    let id = hand.put(message("t")).await.message_id;
    let lost = hand.lose(1).await;
    assert_eq!(hand.status_of("default").await.expired, 1);
    let taken = other.take(1).await;
    assert_eq!((ids(&taken), taken[0].attempt_no, taken[0].attempt_count), (vec![id], 2, 2));
    assert_ne!(token(&taken), token(&lost));
    let zombie = hand.shown(id).await.attempts.remove(0);
    assert_eq!((zombie.state.as_str(), zombie.worker_id.as_str()), ("ZOMBIE_REQUEUE", hand.worker()));
    assert_eq!((zombie.claimed_at, zombie.error_code.as_deref()), (lost[0].claimed_at, Some("LEASE_EXPIRED")));
    assert!(zombie.completed_at >= lost[0].lease_expires_at && zombie.completed_at <= taken[0].claimed_at);
    other.deliver(&taken).await;
    assert_eq!(hand.attempts(id).await, ["1 ZOMBIE_REQUEUE", "2 DISPATCHED"]);
}

/// Proves L3, L6, M6: wrong token, wrong worker, unknown message, and the right one twice: nothing changes.
pub async fn only_the_holder_completes(hand: Hand) {
    let other = hand.another().await;
    let id = hand.put(message("t")).await.message_id;
    let held = hand.take(1).await.remove(0);
    let mut wrong_token = held.clone();
    wrong_token.lease_token = LeaseToken(Uuid::new_v4());
    let mut wrong_message = held.clone();
    wrong_message.message_id = Uuid::new_v4();
    assert_is_refused(&hand, &wrong_token, "with a wrong token").await;
    assert_is_refused(&hand, &wrong_message, "for an unknown message").await;
    for outcome in outcomes() {
        let refused = other.finish(other.worker(), &held, outcome).await;
        assert!(matches!(&refused, Err(error) if error.kind() == ErrorKind::LeaseLost), "by another worker");
    }
    assert_eq!((hand.attempts(id).await.len(), hand.counts().await), (0, (0, 1, 0)));
    hand.ack(hand.worker(), &held).await.expect("the holder completes");
    assert_is_refused(&hand, &held, "after it was delivered").await;
    assert_eq!(hand.attempts(id).await, ["1 DISPATCHED"]);
}

/// Proves L6, M6: a worker that lost its lease is refused by every write there is: by the clock alone, after a takeover,
/// after a repair, and after all is over.
pub async fn a_stale_worker_is_refused_by_every_write(hand: Hand) {
    let other = hand.another().await;
    let id = hand.put(message("t")).await.message_id;
    let stale = hand.lose(1).await.remove(0);
    assert_is_refused(&hand, &stale, "after its end").await;
    assert_eq!(hand.attempts(id).await.len(), 0, "nothing was written");
    let taken = other.take(1).await;
    assert_eq!(taken[0].attempt_no, 2);
    assert_is_refused(&hand, &stale, "after a takeover").await;
    assert_eq!(hand.counts().await, (0, 1, 0), "the new holder's lease is untouched");
    let seen = hand.shown(id).await.deliveries.remove(0);
    assert_eq!(seen.claimed_by.as_deref(), Some(other.worker()));
    other.deliver(&taken).await;
    assert_is_refused(&hand, &stale, "after another delivered it").await;

    let repaired = hand.put(message("t")).await.message_id;
    let stale = hand.lose(1).await.remove(0);
    assert_eq!(other.repair_expired_leases(100).await.expect("repair"), 1);
    assert_is_refused(&hand, &stale, "after a repair").await;
    assert_eq!(hand.attempts(repaired).await, ["1 ZOMBIE_REQUEUE"]);
    assert_eq!(hand.counts().await, (1, 0, 0));
}

/// A lease that is renewed in time lasts.
pub async fn a_renewed_lease_outlives_its_first_end(hand: Hand) {
    let other = hand.another().await;
    let id = hand.put(message("t")).await.message_id;
    let held = hand.take_as(&hand.wants(1).lease(Duration::from_secs(1))).await;
    assert_eq!(hand.renew(token(&held), &[id], LONG).await.expect("renew"), [id]);
    hand.until_ended(&held).await;
    assert_eq!(other.take(1).await.len(), 0);
    assert_eq!(other.repair_expired_leases(100).await.expect("repair"), 0);
    hand.deliver(&held).await;
    assert_eq!(hand.attempts(id).await, ["1 DISPATCHED"]);
}

/// Proves M5, M8: the counter goes up at claim time, so a payload that kills every worker runs out of attempts.
pub async fn a_killer_runs_out_of_attempts(hand: Hand) {
    let other = hand.another().await;
    let id = hand.put(message("killer")).await.message_id;
    let claim = hand.wants(10).max_attempts(3);
    for attempt_no in 1..=3 {
        assert_eq!(hand.lose_as(&claim).await[0].attempt_no, attempt_no);
    }
    assert_eq!(other.take_as(&claim).await.len(), 0);
    assert_eq!(hand.attempts(id).await, ["1 ZOMBIE_REQUEUE", "2 ZOMBIE_REQUEUE", "3 ZOMBIE_REQUEUE"]);
    assert_eq!(hand.stands(id).await, ["default dead"]);
    let letter = hand.dead_letter(id).await;
    assert_eq!((letter.reason.as_str(), letter.attempt_count), ("ATTEMPTS_EXHAUSTED", 3));
    assert_eq!(letter.error_code.as_deref(), Some("LEASE_EXPIRED"));
    assert_eq!((other.take_as(&claim).await.len(), hand.counts().await), (0, (0, 0, 1)));
}

/// How many of the two attempts before this one lost their lease: it may be what kills its workers.
pub async fn lost_leases_are_counted(hand: Hand) {
    let id = hand.put(message("t")).await.message_id;
    for expected in [0, 1, 2, 2] {
        assert_eq!(hand.lose(1).await[0].lost_leases, expected);
    }
    let held = hand.take(1).await;
    assert_eq!(held[0].lost_leases, 2);
    hand.retry(&held, Duration::ZERO).await;
    let held = hand.take(1).await;
    assert_eq!(held[0].lost_leases, 1, "the last one reported, the one before did not");
    hand.retry(&held, Duration::ZERO).await;
    assert_eq!(hand.lose(1).await[0].lost_leases, 0);
    let held = hand.take(1).await;
    assert_eq!(held[0].lost_leases, 1);
    hand.fail(&held).await;
    assert_eq!(hand.redrive(Some(&[id]), None).await.expect("redrive"), 1);
    assert_eq!(hand.take(1).await[0].lost_leases, 0, "a new budget begins without a past");
}

/// Proves L5, M5: repair clears ended leases, records them, buries what is out of attempts, and leaves live ones.
pub async fn repair_ends_expired_leases(hand: Hand) {
    let other = hand.another().await;
    let live = hand.put(message("live")).await.message_id;
    hand.take(1).await;
    // Of two tenants, so that the claim of one does not take over the other's.
    let [one, two] = ["one", "two"];
    let spent = hand.put(message("spent").tenant(one)).await.message_id;
    hand.lose_as(&hand.wants(1).max_attempts(1).tenant_id(Some(one.to_owned()))).await;
    let tired = hand.put(message("tired").tenant(two)).await.message_id;
    hand.lose_as(&hand.wants(1).max_attempts(2).tenant_id(Some(two.to_owned()))).await;
    assert_eq!(hand.status_of("default").await.expired, 2);
    assert_eq!(other.repair_expired_leases(100).await.expect("repair"), 2);
    assert_eq!(other.repair_expired_leases(100).await.expect("repair"), 0);
    for (id, state) in [(live, "leased"), (spent, "dead"), (tired, "pending")] {
        assert_eq!(hand.stands(id).await, [format!("default {state}")], "by the limit it was claimed with");
    }
    assert_eq!(hand.attempts(live).await.len(), 0);
    assert_eq!(hand.attempts(spent).await, ["1 ZOMBIE_REQUEUE"]);
    assert_eq!(hand.attempts(tired).await, ["1 ZOMBIE_REQUEUE"]);
    assert_eq!(other.take(5).await[0].attempt_no, 2);
}

/// A repair takes no more at once than it is told.
pub async fn repair_goes_in_batches(hand: Hand) {
    hand.put_plain(5).await;
    hand.lose(5).await;
    for expected in [2, 2, 1, 0] {
        assert_eq!(hand.repair_expired_leases(2).await.expect("repair"), expected);
    }
    assert_eq!(hand.counts().await, (5, 0, 0));
}

/// Proves E5: unclaim-stuck frees leases that have ended, however lately. Live ones it frees only when it is told to, and
/// only those that were taken so long ago; the old holder is fenced.
pub async fn unclaim_stuck_frees_and_fences(hand: Hand) {
    let other = hand.another().await;
    let young = hand.put_plain(1).await;
    let held = hand.take(1).await;
    let old = Duration::from_mins(5);
    hand.put_plain(1).await;
    hand.lose(1).await;
    assert_eq!(other.count_stale(old, true).await.expect("count"), 1, "the live one was taken just now");
    assert_eq!(other.unclaim_stuck(old).await.expect("unclaim"), 1, "it ended just now, and no live one is taken");
    assert_eq!(other.count_stale(Duration::ZERO, true).await.expect("count"), 1);
    assert_eq!(other.unclaim_stuck(Duration::ZERO).await.expect("unclaim"), 0, "none has ended");
    assert_eq!(other.unclaim_all().await.expect("unclaim"), 1, "a live one");
    assert_is_refused(&hand, &held[0], "after an unclaim").await;
    assert_eq!(hand.attempts(young[0]).await, ["1 ZOMBIE_REQUEUE"]);
    assert_eq!(other.take(10).await.len(), 2);
}

/// Proves L4, L6: an outcome and the end of its lease at once: one of them counts, and one attempt is recorded.
pub async fn an_outcome_races_an_unclaim(hand: Hand) {
    let other = hand.another().await;
    for _ in 0..20 {
        let id = hand.put(message("t")).await.message_id;
        let held = hand.take(1).await;
        let completion = [Completion::new(&held[0], Outcome::Dispatched)];
        let (completed, unclaimed) = tokio::join!(hand.complete(hand.worker(), &completion), other.unclaim_all());
        let (completed, unclaimed) = (completed.expect("complete").len(), unclaimed.expect("unclaim"));
        assert_eq!(completed as u64 + unclaimed, 1);
        let expected = if completed == 1 { "1 DISPATCHED" } else { "1 ZOMBIE_REQUEUE" };
        assert_eq!(hand.attempts(id).await, [expected]);
        if unclaimed == 1 {
            hand.deliver(&hand.take(1).await).await;
        }
    }
}

/// Proves H1, E2, L5: two workers find the same ended leases: each is taken over once and recorded once.
pub async fn a_takeover_races_a_takeover(hand: Hand) {
    let other = hand.another().await;
    let all = hand.put_plain(40).await;
    for round in 1..=5 {
        let patient = |hand: &Hand| hand.wants(25).max_attempts(1000);
        let all = patient(&hand).batch_size(40);
        assert_eq!(hand.lose_as(&all).await.len(), 40, "round {round}");
        let (mine, theirs) = (patient(&hand), patient(&other));
        let (one, two, repaired) =
            tokio::join!(hand.take_as(&mine), other.take_as(&theirs), other.repair_expired_leases(5));
        let mut taken = ids(&one);
        taken.extend(ids(&two));
        taken.sort_unstable();
        taken.dedup();
        assert_eq!(taken.len(), one.len() + two.len(), "one message, one holder");
        repaired.expect("repair");
        other.unclaim_all().await.expect("unclaim");
        assert_eq!(hand.counts().await, (40, 0, 0));
    }
    for id in all {
        let attempts = hand.attempts(id).await;
        assert!(attempts.len() >= 5 && attempts.iter().all(|attempt| attempt.ends_with("ZOMBIE_REQUEUE")));
        assert!(attempts.iter().enumerate().all(|(at, attempt)| attempt.starts_with(&format!("{} ", at + 1))));
    }
}
