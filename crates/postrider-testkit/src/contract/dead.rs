//! Dead letters as an operator reads them: listed newest first, grouped, counted, and told apart by every field of a
//! filter, which mean the same to whatever redrives or discards them.

use std::time::Duration;

use postrider::Route;
use postrider::inspect::{DeadFilter, DeadLetter, DeadReason, PageRequest};
use postrider::lifecycle::{Failure, Outcome};
use postrider::operate::Action;
use uuid::Uuid;

use super::hand::{Hand, message};

/// Every dead letter a filter means.
async fn letters(hand: &Hand, filter: &DeadFilter) -> Vec<DeadLetter> {
    hand.dead_letters(filter, &PageRequest::first(100)).await.expect("dead_letters").items
}

/// Claims one of a sink and fails it with this code.
async fn fail_one(hand: &Hand, sink: &str, code: &str) {
    let held = hand.take_from(sink, 1).await;
    let recorded = hand.finish_all(&held, &Outcome::Failed(Failure::new(code, format!("{code} happened")))).await;
    assert_eq!(recorded.len(), 1);
}

/// Waits until the store's clock shows another time, however coarse it is.
async fn a_moment(hand: &Hand) {
    hand.until(hand.clock().await + Duration::from_millis(2)).await;
}

/// Each field of a filter, alone, finds the one letter that differs in it; what is listed, counted and discarded is
/// the same. In a topic `*` stands for any characters, and nothing else does.
pub async fn every_field_of_a_filter_counts(hand: Hand) {
    hand.add_route(&Route::new("elsewhere", "other")).await.expect("add_route");
    let tenant = "tenant-1";
    let mut named = Uuid::nil();
    for (what, said) in [
        ("first", message("t")),
        ("named", message("t")),
        ("sink", message("elsewhere")),
        ("namespace", message("t").namespace("n")),
        ("topic", message("rare")),
        ("pattern", message("odd%_[?].x")),
        ("tenant", message("t").tenant(tenant)),
        ("lane", message("t").lane("a")),
        ("code", message("t")),
        ("reason", message("t")),
        ("last", message("t")),
    ] {
        let id = hand.put(said).await.message_id;
        match what {
            "named" => named = id,
            "last" => a_moment(&hand).await,
            _ => {}
        }
        if what == "reason" {
            let held = hand.take_as(&hand.wants(1).max_attempts(1)).await;
            hand.retry(&held, Duration::ZERO).await;
        } else {
            fail_one(&hand, if what == "sink" { "other" } else { "default" }, if what == "code" { "E2" } else { "E1" })
                .await;
        }
        if what == "first" {
            a_moment(&hand).await;
        }
    }
    let all = letters(&hand, &DeadFilter::default()).await;
    let (newest, oldest) = (all[0].died_at, all[10].died_at);
    let none = DeadFilter::default();
    let text = |text: &str| Some(text.to_owned());
    let filters = [
        DeadFilter { message_ids: Some(vec![named, named, Uuid::from_u128(1)]), ..none.clone() },
        DeadFilter { sink: text("other"), ..none.clone() },
        DeadFilter { namespace: text("n"), ..none.clone() },
        DeadFilter { topic: text("r*"), ..none.clone() },
        DeadFilter { topic: text("*%_[?].*"), ..none.clone() },
        DeadFilter { tenant_id: text(tenant), ..none.clone() },
        DeadFilter { lane: text("a"), ..none.clone() },
        DeadFilter { error_code: text("E2"), ..none.clone() },
        DeadFilter { reason: Some(DeadReason::AttemptsExhausted), ..none.clone() },
        DeadFilter { died_from: Some(newest), ..none.clone() },
        DeadFilter { died_to: Some(oldest + Duration::from_micros(1)), ..none.clone() },
    ];
    let empty = [
        DeadFilter { message_ids: Some(Vec::new()), ..none.clone() },
        DeadFilter { died_to: Some(oldest), ..none.clone() },
        DeadFilter { died_from: Some(newest + Duration::from_micros(1)), ..none.clone() },
        DeadFilter { topic: text("rare"), namespace: text("n"), ..none.clone() },
        DeadFilter { topic: text("ra"), ..none.clone() },
        DeadFilter { topic: text("r_re"), ..none.clone() },
        DeadFilter { topic: text("ra?e"), ..none.clone() },
    ];
    for (filter, expected) in filters.iter().map(|filter| (filter, 1)).chain(empty.iter().map(|filter| (filter, 0))) {
        assert_eq!(letters(&hand, filter).await.len(), expected, "{filter:?}");
        assert_eq!(hand.count_dead(filter).await.expect("count_dead"), expected as u64, "{filter:?}");
        let groups = hand.dead_groups(filter).await.expect("dead_groups");
        assert_eq!(groups.iter().map(|group| group.count).sum::<i64>(), i64::try_from(expected).expect("small"));
        let action = Action::Discard { which: filter.clone(), at_most: 100 };
        assert_eq!(hand.operate("ann", &action).await.expect("discard").affected, expected as u64, "{filter:?}");
    }
    assert_eq!(hand.count_dead(&none).await.expect("count_dead"), 0);
}

/// An empty code means those that have none, and no others.
pub async fn letters_without_a_code_are_a_kind(hand: Hand) {
    let ids = hand.put_plain(2).await;
    fail_one(&hand, "default", "E1").await;
    let silent = Outcome::Failed(Failure::default());
    hand.finish_all(&hand.take(1).await, &silent).await;
    let without = DeadFilter { error_code: Some(String::new()), ..DeadFilter::default() };
    let found: Vec<Uuid> = letters(&hand, &without).await.iter().map(|letter| letter.message_id).collect();
    assert_eq!(found, ids[1..]);
    assert_eq!(hand.count_dead(&without).await.expect("count_dead"), 1);
    let action = Action::Redrive { which: without, at_most: 10 };
    assert_eq!(hand.operate("ann", &action).await.expect("redrive").affected, 1);
    assert_eq!(hand.counts().await, (1, 0, 1));
}

/// A page goes on after the last one of the page before, whatever died at the same time; nothing twice, nothing missed.
pub async fn dead_letters_are_listed_in_pages(hand: Hand) {
    for sink in ["a", "b"] {
        hand.add_route(&Route::new("*", sink)).await.expect("add_route");
    }
    for _ in 0..2 {
        hand.put_plain(2).await;
        for sink in ["a", "b"] {
            hand.fail(&hand.take_from(sink, 10).await).await;
        }
    }
    let all = letters(&hand, &DeadFilter::default()).await;
    assert_eq!(all.len(), 8);
    let key = |letter: &DeadLetter| (letter.died_at, letter.message_id, letter.sink.clone());
    assert!(all.windows(2).all(|pair| {
        let (one, next) = (key(&pair[0]), key(&pair[1]));
        (one.0, one.1) > (next.0, next.1) || ((one.0, one.1) == (next.0, next.1) && one.2 < next.2)
    }));
    for limit in [1, 3] {
        let mut read = Vec::new();
        let mut page = PageRequest::first(limit);
        loop {
            let letters = hand.dead_letters(&DeadFilter::default(), &page).await.expect("dead_letters");
            read.extend(letters.items);
            assert!(read.len() <= all.len(), "something is told twice: {read:?}");
            page.after = letters.next;
            if page.after.is_none() {
                break;
            }
        }
        assert_eq!(read, all, "in pages of {limit}");
    }
}

/// A dead letter tells why and when it died, and what it is about.
pub async fn a_dead_letter_tells_its_story(hand: Hand) {
    let before = hand.clock().await;
    let occurred_at = before - Duration::from_hours(1);
    let tenant = "tenant-1";
    let said = message("t").namespace("n").tenant(tenant).lane("a").occurred_at(occurred_at);
    let id = hand.put(said).await.message_id;
    fail_one(&hand, "default", "E1").await;
    let all = letters(&hand, &DeadFilter::default()).await;
    let [letter] = all.as_slice() else { panic!("one has died: {all:?}") };
    assert_eq!((letter.message_id, letter.sink.as_str(), letter.reason.as_str()), (id, "default", "FAILED"));
    assert_eq!((letter.error_code.as_deref(), letter.error_message.as_deref()), (Some("E1"), Some("E1 happened")));
    assert_eq!((letter.attempt_no, letter.attempt_count, letter.parked), (1, 1, true));
    assert_eq!(
        (letter.namespace.as_str(), letter.topic.as_str(), letter.tenant_id.as_deref()),
        ("n", "t", Some(tenant))
    );
    assert_eq!((letter.lane.as_deref(), letter.sequence_id, letter.payload_size_bytes), (Some("a"), Some(1), 1));
    assert!(
        letter.died_at >= before
            && letter.occurred_at <= occurred_at
            && letter.occurred_at > occurred_at - Duration::from_secs(1)
    );
}

/// Groups by sink, topic, reason and code: the largest first, each with its first and last time and its newest error.
pub async fn dead_letters_are_grouped(hand: Hand) {
    for (topic, code) in [("b", "E1"), ("a", "E1"), ("b", "E1"), ("b", "E2")] {
        hand.put(message(topic)).await;
        a_moment(&hand).await;
        fail_one(&hand, "default", code).await;
    }
    hand.put(message("b")).await;
    a_moment(&hand).await;
    let newest = Outcome::Failed(Failure::new("E1", "the newest words"));
    hand.finish_all(&hand.take(1).await, &newest).await;
    let all = letters(&hand, &DeadFilter::default()).await;
    let groups = hand.dead_groups(&DeadFilter::default()).await.expect("dead_groups");
    let told: Vec<_> = groups
        .iter()
        .map(|group| (group.topic.as_str(), group.error_code.as_deref().expect("a code"), group.count))
        .collect();
    assert_eq!(told, [("b", "E1", 3), ("a", "E1", 1), ("b", "E2", 1)]);
    assert!(groups.iter().all(|group| group.sink == "default" && group.reason == "FAILED"));
    assert_eq!((groups[0].first_died_at, groups[0].last_died_at), (all[4].died_at, all[0].died_at));
    assert_eq!(groups[0].error_message.as_deref(), Some("the newest words"));
    assert_eq!(groups[2].error_message.as_deref(), Some("E2 happened"));
    let early = DeadFilter { died_to: Some(all[0].died_at), ..DeadFilter::default() };
    let groups = hand.dead_groups(&early).await.expect("dead_groups");
    assert_eq!((groups[0].count, groups[0].error_message.as_deref()), (2, Some("E1 happened")));
}
