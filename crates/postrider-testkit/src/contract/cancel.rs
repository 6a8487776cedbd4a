//! What an operator takes back: pending deliveries, by what they are about. Lanes go on, what a worker holds and what is dead
//! is left alone, and a record of it stays.

use std::time::Duration;

use postrider::Route;
use postrider::explain::ReasonCode;
use postrider::inspect::{DeliveryFilter, DeliveryState, ListFilter, OpenCount, PageRequest};
use postrider::operate::{Action, Replay};
use uuid::Uuid;

use super::hand::{Hand, ids, message, numbers};

const HOUR: Duration = Duration::from_hours(1);

fn cancel(which: DeliveryFilter, at_most: u32) -> Action {
    Action::Cancel { which, at_most }
}

fn of_ids(message_ids: &[Uuid]) -> DeliveryFilter {
    DeliveryFilter { message_ids: Some(message_ids.to_vec()), ..DeliveryFilter::default() }
}

/// How the listing calls a message, for each of its lines.
async fn listed(hand: &Hand, id: Uuid) -> Vec<DeliveryState> {
    let page = hand.list(&ListFilter::default(), &PageRequest::first(100)).await.expect("list");
    let lines = page.items.into_iter().filter(|line| line.message_id == id);
    lines.map(|line| line.state).collect()
}

/// Why it is where it is, for each sink.
async fn explained(hand: &Hand, id: Uuid) -> Vec<ReasonCode> {
    let told = hand.explain(id).await.expect("explain").expect("it is there");
    told.deliveries.iter().map(|reason| reason.code).collect()
}

/// A pending delivery is taken back: it is never handed out, an attempt says who did it, and the message is listed as given
/// up. What is leased is left alone, and counted.
pub async fn a_cancelled_delivery_is_never_handed_out(hand: Hand) {
    let all = hand.put_plain(3).await;
    let held = hand.take(1).await;
    let open = OpenCount { pending: 2, waiting: 0, leased: 1 };
    assert_eq!(hand.count_open(&DeliveryFilter::default()).await.expect("count"), open);
    assert_eq!(hand.operate("ann", &cancel(DeliveryFilter::default(), 1)).await.expect("cancel").affected, 1);
    assert_eq!(hand.operate("ann", &cancel(DeliveryFilter::default(), 9)).await.expect("cancel").affected, 1);
    assert_eq!(hand.operate("ann", &cancel(DeliveryFilter::default(), 9)).await.expect("cancel").affected, 0);
    assert_eq!((hand.take(10).await.len(), hand.counts().await), (0, (0, 1, 0)));
    hand.deliver(&held).await;
    let gone = all.iter().find(|id| **id != held[0].message_id).expect("two were not held");
    assert_eq!((hand.attempts(*gone).await, hand.stands(*gone).await), (vec!["1 CANCELLED".to_owned()], vec![]));
    let shown = hand.shown(*gone).await;
    assert_eq!(shown.attempts[0].worker_id, "ann");
    assert_eq!(
        (listed(&hand, *gone).await, explained(&hand, *gone).await),
        (vec![DeliveryState::Discarded], vec![ReasonCode::Cancelled])
    );
    let entries = hand.entries(&[*gone]).await.expect("entries");
    assert_eq!(entries[0].state, "discarded");
    assert_eq!(listed(&hand, held[0].message_id).await, ["delivered"]);
    let status = hand.status_of("default").await;
    assert_eq!(status.recent, super::hand::by_outcome([1, 0, 0, 0]), "it is no failure");
    assert!(status.last_error_at.is_none(), "{status:?}");
}

/// Each field of the filter, alone, takes the one delivery that differs in it; and `retry_now` takes the same.
pub async fn every_field_of_a_filter_takes_its_own(hand: Hand) {
    hand.add_route(&Route::new("elsewhere", "other")).await.expect("add_route");
    let tenant = "tenant-1";
    let later = |topic: &str| message(topic).delay(HOUR);
    let put = hand
        .put_all(&[
            later("t"),
            later("elsewhere"),
            later("t").namespace("n"),
            later("u%_[?].x"),
            later("t").tenant(tenant),
            later("t").lane("a"),
        ])
        .await;
    let text = |text: &str| Some(text.to_owned());
    let none = DeliveryFilter::default;
    for (nth, which) in [
        (0, of_ids(&[put[0].message_id])),
        (1, DeliveryFilter { sink: text("other"), ..none() }),
        (2, DeliveryFilter { namespace: text("n"), ..none() }),
        (3, DeliveryFilter { topic: text("u%_[?].*"), ..none() }),
        (4, DeliveryFilter { tenant_id: text(tenant), ..none() }),
        (5, DeliveryFilter { lane: text("a"), ..none() }),
    ] {
        let open = OpenCount { pending: 1, waiting: 1, leased: 0 };
        assert_eq!(hand.count_open(&which).await.expect("count"), open, "{which:?}");
        let retry = Action::RetryNow { which: which.clone(), at_most: 10 };
        assert_eq!(hand.operate("ann", &retry).await.expect("retry").affected, 1, "{which:?}");
        assert_eq!(hand.count_open(&which).await.expect("count").waiting, 0, "{which:?}");
        assert_eq!(hand.operate("ann", &cancel(which.clone(), 10)).await.expect("cancel").affected, 1, "{which:?}");
        assert_eq!(hand.attempts(put[nth].message_id).await, ["1 CANCELLED"], "{which:?}");
    }
    assert_eq!(hand.counts().await, (0, 0, 0));
}

/// A lane goes on without what was cancelled: the head, one in the middle. What a parked lane waits for stays dead.
pub async fn a_lane_goes_on_without_what_was_cancelled(hand: Hand) {
    let lane = hand.put_lane("a", 4).await;
    assert_eq!(hand.act(cancel(of_ids(&[lane[0], lane[2]]), 10)).await.expect("cancel"), 2);
    let next = hand.take(10).await;
    assert_eq!(numbers(&next), [2, 4]);
    let lane = DeliveryFilter { lane: Some("a".to_owned()), ..DeliveryFilter::default() };
    assert_eq!(hand.act(cancel(lane, 10)).await.expect("cancel"), 0, "both are held");
    hand.deliver(&next).await;
    let parked = hand.put_lane("b", 2).await;
    hand.fail(&hand.take_as(&hand.wants(1).lane_run(1)).await).await;
    assert_eq!(hand.act(cancel(of_ids(&parked), 10)).await.expect("cancel"), 1, "the dead head is none of it");
    assert_eq!(hand.stands(parked[0]).await, ["default dead"]);
    assert_eq!(hand.redrive_all().await, 1);
    assert_eq!(ids(&hand.take(10).await), [parked[0]]);
}

/// What was replayed by mistake is taken back, and the message counts as delivered: the sink had it before. Numbers go on.
pub async fn a_replay_is_taken_back(hand: Hand) {
    let id = hand.put_plain(1).await[0];
    hand.deliver(&hand.take(1).await).await;
    assert_eq!(hand.replay("default", &[id]).await.expect("replay"), 1);
    assert_eq!(hand.act(cancel(of_ids(&[id]), 10)).await.expect("cancel"), 1);
    assert_eq!(hand.attempts(id).await, ["1 DISPATCHED", "2 CANCELLED"]);
    assert_eq!(
        (listed(&hand, id).await, hand.entries(&[id]).await.expect("entries")[0].state.as_str()),
        (vec![DeliveryState::Delivered], "delivered")
    );
    let sink = "copy".to_owned();
    hand.add_route(&Route::new("x", "copy")).await.expect("add_route");
    let mistaken =
        Replay { sink, message_ids: Some(vec![id]), include_never_delivered: true, at_most: 10, ..Replay::default() };
    assert_eq!(hand.act(Action::Replay(mistaken)).await.expect("replay"), 1);
    let there = DeliveryFilter { sink: Some("copy".to_owned()), ..DeliveryFilter::default() };
    assert_eq!(hand.act(cancel(there, 10)).await.expect("cancel"), 1);
    assert_eq!(hand.take_from("copy", 10).await.len(), 0);
    assert_eq!(listed(&hand, id).await, ["discarded"], "one of its sinks never had it");
    assert_eq!(hand.replay("default", &[id]).await.expect("replay"), 1);
    assert_eq!(hand.take(1).await[0].attempt_no, 3);
}

/// Ids that an action would not find are told: unknown ones, and those that are in another state.
pub async fn ids_that_are_not_meant_are_told(hand: Hand) {
    let dead = hand.put_plain(1).await[0];
    hand.fail(&hand.take(1).await).await;
    let leased = hand.put_plain(1).await[0];
    hand.take(1).await;
    let pending = hand.put_plain(1).await[0];
    let unknown = Uuid::nil();
    let named = [unknown, dead, leased, pending, pending];
    assert_eq!(hand.not_open(&of_ids(&named)).await.expect("not_open"), [unknown, dead]);
    let elsewhere = DeliveryFilter { sink: Some("s".to_owned()), ..of_ids(&[pending]) };
    assert_eq!(hand.not_open(&elsewhere).await.expect("not_open"), [pending]);
    let letters = postrider::inspect::DeadFilter {
        message_ids: Some(named.to_vec()),
        ..postrider::inspect::DeadFilter::default()
    };
    assert_eq!(hand.not_dead(&letters).await.expect("not_dead"), [unknown, leased, pending]);
    let elsewhere = postrider::inspect::DeadFilter { sink: Some("s".to_owned()), ..letters };
    assert_eq!(hand.not_dead(&elsewhere).await.expect("not_dead").len(), 4);
}
