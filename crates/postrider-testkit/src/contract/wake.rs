//! How a worker that sleeps hears that something may be due, and that it is not kept awake by itself.

use std::time::Duration;

use postrider::Listener;
use postrider::operate::Action;

use super::hand::{Hand, message, token};

/// How long news may take before a test gives up.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long to listen for news that must not come.
const SILENCE: Duration = Duration::from_millis(200);

async fn asleep(hand: &Hand) -> Box<dyn Listener> {
    let listener = hand.listen().await.expect("listen");
    hand.sleep(hand.worker(), Duration::from_mins(1)).await.expect("sleep");
    listener
}

async fn hears(listener: &mut Box<dyn Listener>) {
    let news = tokio::time::timeout(PATIENCE, listener.news()).await;
    news.expect("news comes").expect("the listener is well");
}

/// What a sleeper may still hear of what was done before.
async fn settle_down(listener: &mut Box<dyn Listener>) {
    while tokio::time::timeout(SILENCE, listener.news()).await.is_ok() {}
}

/// Proves P8: a worker that sleeps hears an enqueue by somebody else.
pub async fn a_sleeper_hears_an_enqueue(hand: Hand) {
    let other = hand.another().await;
    let mut listener = asleep(&hand).await;
    assert_eq!(hand.take(10).await.len(), 0, "it looks once more");
    let (put, ()) = tokio::join!(other.put(message("t")), hears(&mut listener));
    hand.woke(hand.worker()).await.expect("woke");
    assert_eq!(hand.take(10).await[0].message_id, put.message_id);
}

/// Proves P8: what came while nobody listened is heard, and is one news.
pub async fn what_came_meanwhile_is_one_news(hand: Hand) {
    let other = hand.another().await;
    let mut listener = asleep(&hand).await;
    settle_down(&mut listener).await;
    for _ in 0..5 {
        other.put(message("t")).await;
    }
    // Dropped while it waits, it forgets nothing.
    let _early = tokio::time::timeout(Duration::ZERO, listener.news()).await;
    other.put(message("t")).await;
    hears(&mut listener).await;
    settle_down(&mut listener).await;
    assert_eq!(hand.take(10).await.len(), 6);
}

/// Proves P8: a claim that finds nothing wakes nobody, or a relay would wake itself for ever.
pub async fn an_empty_claim_is_no_news(hand: Hand) {
    let other = hand.another().await;
    hand.put(message("t").delay(Duration::from_hours(1))).await;
    hand.put(message("t").delay(Duration::from_hours(1)).lane("a")).await;
    hand.put_lane("held", 2).await;
    assert_eq!(other.take(1).await.len(), 1);
    let mut listener = asleep(&hand).await;
    settle_down(&mut listener).await;
    for hand in [&hand, &other] {
        assert_eq!(hand.take(10).await.len(), 0);
        hand.status().await.expect("status");
        hand.list(&postrider::inspect::ListFilter::default(), &postrider::inspect::PageRequest::first(10))
            .await
            .expect("list");
    }
    let silence = tokio::time::timeout(SILENCE, listener.news()).await;
    assert!(silence.is_err(), "nothing happened, and yet there is news");
}

/// Proves P8: release, redrive, resume and skip make something due, and are heard.
pub async fn what_makes_something_due_is_heard(hand: Hand) {
    let other = hand.another().await;
    other.put(message("t")).await;
    let held = other.take(1).await;
    let mut listener = asleep(&hand).await;
    settle_down(&mut listener).await;
    other.release(token(&held), &[held[0].message_id]).await.expect("release");
    hears(&mut listener).await;
    other.fail(&other.take(1).await).await;
    settle_down(&mut listener).await;
    assert_eq!(other.redrive_all().await, 1);
    hears(&mut listener).await;
    other.pause("default").await.expect("pause");
    settle_down(&mut listener).await;
    other.resume("default").await.expect("resume");
    hears(&mut listener).await;
    other.put_lane("a", 2).await;
    other.fail(&other.take(1).await).await;
    other.fail(&other.take_as(&other.wants(1).lane_run(1)).await).await;
    settle_down(&mut listener).await;
    let skip = Action::Skip { sink: "default".to_owned(), lane: "a".to_owned() };
    assert_eq!(other.operate("ann", &skip).await.expect("skip").affected, 1);
    hears(&mut listener).await;
}
