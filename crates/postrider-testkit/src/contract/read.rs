//! What an operator reads: how each sink stands, pages of messages, and the whole story of one.

use std::time::Duration;

use postrider::Route;
use postrider::inspect::{Cursor, DeliveryFilter, DeliveryState, ListFilter, MessageSummary, PageRequest};
use postrider::operate::Action;
use uuid::Uuid;

use super::hand::{Hand, NO_IDS, by_outcome, ids, message};

const TEN: PageRequest = PageRequest { after: None, limit: 10 };

fn filter(state: Option<DeliveryState>) -> ListFilter {
    ListFilter { state, ..ListFilter::default() }
}

fn topics_of(lines: &[MessageSummary]) -> Vec<&str> {
    lines.iter().map(|line| line.topic.as_str()).collect()
}

/// Proves P16: one line for each sink, over queue, dead letters and recent attempts.
pub async fn status_adds_up(hand: Hand) {
    for sink in ["a", "b"] {
        hand.add_route(&Route::new("x.*", sink)).await.expect("add_route");
    }
    let now = hand.clock().await;
    for _ in 0..3 {
        hand.put(message("x.y")).await;
    }
    hand.put(message("other").due_at(now - Duration::from_hours(1))).await;
    hand.put(message("later").delay(Duration::from_hours(1))).await;
    let held = hand.take_from("a", 2).await;
    hand.fail(&held[..1]).await;
    let lines: Vec<_> = hand
        .status()
        .await
        .expect("status")
        .into_iter()
        .map(|line| {
            (
                line.sink,
                line.pending,
                line.due,
                line.leased,
                line.dead,
                line.recent,
                line.oldest_due_age_seconds > 3000.0,
            )
        })
        .collect();
    assert_eq!(
        lines,
        [
            ("a".to_owned(), 1, 1, 1, 1, by_outcome([0, 0, 1, 0]), false),
            ("b".to_owned(), 3, 3, 0, 0, by_outcome([0; 4]), false),
            ("default".to_owned(), 2, 1, 0, 0, by_outcome([0; 4]), true),
        ]
    );
    hand.deliver(&held[1..]).await;
    let line = hand.status_of("a").await;
    assert_eq!(line.recent, by_outcome([1, 0, 1, 0]));
    let (success, error) = (line.last_success_at.expect("one"), line.last_error_at.expect("one"));
    assert!(now <= error && error <= success && success <= hand.clock().await);
}

/// Proves P14, E9: the oldest pending is as old as what it tells of, whether it waits for a worker, a retry, its time or its
/// lane, and while a worker has it. What is dead or delivered is not pending.
pub async fn the_oldest_pending_counts_whatever_it_waits_for(hand: Hand) {
    let hours = |seconds: f64| Duration::from_secs_f64(seconds).as_secs() / 3600;
    let age = async || hours(hand.status_of("default").await.oldest_pending_age_seconds);
    let ago = async |hours| hand.clock().await - Duration::from_hours(hours);
    assert_eq!(age().await, 0);
    hand.put(message("t").occurred_at(ago(1).await).delay(Duration::from_hours(9))).await;
    assert_eq!(age().await, 1, "scheduled for later");
    let five = hand.put(message("t").occurred_at(ago(5).await)).await.message_id;
    assert_eq!(age().await, 5, "due; what was written later may have occurred earlier");
    let held = hand.take(1).await;
    assert_eq!(age().await, 5, "held");
    hand.retry(&held, Duration::from_hours(1)).await;
    let line = hand.status_of("default").await;
    assert_eq!((age().await, line.due, hours(line.oldest_due_age_seconds)), (5, 0, 0), "to be tried again");
    for hours in [9, 7] {
        hand.put(message("t").lane("l").occurred_at(ago(hours).await)).await;
    }
    assert_eq!(age().await, 9);
    hand.fail(&hand.take(1).await).await;
    assert_eq!(age().await, 7, "behind a head that is dead");
    assert!(hand.measure().await.expect("measure"));
    let samples = hand.samples(Duration::from_hours(1)).await.expect("samples");
    let sample = samples.iter().find(|sample| sample.sink == "default").expect("a sample");
    assert_eq!((hours(sample.oldest_pending_age_seconds), hours(sample.oldest_due_age_seconds)), (7, 0));
    hand.redrive_all().await;
    assert_eq!(age().await, 9, "pending again, and no younger");
    for _ in 0..2 {
        hand.deliver(&hand.take(1).await).await;
    }
    hand.put(message("t").occurred_at(hand.clock().await + Duration::from_hours(1))).await;
    assert_eq!(age().await, 5, "what is yet to occur has no age");
    let which = DeliveryFilter { message_ids: Some(vec![five]), ..DeliveryFilter::default() };
    hand.act(Action::RetryNow { which, at_most: 1 }).await.expect("retry now");
    let held = hand.take(2).await;
    hand.fail(&held).await;
    assert_eq!(age().await, 1, "dead");
    hand.redrive_all().await;
    assert_eq!(age().await, 5, "back in the queue");
    hand.deliver(&hand.take(2).await).await;
    hand.replay("default", &[five]).await.expect("replay");
    assert_eq!(age().await, 5, "replayed");
}

/// Each state is found by its word, for the sink that is asked about.
pub async fn every_state_is_listed(hand: Hand) {
    for (priority, topic) in [(4, "dead"), (3, "delivered"), (2, "leased"), (1, "pending")] {
        hand.put(message(topic).priority(priority)).await;
    }
    let held = hand.take(3).await;
    hand.fail(&held[..1]).await;
    hand.deliver(&held[1..2]).await;
    for state in [DeliveryState::Dead, DeliveryState::Delivered, DeliveryState::Leased, DeliveryState::Pending] {
        for sink in [None, Some("default".to_owned())] {
            let found = hand.list(&ListFilter { sink, ..filter(Some(state)) }, &TEN).await.expect("list").items;
            let lines: Vec<_> = found.iter().map(|line| (line.topic.as_str(), line.state.as_str())).collect();
            assert_eq!(lines, [(state.as_str(), state.as_str())]);
        }
        let elsewhere = ListFilter { sink: Some("elsewhere".to_owned()), ..filter(Some(state)) };
        assert_eq!(hand.list(&elsewhere, &TEN).await.expect("list").items, []);
    }
    let all = hand.list(&filter(None), &TEN).await.expect("list").items;
    assert_eq!(topics_of(&all), ["pending", "leased", "delivered", "dead"], "newest first");
    assert_eq!(all.iter().map(|line| line.attempt_no).collect::<Vec<_>>(), [Some(0), Some(1), None, Some(1)]);
}

/// A page is never cut inside a message with several sinks, so going on before its last message misses nothing.
pub async fn a_page_ends_between_two_messages(hand: Hand) {
    for sink in ["b", "a"] {
        hand.add_route(&Route::new("*", sink)).await.expect("add_route");
    }
    let mut put = hand.put_plain(3).await;
    put.reverse();
    let lines = async |state, before: Option<Uuid>| -> Vec<(Uuid, String)> {
        let three = PageRequest { after: before.map(Cursor::from), limit: 3 };
        let page = hand.list(&filter(state), &three).await.expect("list").items;
        page.into_iter().map(|line| (line.message_id, line.sink.expect("not delivered"))).collect()
    };
    let of = |id: Uuid| [(id, "a".to_owned()), (id, "b".to_owned())];
    for state in [None, Some(DeliveryState::Pending)] {
        assert_eq!(lines(state, None).await, [of(put[0]), of(put[1])].concat());
        assert_eq!(lines(state, Some(put[1])).await, of(put[2]));
    }
    for sink in ["a", "b"] {
        hand.fail(&hand.take_from(sink, 10).await).await;
    }
    for state in [None, Some(DeliveryState::Dead)] {
        assert_eq!(lines(state, None).await, [of(put[0]), of(put[1])].concat());
        assert_eq!(lines(state, Some(put[1])).await, of(put[2]));
    }
}

/// Topic, tenant and lane narrow a list.
pub async fn a_list_is_filtered(hand: Hand) {
    let tenant = "tenant-1";
    hand.put_all(&[message("plain"), message("tenant").tenant(tenant), message("lane").lane("a")]).await;
    for state in [None, Some(DeliveryState::Pending)] {
        let all = filter(state);
        let narrowed = [
            (ListFilter { topic: Some("plain".to_owned()), ..all.clone() }, "plain"),
            (ListFilter { tenant_id: Some(tenant.to_owned()), ..all.clone() }, "tenant"),
            (ListFilter { lane: Some("a".to_owned()), ..all.clone() }, "lane"),
        ];
        for (filter, topic) in narrowed {
            assert_eq!(topics_of(&hand.list(&filter, &TEN).await.expect("list").items), [topic]);
        }
    }
}

/// The whole story of a message: what was said, where it stands, every attempt.
pub async fn a_message_is_shown(hand: Hand) {
    let before = hand.clock().await;
    let said = message("t").namespace("n").lane("a").priority(3).header("h", "v").content_type("x/y").dedupe_key("k");
    let id = hand.put(said).await.message_id;
    hand.retry(&hand.take(1).await, Duration::from_hours(1)).await;
    let shown = hand.shown(id).await;
    assert_eq!((shown.message_id, shown.namespace.as_str(), shown.topic.as_str()), (id, "n", "t"));
    assert_eq!((shown.lane.as_deref(), shown.sequence_id, shown.priority), (Some("a"), Some(1), 3));
    assert_eq!((shown.dedupe_key.as_deref(), shown.content_type.as_deref()), (Some("k"), Some("x/y")));
    assert_eq!(shown.payload.as_ref().map(|json| json.get()), Some("1"));
    let headers: serde_json::Value = serde_json::from_str(shown.headers.expect("headers").get()).expect("JSON");
    assert_eq!((headers, shown.body), (serde_json::json!({"h": "v"}), None));
    let late = Duration::from_mins(1);
    assert!(before - late < shown.enqueued_at && shown.enqueued_at < before + late);
    assert_eq!((shown.deliveries[0].state.as_str(), shown.deliveries[0].attempt_no), ("pending", 1));
    assert_eq!((shown.attempts.len(), shown.attempts[0].state.as_str()), (1, "RETRYABLE"));
    assert!(hand.show(Uuid::new_v4()).await.expect("show").is_none());
    assert_eq!(ids(&hand.take(1).await), NO_IDS);
}
