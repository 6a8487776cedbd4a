//! The most ordinary day of an outbox: nothing for a long time, and then a burst. A session keeps the plans that it made on the
//! empty table, so it must be as fast as one that has just connected.

use std::time::{Duration, Instant};

use postrider_testkit::Cluster;

use crate::support::{Arrivals, Running, Site, arrivals, messages, quick, relay_at, start};

const BURST: usize = 20_000;
/// Of one statement.
const BATCH: usize = 10_000;
/// How much longer an idle relay may take than a new one. By hand it is the same; the machine is shared.
const NOISE: u32 = 2;

async fn running(site: &Site) -> (Running, Arrivals) {
    let (sink, arrivals) = arrivals();
    (start(relay_at(&site.database.url()).await.sink("default", sink).options(quick())), arrivals)
}

/// Enqueues a burst; how long after its first commit the first and the last message arrived.
async fn burst(site: &Site, arrivals: &mut Arrivals) -> (Duration, Duration) {
    let batch = messages(BATCH);
    site.enqueue(&batch).await;
    let began = Instant::now();
    let first = async {
        arrivals.next().await;
        let first = began.elapsed();
        arrivals.take(BURST - 1).await;
        (first, began.elapsed())
    };
    let rest = async {
        for _ in 1..BURST / BATCH {
            site.enqueue(&batch).await;
        }
    };
    let (took, ()) = tokio::join!(first, rest);
    site.until("select not exists (select from outbox.deliveries)").await;
    took
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heavy_an_idle_relay_takes_a_burst_as_fast_as_a_new_one() {
    // Nobody comes by with new statistics, as it is in the first minute of a burst.
    let cluster = Cluster::start_with(&[("autovacuum", "off")]).await;
    let site = Site::on(cluster.database().await).await;
    site.client.batch_execute("vacuum analyze outbox.delivery, outbox.message, outbox.attempt").await.expect("vacuum");
    let (relay, mut arrived) = running(&site).await;
    site.until("select coalesce(sum(idx_scan), 0) > 40 from pg_stat_user_indexes where indexrelname = 'delivery_due'")
        .await;
    let (first, idle) = burst(&site, &mut arrived).await;
    relay.stop().await;

    site.client.batch_execute("vacuum outbox.delivery").await.expect("vacuum");
    let (relay, mut arrived) = running(&site).await;
    let (_, new) = burst(&site, &mut arrived).await;
    relay.stop().await;
    println!("an idle relay: first after {first:?}, all after {idle:?}; a new one: all after {new:?}");
    assert!(first < Duration::from_secs(1), "{first:?}");
    assert!(idle <= new * NOISE, "{idle:?} after idling, {new:?} anew");
}
