//! What a claim hands out, in which order, and on which terms: ordering, tenants, counters, expired leases, attempts
//! that run out, paused sinks, and what can be seen of a lease while it lasts.

use std::collections::HashSet;

use uuid::Uuid;

use crate::support::{
    attempts, claim, claim_expired, claim_with, complete, enqueue, enqueue_plain, fresh, mark_delivered, number,
};

/// Proves H1, H7, M11: oldest first, whatever the order of insertion (the first smoke test of the seed).
#[tokio::test]
async fn oldest_first() {
    let (_database, client) = fresh().await;
    for (topic, age) in [("three", "1 hour"), ("one", "3 hours"), ("two", "2 hours")] {
        enqueue(&client, topic, &format!(", occurred_at => now() - interval '{age}'")).await;
    }
    let topics: Vec<String> = claim(&client, "w", 10).await.into_iter().map(|held| held.topic).collect();
    assert_eq!(topics, ["one", "two", "three"]);
}

/// Proves E7, M11: priority first, then age, then the order of enqueueing; the same on every run.
#[tokio::test]
async fn priority_then_age_then_id() {
    let (_database, client) = fresh().await;
    client.batch_execute("begin").await.unwrap();
    for (topic, arguments) in [
        ("low", ", priority => -5"),
        ("young", ", priority => 7"),
        ("old", ", priority => 7, occurred_at => now() - interval '1 hour'"),
        ("first", ""),
        ("second", ""),
        ("top", ", priority => 100"),
    ] {
        enqueue(&client, topic, arguments).await;
    }
    client.batch_execute("commit").await.unwrap();
    let topics: Vec<String> = claim(&client, "w", 10).await.into_iter().map(|held| held.topic).collect();
    assert_eq!(topics, ["top", "old", "young", "first", "second", "low"]);
}

/// Proves H1: a claim takes no more than it is asked for, and the best ones.
#[tokio::test]
async fn a_small_batch_takes_the_best() {
    let (_database, client) = fresh().await;
    enqueue_plain(&client, 50).await;
    let best = enqueue(&client, "best", ", priority => 1").await;
    let held = claim(&client, "w", 3).await;
    assert_eq!((held.len(), held[0].id), (3, best));
    assert_eq!(number(&client, "select leased from outbox.status").await, 3);
    assert_eq!(number(&client, "select pending from outbox.status").await, 48);
}

/// Proves H1, M2: one tenant's claim takes that tenant's, with and without lanes, and nobody else's.
#[tokio::test]
async fn of_one_tenant_only() {
    let (_database, client) = fresh().await;
    let [ours, theirs] = [Uuid::from_u128(1), Uuid::from_u128(2)];
    for n in 0..5 {
        enqueue(&client, "ours", &format!(", tenant_id => '{ours}', priority => {n}")).await;
        enqueue(&client, "theirs", &format!(", tenant_id => '{theirs}', priority => 50")).await;
        enqueue(&client, "nobody", ", priority => 60").await;
        enqueue(&client, "ours", &format!(", tenant_id => '{ours}', lane => 'ours-{}'", n % 2)).await;
        enqueue(&client, "theirs", &format!(", tenant_id => '{theirs}', lane => 'a-{n}'")).await;
    }
    let held = claim_with(&client, "w", 100, &format!(", tenant_id => '{ours}'")).await;
    assert_eq!(held.len(), 10);
    assert!(held.iter().all(|held| held.topic == "ours"), "{held:?}");
    let rest = claim(&client, "w", 100).await;
    assert_eq!(rest.len(), 15, "everybody else's is still there for a claim without a tenant");
}

/// A lane that two tenants share stays in order: one tenant's claim waits for the other's number.
#[tokio::test]
async fn a_shared_lane_keeps_its_order_under_a_tenant_filter() {
    let (_database, client) = fresh().await;
    let [ours, theirs] = [Uuid::from_u128(1), Uuid::from_u128(2)];
    for tenant in [theirs, ours, ours] {
        enqueue(&client, "t", &format!(", lane => 'shared', tenant_id => '{tenant}'")).await;
    }
    let filter = format!(", tenant_id => '{ours}'");
    assert_eq!(claim_with(&client, "w", 10, &filter).await, [], "number 1 is the other tenant's");
    let first = claim_with(&client, "w", 10, &format!(", tenant_id => '{theirs}'")).await;
    assert_eq!(first.len(), 1, "a run ends where the tenant changes");
    mark_delivered(&client, &first).await;
    let numbers: Vec<_> = claim_with(&client, "w", 10, &filter).await.into_iter().map(|held| held.sequence).collect();
    assert_eq!(numbers, [Some(2), Some(3)]);
}

/// Proves L1, L2, L7: a claimed row stays in the queue, with its holder, token and end of lease, in one query.
#[tokio::test]
async fn a_lease_is_visible() {
    let (_database, client) = fresh().await;
    let id = enqueue(&client, "t", "").await;
    let held = claim(&client, "worker-7", 1).await;
    let row = client
        .query_one(
            "select claimed_by, lease_token, attempt_no, expired, \
             lease_expires_at - claimed_at = interval '60 seconds' from outbox.in_flight where message_id = $1",
            &[&id],
        )
        .await
        .unwrap();
    assert_eq!(row.get::<_, String>(0), "worker-7");
    // A token is a right: whoever may look sees enough of it to tell leases apart.
    assert_eq!(row.get::<_, String>(1), held[0].token.to_string()[..8]);
    assert_eq!((row.get::<_, i32>(2), row.get::<_, bool>(3), row.get::<_, bool>(4)), (1, false, true));
    mark_delivered(&client, &held).await;
    assert_eq!(number(&client, "select count(*) from outbox.in_flight").await, 0);
}

/// Proves L2, L4, L5, M5: an expired lease is claimable again; the claim records `ZOMBIE_REQUEUE` for the lost attempt
/// and takes the next number.
#[tokio::test]
async fn an_expired_lease_is_taken_over() {
    let (_database, client) = fresh().await;
    let id = enqueue(&client, "t", "").await;
    let lost = claim_expired(&client, "dead", 1).await;
    let taken = claim(&client, "alive", 1).await;
    assert_eq!((taken[0].id, taken[0].attempt_no, taken[0].attempt_count), (id, 2, 2));
    assert_ne!(taken[0].token, lost[0].token);
    assert_eq!(attempts(&client, id).await, ["1 ZOMBIE_REQUEUE"]);
    let error = complete(&client, "dead", &lost[0], "DISPATCHED").await.unwrap_err();
    assert_eq!(error.code().unwrap().code(), "P7002");
    assert_eq!(complete(&client, "alive", &taken[0], "DISPATCHED").await.unwrap(), 2);
    assert_eq!(attempts(&client, id).await, ["1 ZOMBIE_REQUEUE", "2 DISPATCHED"]);
}

/// Proves M5, M8: the counter goes up at claim time, so a payload that kills every worker runs out of attempts, is
/// never claimed again, and is a dead letter that monitoring sees.
#[tokio::test]
async fn a_killer_runs_out_of_attempts() {
    let (_database, client) = fresh().await;
    let id = enqueue(&client, "killer", "").await;
    for n in 1..=3 {
        let held = claim_with(&client, "w", 10, ", lease_seconds => 0.001, max_attempts => 3").await;
        assert_eq!(held.iter().map(|held| held.attempt_no).collect::<Vec<_>>(), [n]);
        client.query("select pg_sleep(0.01)", &[]).await.unwrap();
    }
    assert_eq!(claim_with(&client, "w", 10, ", max_attempts => 3").await, []);
    assert_eq!(attempts(&client, id).await, ["1 ZOMBIE_REQUEUE", "2 ZOMBIE_REQUEUE", "3 ZOMBIE_REQUEUE"]);
    let row = client
        .query_one(
            "select reason, last_error_code, attempt_count from outbox.dead_letters where message_id = $1",
            &[&id],
        )
        .await
        .unwrap();
    assert_eq!(row.get::<_, String>(0), "ATTEMPTS_EXHAUSTED");
    assert_eq!(row.get::<_, String>(1), "LEASE_EXPIRED");
    assert_eq!(row.get::<_, i32>(2), 3);
    assert_eq!(number(&client, "select pending + leased from outbox.status").await, 0);
}

/// A lower limit than before applies to what waits: it becomes dead at the next claim instead of being handed out.
#[tokio::test]
async fn a_lowered_limit_buries_what_waits() {
    let (_database, client) = fresh().await;
    let id = enqueue(&client, "t", "").await;
    let other = enqueue(&client, "t", "").await;
    for held in claim(&client, "w", 1).await {
        complete(&client, "w", &held, "RETRYABLE").await.unwrap();
    }
    let held = claim_with(&client, "w", 10, ", max_attempts => 1").await;
    assert_eq!(held.iter().map(|held| held.id).collect::<Vec<_>>(), [other]);
    assert_eq!(
        number(&client, &format!("select count(*) from outbox.dead_letters where message_id = '{id}'")).await,
        1
    );
}

/// What is not due is not handed out; when its time comes by the database's clock, it is.
#[tokio::test]
async fn not_before_it_is_due() {
    let (_database, client) = fresh().await;
    enqueue(&client, "later", ", delay_seconds => 3600, priority => 100").await;
    enqueue(&client, "scheduled", ", due_at => now() + interval '1 day'").await;
    let soon = enqueue(&client, "soon", ", delay_seconds => 1").await;
    assert_eq!(claim(&client, "w", 10).await, []);
    client.query("select pg_sleep(1.01)", &[]).await.unwrap();
    let held = claim(&client, "w", 10).await;
    assert_eq!(held.iter().map(|held| held.id).collect::<Vec<_>>(), [soon]);
}

/// A paused sink hands out nothing, and lets what is in flight be completed; resumed, it goes on.
#[tokio::test]
async fn a_paused_sink_hands_out_nothing() {
    let (_database, client) = fresh().await;
    enqueue_plain(&client, 2).await;
    let held = claim(&client, "w", 1).await;
    client.batch_execute("select outbox.configure_sink('default', paused => true)").await.unwrap();
    assert_eq!(claim(&client, "w", 1).await, []);
    assert_eq!(mark_delivered(&client, &held).await, 1);
    client.batch_execute("select outbox.configure_sink('default', paused => false)").await.unwrap();
    assert_eq!(claim(&client, "w", 1).await.len(), 1);
}

/// Proves H1, H7: many claimers at once share everything and overlap nowhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_claims_do_not_overlap() {
    let (database, client) = fresh().await;
    enqueue_plain(&client, 2000).await;
    crate::support::enqueue_lanes(&client, 100, 10).await;
    let mut workers = tokio::task::JoinSet::new();
    for n in 0..8 {
        let client = database.connect().await;
        workers.spawn(async move {
            let mut mine = Vec::new();
            loop {
                let held = claim(&client, &format!("w{n}"), 40).await;
                if held.is_empty() {
                    return mine;
                }
                mine.extend(held.into_iter().map(|held| held.id));
            }
        });
    }
    let all: Vec<Uuid> = workers.join_all().await.into_iter().flatten().collect();
    assert_eq!(all.iter().collect::<HashSet<_>>().len(), all.len(), "one message, one holder");
    // A lane whose first run is out is busy, so lanes may have messages left; what has no lane may not.
    assert_eq!(
        number(&client, "select count(*) from outbox.deliveries where state = 'pending' and lane is null").await,
        0
    );
}

/// The claim hands out what the producer said, unchanged.
#[tokio::test]
async fn the_message_arrives_as_it_was_said() {
    let (_database, client) = fresh().await;
    let sql = "select * from outbox.enqueue(topic => 'order.placed', payload => '{\"id\": 12345678901234567890}', \
               namespace => 'shop', tenant_id => '00000000-0000-0000-0000-000000000001', lane => 'l', \
               dedupe_key => '00000000-0000-0000-0000-000000000001/1', priority => 3, headers => '{\"a\": \"b\"}', \
               occurred_at => '2020-01-02T03:04:05Z', content_type => 'application/json')";
    client.query_one(sql, &[]).await.unwrap();
    let row = client
        .query_one(
            "select payload::text, namespace, tenant_id::text, lane, sequence_id, dedupe_key, priority, headers::text, \
             occurred_at = '2020-01-02T03:04:05Z', content_type, body is null, topic, sink \
             from outbox.claim('w', 1, 60)",
            &[],
        )
        .await
        .unwrap();
    assert_eq!(row.get::<_, String>(0), r#"{"id": 12345678901234567890}"#);
    assert_eq!(row.get::<_, String>(1), "shop");
    assert_eq!(row.get::<_, String>(2), "00000000-0000-0000-0000-000000000001");
    assert_eq!((row.get::<_, String>(3), row.get::<_, i64>(4)), ("l".to_owned(), 1));
    assert_eq!(row.get::<_, String>(5), "00000000-0000-0000-0000-000000000001/1");
    assert_eq!((row.get::<_, i32>(6), row.get::<_, String>(7)), (3, r#"{"a": "b"}"#.to_owned()));
    assert!(row.get::<_, bool>(8) && row.get::<_, bool>(10));
    assert_eq!(row.get::<_, String>(9), "application/json");
    assert_eq!((row.get::<_, String>(11), row.get::<_, String>(12)), ("order.placed".to_owned(), "default".to_owned()));
}
