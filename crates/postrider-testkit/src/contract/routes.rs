//! Routes that are applied to what is pending: sinks that never had a message get it, untried deliveries that no route names
//! go, and lanes stay in order.

use std::time::Duration;

use postrider::Route;
use postrider::inspect::{PageRequest, RouteChanges};
use postrider::operate::{Action, Replay};

use super::hand::{Hand, message, numbers};

const HOUR: Duration = Duration::from_hours(1);

/// How many deliveries a step added and removed.
async fn apply(hand: &Hand, at_most: u32) -> u64 {
    hand.act(Action::ApplyRoutes { at_most }).await.expect("apply_routes")
}

/// What is pending moves in steps; a second run changes nothing; and without the routes it moves back. What was tried stays
/// and is copied; what is leased, delivered or dead is left alone.
pub async fn pending_deliveries_follow_the_routes(hand: Hand) {
    let tried = hand.put(message("order")).await.message_id;
    hand.retry(&hand.take(1).await, HOUR).await;
    let delivered = hand.put(message("order")).await.message_id;
    hand.deliver(&hand.take(1).await).await;
    let dead = hand.put(message("order")).await.message_id;
    hand.fail(&hand.take(1).await).await;
    let leased = hand.put(message("order")).await.message_id;
    assert_eq!(hand.take(1).await.len(), 1);
    let untried = [hand.put(message("order")).await.message_id, hand.put(message("order")).await.message_id];
    let other = hand.put(message("other")).await.message_id;
    let left_alone = [delivered, dead, leased, other];
    let mut before = Vec::new();
    for id in left_alone {
        before.push(hand.stands(id).await);
    }
    assert_eq!(hand.count_route_changes().await.expect("count"), RouteChanges::default());
    let routes = [Route::new("order", "audit"), Route::new("ord*", "orders")];
    for route in &routes {
        assert!(hand.add_route(route).await.expect("add_route"));
    }
    assert_eq!(hand.count_route_changes().await.expect("count"), RouteChanges { added: 6, removed: 2 });
    let steps = [apply(&hand, 1).await, apply(&hand, 10).await, apply(&hand, 10).await];
    assert_eq!((steps.iter().sum::<u64>(), steps[2]), (8, 0), "{steps:?}");
    assert!(steps[0] > 0 && steps[0] < 8, "a step is bounded: {steps:?}");
    assert_eq!(hand.count_route_changes().await.expect("count"), RouteChanges::default());
    assert_eq!(hand.stands(tried).await, ["audit pending", "default pending", "orders pending"]);
    for id in untried {
        assert_eq!(hand.stands(id).await, ["audit pending", "orders pending"]);
    }
    for (id, before) in left_alone.iter().zip(&before) {
        assert_eq!(hand.stands(*id).await, *before);
    }
    for route in &routes {
        assert_eq!(hand.remove_route(route).await.expect("remove_route"), 1);
    }
    assert_eq!(hand.count_route_changes().await.expect("count"), RouteChanges { added: 2, removed: 6 });
    assert_eq!((apply(&hand, 10).await, apply(&hand, 10).await), (8, 0));
    for id in [tried, untried[0], untried[1], other] {
        assert_eq!(hand.stands(id).await, ["default pending"]);
    }
    let entries = hand.audit(&PageRequest::first(100)).await.expect("audit").items;
    let told: Vec<i64> =
        entries.iter().filter(|entry| entry.action.as_str() == "apply_routes").map(|entry| entry.affected).collect();
    assert_eq!(told.len(), 5, "each step");
    assert_eq!((told[0], told[1]), (0, 8));
}

/// A delivery to a sink that no route names stays where no other sink has the message any more: nothing is lost.
pub async fn the_last_delivery_stays(hand: Hand) {
    let kept = hand.put(message("t")).await.message_id;
    hand.deliver(&hand.take(1).await).await;
    hand.add_route(&Route::new("x", "copy")).await.expect("add_route");
    let again = Replay {
        sink: "copy".to_owned(),
        message_ids: Some(vec![kept]),
        include_never_delivered: true,
        at_most: 1,
        ..Replay::default()
    };
    assert_eq!(hand.act(Action::Replay(again)).await.expect("replay"), 1);
    assert_eq!(apply(&hand, 10).await, 0, "default had it, and copy is nobody's but the operator's");
    assert_eq!(hand.stands(kept).await, ["copy pending"]);
}

/// What stands behind a leased or a dead number of its lane does not overtake it; the rest moves from the front, and the lane
/// is in one hand at its new sink, too.
pub async fn lanes_follow_in_order(hand: Hand) {
    let parked = hand.put_lane("parked", 2).await;
    hand.fail(&hand.take_as(&hand.wants(1).lane_run(1)).await).await;
    hand.put_lane("a", 5).await;
    let head = hand.take_as(&hand.wants(1).lane_run(1)).await;
    assert_eq!(numbers(&head), [1]);
    hand.add_route(&Route::new("*", "orders")).await.expect("add_route");
    assert_eq!(apply(&hand, 10).await, 0, "behind a lease, and behind a dead head");
    hand.deliver(&head).await;
    assert_eq!(apply(&hand, 2).await, 4, "two of them");
    let first = hand.take_from("orders", 10).await;
    assert_eq!(numbers(&first), [2, 3], "the front of the lane");
    assert_eq!(apply(&hand, 10).await, 4);
    assert!(hand.take_from("orders", 10).await.is_empty(), "the lane is in one hand");
    hand.deliver(&first).await;
    assert_eq!(numbers(&hand.take_from("orders", 10).await), [4, 5]);
    assert_eq!(hand.stands(parked[1]).await, ["default pending"]);
}
