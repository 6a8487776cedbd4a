//! The kit for an application's tests, end to end: a script, a relay that runs until it is idle, time that is moved.

use std::time::Duration;

use postrider::lifecycle::Claim;
use postrider::{Inspect as _, Message, PostgresStore, Queue as _, Route, Schema};
use postrider_relay::testing::{Answer, ScriptedSink, TestRelay};
use postrider_relay::{ErrorKind, Relay, SinkFailure, handler};

use crate::support::message;

#[tokio::test]
async fn a_script_is_followed_and_time_is_moved() {
    let asks_for_more = SinkFailure::retryable("BUSY", "later").retry_after(Duration::from_mins(30));
    let script = [Answer::Retryable, Answer::Hang, Answer::Failure(asks_for_more)];
    let sink = ScriptedSink::new(script);
    let relay = TestRelay::temporary(sink.clone()).expect("a relay");
    relay.store().enqueue(&[message("t")]).await.expect("enqueue");
    // Past the backoff after the first and the second attempt; then less and more than the destination asked for.
    for (wait_secs, retried, delivered) in
        [(0, 1, 0), (1, 1, 0), (2, 1, 0), (29 * 60, 0, 0), (2 * 60, 0, 1), (3600, 0, 0)]
    {
        relay.advance(Duration::from_secs(wait_secs)).await.expect("time moves");
        let counts = relay.run_until_idle().await.expect("a run");
        assert_eq!((counts.retried, counts.delivered), (retried, delivered), "after {wait_secs} s");
    }
    let attempts: Vec<i32> = sink.received().iter().map(|message| message.attempt_no).collect();
    assert_eq!(attempts, [1, 2, 3, 4]);

    sink.then([Answer::Terminal]);
    relay.store().enqueue(&[message("t"), message("u")]).await.expect("enqueue");
    let counts = relay.run_until_idle().await.expect("a run");
    assert_eq!((counts.dead, counts.delivered), (1, 1), "what is not in the script is taken");
    assert_eq!(relay.store().status().await.expect("status")[0].dead, 1);

    relay.store().enqueue(&[message("v")]).await.expect("enqueue");
    let crashed = relay.store().claim(&Claim::new("crashes").lease(Duration::from_mins(5))).await.expect("claim");
    assert_eq!(relay.run_until_idle().await.expect("a run").claimed, 0, "it is held");
    relay.advance(Duration::from_mins(5)).await.expect("time moves");
    assert_eq!(relay.run_until_idle().await.expect("a run").delivered, 1);
    let last = sink.received().pop().expect("a message");
    assert_eq!((last.message_id, last.attempt_no), (crashed[0].message_id, 2));
}

/// A delivery that enqueues leads to another; one that enqueues its own like for ever is told.
#[tokio::test]
async fn what_a_delivery_leads_to_is_delivered() {
    let database = postrider_testkit::database().await;
    let store = PostgresStore::connect(&database.url(), Schema::default()).await.expect("connect");
    let (inner, last) = (store.clone(), ScriptedSink::default());
    let sink = last.clone();
    let relay = TestRelay::new(store, move |store| {
        let inner = inner.clone();
        let leads_on = handler(move |message| {
            let inner = inner.clone();
            async move {
                let left: u32 = message.json()?;
                let next = if left == 0 { "last" } else { "next" };
                inner.enqueue(&[Message::json(next, &left.saturating_sub(1))?]).await?;
                Ok::<(), SinkFailure>(())
            }
        });
        let routes = Relay::builder(store).route(Route::new("next", "next")).route(Route::new("last", "last"));
        routes.sink("next", leads_on).sink("last", sink.clone())
    });
    relay.run_until_idle().await.expect("the routes are there");
    relay.store().enqueue(&[Message::json("next", &5).expect("json")]).await.expect("enqueue");
    assert_eq!(relay.run_until_idle().await.expect("a run").delivered, 7);
    assert_eq!(last.received().len(), 1);
    let later = Message::json("last", &1).expect("json").delay(Duration::from_hours(1));
    relay.store().enqueue(&[later]).await.expect("enqueue");
    assert_eq!(relay.run_until_idle().await.expect("a run").claimed, 0);
    relay.advance(Duration::from_hours(1)).await.expect("time moves");
    assert_eq!(relay.run_until_idle().await.expect("a run").delivered, 1);

    let none = TestRelay::new(relay.store().clone(), Relay::builder);
    assert_eq!(none.run_until_idle().await.expect_err("it has no sink").kind(), ErrorKind::Options);
}
