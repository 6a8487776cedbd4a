//! A store that goes away and comes back, again and again, or stands still: what the relay says and how many connections
//! it makes.

use std::time::Duration;

use postrider::Route;
use postrider_relay::SinkOptions;
use postrider_testkit::FaultProxy;

use crate::log::Log;
use crate::support::{arrivals, message, messages, patiently, quick, relay_at, site, start};

/// Outages of a storm.
const STORM: u64 = 25;

/// Connections that are cut again and again are a few lines in the log, not a few for each cut; and everything arrives.
#[tokio::test]
async fn a_storm_of_outages_is_a_few_lines() {
    let log = Log::default();
    let _logging = tracing::subscriber::set_default(log.clone());
    let site = site().await;
    let proxy = FaultProxy::start(site.database.cluster().port()).await;
    let (sink, mut arrived) = arrivals();
    let relay = start(relay_at(&proxy.url(&site.database)).await.sink("default", sink).options(quick()));
    for _ in 0..STORM {
        let refused = proxy.counts().refused;
        proxy.refuse(true);
        proxy.cut_all();
        patiently("the relay is refused", async {
            while proxy.counts().refused == refused {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
        .await;
        proxy.refuse(false);
        site.enqueue(&messages(1)).await;
        arrived.next().await;
    }
    relay.stop().await;
    let lines = |words: &str| log.told(words);
    assert!((1..=2).contains(&lines("the store cannot be asked")), "{:?}", log.lines());
    assert!((1..=2).contains(&lines("the store answers again")), "{:?}", log.lines());
    assert!(lines("cannot listen for notifications") <= 2, "{:?}", log.lines());
    assert!(lines("listening for notifications again") <= 2, "{:?}", log.lines());
}

/// A relay with more sinks than connections, on a database that stands still: it never has more than its pool and its
/// listener, others can still connect, and everything is delivered afterwards.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_a_stalled_database_is_not_asked_for_more_and_more() {
    const SINKS: usize = 11;
    let site = site().await;
    let named = format!("{}?application_name=stalled", site.database.url());
    // The shortest patience there is: five seconds.
    let options = quick().lease(Duration::from_secs(10));
    let mut builder = relay_at(&named).await.options(options);
    let options_of_sink = SinkOptions::default().deadline(Duration::from_secs(5));
    let mut sinks = Vec::new();
    for n in 0..SINKS {
        let (name, (sink, arrived)) = (format!("sink-{n}"), arrivals());
        builder = builder.sink_with(&name, sink, options_of_sink.clone()).route(Route::new("t", &name));
        sinks.push(arrived);
    }
    let relay = start(builder);
    site.until("select count(*) = 11 from outbox.route").await;
    site.enqueue(&[message("t")]).await;
    for arrived in &mut sinks {
        arrived.next().await;
    }
    let mut blocker = site.database.connect().await;
    let lock = blocker.transaction().await.expect("begin");
    lock.batch_execute("lock table outbox.delivery").await.expect("lock");
    let backends = "select count(*) from pg_stat_activity where application_name = 'stalled'";
    let waiting = format!("{backends} and wait_event_type = 'Lock'");
    // Each has been given up, and another would have been tried and given up, too.
    let for_long = format!("select ({waiting} and now() - query_start > interval '11 seconds') >= 8");
    let mut most = 0;
    patiently("all connections wait", async {
        while !site.client.query_one(&for_long, &[]).await.expect("query").get::<_, bool>(0) {
            most = most.max(site.number(backends).await);
            drop(site.database.connect().await);
        }
    })
    .await;
    assert!(most <= 9, "{most} connections of one relay");
    lock.commit().await.expect("commit");
    site.enqueue(&[message("t")]).await;
    for arrived in &mut sinks {
        arrived.next().await;
    }
    relay.stop().await;
}
