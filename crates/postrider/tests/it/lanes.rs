//! Lanes: strictly by sequence, one hand at a time, a failing head holds its own lane and no other, parked or skipped
//! when it dies, and no lane starves.

use std::collections::HashSet;

use uuid::Uuid;

use crate::support::{
    attempts, claim, claim_expired, claim_with, complete, enqueue, enqueue_lanes, fresh, mark_delivered, number,
};

async fn enqueue_lane(client: &tokio_postgres::Client, lane: &str, count: usize) -> Vec<Uuid> {
    let mut ids = Vec::new();
    for _ in 0..count {
        ids.push(enqueue(client, "t", &format!(", lane => '{lane}'")).await);
    }
    ids
}

fn numbers(held: &[crate::support::Held]) -> Vec<i64> {
    held.iter().filter_map(|held| held.sequence).collect()
}

/// Proves P1, P2: one gapless sequence per lane; a run is handed out in that order.
#[tokio::test]
async fn a_run_is_in_sequence() {
    let (_database, client) = fresh().await;
    enqueue_lane(&client, "a", 5).await;
    assert_eq!(numbers(&claim(&client, "w", 3).await), [1, 2, 3]);
    assert_eq!(claim(&client, "w", 3).await, [], "the lane is in one hand");
}

/// A lane is free again only when everything handed out is done; then it goes on where it was.
#[tokio::test]
async fn one_hand_at_a_time() {
    let (database, client) = fresh().await;
    let other = database.connect().await;
    enqueue_lane(&client, "a", 5).await;
    let held = claim(&client, "w", 3).await;
    assert_eq!(claim(&other, "w2", 10).await, []);
    mark_delivered(&client, &held[..2]).await;
    assert_eq!(claim(&other, "w2", 10).await, [], "number 3 is still out");
    mark_delivered(&client, &held[2..]).await;
    assert_eq!(numbers(&claim(&other, "w2", 10).await), [4, 5]);
}

/// A failed head holds its lane until it is due again, and the numbers behind it stay behind it, even while the worker
/// still holds them: the lane is not given to a second hand before they are released.
#[tokio::test]
async fn a_failing_head_holds_its_lane() {
    let (database, client) = fresh().await;
    let other = database.connect().await;
    enqueue_lane(&client, "a", 4).await;
    enqueue_lane(&client, "b", 1).await;
    let held: Vec<_> = claim_with(&client, "w", 3, ", lane_run => 3").await;
    assert_eq!(numbers(&held), [1, 2, 3]);
    complete(&client, "w", &held[0], "RETRYABLE").await.unwrap();
    assert_eq!(claim(&other, "w2", 10).await.into_iter().map(|h| h.lane).collect::<Vec<_>>(), [Some("b".to_owned())]);
    let rest: Vec<Uuid> = held[1..].iter().map(|held| held.id).collect();
    client.query("select outbox.release($1, $2)", &[&held[0].token, &rest]).await.unwrap();
    let again = claim(&other, "w2", 10).await;
    assert_eq!(numbers(&again), [1], "a head that failed goes alone: nothing behind it is leased in vain");
    mark_delivered(&other, &again).await;
    let rest = claim(&other, "w2", 10).await;
    assert_eq!(numbers(&rest), [2, 3, 4]);
    assert_eq!(rest.iter().map(|held| held.attempt_no).collect::<Vec<_>>(), [1, 1, 1]);
}

/// While the head waits for its retry, nothing of the lane is handed out, and other lanes are.
#[tokio::test]
async fn backoff_holds_only_its_own_lane() {
    let (_database, client) = fresh().await;
    enqueue_lanes(&client, 3, 2).await;
    let held = claim_with(&client, "w", 1, "").await.remove(0);
    let sql = "select outbox.complete($1, $2, 'w', 'RETRYABLE', retry_after_seconds => 3600)";
    client.query(sql, &[&held.id, &held.token]).await.unwrap();
    let lanes: HashSet<_> = claim(&client, "w", 10).await.into_iter().filter_map(|held| held.lane).collect();
    assert_eq!(lanes, HashSet::from(["lane-00001".to_owned(), "lane-00002".to_owned()]));
    let state: String =
        client.query_one("select state from outbox.lanes where lane = 'lane-00000'", &[]).await.unwrap().get(0);
    assert_eq!(state, "waiting");
}

/// A dead head parks its lane by default; redrive lets it go on in order, from the same number.
#[tokio::test]
async fn a_dead_head_parks_until_redriven() {
    let (_database, client) = fresh().await;
    let ids = enqueue_lane(&client, "a", 3).await;
    let held = claim_with(&client, "w", 1, "").await;
    complete(&client, "w", &held[0], "FAILED").await.unwrap();
    assert_eq!(claim(&client, "w", 10).await, []);
    let row = client.query_one("select state, depth from outbox.lanes", &[]).await.unwrap();
    assert_eq!((row.get::<_, String>(0), row.get::<_, i64>(1)), ("parked".to_owned(), 3));
    let row = client.query_one("select pending, dead, parked_lanes from outbox.status", &[]).await.unwrap();
    assert_eq!((row.get::<_, i64>(0), row.get::<_, i64>(1), row.get::<_, i64>(2)), (2, 1, 1));
    assert_eq!(number(&client, "select outbox.redrive(all_dead => true)").await, 1);
    let held = claim(&client, "w", 10).await;
    assert_eq!(numbers(&held), [1, 2, 3]);
    assert_eq!((held[0].attempt_no, held[0].attempt_count), (2, 1));
    mark_delivered(&client, &held).await;
    assert_eq!(attempts(&client, ids[0]).await, ["1 FAILED", "2 DISPATCHED"]);
}

/// Discarding a parked head lets the lane go on with the next number.
#[tokio::test]
async fn discarding_a_parked_head_frees_the_lane() {
    let (_database, client) = fresh().await;
    let ids = enqueue_lane(&client, "a", 3).await;
    let held = claim_with(&client, "w", 1, "").await;
    complete(&client, "w", &held[0], "FAILED").await.unwrap();
    client.query("select outbox.discard(array[$1::uuid])", &[&ids[0]]).await.unwrap();
    assert_eq!(numbers(&claim(&client, "w", 10).await), [2, 3]);
}

/// With `on_dead = skip` the lane goes on by itself; a redriven one comes back in front, after what is in flight.
#[tokio::test]
async fn a_dead_head_is_skipped_by_choice() {
    let (_database, client) = fresh().await;
    client.batch_execute("select outbox.configure_sink('default', on_dead => 'skip')").await.unwrap();
    enqueue_lane(&client, "a", 4).await;
    let held = claim_with(&client, "w", 1, "").await;
    complete(&client, "w", &held[0], "FAILED").await.unwrap();
    let held = claim_with(&client, "w", 2, "").await;
    assert_eq!(numbers(&held), [2, 3]);
    assert_eq!(number(&client, "select outbox.redrive(all_dead => true)").await, 1);
    assert_eq!(claim(&client, "w", 10).await, [], "the redriven one waits while 2 and 3 are in flight");
    mark_delivered(&client, &held).await;
    assert_eq!(numbers(&claim(&client, "w", 10).await), [1, 4]);
}

/// A head that runs out of attempts by expiring parks its lane like any other dead one.
#[tokio::test]
async fn a_head_that_kills_its_workers_parks_its_lane() {
    let (_database, client) = fresh().await;
    enqueue_lane(&client, "a", 2).await;
    claim_with(&client, "w", 1, ", lease_seconds => 0.001, max_attempts => 1").await;
    client.query("select pg_sleep(0.01)", &[]).await.unwrap();
    assert_eq!(claim_with(&client, "w", 5, ", max_attempts => 1").await, []);
    assert_eq!(number(&client, "select parked_lanes from outbox.status").await, 1);
    client.batch_execute("select outbox.configure_sink('default', on_dead => 'skip')").await.unwrap();
    assert_eq!(claim_with(&client, "w", 5, ", max_attempts => 1").await, [], "parked stays parked until a person acts");
}

/// A run whose lease ended is taken over as a whole, in order, each with its zombie attempt.
#[tokio::test]
async fn an_expired_run_is_taken_over_in_order() {
    let (_database, client) = fresh().await;
    let ids = enqueue_lane(&client, "a", 4).await;
    let lost = claim_expired(&client, "dead", 3).await;
    assert_eq!(lost.len(), 3);
    let taken = claim(&client, "alive", 10).await;
    assert_eq!(numbers(&taken), [1, 2, 3, 4]);
    assert_eq!(attempts(&client, ids[2]).await, ["1 ZOMBIE_REQUEUE"]);
    assert_eq!(attempts(&client, ids[3]).await, [] as [&str; 0]);
}

/// A run of which only the later part was renewed is not split between two hands.
#[tokio::test]
async fn a_partly_renewed_run_stays_in_one_hand() {
    let (database, client) = fresh().await;
    let other = database.connect().await;
    enqueue_lane(&client, "a", 4).await;
    let held = claim_with(&client, "w", 4, ", lease_seconds => 0.2").await;
    let tail: Vec<Uuid> = held[2..].iter().map(|held| held.id).collect();
    client.query("select outbox.renew($1, $2, 60)", &[&held[0].token, &tail]).await.unwrap();
    client.query("select pg_sleep(0.25)", &[]).await.unwrap();
    assert_eq!(claim_with(&other, "w2", 1, "").await, [], "3 and 4 are still in the first hand");
    mark_delivered(&client, &held[2..]).await;
    assert_eq!(numbers(&claim(&other, "w2", 10).await), [1, 2]);
}

/// No lane starves: a session that claims one at a time from busy lanes comes around to every lane.
#[tokio::test]
async fn every_lane_gets_its_turn() {
    let (_database, client) = fresh().await;
    enqueue_lanes(&client, 10, 5).await;
    let mut seen = Vec::new();
    for _ in 0..20 {
        let held = claim(&client, "w", 1).await;
        seen.push(held[0].lane.clone().unwrap());
        mark_delivered(&client, &held).await;
    }
    assert_eq!(seen[..10].iter().collect::<HashSet<_>>().len(), 10, "ten claims, ten lanes: {seen:?}");
    assert_eq!(seen[..10], seen[10..], "and the same round again");
}

/// Lanes and messages without a lane share a batch: neither waits for the other to run dry.
#[tokio::test]
async fn lanes_and_others_share_a_batch() {
    let (_database, client) = fresh().await;
    crate::support::enqueue_plain(&client, 100).await;
    enqueue_lanes(&client, 100, 1).await;
    let held = claim(&client, "w", 20).await;
    assert_eq!(held.iter().filter(|held| held.lane.is_some()).count(), 10, "half and half");
    let held = claim(&client, "w", 150).await;
    assert_eq!(held.len(), 150);
    assert_eq!(claim(&client, "w", 150).await.len(), 30, "what one kind leaves free, the other fills");
}

/// The hop limit bounds a claim that meets only blocked lanes; the next one goes on from there and finds the free one.
#[tokio::test]
async fn blocked_lanes_are_passed_in_bounded_steps() {
    let (_database, client) = fresh().await;
    enqueue_lanes(&client, 100, 1).await;
    client.batch_execute("update outbox.delivery set due_at = now() + interval '1 hour'").await.unwrap();
    enqueue_lane(&client, "zz-free", 1).await;
    let mut calls = 0;
    let held = loop {
        calls += 1;
        let held = claim_with(&client, "w", 10, ", hop_limit => 30").await;
        if !held.is_empty() {
            break held;
        }
        assert!(calls < 10, "the free lane is never reached");
    };
    assert_eq!((held[0].lane.as_deref(), calls), (Some("zz-free"), 4));
}

/// Two sinks of one message have lanes of their own: a parked lane in one does not hold the other.
#[tokio::test]
async fn sinks_have_lanes_of_their_own() {
    let (_database, client) = fresh().await;
    client.batch_execute("select outbox.add_route('a'); select outbox.add_route('b')").await.unwrap();
    enqueue_lane(&client, "l", 2).await;
    let held = claim_with(&client, "w", 1, ", sink => 'a'").await;
    complete(&client, "w", &held[0], "FAILED").await.unwrap();
    assert_eq!(claim_with(&client, "w", 5, ", sink => 'a'").await, []);
    assert_eq!(numbers(&claim_with(&client, "w", 5, ", sink => 'b'").await), [1, 2]);
}

/// A worker that takes one message at a time serves lanes and the others in turn.
#[tokio::test]
async fn one_at_a_time_takes_turns() {
    let (_database, client) = fresh().await;
    crate::support::enqueue_plain(&client, 5).await;
    enqueue_lanes(&client, 5, 1).await;
    let mut turns = Vec::new();
    for _ in 0..10 {
        turns.push(claim(&client, "w", 1).await[0].lane.is_some());
    }
    assert_eq!(turns, [false, true].repeat(5));
}

/// The hop limit does not starve lanes behind a lane that is free at the limit.
#[tokio::test]
async fn a_free_lane_at_the_hop_limit_does_not_hide_the_next() {
    let (_database, client) = fresh().await;
    for lane in ["a", "b"] {
        enqueue(&client, "t", &format!(", lane => '{lane}', delay_seconds => 3600")).await;
    }
    for lane in ["c", "d"] {
        enqueue_lane(&client, lane, 10).await;
    }
    let mut seen = HashSet::new();
    for _ in 0..4 {
        let held = claim_with(&client, "w", 10, ", lane_run => 2, hop_limit => 3").await;
        mark_delivered(&client, &held).await;
        seen.extend(held.into_iter().filter_map(|held| held.lane));
    }
    assert_eq!(seen, HashSet::from(["c".to_owned(), "d".to_owned()]));
}

/// A session that serves two tenants in turn comes around to every lane of both.
#[tokio::test]
async fn tenants_in_turn_starve_no_lane() {
    let (_database, client) = fresh().await;
    let tenants = [Uuid::from_u128(1), Uuid::from_u128(2)];
    for tenant in tenants {
        for lane in 0..2 {
            for _ in 0..4 {
                enqueue(&client, "t", &format!(", lane => '{tenant}-{lane}', tenant_id => '{tenant}'")).await;
            }
        }
    }
    let mut seen = HashSet::new();
    for turn in 0..4 {
        let held = claim_with(&client, "w", 1, &format!(", tenant_id => '{}'", tenants[turn % 2])).await;
        mark_delivered(&client, &held).await;
        seen.extend(held.into_iter().filter_map(|held| held.lane));
    }
    assert_eq!(seen.len(), 4, "{seen:?}");
}

/// Redriving many skipped heads of many lanes at once takes a moment, not the square of it, and each lane is in order.
#[tokio::test]
async fn many_lanes_are_redriven_at_once() {
    let (_database, client) = fresh().await;
    client.batch_execute("select outbox.configure_sink('default', on_dead => 'skip')").await.unwrap();
    enqueue_lanes(&client, 5_000, 2).await;
    let fail = "select count(*) from outbox.claim('w', 10000, 60, lane_run => 1, hop_limit => 10000) c, \
                outbox.complete_many(array[c.message_id], array[c.lease_token], array['FAILED'])";
    assert_eq!(number(&client, fail).await, 5_000);
    client.batch_execute("set statement_timeout = '20s'").await.unwrap();
    assert_eq!(number(&client, "select outbox.redrive(all_dead => true)").await, 5_000);
    let held = claim_with(&client, "w", 10_000, ", hop_limit => 10000").await;
    assert_eq!(held.len(), 10_000);
    assert!(held.chunks(2).all(|lane| (lane[0].sequence, lane[1].sequence) == (Some(1), Some(2))));
}
