//! What SQL alone shows of lanes: the hop limit of a claim, and a redrive of thousands of lanes. What lanes promise is in
//! the store's contract.

use std::collections::HashSet;

use crate::support::{claim_with, enqueue, enqueue_lanes, fresh, mark_delivered, number, run};

/// The hop limit bounds a claim that meets only blocked lanes; the next one goes on from there and finds the free one.
#[tokio::test]
async fn blocked_lanes_are_passed_in_bounded_steps() {
    let (_database, client) = fresh().await;
    enqueue_lanes(&client, 100, 1).await;
    run(&client, "update outbox.delivery set due_at = now() + interval '1 hour'").await;
    enqueue(&client, "t", ", lane => 'zz-free'").await;
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

/// The hop limit does not starve lanes behind a lane that is free at the limit.
#[tokio::test]
async fn a_free_lane_at_the_hop_limit_does_not_hide_the_next() {
    let (_database, client) = fresh().await;
    for lane in ["a", "b"] {
        enqueue(&client, "t", &format!(", lane => '{lane}', delay_seconds => 3600")).await;
    }
    for n in 0..20 {
        enqueue(&client, "t", &format!(", lane => '{}'", if n < 10 { "c" } else { "d" })).await;
    }
    let mut seen = HashSet::new();
    for _ in 0..4 {
        let held = claim_with(&client, "w", 10, ", lane_run => 2, hop_limit => 3").await;
        mark_delivered(&client, &held).await;
        seen.extend(held.into_iter().filter_map(|held| held.lane));
    }
    assert_eq!(seen, HashSet::from(["c".to_owned(), "d".to_owned()]));
}

/// Redriving many skipped heads of many lanes at once takes a moment, not the square of it, and each lane is in order.
#[tokio::test]
async fn many_lanes_are_redriven_at_once() {
    let (_database, client) = fresh().await;
    run(&client, "select outbox.configure_sink('default', on_dead => 'skip')").await;
    enqueue_lanes(&client, 5_000, 2).await;
    let fail = "select count(*) from outbox.claim('w', 10000, 60, lane_run => 1, hop_limit => 10000) c, \
                outbox.complete_many(array[c.message_id], array[c.lease_token], array['FAILED'])";
    assert_eq!(number(&client, fail).await, 5_000);
    run(&client, "set statement_timeout = '20s'").await;
    assert_eq!(number(&client, "select outbox.redrive(all_dead => true)").await, 5_000);
    let held = claim_with(&client, "w", 10_000, ", hop_limit => 10000").await;
    assert_eq!(held.len(), 10_000);
    assert!(held.chunks(2).all(|lane| (lane[0].sequence, lane[1].sequence) == (Some(1), Some(2))));
}
