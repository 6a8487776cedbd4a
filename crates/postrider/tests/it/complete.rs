//! SQL functions that end a lease or act on a dead letter, and that the library does not call: they are for other
//! languages and for people. What each transition does is in the store's contract.

use uuid::Uuid;

use crate::support::{attempts, claim, complete, enqueue, enqueue_plain, fresh, mark_delivered, number};

/// Proves H2, H7: one call finalizes a batch; a wrong token changes nothing and returns 0; a second call finds nothing.
#[tokio::test]
async fn mark_delivered_counts_what_it_changed() {
    let (_database, client) = fresh().await;
    enqueue_plain(&client, 100).await;
    let held = claim(&client, "w", 100).await;
    let mut wrong = held.clone();
    wrong[0].token = Uuid::new_v4();
    assert_eq!(mark_delivered(&client, &wrong).await, 0);
    assert_eq!(number(&client, "select leased from outbox.status").await, 100);
    assert_eq!(mark_delivered(&client, &held[..60]).await, 60);
    assert_eq!(mark_delivered(&client, &held).await, 40, "only what this call changed, not what was delivered before");
    assert_eq!(mark_delivered(&client, &held).await, 0);
    assert_eq!(number(&client, "select count(*) from outbox.attempts where state = 'DISPATCHED'").await, 100);
}

/// Proves L3, L4, P5: completion appends one attempt with everything the destination said and ends the lease.
#[tokio::test]
async fn complete_records_every_parameter() {
    let (_database, client) = fresh().await;
    let id = enqueue(&client, "t", "").await;
    let held = claim(&client, "w", 1).await.remove(0);
    client
        .query(
            "select outbox.complete(message_id => $1, lease_token => $2, worker_id => 'w', state => 'RETRYABLE', \
             retry_after_seconds => 0, error_code => 'BUSY', error_message => 'try later', reference => 'ref-1', \
             code => '503', latency_ms => 17)",
            &[&id, &held.token],
        )
        .await
        .unwrap();
    let row = client
        .query_one(
            "select state, sink, worker_id, latency_ms, reference, code, error_code, error_message, \
             claimed_at < completed_at, attempt_no from outbox.attempts where message_id = $1",
            &[&id],
        )
        .await
        .unwrap();
    let text = |n: usize| row.get::<_, String>(n);
    assert_eq!(
        (text(0), text(1), text(2), row.get::<_, i32>(3)),
        ("RETRYABLE".into(), "default".into(), "w".into(), 17)
    );
    assert_eq!((text(4), text(5), text(6), text(7)), ("ref-1".into(), "503".into(), "BUSY".into(), "try later".into()));
    assert!(row.get::<_, bool>(8), "claim time before completion time");
    let again = claim(&client, "w", 1).await.remove(0);
    assert_eq!((again.id, again.attempt_no), (id, 2), "retries keep the id and take the next number");
}

/// Proves E6: `redrive` takes ids, or all, of one sink or of every sink; `discard` takes ids. Each dead letter goes once.
#[tokio::test]
async fn redrive_and_discard_take_ids() {
    let (_database, client) = fresh().await;
    let ids = [enqueue(&client, "t", "").await, enqueue(&client, "t", "").await, enqueue(&client, "t", "").await];
    for held in claim(&client, "w", 3).await {
        complete(&client, "w", &held, "FAILED").await.unwrap();
    }
    for (function, id) in [("redrive", ids[0]), ("discard", ids[1])] {
        for expected in [1, 0] {
            let sql = format!("select outbox.{function}(array['{id}'::uuid])");
            assert_eq!(number(&client, &sql).await, expected, "{sql}");
        }
    }
    assert_eq!(number(&client, "select outbox.redrive(all_dead => true, sink => 'elsewhere')").await, 0);
    assert_eq!(number(&client, "select outbox.redrive(all_dead => true, sink => 'default')").await, 1);
    let held: Vec<_> = claim(&client, "w", 10).await.iter().map(|one| (one.id, one.attempt_no)).collect();
    assert_eq!(held, [(ids[0], 2), (ids[2], 2)]);
    assert_eq!(attempts(&client, ids[1]).await, ["1 FAILED"], "its history stays");
}

/// Outcomes of every kind, mixed, of two leases in one call: each goes to its own message.
#[tokio::test]
async fn every_outcome_goes_to_its_own_message() {
    let (_database, client) = fresh().await;
    enqueue_plain(&client, 300).await;
    for _ in 0..2 {
        assert_eq!(claim(&client, "w", 150).await.len(), 150);
    }
    let sql = "with h as (select message_id, lease_token, (array['DISPATCHED', 'RETRYABLE', 'FAILED'])[1 + abs(hashtext(message_id::text)) % 3] \
                   as state from outbox.delivery) \
               select count(*) from (select array_agg(message_id order by md5(message_id::text)) as ids, \
                   array_agg(lease_token order by md5(message_id::text)) as tokens, \
                   array_agg(state order by md5(message_id::text)) as states, \
                   array_agg(message_id::text order by md5(message_id::text)) as words from h) a, \
                   outbox.complete_many(a.ids, a.tokens, a.states, error_code => a.words, reference => a.words)";
    assert_eq!(number(&client, sql).await, 300);
    let wrong = "select count(*) from outbox.attempts where reference <> message_id::text or (state <> 'DISPATCHED' and \
                 error_code <> message_id::text) or state <> (array['DISPATCHED', 'RETRYABLE', 'FAILED'])[1 \
                 + abs(hashtext(message_id::text)) % 3]";
    assert_eq!(number(&client, wrong).await, 0);
    for state in ["DISPATCHED", "RETRYABLE", "FAILED"] {
        let some = format!("select count(*) from outbox.attempts where state = '{state}'");
        assert!(number(&client, &some).await > 0, "{state}");
    }
}
