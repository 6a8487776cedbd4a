//! What an operator reads through the library: pages of messages that end between two messages, and the whole story of
//! one. The command line's tests show how it looks.

use postrider::{Inspect as _, ListFilter, ListState, PostgresStore, Schema};
use uuid::Uuid;

use crate::support::{claim_with, complete, enqueue, fresh, mark_delivered};

fn filter(state: Option<ListState>, before: Option<Uuid>, limit: u32) -> ListFilter {
    ListFilter { state, before, limit, ..ListFilter::default() }
}

/// A page is never cut inside a message with several sinks, so going on before its last message misses nothing.
#[tokio::test]
async fn a_page_ends_between_two_messages() {
    let (database, client) = fresh().await;
    client.batch_execute("select outbox.add_route('a'); select outbox.add_route('b')").await.unwrap();
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.insert(0, enqueue(&client, "t", "").await);
    }
    let store = PostgresStore::connect(&database.url(), Schema::default()).await.unwrap();
    for state in [None, Some(ListState::Pending)] {
        let page = store.list(&filter(state, None, 3)).await.unwrap().items;
        let lines: Vec<_> = page.iter().map(|line| (line.message_id, line.sink.as_deref().unwrap())).collect();
        assert_eq!(lines, [(ids[0], "a"), (ids[0], "b"), (ids[1], "a"), (ids[1], "b")]);
        let rest = store.list(&filter(state, Some(ids[1]), 3)).await.unwrap().items;
        assert_eq!(rest.iter().map(|line| line.message_id).collect::<Vec<_>>(), [ids[2], ids[2]]);
    }
}

/// Each state is found by its word, for the sink that is asked about.
#[tokio::test]
async fn every_state_is_listed() {
    let (database, client) = fresh().await;
    let [dead, delivered, leased, pending] = [4, 3, 2, 1].map(|priority| (priority, format!("p{priority}")));
    for (priority, topic) in [&dead, &delivered, &leased, &pending] {
        enqueue(&client, topic, &format!(", priority => {priority}")).await;
    }
    let held = claim_with(&client, "w", 3, "").await;
    complete(&client, "w", &held[0], "FAILED").await.unwrap();
    mark_delivered(&client, &held[1..2]).await;
    let store = PostgresStore::connect(&database.url(), Schema::default()).await.unwrap();
    for (state, (_, topic)) in [
        (ListState::Dead, dead),
        (ListState::Delivered, delivered),
        (ListState::Leased, leased),
        (ListState::Pending, pending),
    ] {
        let found = store
            .list(&ListFilter { sink: Some("default".to_owned()), ..filter(Some(state), None, 10) })
            .await
            .unwrap()
            .items;
        assert_eq!(
            found.iter().map(|line| (line.topic.as_str(), line.state.as_str())).collect::<Vec<_>>(),
            [(topic.as_str(), state.as_str())]
        );
    }
    let detail = store.show(held[0].id).await.unwrap().unwrap();
    assert_eq!(
        (detail.attempts.len(), detail.attempts[0].state.as_str(), detail.deliveries[0].state.as_str()),
        (1, "FAILED", "dead")
    );
    assert!(store.show(Uuid::new_v4()).await.unwrap().is_none());
}
