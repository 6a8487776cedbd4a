//! What a claim costs when there is much that it cannot take. A ratio between two measurements on the same machine, each
//! the best of several, is compared with a generous bound: a walk over a million rows would be beyond any bound.

use std::time::{Duration, Instant};

use super::Site;

const MANY: u32 = 1_000_000;
const DUE: u32 = 200;
const BATCH: u32 = 10;
/// A walk over a million rows takes hundreds of milliseconds; a claim of ten takes one, mostly to reach the disk.
const MOST: u32 = 10;

/// The best time of several claims, each of which finds so many.
async fn best_claim(site: &Site, finds: u32) -> Duration {
    let mut best = Duration::MAX;
    for _ in 0..5 {
        let began = Instant::now();
        let held = site.claim(BATCH).await;
        best = best.min(began.elapsed());
        assert_eq!(held.len(), finds as usize);
    }
    best
}

async fn put_due(site: &Site) {
    let messages: Vec<_> = (0..DUE)
        .map(|n| if n % 2 == 0 { super::message("t") } else { super::message("t").lane(format!("due-{n}")) })
        .collect();
    postrider::Queue::enqueue(&site.store, &messages).await.unwrap();
}

/// Deliveries without a message, which no claim ever comes to see.
fn put_many(site: &Site, columns: &str, values: &str) {
    let sql = format!(
        "with recursive n(n) as (select 1 union all select n + 1 from n where n < {MANY}) \
         insert into outbox_delivery (message_id, sink, occurred_at, due_at, priority, {columns}) \
         select randomblob(16), 'default', 0, {values} from n"
    );
    // Room for all of it: with SQLite's two megabytes every row would push a page to the disk.
    site.app.execute_batch("pragma synchronous = off; pragma cache_size = -500000").unwrap();
    site.app.execute(&sql, []).unwrap();
    // On the disk before anything is measured: the next commit would have to wait for it.
    site.app.execute_batch("pragma synchronous = full; pragma wal_checkpoint(truncate)").unwrap();
}

/// What a claim costs with many that it cannot take is no more than a few times what it costs without, and to find nothing
/// costs next to nothing.
async fn assert_many_cost_nothing(columns: &str, values: &str) {
    let small = Site::new();
    put_due(&small).await;
    let site = Site::new();
    put_many(&site, columns, values);
    let empty = best_claim(&site, 0).await;
    put_due(&site).await;
    let (alone, among) = (best_claim(&small, BATCH).await, best_claim(&site, BATCH).await);
    println!("alone {alone:?}, among a million {among:?}, finding nothing {empty:?}");
    assert!(among < alone * MOST, "{among:?} instead of {alone:?}");
    assert!(empty < Duration::from_millis(50), "{empty:?} to find nothing");
}

/// Proves H3, P3, E11: a million deliveries that wait for a retry or for their time, of every priority.
#[tokio::test]
async fn heavy_slow_a_million_not_yet_due_cost_nothing() {
    let later = "unixepoch() * 1000000 + 3600000000 + n";
    assert_many_cost_nothing("lane", &format!("{later}, n % 201 - 100, null")).await;
}

/// Proves H3, P3, E11: a million messages behind a head that waits.
#[tokio::test]
async fn heavy_slow_a_blocked_lane_costs_nothing() {
    let head_later = "iif(n = 1, unixepoch() * 1000000 + 3600000000, 0)";
    assert_many_cost_nothing("lane, sequence_id", &format!("{head_later}, 0, 'blocked', n")).await;
}

/// Proves H3, E11: a hundred thousand lanes whose heads wait: a claim looks at some of them, the next one at others, and
/// a thorough one at all.
#[tokio::test]
async fn heavy_slow_many_blocked_lanes_are_passed_in_steps() {
    let site = Site::new();
    let later = "unixepoch() * 1000000 + 3600000000";
    put_many(&site, "lane, sequence_id", &format!("{later}, 0, 'lane-' || (n % 100000), n / 100000 + 1"));
    let empty = best_claim(&site, 0).await;
    let thorough = postrider::lifecycle::Claim::new("w").thorough(true);
    let began = Instant::now();
    assert_eq!(postrider::Queue::claim(&site.store, &thorough).await.unwrap().len(), 0);
    println!("finding nothing {empty:?}, to be sure of it {:?}", began.elapsed());
    assert!(empty * 5 < began.elapsed(), "{empty:?} for a part of {:?}", began.elapsed());
}
