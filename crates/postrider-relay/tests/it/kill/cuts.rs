//! What connections alone can do to a relay that lives: cost it time, and nothing else. A cut between a commit and its
//! answer leaves it in doubt about a claim or a completion; neither may make a message arrive twice.

use std::time::{Duration, Instant};

use postrider::{Message, PostgresStore, Queue as _, Schema};
use postrider_testkit::FaultProxy;
use tokio_util::sync::CancellationToken;

use super::books::{assert_books_agree, assert_books_are_whole};
use super::child::{Mood, Orders, RECEIVER, RelayProcess};
use super::receiver::arrivals;
use super::{Site, message, until};

const LANES: usize = 30;
/// Cuts of each kind, one after the other; each must strike before the next is laid.
const CUTS: [&str; 3] = ["outbox\".claim(", "outbox\".complete_many", "outbox\".enqueue_many"];
const ROUNDS: u64 = 5;
/// Messages of one statement of the producer.
const BATCH: usize = 10;
/// Between two of them: the relay is a little faster.
const PACE: Duration = Duration::from_millis(10);
const CONFIRM: Duration = Duration::from_millis(1);

/// Proves E2, M3: a relay and a producer whose connections are cut, also between a commit and its answer, deliver every
/// message once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heavy_cut_connections_alone_make_no_duplicates() {
    let site = Site::new().await;
    let proxy = FaultProxy::start(site.database.cluster().port()).await;
    let began = Instant::now();
    let enough = CancellationToken::new();
    let store = PostgresStore::open(&proxy.url(&site.database), Schema::default()).expect("a URL");
    let producing = tokio::spawn(produce(store, enough.clone()));
    let mut orders = Orders::new(&proxy.url(&site.database), "relay", site.directory.path(), Mood::Slow(CONFIRM));
    orders.batch_size = 20;
    let relay = RelayProcess::start(&orders);
    for round in 1..=ROUNDS {
        for (kind, statement) in CUTS.into_iter().enumerate() {
            proxy.cut_after_commit(statement, 1);
            let so_far = (round - 1) * CUTS.len() as u64 + kind as u64 + 1;
            until(statement, || proxy.counts().cut_after_commit == so_far).await;
        }
        proxy.cut_all();
    }
    enough.cancel();
    let (count, retried) = producing.await.expect("the producer");
    site.until("select count(*) = 0 from outbox.deliveries").await;
    println!("{:?}, {:?}, {retried} statements enqueued again", began.elapsed(), proxy.counts());
    relay.end().await;

    assert_books_are_whole(&site.client, count).await;
    let arrived = arrivals(&site.directory.path().join(RECEIVER));
    assert_eq!(assert_books_agree(&site.client, &arrived).await, 0, "duplicates");
    let last = arrived.assert_lanes_in_order();
    assert_eq!((last.len(), arrived.messages.len()), (LANES, count));
    assert!(retried >= usize::try_from(ROUNDS).expect("few"));
}

/// Enqueues until it is enough; every other message has a lane. Returns how many messages there are, and how many
/// statements had to be sent again.
async fn produce(store: PostgresStore, enough: CancellationToken) -> (usize, usize) {
    let (mut produced, mut retried) = (0, 0);
    let mut pace = tokio::time::interval(PACE);
    while !enough.is_cancelled() {
        pace.tick().await;
        let batch: Vec<Message> = (produced..produced + BATCH).map(cut_message).collect();
        while store.enqueue(&batch).await.is_err() {
            retried += 1;
        }
        produced += BATCH;
    }
    (produced, retried)
}

fn cut_message(n: usize) -> Message {
    let message = message("cut").dedupe_key(n.to_string());
    if n.is_multiple_of(2) { message.lane(format!("lane-{}", n / 2 % LANES)) } else { message }
}
