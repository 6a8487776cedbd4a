//! Lanes: strictly by sequence, one hand at a time, a failing head holds its own lane and no other, parked or skipped
//! when it dies, and no lane starves.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use postrider::lifecycle::Claimed;
use postrider::{OnDead, Route};

use super::hand::{Hand, LONG, ids, message, numbers, token};

const HOUR: Duration = Duration::from_hours(1);

fn lanes(claimed: &[Claimed]) -> Vec<&str> {
    claimed.iter().filter_map(|one| one.lane.as_deref()).collect()
}

async fn skip_the_dead(hand: &Hand) {
    hand.on_dead(OnDead::Skip).await.expect("on_dead");
}

/// Proves P1, P2: a run is handed out in sequence, under one token, and the lane is then in one hand.
pub async fn a_run_is_in_sequence(hand: Hand) {
    hand.put_lane("a", 5).await;
    let held = hand.take(3).await;
    assert_eq!(numbers(&held), [1, 2, 3]);
    assert!(held.iter().all(|one| one.lease_token == held[0].lease_token));
    assert_eq!(hand.take(3).await.len(), 0, "the lane is in one hand, be it the same one");
}

/// A run is no longer than the claim says; the rest of the batch comes from other lanes.
pub async fn a_run_is_bounded(hand: Hand) {
    hand.put_lanes(3, 5).await;
    let held = hand.take_as(&hand.wants(100).lane_run(2)).await;
    assert_eq!(numbers(&held), [1, 2, 1, 2, 1, 2]);
    assert_eq!(lanes(&held).iter().collect::<HashSet<_>>().len(), 3);
    hand.deliver(&held).await;
    assert_eq!(numbers(&hand.take_as(&hand.wants(3).lane_run(2)).await).iter().max(), Some(&4));
}

/// Proves P2, E2: a lane is free again only when everything handed out is done; then it goes on where it was.
pub async fn one_hand_at_a_time(hand: Hand) {
    let other = hand.another().await;
    hand.put_lane("a", 5).await;
    let held = hand.take(3).await;
    assert_eq!(other.take(10).await.len(), 0);
    hand.deliver(&held[..2]).await;
    assert_eq!(other.take(10).await.len(), 0, "number 3 is still out");
    hand.deliver(&held[2..]).await;
    assert_eq!(numbers(&other.take(10).await), [4, 5]);
}

/// A failed head holds its lane, and the numbers behind it stay behind it, even while the worker still holds them: the
/// lane is not given to a second hand before they are released.
pub async fn a_failing_head_holds_its_lane(hand: Hand) {
    let other = hand.another().await;
    hand.put_lane("a", 4).await;
    hand.put_lane("b", 1).await;
    let held = hand.take_as(&hand.wants(3).lane_run(3)).await;
    assert_eq!(numbers(&held), [1, 2, 3]);
    hand.retry(&held[..1], Duration::ZERO).await;
    assert_eq!(lanes(&other.take(10).await), ["b"]);
    hand.release(token(&held), &ids(&held[1..2])).await.expect("release");
    assert_eq!(other.take(10).await.len(), 0, "number 3 is still out");
    hand.release(token(&held), &ids(&held[2..])).await.expect("release");
    let again = other.take(10).await;
    assert_eq!(numbers(&again), [1], "a head that failed goes alone: nothing behind it is leased in vain");
    assert_eq!((again[0].attempt_no, other.take(10).await.len()), (2, 0));
    other.deliver(&again).await;
    let rest = other.take(10).await;
    assert_eq!(numbers(&rest), [2, 3, 4]);
    assert_eq!(rest.iter().map(|one| one.attempt_no).collect::<Vec<_>>(), [1, 1, 1]);
}

/// While the head waits for its retry, nothing of the lane is handed out, and other lanes are.
pub async fn backoff_holds_only_its_own_lane(hand: Hand) {
    hand.put_lanes(3, 2).await;
    hand.put_plain(1).await;
    let held = hand.take_as(&hand.wants(4).lane_run(1)).await;
    let (blocked, others): (Vec<Claimed>, Vec<Claimed>) =
        held.into_iter().partition(|one| one.lane.as_deref() == Some("lane-00001"));
    hand.retry(&blocked, HOUR).await;
    hand.deliver(&others).await;
    assert_eq!(lanes(&hand.take(10).await), ["lane-00000", "lane-00002"]);
}

/// What a worker still holds behind a delivered head is its own until it is done or released.
pub async fn a_delivered_head_lets_the_rest_wait_for_its_hand(hand: Hand) {
    let other = hand.another().await;
    hand.put_lane("a", 3).await;
    let held = hand.take(2).await;
    hand.deliver(&held[..1]).await;
    hand.retry(&held[1..], HOUR).await;
    assert_eq!(other.take(10).await.len(), 0, "number 2 waits, and 3 behind it");
    hand.put_lane("b", 2).await;
    let held = hand.take(2).await;
    hand.release(token(&held), &ids(&held[..1])).await.expect("release");
    assert_eq!(other.take(10).await.len(), 0, "a released head waits for what is out behind it");
    hand.deliver(&held[1..]).await;
    assert_eq!((lanes(&other.take(10).await), hand.counts().await), (vec!["b"], (2, 1, 0)));
}

/// A dead head parks its lane by default; redrive lets it go on in order, from the same number.
pub async fn a_dead_head_parks_until_redriven(hand: Hand) {
    let all = hand.put_lane("a", 3).await;
    hand.fail(&hand.take(1).await).await;
    assert_eq!(hand.take(10).await.len(), 0);
    let status = hand.status_of("default").await;
    assert_eq!(
        (status.pending, status.due, status.dead, status.parked_lanes),
        (2, 0, 1, 1),
        "what stands behind is not due"
    );
    assert_eq!(hand.stands(all[0]).await, ["default dead"]);
    assert_eq!(hand.redrive_all().await, 1);
    assert_eq!(hand.status_of("default").await.parked_lanes, 0);
    let held = hand.take(10).await;
    assert_eq!(numbers(&held), [1, 2, 3]);
    assert_eq!((held[0].attempt_no, held[0].attempt_count), (2, 1));
    hand.deliver(&held).await;
    assert_eq!(hand.attempts(all[0]).await, ["1 FAILED", "2 DISPATCHED"]);
}

/// Discarding a parked head lets the lane go on with the next number.
pub async fn discarding_a_parked_head_frees_the_lane(hand: Hand) {
    let all = hand.put_lane("a", 3).await;
    hand.fail(&hand.take(1).await).await;
    assert_eq!(hand.discard(&all[..1], None).await.expect("discard"), 1);
    assert_eq!(numbers(&hand.take(10).await), [2, 3]);
    assert_eq!(hand.status_of("default").await.parked_lanes, 0);
}

/// With `skip` the lane goes on by itself; a redriven one comes back in front, after what is in flight.
pub async fn a_dead_head_is_skipped_by_choice(hand: Hand) {
    skip_the_dead(&hand).await;
    hand.put_lane("a", 4).await;
    hand.fail(&hand.take(1).await).await;
    assert_eq!((hand.counts().await.2, hand.status_of("default").await.parked_lanes), (1, 0));
    let held = hand.take(2).await;
    assert_eq!(numbers(&held), [2, 3]);
    assert_eq!(hand.redrive_all().await, 1);
    assert_eq!(hand.take(10).await.len(), 0, "the redriven one waits while 2 and 3 are in flight");
    hand.deliver(&held).await;
    assert_eq!(numbers(&hand.take(10).await), [1, 4]);
}

/// A head that was skipped and is given up leaves nothing behind, and takes nothing away.
pub async fn a_discarded_skipped_head_leaves_the_lane_alone(hand: Hand) {
    skip_the_dead(&hand).await;
    let all = hand.put_lane("a", 2).await;
    hand.fail(&hand.take(1).await).await;
    assert_eq!(hand.discard(&all, None).await.expect("discard"), 1);
    assert_eq!(numbers(&hand.take(10).await), [2]);
}

/// Proves M5: a head that runs out of attempts by expiring parks its lane like any other dead one, and stays parked.
pub async fn a_head_that_kills_its_workers_parks_its_lane(hand: Hand) {
    let all = hand.put_lane("a", 2).await;
    let once = hand.wants(1).max_attempts(1);
    hand.lose_as(&once).await;
    assert_eq!(hand.take_as(&once.clone().batch_size(5)).await.len(), 0);
    assert_eq!(hand.status_of("default").await.parked_lanes, 1);
    assert_eq!(hand.attempts(all[0]).await, ["1 ZOMBIE_REQUEUE"]);
    skip_the_dead(&hand).await;
    assert_eq!(hand.take(5).await.len(), 0, "parked stays parked until a person acts");
    hand.put_lane("b", 2).await;
    hand.lose_as(&once).await;
    assert_eq!(hand.repair_expired_leases(10).await.expect("repair"), 1);
    assert_eq!((lanes(&hand.take(5).await), hand.counts().await.2), (vec!["b"], 2), "the next one skips");
}

/// A number that is out of attempts ends the run before it; it is buried when it has become the head.
pub async fn a_spent_number_ends_a_run(hand: Hand) {
    let all = hand.put_lane("a", 3).await;
    let held = hand.lose(2).await;
    assert_eq!(numbers(&held), [1, 2]);
    assert_eq!(hand.repair_expired_leases(10).await.expect("repair"), 2);
    let held = hand.take_as(&hand.wants(1).lane_run(1)).await;
    hand.fail(&held).await;
    assert_eq!(hand.redrive_all().await, 1);
    // Number 1 has a new budget; number 2 has used one attempt.
    let once = hand.wants(10).max_attempts(1);
    let held = hand.take_as(&once).await;
    assert_eq!(numbers(&held), [1]);
    hand.deliver(&held).await;
    assert_eq!(hand.take_as(&once).await.len(), 0);
    assert_eq!(
        (hand.stands(all[1]).await, hand.status_of("default").await.parked_lanes),
        (vec!["default dead".to_owned()], 1)
    );
}

/// Proves L5: a run whose lease ended is taken over as a whole, in order, each with its lost attempt.
pub async fn an_expired_run_is_taken_over_in_order(hand: Hand) {
    let other = hand.another().await;
    let all = hand.put_lane("a", 4).await;
    assert_eq!(hand.lose(3).await.len(), 3);
    assert_eq!(numbers(&other.take(10).await), [1, 2, 3, 4]);
    assert_eq!(hand.attempts(all[2]).await, ["1 ZOMBIE_REQUEUE"]);
    assert_eq!(hand.attempts(all[3]).await.len(), 0);
}

/// A run of which only the later part was renewed is not split between two hands.
pub async fn a_partly_renewed_run_stays_in_one_hand(hand: Hand) {
    let other = hand.another().await;
    hand.put_lane("a", 4).await;
    let held = hand.take_as(&hand.wants(4).lease(Duration::from_secs(1))).await;
    let renewed = hand.renew(token(&held), &ids(&held[2..]), LONG).await.expect("renew");
    assert_eq!(renewed.len(), 2);
    hand.until_ended(&held).await;
    assert_eq!(other.take(1).await.len(), 0, "3 and 4 are still in the first hand");
    assert_eq!(other.repair_expired_leases(10).await.expect("repair"), 2);
    assert_eq!(other.take(1).await.len(), 0, "a repair does not change that");
    hand.deliver(&held[2..]).await;
    assert_eq!(numbers(&other.take(10).await), [1, 2]);
}

/// What replay puts in front of a lane waits for what is in flight there, and goes first then.
pub async fn a_replayed_number_waits_for_what_is_in_flight(hand: Hand) {
    let other = hand.another().await;
    let all = hand.put_lane("a", 4).await;
    hand.deliver(&hand.take(2).await).await;
    let held = hand.take(1).await;
    assert_eq!(numbers(&held), [3]);
    assert_eq!(other.replay("default", &all[..2]).await.expect("replay"), 2);
    assert_eq!(other.take(10).await.len(), 0, "number 3 is still out");
    hand.deliver(&held).await;
    assert_eq!(numbers(&other.take(10).await), [1, 2, 4]);
}

/// Two sinks of one message have lanes of their own: a parked lane in one does not hold the other.
pub async fn sinks_have_lanes_of_their_own(hand: Hand) {
    for sink in ["a", "b"] {
        hand.add_route(&Route::new("*", sink)).await.expect("add_route");
    }
    hand.put_lane("l", 2).await;
    hand.fail(&hand.take_from("a", 1).await).await;
    assert_eq!(hand.take_from("a", 5).await.len(), 0);
    assert_eq!(numbers(&hand.take_from("b", 5).await), [1, 2]);
}

/// No lane starves: a worker that claims one at a time from busy lanes comes around to every lane.
pub async fn every_lane_gets_its_turn(hand: Hand) {
    hand.put_lanes(10, 5).await;
    let mut seen = Vec::new();
    for _ in 0..20 {
        let held = hand.take(1).await;
        seen.push(held[0].lane.clone());
        hand.deliver(&held).await;
    }
    assert_eq!(seen[..10].iter().collect::<HashSet<_>>().len(), 10, "ten claims, ten lanes: {seen:?}");
    assert_eq!(seen[..10], seen[10..], "and the same round again");
}

/// Lanes and messages without a lane share a batch: neither waits for the other to run dry.
pub async fn lanes_and_others_share_a_batch(hand: Hand) {
    hand.put_plain(100).await;
    hand.put_lanes(100, 1).await;
    assert_eq!(lanes(&hand.take(20).await).len(), 10, "half and half");
    assert_eq!(hand.take(150).await.len(), 150);
    assert_eq!(hand.take(150).await.len(), 30, "what one kind leaves free, the other fills");
}

/// A worker that takes one message at a time serves lanes and the others in turn.
pub async fn one_at_a_time_takes_turns(hand: Hand) {
    hand.put_plain(5).await;
    hand.put_lanes(5, 1).await;
    let mut turns = Vec::new();
    for _ in 0..10 {
        turns.push(hand.take(1).await[0].lane.is_some());
    }
    assert_eq!(turns, [false, true].repeat(5));
}

/// A worker that serves two tenants in turn comes around to every lane of both.
pub async fn tenants_in_turn_starve_no_lane(hand: Hand) {
    let tenants = ["a", "a/b"];
    for tenant in tenants {
        for n in 0..8 {
            hand.put(message("t").lane(format!("{tenant}-{}", n % 2)).tenant(tenant)).await;
        }
    }
    let mut seen = HashSet::new();
    for turn in 0..4 {
        let held = hand.take_as(&hand.wants(1).tenant_id(Some(tenants[turn % 2].to_owned()))).await;
        hand.deliver(&held).await;
        seen.extend(held.into_iter().filter_map(|one| one.lane));
    }
    assert_eq!(seen.len(), 4, "{seen:?}");
}

/// An empty answer to a thorough claim means that nothing is free, however many lanes are blocked.
pub async fn a_thorough_claim_passes_every_blocked_lane(hand: Hand) {
    let blocked: Vec<_> = (0..5000).map(|n| message("t").lane(format!("lane-{n:05}")).delay(HOUR)).collect();
    hand.put_all(&blocked).await;
    let thorough = hand.wants(10).thorough(true);
    assert_eq!(hand.take_as(&thorough).await.len(), 0);
    hand.put_lane("zz-free", 1).await;
    assert_eq!(lanes(&hand.take_as(&thorough).await), ["zz-free"]);
}

/// A claim that need not be thorough may stop on its way over blocked lanes; the worker's next one goes on from there.
pub async fn an_ordinary_claim_comes_to_every_lane_in_steps(hand: Hand) {
    let blocked: Vec<_> = (0..5000).map(|n| message("t").lane(format!("lane-{n:05}")).delay(HOUR)).collect();
    hand.put_all(&blocked).await;
    hand.put_lane("zz-free", 1).await;
    for step in 0.. {
        let held = hand.take(10).await;
        if !held.is_empty() {
            assert_eq!(lanes(&held), ["zz-free"]);
            break;
        }
        assert!(step < 10, "the free lane is never reached");
    }
}

/// Proves P2, E2: two hands drain the same lanes, with failures; every lane arrives in order, without a hole.
pub async fn two_hands_keep_every_lane_in_order(hand: Hand) {
    let other = hand.another().await;
    hand.put_lanes(12, 10).await;
    let log = std::sync::Mutex::new(BTreeMap::<String, Vec<i64>>::new());
    let work = async |hand: &Hand, every: usize| {
        let mut turn = 0;
        loop {
            let held = hand.take_as(&hand.wants(7).lane_run(3).max_attempts(1000)).await;
            if held.is_empty() && hand.counts().await == (0, 0, 0) {
                return;
            }
            let runs = held.chunk_by(|one, next| one.lane == next.lane);
            for run in runs {
                turn += 1;
                // Now and then the head fails, and the rest of its run is handed back.
                if turn % every == 0 {
                    hand.retry(&run[..1], Duration::ZERO).await;
                    hand.release(run[0].lease_token, &ids(&run[1..])).await.expect("release");
                    continue;
                }
                let lane = run[0].lane.clone().expect("all have lanes");
                log.lock().expect("no panic").entry(lane).or_default().extend(numbers(run));
                hand.deliver(run).await;
            }
        }
    };
    tokio::join!(work(&hand, 3), work(&other, 4));
    let log = log.into_inner().expect("no panic");
    assert_eq!(log.len(), 12);
    for (lane, arrived) in log {
        assert_eq!(arrived, (1..=10).collect::<Vec<i64>>(), "{lane}");
    }
}
