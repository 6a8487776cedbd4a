//! The relay on the embedded store: an edge site with no database server, several relays on one file, and what a role of
//! PostgreSQL needs to run one.

use std::sync::Arc;
use std::time::Duration;

use postrider::{Inspect as _, PostgresStore, Queue as _, Schema, SqliteStore, Store};
use postrider_relay::{BreakerOptions, Relay, RelayOptions, SinkFailure, SinkOptions};

use crate::support::{
    Arrivals, arrivals, arrivals_unless, drain, laned, messages, patiently, quick, retry, site, start,
};

async fn empty(store: &SqliteStore) {
    let emptied = async {
        loop {
            let sinks = store.status().await.expect("status");
            if sinks.iter().all(|sink| sink.pending + sink.leased == 0) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    patiently("the file is empty", emptied).await;
}

/// Proves E11: no server, one file; messages with and without lanes arrive, failures are tried again, and the news of a
/// commit comes long before the poll.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_edge_site_needs_no_server() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = SqliteStore::open(directory.path().join("edge.db")).expect("open");
    let (sink, mut arrivals) =
        arrivals_unless(|message| (message.attempt_no == 1).then(|| SinkFailure::retryable("AGAIN", "once")));
    let sink_options = SinkOptions::default().retry(retry(20, 20, 10)).breaker(BreakerOptions::default().failures(0));
    let hourly = RelayOptions::default().poll(Duration::from_hours(1)).lease(Duration::from_hours(4));
    let relay = start(
        Relay::builder(Arc::new(store.clone()) as Arc<dyn Store>)
            .sink_with("default", sink, sink_options)
            .options(hourly),
    );
    for round in 1..=3 {
        store.enqueue(&messages(20)).await.expect("enqueue");
        store.enqueue(&laned(4, 5)).await.expect("enqueue");
        let arrived = arrivals.take(80).await;
        for lane in 0..4 {
            let lane = format!("lane-{lane:04}");
            let mut sequence: Vec<i64> = arrived
                .iter()
                .filter(|message| message.lane.as_deref() == Some(&lane))
                .filter_map(|message| message.sequence_id)
                .collect();
            sequence.dedup();
            assert_eq!(sequence, ((round - 1) * 5 + 1..=round * 5).collect::<Vec<i64>>(), "{lane}");
        }
    }
    empty(&store).await;
    let counts = relay.stop().await;
    assert_eq!((counts.delivered, counts.retried, counts.lost), (120, 120, 0));
}

/// Proves E2 on the embedded store: three relays on one file share the work, each message is delivered once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn relays_share_a_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("edge.db");
    let store = SqliteStore::open(&path).expect("open");
    store.enqueue(&messages(600)).await.expect("enqueue");
    store.enqueue(&laned(20, 20)).await.expect("enqueue");
    let mut relays = Vec::new();
    let mut sinks = Vec::new();
    for _ in 0..3 {
        let (sink, arrived) = arrivals();
        let own = Arc::new(SqliteStore::open(&path).expect("open")) as Arc<dyn Store>;
        let options = SinkOptions::default().batch_size(30);
        relays.push(start(Relay::builder(own).sink_with("default", sink, options).options(quick())));
        sinks.push(arrived);
    }
    empty(&store).await;
    let mut delivered = 0;
    for relay in relays {
        delivered += relay.stop().await.delivered;
    }
    assert_eq!(delivered, 1_000);
    let ids: Vec<_> = sinks.iter_mut().flat_map(Arrivals::until_now).map(|message| message.message_id).collect();
    let distinct: std::collections::HashSet<_> = ids.iter().collect();
    assert_eq!((ids.len(), distinct.len()), (1_000, 1_000));
}

/// Proves H6 on the embedded store.
#[tokio::test]
async fn a_drain_of_a_file_ends() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = SqliteStore::open(directory.path().join("edge.db")).expect("open");
    store.enqueue(&messages(250)).await.expect("enqueue");
    let (sink, _arrivals) = arrivals();
    let counts = drain(Relay::builder(Arc::new(store) as Arc<dyn Store>).sink("default", sink).options(quick())).await;
    assert_eq!(counts.delivered, 250);
}

/// A login with the rights of `outbox_relay`, and no others, runs a relay.
#[tokio::test]
async fn the_relay_role_is_enough() {
    let site = site().await;
    let mut connection = site.database.connect().await;
    postrider::migrate::roles(&mut connection, &Schema::default(), &Schema::default()).await.expect("roles");
    site.client.batch_execute("create role worker login in role outbox_relay").await.expect("role");
    let store = PostgresStore::connect(&site.database.url_as("worker"), Schema::default()).await.expect("connect");
    let (sink, mut arrivals) = arrivals();
    let options = quick().report_every(Duration::from_millis(50));
    let relay = start(Relay::builder(Arc::new(store) as Arc<dyn Store>).sink("default", sink).options(options));
    site.until("select exists (select from outbox.sleeper)").await;
    site.enqueue(&messages(10)).await;
    arrivals.take(10).await;
    site.until("select not exists (select from outbox.deliveries)").await;
    assert_eq!(relay.stop().await.delivered, 10);
    assert_eq!(site.number("select count(*) from outbox.sleeper").await, 0, "it said good-bye");
}
