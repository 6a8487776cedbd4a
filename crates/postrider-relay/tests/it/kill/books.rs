//! The books of the database, after everything was delivered: whether they are whole, and whether they agree with what
//! the receiver has.

use std::collections::HashMap;

use tokio_postgres::Client;
use uuid::Uuid;

use super::receiver::Arrivals;

/// The database alone: all delivered, nothing dead, attempts 1..n, the last of them the delivery.
pub(super) async fn assert_books_are_whole(client: &Client, all: usize) {
    let all = i64::try_from(all).expect("few");
    assert_eq!(number(client, "select count(*) from outbox.messages").await, all);
    assert_eq!(number(client, "select count(*) from outbox.dead_letters").await, 0);
    assert_eq!(number(client, "select count(*) from outbox.attempts where state = 'DISPATCHED'").await, all);
    let broken = "select count(*) from (select count(*) n, min(attempt_no) low, max(attempt_no) high, \
                  count(*) filter (where state = 'DISPATCHED') delivered, \
                  max(attempt_no) filter (where state = 'DISPATCHED') delivered_by \
                  from outbox.attempts group by message_id) a \
                  where low <> 1 or high <> n or delivered <> 1 or delivered_by <> high";
    assert_eq!(number(client, broken).await, 0, "attempts are 1..n without gaps, the last one delivered");
    let overlaps = "select count(*) from (select claimed_at, lag(completed_at) over (partition by message_id \
                    order by attempt_no) as before from outbox.attempts) a where claimed_at < before";
    assert_eq!(number(client, overlaps).await, 0, "no two leases on one delivery at once");
    let states = "select string_agg(state || ' ' || n, ', ' order by state) from \
                  (select state, count(*) n from outbox.attempts group by state) a";
    println!("{}", client.query_one(states, &[]).await.expect("query").get::<_, String>(0));
}

/// The database and the receiver: what is recorded as delivered has arrived by that attempt, what arrived belongs to an
/// attempt, and every further arrival to one that ended without a delivery. Returns how many further ones there are.
pub(super) async fn assert_books_agree(client: &Client, arrived: &Arrivals) -> usize {
    let sent = arrived.assert_no_attempt_twice();
    let rows = client.query("select message_id, attempt_no, state from outbox.attempts", &[]).await.expect("query");
    let attempts: HashMap<(Uuid, i32), String> =
        rows.iter().map(|row| ((row.get(0), row.get(1)), row.get(2))).collect();
    for (attempt, state) in &attempts {
        assert!(
            state != "DISPATCHED" || sent.contains(attempt),
            "recorded as delivered and never arrived: {attempt:?}"
        );
    }
    let mut duplicates = 0;
    for attempt in &sent {
        let state = attempts.get(attempt).unwrap_or_else(|| panic!("arrived without an attempt: {attempt:?}"));
        duplicates += usize::from(state != "DISPATCHED");
    }
    assert_eq!(duplicates, arrived.messages.len() - arrived.distinct().len());
    duplicates
}

async fn number(client: &Client, sql: &str) -> i64 {
    client.query_one(sql, &[]).await.expect("query").get(0)
}
