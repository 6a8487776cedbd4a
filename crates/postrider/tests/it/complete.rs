//! How a lease ends: delivered, to be retried, dead, handed back, renewed, repaired, redriven, replayed. Each transition
//! through its SQL function, and the same through the library's `Store`.

use std::time::Duration;

use postrider::{
    Action, Claim, Completion, Error, Failure, Inspect as _, Operate as _, Outcome, PostgresStore, Queue as _, Replay,
    Route, Schema,
};
use uuid::Uuid;

use crate::support::{
    attempts, claim, claim_expired, claim_with, complete, enqueue, enqueue_plain, fresh, mark_delivered, number,
    sqlstate,
};

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
async fn an_attempt_records_everything() {
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

/// Proves L3, L6, M6: wrong holder, wrong token, ended lease and unknown message get P7002 `LEASE_LOST`, nothing changes.
#[tokio::test]
async fn only_the_holder_completes() {
    let (_database, client) = fresh().await;
    enqueue(&client, "t", "").await;
    let held = claim(&client, "w", 1).await.remove(0);
    let mut wrong_token = held.clone();
    wrong_token.token = Uuid::new_v4();
    let mut wrong_message = held.clone();
    wrong_message.id = Uuid::new_v4();
    for (worker, held) in [("other", &held), ("w", &wrong_token), ("w", &wrong_message)] {
        for state in ["DISPATCHED", "RETRYABLE", "FAILED"] {
            let error = complete(&client, worker, held, state).await.unwrap_err();
            assert_eq!((sqlstate(&error), error.as_db_error().unwrap().message()), ("P7002", "LEASE_LOST"));
        }
    }
    assert_eq!(number(&client, "select count(*) from outbox.attempts").await, 0);
    assert_eq!(complete(&client, "w", &held, "DISPATCHED").await.unwrap(), 1);
    let error = complete(&client, "w", &held, "DISPATCHED").await.unwrap_err();
    assert_eq!(sqlstate(&error), "P7002", "nobody completes twice");
}

/// Proves L6: a worker that lost its lease is refused by every write there is, however late it wakes.
#[tokio::test]
async fn a_stale_worker_is_refused_by_every_write() {
    let (_database, client) = fresh().await;
    let id = enqueue(&client, "t", "").await;
    let stale = claim_expired(&client, "stale", 1).await.remove(0);
    // First with nobody else there: the lease has ended by the clock alone. Then after another took it over.
    for round in 0..2 {
        for state in ["DISPATCHED", "RETRYABLE", "FAILED"] {
            assert_eq!(sqlstate(&complete(&client, "stale", &stale, state).await.unwrap_err()), "P7002");
        }
        assert_eq!(mark_delivered(&client, std::slice::from_ref(&stale)).await, 0);
        for call in [
            "select count(*) from outbox.renew($1, array[$2::uuid], 60)",
            "select count(*) from outbox.release($1, array[$2::uuid])",
            "select count(*) from outbox.complete_many(array[$2::uuid], array[$1::uuid], array['FAILED'])",
            "select count(*) from outbox.complete_many(array[$2::uuid], array[$1::uuid], array['DISPATCHED'])",
        ] {
            let changed: i64 = client.query_one(call, &[&stale.token, &id]).await.unwrap().get(0);
            assert_eq!(changed, 0, "{call} in round {round}");
        }
        if round == 0 {
            assert_eq!(claim(&client, "fresh", 1).await[0].attempt_no, 2);
        }
    }
    let sql = "select count(*) from outbox.in_flight where claimed_by = 'fresh' and attempt_no = 2";
    assert_eq!(number(&client, sql).await, 1, "the new holder's lease is untouched");
    assert_eq!(attempts(&client, id).await, ["1 ZOMBIE_REQUEUE"]);
}

/// Proves M8, E8: FAILED is dead at once, RETRYABLE on the last attempt too; both say why and when.
#[tokio::test]
async fn failures_become_dead_letters() {
    let (_database, client) = fresh().await;
    let refused = enqueue(&client, "refused", "").await;
    let tired = enqueue(&client, "tired", "").await;
    let held = claim_with(&client, "w", 2, ", max_attempts => 1").await;
    for (held, state) in held.iter().zip(["FAILED", "RETRYABLE"]) {
        client
            .query(
                "select outbox.complete($1, $2, 'w', $3, error_code => 'E1', error_message => 'no')",
                &[&held.id, &held.token, &state],
            )
            .await
            .unwrap();
    }
    for (id, reason, state) in [(refused, "FAILED", "1 FAILED"), (tired, "ATTEMPTS_EXHAUSTED", "1 RETRYABLE")] {
        let row = client
            .query_one(
                "select reason, last_error_code, last_error_message, failed_at is not null, payload_size_bytes > 0 \
                 from outbox.dead_letters where message_id = $1",
                &[&id],
            )
            .await
            .unwrap();
        assert_eq!(row.get::<_, String>(0), reason);
        assert_eq!((row.get::<_, String>(1), row.get::<_, String>(2)), ("E1".into(), "no".into()));
        assert!(row.get::<_, bool>(3) && row.get::<_, bool>(4));
        assert_eq!(attempts(&client, id).await, [state]);
    }
    assert_eq!(claim(&client, "w", 10).await, [], "dead is final for the relay");
    assert_eq!(number(&client, "select dead from outbox.status").await, 2);
}

/// Proves E6: redrive puts the dead back to pending with a budget of 0; numbering and history go on; once each.
#[tokio::test]
async fn redrive_starts_a_new_budget() {
    let (_database, client) = fresh().await;
    let id = enqueue(&client, "t", "").await;
    let other = enqueue(&client, "t", "").await;
    for held in claim(&client, "w", 2).await {
        complete(&client, "w", &held, "FAILED").await.unwrap();
    }
    let redriven: i32 = client.query_one("select outbox.redrive(array[$1::uuid])", &[&id]).await.unwrap().get(0);
    assert_eq!(redriven, 1);
    let redriven: i32 = client.query_one("select outbox.redrive(array[$1::uuid])", &[&id]).await.unwrap().get(0);
    assert_eq!(redriven, 0, "it is pending now");
    let held = claim(&client, "w", 10).await;
    assert_eq!(held.iter().map(|h| (h.id, h.attempt_no, h.attempt_count)).collect::<Vec<_>>(), [(id, 2, 1)]);
    mark_delivered(&client, &held).await;
    assert_eq!(attempts(&client, id).await, ["1 FAILED", "2 DISPATCHED"]);
    assert_eq!(number(&client, "select outbox.redrive(all_dead => true, sink => 'elsewhere')").await, 0);
    assert_eq!(number(&client, "select outbox.redrive(all_dead => true)").await, 1);
    assert_eq!(claim(&client, "w", 10).await[0].id, other);
}

/// Discard gives up a dead letter for good and keeps its history.
#[tokio::test]
async fn discard_gives_up() {
    let (_database, client) = fresh().await;
    let id = enqueue(&client, "t", "").await;
    for held in claim(&client, "w", 1).await {
        complete(&client, "w", &held, "FAILED").await.unwrap();
    }
    for expected in [1, 0] {
        let count: i32 = client.query_one("select outbox.discard(array[$1::uuid])", &[&id]).await.unwrap().get(0);
        assert_eq!(count, expected);
    }
    assert_eq!(number(&client, "select outbox.redrive(all_dead => true)").await, 0);
    assert_eq!(attempts(&client, id).await, ["1 FAILED"]);
}

/// Proves L5, M5: repair clears ended leases, records `ZOMBIE_REQUEUE`, buries what is out of attempts, leaves live ones.
#[tokio::test]
async fn repair_ends_expired_leases() {
    let (_database, client) = fresh().await;
    let spent = enqueue(&client, "spent", ", priority => 1").await;
    claim_with(&client, "w", 1, ", lease_seconds => 0.5, max_attempts => 1").await;
    let tired = enqueue(&client, "tired", "").await;
    claim_with(&client, "w", 1, ", lease_seconds => 0.5").await;
    enqueue(&client, "live", "").await;
    claim(&client, "w", 1).await;
    client.query("select pg_sleep(0.6)", &[]).await.unwrap();
    assert_eq!(number(&client, "select expired from outbox.status").await, 2);
    assert_eq!(number(&client, "select outbox.repair_expired_leases()").await, 2);
    assert_eq!(number(&client, "select outbox.repair_expired_leases()").await, 0);
    assert_eq!(attempts(&client, spent).await, ["1 ZOMBIE_REQUEUE"]);
    assert_eq!(attempts(&client, tired).await, ["1 ZOMBIE_REQUEUE"]);
    let row = client.query_one("select pending, leased, dead from outbox.status", &[]).await.unwrap();
    assert_eq!((row.get::<_, i64>(0), row.get::<_, i64>(1), row.get::<_, i64>(2)), (1, 1, 1));
    assert_eq!(claim(&client, "w2", 5).await[0].attempt_no, 2);
}

/// Unclaim-stuck frees what ended and what was claimed too long ago, and fences the old holder.
#[tokio::test]
async fn unclaim_stuck_frees_and_fences() {
    let (_database, client) = fresh().await;
    enqueue_plain(&client, 2).await;
    let held = claim(&client, "w", 1).await;
    assert_eq!(number(&client, "select outbox.unclaim_stuck(300)").await, 0, "a young live lease is left alone");
    claim_expired(&client, "w", 1).await;
    assert_eq!(number(&client, "select outbox.unclaim_stuck(300)").await, 1, "an ended lease is freed");
    assert_eq!(number(&client, "select outbox.unclaim_stuck(0)").await, 1, "an old lease is freed though it lives");
    assert_eq!(sqlstate(&complete(&client, "w", &held[0], "DISPATCHED").await.unwrap_err()), "P7002");
    assert_eq!(attempts(&client, held[0].id).await, ["1 ZOMBIE_REQUEUE"]);
    assert_eq!(claim(&client, "w", 10).await.len(), 2);
}

/// Release gives the attempt number back and records nothing; renew extends; both return what really changed.
#[tokio::test]
async fn release_and_renew_through_the_store() {
    let (database, client) = fresh().await;
    enqueue_plain(&client, 3).await;
    let store = PostgresStore::connect(&database.url(), Schema::default()).await.unwrap();
    let held = store.claim(&Claim { lease: Duration::from_secs(5), ..Claim::new("w") }).await.unwrap();
    let ids: Vec<Uuid> = held.iter().map(|held| held.message_id).collect();
    let token = held[0].lease_token;
    let stranger = Uuid::new_v4();
    let mut renewed = store.renew(token, &[ids[0], ids[1], stranger], Duration::from_mins(10)).await.unwrap();
    renewed.sort_unstable();
    assert_eq!(renewed, ids[..2]);
    let sql = "select count(*) from outbox.in_flight where lease_expires_at > now() + interval '9 minutes'";
    assert_eq!(number(&client, sql).await, 2);
    assert_eq!(store.release(token, &ids[2..]).await.unwrap(), ids[2..]);
    assert_eq!(store.release(token, &ids[2..]).await.unwrap(), Vec::<Uuid>::new());
    assert_eq!(attempts(&client, ids[2]).await, [] as [&str; 0]);
    let again = store.claim(&Claim::new("w")).await.unwrap();
    assert_eq!((again[0].message_id, again[0].attempt_no, again[0].attempt_count), (ids[2], 1, 1));
}

/// Proves M6: ack and nack only by the holder; a lost lease is an error of its own kind, not a nack.
#[tokio::test]
async fn ack_and_nack() {
    let (database, client) = fresh().await;
    enqueue_plain(&client, 2).await;
    let store = PostgresStore::connect(&database.url(), Schema::default()).await.unwrap();
    let held = store.claim(&Claim::new("w")).await.unwrap();
    store.ack("w", &held[0]).await.unwrap();
    assert!(
        matches!(store.ack("w", &held[0]).await, Err(Error::LeaseLost { message_id }) if message_id == held[0].message_id)
    );
    assert!(matches!(store.ack("other", &held[1]).await, Err(Error::LeaseLost { .. })));
    let failure = Failure::new("BUSY", "nul\0inside");
    store.nack("w", &held[1], Duration::ZERO, failure.clone()).await.unwrap();
    assert!(matches!(store.nack("w", &held[1], Duration::ZERO, failure).await, Err(Error::LeaseLost { .. })));
    let rows = client.query("select error_message from outbox.attempts where state = 'RETRYABLE'", &[]).await.unwrap();
    assert_eq!(rows[0].get::<_, String>(0), "nul\u{fffd}inside", "an outcome is not lost over a NUL");
}

/// Outcomes of several leases, of every kind, in one call: each does what it says, and lost ones are left out.
#[tokio::test]
async fn mixed_outcomes_in_one_call() {
    let (database, client) = fresh().await;
    enqueue_plain(&client, 6).await;
    let store = PostgresStore::connect(&database.url(), Schema::default()).await.unwrap();
    let mut held = store.claim(&Claim { batch_size: 3, ..Claim::new("w") }).await.unwrap();
    held.extend(store.claim(&Claim { batch_size: 3, ..Claim::new("w") }).await.unwrap());
    store.ack("w", &held[5]).await.unwrap();
    let retry = Outcome::Retryable { retry_after: Duration::from_hours(1), failure: Failure::new("BUSY", "later") };
    let outcomes = [
        Outcome::Dispatched,
        retry.clone(),
        Outcome::Failed(Failure::default()),
        Outcome::Dispatched,
        retry,
        Outcome::Dispatched,
    ];
    let completions: Vec<Completion> =
        held.iter().zip(outcomes).map(|(held, outcome)| Completion::new(held, outcome)).collect();
    let completed = store.complete("w", &completions).await.unwrap();
    assert_eq!(completed.len(), 5, "the sixth was delivered before");
    assert_eq!(completed.iter().filter(|completed| completed.dead).count(), 1);
    let status = store.status().await.unwrap().remove(0);
    assert_eq!((status.pending, status.due, status.leased, status.dead), (2, 0, 0, 1));
    assert_eq!(status.recent, [3, 2, 1, 0]);
}

/// Replay delivers again what was delivered: attempt numbers go on, what is pending or dead is left alone.
#[tokio::test]
async fn replay_delivers_again() {
    let (database, client) = fresh().await;
    let store = PostgresStore::connect(&database.url(), Schema::default()).await.unwrap();
    let from = std::time::SystemTime::now() - Duration::from_mins(1);
    enqueue_plain(&client, 2).await;
    let held = claim(&client, "w", 2).await;
    mark_delivered(&client, &held).await;
    enqueue(&client, "pending", "").await;
    let replay = async |replay: &Replay| store.operate("ann", &Action::Replay(replay.clone())).await.unwrap().affected;
    let to = std::time::SystemTime::now() + Duration::from_mins(1);
    let all = Replay { sink: "default".to_owned(), from: Some(from), to: Some(to), at_most: 10, ..Replay::default() };
    let one = Replay { message_ids: Some(vec![held[0].id]), from: None, to: None, ..all.clone() };
    assert_eq!(replay(&one).await, 1);
    assert_eq!(replay(&one).await, 0, "it is pending already");
    assert_eq!(replay(&all).await, 1, "the other delivered one");
    store.operate("ann", &Action::AddRoute { route: Route::new("x", "copy") }).await.unwrap();
    let topic = Some("t".to_owned());
    let copy = Replay { sink: "copy".to_owned(), topic, include_never_delivered: true, ..all };
    assert_eq!(replay(&copy).await, 2, "to a sink that never saw them");
    let again = claim(&client, "w", 10).await;
    assert_eq!(again.iter().filter(|again| again.attempt_no == 2).count(), 2);
    assert_eq!(claim_with(&client, "w", 10, ", sink => 'copy'").await.len(), 2);
}

/// Proves P16: one view over queue and attempts, for a supervisor.
#[tokio::test]
async fn status_adds_up() {
    let (_database, client) = fresh().await;
    client.batch_execute("select outbox.add_route('a', 'x.*'); select outbox.add_route('b', 'x.*')").await.unwrap();
    for _ in 0..3 {
        enqueue(&client, "x.y", "").await;
    }
    enqueue(&client, "other", ", due_at => now() - interval '1 hour'").await;
    let held = claim_with(&client, "w", 2, ", sink => 'a'").await;
    complete(&client, "w", &held[0], "FAILED").await.unwrap();
    let rows = client
        .query("select sink, pending, due, leased, dead, recent_failed, oldest_due_age_seconds > 3000 from outbox.status order by sink", &[])
        .await
        .unwrap();
    let lines: Vec<(String, i64, i64, i64, i64, i64, bool)> = rows
        .iter()
        .map(|row| (row.get(0), row.get(1), row.get(2), row.get(3), row.get(4), row.get(5), row.get(6)))
        .collect();
    assert_eq!(
        lines,
        [
            ("a".to_owned(), 1, 1, 1, 1, 1, false),
            ("b".to_owned(), 3, 3, 0, 0, 0, false),
            ("default".to_owned(), 1, 1, 0, 0, 0, true),
        ]
    );
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
