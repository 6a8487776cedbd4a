//! What SQL alone shows of a claim: the view of leases. What a claim hands out, and in which order, is in the store's
//! contract.

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
