//! What running relays do for the store's partitions: the next days are made, what is past its retention goes, one relay at a
//! time does the work, and neither a refusal nor the end of a relay stops it.

use std::time::Duration;

use crate::log::Log;
use crate::support::{message, quick, site};

const AHEAD: &str = "(select count(*) from pg_inherits where inhparent = 'outbox.message'::regclass)";

/// Proves H8: two relays look after one outbox. Together they make each partition once and drop the old one once, wait for
/// nobody who does it already, and go on after the store refused and after one of them ended.
#[tokio::test]
async fn relays_make_and_drop_partitions_one_at_a_time() {
    let log = Log::default();
    let _logging = tracing::subscriber::set_default(log.clone());
    let site = site().await;
    let there = site.number(&format!("select {AHEAD}")).await;
    let old = ["message", "attempt"].map(|table| {
        format!(
            "create table outbox.{table}_20200101_00 partition of outbox.{table} for values from \
             (outbox.message_id_floor('2020-01-01 00:00+00')) to (outbox.message_id_floor('2020-01-02 00:00+00'));"
        )
    });
    let ahead = "update outbox.setting set partitions_ahead = partitions_ahead + ";
    site.client.batch_execute(&format!("{}{ahead}2", old.concat())).await.expect("an old partition");
    let other = site.database.connect().await;
    other.batch_execute("begin; select outbox.try_lock('partitions')").await.expect("lock");

    let options = || quick().keep_every(Duration::from_millis(20));
    let (first, mut arrivals) = site.running(options());
    let (second, mut more_arrivals) = site.running(options());
    site.until("select count(*) > 0 from pg_stat_activity where query like '%prune_inbox_at_retention%'").await;
    site.enqueue(&[message("t")]).await;
    tokio::select! { _ = arrivals.next() => (), _ = more_arrivals.next() => () }
    assert_eq!(site.number(&format!("select {AHEAD}")).await, there + 1, "somebody else is at it");
    other.batch_execute("commit").await.expect("unlock");
    let until =
        |more| format!("select {AHEAD} = {} and to_regclass('outbox.message_20200101_00') is null", there + more);
    site.until(&until(2)).await;
    assert_eq!(site.number("select count(*) from outbox.attempt").await, 1, "what is younger stays");

    first.end_at_once();
    site.client.batch_execute("alter function outbox.make_partitions rename to away").await.expect("rename");
    site.client.batch_execute(&format!("{ahead}3")).await.expect("more ahead");
    log.until("the store cannot be asked").await;
    site.client.batch_execute("alter function outbox.away rename to make_partitions").await.expect("rename");
    site.until(&until(5)).await;
    site.enqueue(&[message("t")]).await;
    more_arrivals.next().await;
    second.stop().await;
    let made = log.with("made partitions");
    assert!(made.len() == 2 && made[0].contains("partitions=2") && made[1].contains("partitions=3"), "{made:?}");
    assert_eq!(log.count("dropped history"), 1, "{:?}", log.lines());
}
