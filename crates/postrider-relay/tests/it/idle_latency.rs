//! How fast an idle relay answers, measured against the least that LISTEN and a claim can take, in one run and taking
//! turns, so that the machine's mood cancels out.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::{Duration, Instant};

use postrider::Queue as _;
use tokio::sync::mpsc;
use tokio_postgres::{AsyncMessage, NoTls};

use crate::support::{Site, arrivals, message, site, start};

const SAMPLES: usize = 150;
/// Longer than a wake-up gathers, so that the relay is asleep again.
const PAUSE: Duration = Duration::from_millis(60);

/// Proves P8: the leading edge is immediate. From commit to handler, p50 at most twice and p99 at most three times a
/// bare loop of LISTEN and claim.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heavy_an_idle_relay_answers_nearly_as_fast_as_a_bare_loop() {
    let bare = site().await;
    let relayed = Site::on(bare.database.cluster().database().await).await;
    let mut heard = bare_loop(&bare.database.url(), Arc::clone(&bare.store)).await;
    let (sink, mut arrivals) = arrivals();
    let relay = start(relayed.relay().sink("default", sink));
    let (mut floor, mut ours) = (Vec::new(), Vec::new());
    for round in 0..SAMPLES + 10 {
        bare.store.sleep("bare", Duration::from_mins(1)).await.expect("sleep");
        relayed.until("select exists (select from outbox.sleeper)").await;
        tokio::time::sleep(PAUSE).await;
        let committed = commit(&bare.store).await;
        let bare_took = heard.recv().await.expect("the loop is alive").duration_since(committed);
        let committed = commit(&relayed.store).await;
        arrivals.next().await;
        let took = committed.elapsed();
        if round >= 10 {
            floor.push(bare_took);
            ours.push(took);
        }
    }
    relay.stop().await;
    floor.sort_unstable();
    ours.sort_unstable();
    let at = |times: &[Duration], percent: usize| times[(times.len() * percent / 100).min(times.len() - 1)];
    println!("p50 {:?} over {:?}, p99 {:?} over {:?}", at(&ours, 50), at(&floor, 50), at(&ours, 99), at(&floor, 99));
    assert!(at(&ours, 50) <= at(&floor, 50) * 2, "p50 {:?} over {:?}", at(&ours, 50), at(&floor, 50));
    assert!(at(&ours, 99) <= at(&floor, 99) * 3, "p99 {:?} over {:?}", at(&ours, 99), at(&floor, 99));
}

/// Commits one message and says when.
async fn commit(store: &postrider::PostgresStore) -> Instant {
    store.enqueue(&[message("t")]).await.expect("enqueue");
    Instant::now()
}

/// LISTEN, claim, done: the floor.
async fn bare_loop(url: &str, store: Arc<postrider::PostgresStore>) -> mpsc::UnboundedReceiver<Instant> {
    let (client, mut connection) = tokio_postgres::connect(url, NoTls).await.expect("connect");
    let (tell, heard) = mpsc::unbounded_channel();
    let (note, mut notes) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
            if matches!(message, AsyncMessage::Notification(_)) && note.send(()).is_err() {
                break;
            }
        }
    });
    client.batch_execute("listen \"outbox.due\"").await.expect("listen");
    tokio::spawn(async move {
        let claim = postrider::lifecycle::Claim::new("bare");
        while notes.recv().await.is_some() {
            for claimed in store.claim(&claim).await.expect("claim") {
                let _sent = tell.send(Instant::now());
                store.ack("bare", &claimed).await.expect("ack");
            }
        }
        drop(client);
    });
    heard
}
