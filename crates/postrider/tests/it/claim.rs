//! What SQL alone shows of a claim: the view of leases, and the columns that `outbox.claim` returns. What a claim hands
//! out, and in which order, is in the store's contract.

use crate::support::{claim, enqueue, fresh, mark_delivered, number};

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

/// Every parameter of `outbox.enqueue` comes back from `outbox.claim`, unchanged.
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
