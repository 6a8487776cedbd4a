//! Claims that fail: one message that cannot be handed out, an answer that comes late or never, rows that somebody keeps
//! locked. No such thing stops a sink, costs a message an attempt, or lets a drain say that it is done.

use std::sync::Arc;
use std::time::Duration;

use postrider::{Message, Store};
use postrider_relay::{ErrorKind, RetryOptions, SinkOptions};
use postrider_testkit::FaultProxy;
use tokio_util::sync::CancellationToken;

use crate::support::{
    Site, arrivals, laned, message, messages, patiently, quick, relay_at, site, site_with, start, store,
};

/// One try, and no more: whatever burns an attempt is seen.
fn one_try() -> SinkOptions {
    let retry = RetryOptions::default().max_attempts(1);
    SinkOptions::default().retry(retry).deadline(Duration::from_secs(5))
}

/// Makes one of the messages something that no worker can be given, past all checks.
async fn spoil(site: &Site, topic: &str, change: &str) {
    let sql = format!(
        "set session_replication_role = replica; update outbox.message set {change} where topic = '{topic}'; \
         reset session_replication_role"
    );
    site.client.batch_execute(&sql).await.expect("spoil");
}

/// All but the spoiled one arrive, and that one is dead with the reason.
async fn assert_the_others_arrive(site: Site, others: usize, reason: &str) {
    let (sink, mut arrivals) = arrivals();
    let options = SinkOptions::default().batch_size(4);
    let relay = start(site.relay().sink_with("default", sink, options).options(quick()));
    let arrived = arrivals.take(others).await;
    assert!(arrived.iter().all(|one| one.topic == "t"));
    site.until("select dead = 1 and pending + leased = 0 from outbox.status").await;
    relay.stop().await;
    let (code, words): (String, String) = {
        let sql = "select last_error_code, last_error_message from outbox.dead_letters";
        let row = site.client.query_one(sql, &[]).await.expect("a dead letter");
        (row.get(0), row.get(1))
    };
    assert_eq!(code, "UNREADABLE");
    assert!(words.contains(reason), "{words}");
    assert_eq!(site.attempts().await, format!("DISPATCHED {others}, FAILED 1"), "nobody else paid for it");
}

/// What the store hands out and the relay cannot understand.
#[tokio::test]
async fn a_message_that_cannot_be_understood_stops_nobody() {
    let site = site_with(&messages(20)).await;
    site.enqueue(&[message("spoiled")]).await;
    site.enqueue(&laned(3, 10)).await;
    spoil(&site, "spoiled", "headers = '{\"a\": 1}'").await;
    assert_the_others_arrive(site, 50, "expected a string").await;
}

/// What the store cannot hand out at all: a few thousand bytes that are more than a gigabyte when they are sent.
#[tokio::test]
async fn heavy_a_message_that_cannot_be_sent_stops_nobody() {
    let site = site_with(&messages(1)).await;
    site.enqueue(&[message("spoiled")]).await;
    site.enqueue(&messages(4)).await;
    spoil(&site, "spoiled", "payload = ('[' || repeat('1e131071,', 8500) || '1]')::jsonb").await;
    assert_the_others_arrive(site, 5, "").await;
}

/// A claim is given up while the database stands still, and carried out when it goes on. What it leased is taken back: with
/// one attempt each, nothing dies unsent.
#[tokio::test]
async fn a_claim_that_nobody_waits_for_leaves_nothing() {
    let site = site_with(&messages(40)).await;
    site.enqueue(&laned(5, 4)).await;
    let blocker = site.database.connect().await;
    blocker.batch_execute("begin; lock table outbox.delivery in access exclusive mode").await.expect("lock");
    let (sink, mut arrivals) = arrivals();
    // Half a lease is waited for, five seconds at least: at its end the relay gives the claim up.
    let options = quick().lease(Duration::from_secs(20));
    let relay = start(site.relay().sink_with("default", sink, one_try()).options(options));
    site.until("select count(*) > 0 from pg_stat_activity where wait_event_type = 'Lock' and query like '%.abandon(%'")
        .await;
    blocker.batch_execute("commit").await.expect("unlock");
    arrivals.take(60).await;
    site.until("select not exists (select from outbox.deliveries)").await;
    relay.stop().await;
    assert_eq!(site.attempts().await, "DISPATCHED 60");
}

/// The answer to a claim is lost after its commit: the messages are taken back at once, not when the lease ends.
#[tokio::test]
async fn a_claim_whose_answer_is_lost_leaves_nothing() {
    let site = site_with(&messages(40)).await;
    let proxy = FaultProxy::start(site.database.cluster().port()).await;
    proxy.cut_after_commit(".claim(worker_id", 3);
    let (sink, mut arrivals) = arrivals();
    let relay = relay_at(&proxy.url(&site.database)).await;
    let options = quick().lease(Duration::from_mins(10));
    let relay = start(relay.sink_with("default", sink, one_try()).options(options));
    arrivals.take(40).await;
    site.until("select not exists (select from outbox.deliveries)").await;
    relay.stop().await;
    assert_eq!(proxy.cuts_to_come(), 0, "three answers were lost");
    assert_eq!(site.attempts().await, "DISPATCHED 40");
}

/// The store refuses to take such a claim back: the relay goes on, and the messages return when the lease ends.
#[tokio::test]
async fn a_refused_abandon_stops_nobody() {
    let site = site_with(&messages(4)).await;
    let proxy = FaultProxy::start(site.database.cluster().port()).await;
    let store = store(&proxy.url(&site.database)).await;
    site.client.batch_execute("drop function outbox.abandon").await.expect("drop");
    proxy.cut_after_commit(".claim(worker_id", 1);
    let (sink, mut arrivals) = arrivals();
    let relay = postrider_relay::Relay::builder(store as Arc<dyn Store>);
    let (lease, deadline) = (Duration::from_secs(4), Duration::from_secs(1));
    let sink_options = SinkOptions::default().deadline(deadline);
    let relay = start(relay.sink_with("default", sink, sink_options).options(quick().lease(lease)));
    site.until("select count(*) = 4 from outbox.in_flight").await;
    site.enqueue(&[message("later")]).await;
    assert_eq!(arrivals.next().await.topic, "later", "the others are leased to nobody");
    assert!(arrivals.take(4).await.iter().all(|message| message.attempt_no == 2));
    relay.stop().await;
}

/// The link is so slow that a full claim takes longer than its answer is waited for: claims get smaller until they pass.
#[tokio::test]
async fn claims_get_smaller_on_a_slow_link() {
    let site = site_with(&vec![Message::bytes("t", vec![7; 512 << 10], "x/y"); 12]).await;
    let proxy = FaultProxy::start(site.database.cluster().port()).await;
    let (sink, mut arrivals) = arrivals();
    let store = store(&proxy.url(&site.database)).await;
    proxy.slow_down(1_000_000);
    let relay = postrider_relay::Relay::builder(store as Arc<dyn Store>);
    // Five seconds are waited for an answer; 6 MiB take more than six.
    let options = quick().lease(Duration::from_secs(10));
    let relay = start(relay.sink_with("default", sink, one_try().batch_size(12)).options(options));
    arrivals.take(12).await;
    proxy.slow_down(0);
    site.until("select not exists (select from outbox.deliveries)").await;
    relay.stop().await;
    assert_eq!(site.attempts().await, "DISPATCHED 12");
}

/// Messages are due that a transaction keeps locked: a drain is not done before they are delivered.
#[tokio::test]
async fn a_drain_waits_for_what_is_locked() {
    let site = site_with(&[message("t"), message("t").lane("a")]).await;
    let blocker = site.database.connect().await;
    blocker.batch_execute("begin; select from outbox.delivery for update").await.expect("lock");
    let (sink, _arrivals) = arrivals();
    let relay = site.relay().sink("default", sink).options(quick()).build().expect("a relay");
    let drain = tokio::spawn(relay.drain(CancellationToken::new()));
    // It has looked, and asks again.
    site.until("select count(*) > 0 from pg_stat_activity where query like '%.has_due(%' and pid <> pg_backend_pid()")
        .await;
    assert!(!drain.is_finished());
    blocker.batch_execute("rollback").await.expect("unlock");
    let counts = patiently("the drain ends", drain).await.expect("no panic").expect("no error");
    assert_eq!(counts.delivered, 2);
}

/// If they stay locked, the drain says so.
#[tokio::test]
async fn slow_a_drain_says_what_it_could_not_take() {
    let site = site_with(&messages(1)).await;
    let blocker = site.database.connect().await;
    blocker.batch_execute("begin; select from outbox.delivery for update").await.expect("lock");
    let (sink, _arrivals) = arrivals();
    let relay = site.relay().sink("default", sink).options(quick()).build().expect("a relay");
    let error = patiently("the drain ends", relay.drain(CancellationToken::new())).await.expect_err("it is not done");
    assert!(error.kind() == ErrorKind::StoreAway && error.reason().contains("locked"), "{error:?}");
}

/// Sixty bodies of ten megabytes, and the default of 64 MiB: the process stays near that. (The server is another process.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heavy_large_messages_stay_within_the_memory_that_they_may_take() {
    let site = site().await;
    let large =
        "select outbox.enqueue('t', body => convert_to(repeat('x', 10000000), 'UTF8')) from generate_series(1, 60)";
    site.client.batch_execute(large).await.expect("fill");
    let (sink, mut arrivals) = arrivals();
    let before = peak_kb();
    let relay = start(site.relay().sink("default", sink).options(quick()));
    for _ in 0..60 {
        // Taken one by one, so that the test itself keeps none.
        drop(arrivals.next().await);
    }
    site.until("select not exists (select from outbox.deliveries)").await;
    relay.stop().await;
    let grown = (peak_kb() - before) / 1024;
    println!("grown by {grown} MB");
    // What is held, what is being read, and its copy while it is decoded.
    assert!(grown < 4 * 64, "{grown} MB");
}

fn peak_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("VmHWM");
    line.trim().trim_end_matches(" kB").trim().parse().expect("a number")
}

/// A message that is as large as it may be.
#[tokio::test]
async fn a_message_larger_than_all_memory_arrives() {
    let site = site_with(&[Message::bytes("t", vec![7; 3 << 20], "x/y"), message("t")]).await;
    let (relay, mut arrivals) = site.running(quick().max_bytes(1 << 20));
    assert_eq!(arrivals.take(2).await.len(), 2);
    relay.stop().await;
}
