//! Races, played out by hand: two real connections, each step in its place, both endings (commit and rollback). Where
//! one side must wait, the test waits until the server says that it does; where it must not, a lock timeout of a
//! millisecond would tell.

use std::time::Duration;

use uuid::Uuid;

use crate::support::{
    attempts, claim, claim_expired, claim_with, complete, enqueue, enqueue_lanes, enqueue_plain, fresh, in_background,
    mark_delivered, number, numbers, run, sqlstate, until_blocked, waits, with_impatient,
};

/// Proves H1, E2: a second claimer neither overlaps nor waits while the first has not committed.
#[tokio::test]
async fn two_claimers_neither_overlap_nor_wait() {
    let (_database, client, second) = with_impatient().await;
    enqueue_plain(&client, 10).await;
    enqueue_lanes(&client, 10, 3).await;
    run(&client, "begin").await;
    let first = claim(&client, "w1", 20).await;
    let other = claim(&second, "w2", 20).await;
    run(&client, "commit").await;
    assert_eq!(
        (first.len(), other.len()),
        (20, 18),
        "ten without a lane and four lanes (the last one cut), then the six lanes that are free"
    );
    assert!(
        first
            .iter()
            .all(|one| other.iter().all(|two| one.id != two.id && (one.lane.is_none() || one.lane != two.lane)))
    );
}

/// A claim that is rolled back has not happened: same number, same budget, no attempt.
#[tokio::test]
async fn a_rolled_back_claim_did_not_happen() {
    let (_database, client) = fresh().await;
    let id = enqueue(&client, "t", ", lane => 'a'").await;
    run(&client, "begin").await;
    assert_eq!(claim(&client, "w", 1).await.len(), 1);
    run(&client, "rollback").await;
    let held = claim(&client, "w", 1).await;
    assert_eq!((held[0].id, held[0].attempt_no), (id, 1));
}

/// Complete before claim, not committed: the claim passes by without waiting, whichever way it ends.
#[tokio::test]
async fn claim_during_complete() {
    for (ending, leased, dispatched) in [("commit", 0, 1), ("rollback", 1, 0)] {
        let (_database, client, second) = with_impatient().await;
        enqueue(&client, "t", "").await;
        let held = claim(&client, "w1", 1).await.remove(0);
        run(&client, "begin").await;
        complete(&client, "w1", &held, "DISPATCHED").await.unwrap();
        assert_eq!(claim(&second, "w2", 10).await, []);
        run(&client, ending).await;
        assert_eq!(number(&client, "select leased from outbox.status").await, leased);
        assert_eq!(number(&client, "select count(*) from outbox.attempts").await, dispatched);
    }
}

/// Proves L6: the old holder's completion against a takeover by claim that has not committed yet.
#[tokio::test]
async fn complete_during_takeover() {
    for ending in ["commit", "rollback"] {
        let (_database, client, second) = with_impatient().await;
        let id = enqueue(&client, "t", "").await;
        let stale = claim_expired(&client, "stale", 1).await.remove(0);
        run(&second, "begin").await;
        let taken = claim(&second, "w2", 1).await;
        assert_eq!(taken[0].attempt_no, 2);
        assert_eq!(sqlstate(&complete(&client, "stale", &stale, "DISPATCHED").await.unwrap_err()), "P7002");
        run(&second, ending).await;
        assert_eq!(sqlstate(&complete(&client, "stale", &stale, "DISPATCHED").await.unwrap_err()), "P7002");
        let expected: &[&str] = if ending == "commit" { &["1 ZOMBIE_REQUEUE"] } else { &[] };
        assert_eq!(attempts(&client, id).await, expected);
    }
}

/// Complete, not committed, when the lease runs out: repair passes by, the completion stands.
#[tokio::test]
async fn repair_during_complete() {
    let (_database, client, second) = with_impatient().await;
    let id = enqueue(&client, "t", "").await;
    let held = claim_with(&client, "w", 1, ", lease_seconds => 0.3").await.remove(0);
    run(&client, "begin").await;
    complete(&client, "w", &held, "DISPATCHED").await.unwrap();
    second.query("select pg_sleep(0.35)", &[]).await.unwrap();
    assert_eq!(number(&second, "select outbox.repair_expired_leases()").await, 0);
    assert_eq!(claim(&second, "w2", 1).await, [], "nor does a claim take it over");
    run(&client, "commit").await;
    assert_eq!(attempts(&client, id).await, ["1 DISPATCHED"]);
    assert_eq!(number(&client, "select outbox.repair_expired_leases()").await, 0);
}

/// Repair, not committed, then the stale worker's completion: it is refused at once, whatever becomes of the repair.
#[tokio::test]
async fn complete_during_repair() {
    for ending in ["commit", "rollback"] {
        let (_database, client, second) = with_impatient().await;
        enqueue(&client, "t", "").await;
        let held = claim_expired(&client, "w", 1).await.remove(0);
        run(&client, "begin").await;
        assert_eq!(number(&client, "select outbox.repair_expired_leases()").await, 1);
        assert_eq!(sqlstate(&complete(&second, "w", &held, "DISPATCHED").await.unwrap_err()), "P7002");
        assert_eq!(number(&second, "select outbox.repair_expired_leases()").await, 0);
        run(&client, ending).await;
        assert_eq!(claim(&client, "w", 1).await[0].attempt_no, 2);
    }
}

/// An operator frees a live lease while its worker completes: whoever commits first wins, the other changes nothing.
#[tokio::test]
async fn unclaim_against_complete() {
    for (ending, completes, recorded) in
        [("commit", Err("P7002".to_owned()), "1 ZOMBIE_REQUEUE"), ("rollback", Ok(1), "1 DISPATCHED")]
    {
        let (database, client) = fresh().await;
        let id = enqueue(&client, "t", "").await;
        let held = claim(&client, "w", 1).await.remove(0);
        run(&client, "begin").await;
        assert_eq!(number(&client, "select outbox.unclaim_stuck(0, live => true)").await, 1);
        let complete = format!("select outbox.complete('{}', '{}', 'w', 'DISPATCHED')", held.id, held.token);
        assert_eq!(waits(&database, &client, &complete, ending).await, completes, "after {ending}");
        assert_eq!(attempts(&client, id).await, [recorded]);
    }
}

/// Two redrives of one dead letter: the second waits and then finds it done, or does it itself.
#[tokio::test]
async fn redrive_against_redrive() {
    for (ending, second) in [("commit", 0), ("rollback", 1)] {
        let (database, client) = fresh().await;
        let id = enqueue(&client, "t", ", lane => 'a'").await;
        let held = claim(&client, "w", 1).await.remove(0);
        complete(&client, "w", &held, "FAILED").await.unwrap();
        let redrive = format!("select outbox.redrive(array['{id}'::uuid])");
        run(&client, "begin").await;
        assert_eq!(number(&client, &redrive).await, 1);
        assert_eq!(waits(&database, &client, &redrive, ending).await, Ok(second), "after {ending}");
        assert_eq!(claim(&client, "w", 1).await[0].attempt_no, 2);
    }
}

/// Discard against redrive of a parked lane head: one of them wins, and lane and dead letters agree afterwards.
#[tokio::test]
async fn discard_against_redrive() {
    for (ending, redriven, next) in [("commit", 0, 2), ("rollback", 1, 1)] {
        let (database, client) = fresh().await;
        let id = enqueue(&client, "t", ", lane => 'a'").await;
        enqueue(&client, "t", ", lane => 'a'").await;
        let held = claim(&client, "w", 1).await.remove(0);
        complete(&client, "w", &held, "FAILED").await.unwrap();
        run(&client, "begin").await;
        assert_eq!(number(&client, &format!("select outbox.discard(array['{id}'::uuid])")).await, 1);
        let redrive = format!("select outbox.redrive(array['{id}'::uuid])");
        assert_eq!(waits(&database, &client, &redrive, ending).await, Ok(redriven), "after {ending}");
        assert_eq!(claim(&client, "w", 1).await[0].sequence, Some(next));
        assert_eq!(number(&client, "select dead + parked_lanes from outbox.status").await, 0);
    }
}

/// Redrive, not committed: a claim does not see it and does not wait; committed, it does.
#[tokio::test]
async fn claim_during_redrive() {
    let (_database, client, second) = with_impatient().await;
    for lane in ["", ", lane => 'a'"] {
        enqueue(&client, "t", lane).await;
    }
    for held in claim(&client, "w", 2).await {
        complete(&client, "w", &held, "FAILED").await.unwrap();
    }
    run(&client, "begin").await;
    assert_eq!(number(&client, "select outbox.redrive(all_dead => true)").await, 2);
    assert_eq!(claim(&second, "w2", 10).await, []);
    run(&client, "commit").await;
    assert_eq!(claim(&second, "w2", 10).await.len(), 2);
}

/// A failing head that has not committed yet: the number behind it is not handed out past it.
#[tokio::test]
async fn a_lane_waits_for_an_uncommitted_outcome_of_its_head() {
    for (state, ending, next) in [
        ("RETRYABLE", "commit", vec![]),
        ("RETRYABLE", "rollback", vec![]),
        ("FAILED", "commit", vec![]),
        ("DISPATCHED", "commit", vec![2]),
        ("DISPATCHED", "rollback", vec![]),
    ] {
        let (_database, client, second) = with_impatient().await;
        enqueue_lanes(&client, 1, 2).await;
        let held = claim_with(&client, "w", 1, ", lane_run => 1").await.remove(0);
        run(&client, "begin").await;
        let sql = "select outbox.complete($1, $2, 'w', $3, retry_after_seconds => 3600)";
        client.query(sql, &[&held.id, &held.token, &state]).await.unwrap();
        assert_eq!(claim(&second, "w2", 10).await, [], "{state} not committed");
        run(&client, ending).await;
        assert_eq!(numbers(&claim(&second, "w2", 10).await), next, "{state}, {ending}");
    }
}

/// A head that somebody has locked for any reason keeps its whole lane out of a claim.
#[tokio::test]
async fn a_locked_head_keeps_its_lane() {
    let (_database, client, second) = with_impatient().await;
    enqueue_lanes(&client, 2, 3).await;
    run(&client, "begin").await;
    client
        .query("select from outbox.delivery where lane = 'lane-00000' and sequence_id = 1 for update", &[])
        .await
        .unwrap();
    assert!(claim(&second, "w", 10).await.iter().all(|held| held.lane.as_deref() == Some("lane-00001")));
    run(&client, "rollback").await;
    // A locked row in the middle ends the run before it.
    run(&client, "begin").await;
    client
        .query("select from outbox.delivery where lane = 'lane-00000' and sequence_id = 2 for update", &[])
        .await
        .unwrap();
    assert_eq!(numbers(&claim(&second, "w", 10).await), [1]);
}

/// Proves M3, P6: two producers race on one dedupe key: one row, and the loser learns the winner's id.
#[tokio::test]
async fn producers_race_on_a_dedupe_key() {
    for (ending, created) in [("commit", false), ("rollback", true)] {
        let (database, client) = fresh().await;
        let other = database.connect().await;
        let watcher = database.connect().await;
        run(&client, "begin").await;
        let first = enqueue(&client, "t", ", dedupe_key => 'k', lane => 'a'").await;
        let second = tokio::spawn(async move {
            let sql =
                "select message_id, sequence_id, created from outbox.enqueue('t', '1', dedupe_key => 'k', lane => 'a')";
            let row = other.query_one(sql, &[]).await.unwrap();
            (row.get::<_, Uuid>(0), row.get::<_, i64>(1), row.get::<_, bool>(2))
        });
        until_blocked(&watcher, 1).await;
        run(&client, ending).await;
        let (id, sequence, is_new) = second.await.unwrap();
        assert_eq!((is_new, id == first, sequence), (created, !created, 1), "after {ending}");
        assert_eq!(number(&client, "select count(*) from outbox.messages").await, 1);
    }
}

/// Under REPEATABLE READ the loser of that race gets a serialization failure, as its isolation level promises.
#[tokio::test]
async fn producers_race_under_repeatable_read() {
    let (database, client) = fresh().await;
    let other = database.connect().await;
    run(&other, "begin isolation level repeatable read; select 1").await;
    enqueue(&client, "t", ", dedupe_key => 'k'").await;
    let error = other.query("select outbox.enqueue('t', '1', dedupe_key => 'k')", &[]).await.unwrap_err();
    assert_eq!(sqlstate(&error), "40001");
}

/// Proves P1: producers of one lane queue up behind one another: commit order is sequence order, no hole after a
/// rollback, and a claim in between sees only what is committed.
#[tokio::test]
async fn producers_of_one_lane_commit_in_order() {
    for (ending, sequence, visible) in [("commit", 2, 1), ("rollback", 1, 0)] {
        let (database, client, watcher) = with_impatient().await;
        let other = database.connect().await;
        run(&client, "begin").await;
        enqueue(&client, "t", ", lane => 'a'").await;
        run(&other, "begin").await;
        let second = tokio::spawn(async move {
            let row =
                other.query_one("select sequence_id from outbox.enqueue('t', '1', lane => 'a')", &[]).await.unwrap();
            (row.get::<_, i64>(0), other)
        });
        until_blocked(&watcher, 1).await;
        assert_eq!(claim(&watcher, "w", 10).await, [], "neither has committed");
        run(&client, ending).await;
        let (given, other) = second.await.unwrap();
        assert_eq!(given, sequence, "after {ending}");
        let held = claim(&watcher, "w", 10).await;
        assert_eq!(held.len(), visible);
        mark_delivered(&watcher, &held).await;
        run(&other, "commit").await;
        assert_eq!(numbers(&claim(&watcher, "w", 10).await), [sequence]);
    }
}

/// Producers of different lanes do not wait for one another.
#[tokio::test]
async fn producers_of_different_lanes_do_not_wait() {
    let (_database, client, other) = with_impatient().await;
    run(&client, "begin").await;
    enqueue(&client, "t", ", lane => 'a'").await;
    enqueue(&other, "t", ", lane => 'b'").await;
    enqueue(&other, "t", "").await;
    assert_eq!(claim(&other, "w", 10).await.len(), 2);
}

/// Batches that name the same rows in opposite order never deadlock: completions of every kind, renewals, releases.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn opposite_orders_never_deadlock() {
    let (database, client) = fresh().await;
    enqueue_plain(&client, 40).await;
    for round in 0..30 {
        let held = claim_with(&client, "w", 40, ", max_attempts => 1000").await;
        assert_eq!(held.len(), 40, "round {round}");
        let mut calls = tokio::task::JoinSet::new();
        for n in 0..6 {
            let client = database.connect().await;
            let mut ids: Vec<Uuid> = held.iter().map(|held| held.id).collect();
            let token = held[0].token;
            if n % 2 == 1 {
                ids.reverse();
            }
            calls.spawn(async move {
                let sql = match n {
                    0 | 1 => "select from outbox.complete_many($2, array_fill($1::uuid, array[40]), \
                              (select array_agg(case when i % 2 = 0 then 'RETRYABLE' else 'DISPATCHED' end) from generate_series(1, 40) i))",
                    2 => "select from outbox.renew($1, $2, 60)",
                    3 => "select from outbox.release($1, $2)",
                    _ => "select from outbox.complete_many($2, array_fill($1::uuid, array[40]), array_fill('RETRYABLE'::text, array[40]))",
                };
                client.query(sql, &[&token, &ids]).await.map(|_| ()).map_err(|error| sqlstate(&error).to_owned())
            });
        }
        assert!(calls.join_all().await.into_iter().all(|result| result.is_ok()), "round {round}");
        // Whatever was delivered comes back for the next round.
        run(&client, "select outbox.replay(array(select message_id from outbox.messages))").await;
    }
}

/// Four producers whose batches name the same lanes or keys in opposite order. `columns` are arguments of
/// `enqueue_many` over the arrays `a.lane` and `a.key`. Returns how many messages there are then.
async fn opposite_producers(columns: &'static str) -> i64 {
    let (database, client) = fresh().await;
    let mut producers = tokio::task::JoinSet::new();
    for n in 0..4 {
        let client = database.connect().await;
        producers.spawn(async move {
            for round in 0..25 {
                let order = if n % 2 == 0 { "asc" } else { "desc" };
                let sql = format!(
                    "select count(*) from (select array_agg('lane-' || i order by i {order}) as lane, \
                     array_agg('key-{round}-' || i order by i {order}) as key from generate_series(1, 200) i) a, \
                     outbox.enqueue_many(array_fill('t'::text, array[200]), array_fill('1'::jsonb, array[200]), {columns})"
                );
                client.query(&sql, &[]).await.map_err(|error| sqlstate(&error).to_owned())?;
            }
            Ok::<(), String>(())
        });
    }
    for result in producers.join_all().await {
        assert_eq!(result, Ok(()));
    }
    let gaps = "select count(*) from (select lane, max(sequence_id) - count(*) as gap from outbox.messages \
                where lane is not null group by lane) g where gap <> 0";
    assert_eq!(number(&client, gaps).await, 0, "lanes are gapless");
    number(&client, "select count(*) from outbox.messages").await
}

/// Batches that name lanes in opposite order never deadlock.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn opposite_lanes_never_deadlock() {
    assert_eq!(opposite_producers("lane => a.lane").await, 4 * 25 * 200);
}

/// Batches that name dedupe keys in opposite order never deadlock, and write one message a key.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn opposite_keys_never_deadlock() {
    assert_eq!(opposite_producers("dedupe_key => a.key").await, 25 * 200);
}

/// Both at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn opposite_lanes_and_keys_never_deadlock() {
    assert_eq!(opposite_producers("lane => a.lane, dedupe_key => a.key").await, 25 * 200);
}

/// A worker that renews just as its lease is taken over: the renewal changes nothing.
#[tokio::test]
async fn renew_against_takeover() {
    let (database, client) = fresh().await;
    let second = database.connect().await;
    enqueue(&client, "t", "").await;
    let stale = claim_expired(&client, "stale", 1).await.remove(0);
    run(&second, "begin").await;
    assert_eq!(claim(&second, "w2", 1).await.len(), 1);
    let renew = format!("select count(*) from outbox.renew('{}', array['{}'::uuid], 60)", stale.token, stale.id);
    let renewal = tokio::time::timeout(Duration::from_secs(5), in_background(database.connect().await, &renew));
    assert_eq!(renewal.await.expect("an ended lease is refused without waiting").unwrap(), Ok(0));
    run(&second, "commit").await;
    assert_eq!(number(&client, "select count(*) from outbox.in_flight where claimed_by = 'w2'").await, 1);
}

/// A replay that waits for a completion: attempt numbers go on after what was just recorded, and what just died stays
/// dead.
#[tokio::test]
async fn replay_against_complete() {
    for (state, replayed) in [("DISPATCHED", 1), ("FAILED", 0)] {
        let (database, client) = fresh().await;
        let id = enqueue(&client, "t", "").await;
        mark_delivered(&client, &claim(&client, "w", 1).await).await;
        let replay = format!("select outbox.replay(array['{id}'::uuid])");
        assert_eq!(number(&client, &replay).await, 1);
        let held = claim(&client, "w", 1).await.remove(0);
        run(&client, "begin").await;
        complete(&client, "w", &held, state).await.unwrap();
        assert_eq!(waits(&database, &client, &replay, "commit").await, Ok(replayed), "after {state}");
        let again: Vec<i32> = claim(&client, "w", 1).await.iter().map(|held| held.attempt_no).collect();
        assert_eq!(again, if replayed == 1 { vec![3] } else { vec![] });
        assert_eq!(number(&client, "select dead + leased from outbox.status").await, 1);
    }
}

/// A skipped head that is redriven, and a delivered one that is replayed, while a claim of the lane is not committed
/// yet: they wait until that claim's leases are over.
#[tokio::test]
async fn redrive_and_replay_against_an_uncommitted_claim() {
    let (database, client, operator) = with_impatient().await;
    run(&client, "select outbox.configure_sink('default', on_dead => 'skip')").await;
    enqueue_lanes(&client, 1, 5).await;
    let held = claim(&client, "w", 2).await;
    complete(&client, "w", &held[0], "FAILED").await.unwrap();
    complete(&client, "w", &held[1], "DISPATCHED").await.unwrap();
    run(&client, "begin").await;
    let in_flight = claim(&client, "w", 3).await;
    assert_eq!(numbers(&in_flight), [3, 4, 5]);
    let redrive = in_background(database.connect().await, "select outbox.redrive(all_dead => true)");
    until_blocked(&operator, 1).await;
    let replay = format!("select outbox.replay(array['{}'::uuid])", held[1].id);
    let replay = in_background(database.connect().await, &replay);
    until_blocked(&operator, 2).await;
    run(&client, "commit").await;
    assert_eq!((redrive.await.unwrap(), replay.await.unwrap()), (Ok(1), Ok(1)));
    assert_eq!(claim(&operator, "w2", 10).await, [], "3, 4 and 5 are in another hand");
    mark_delivered(&client, &in_flight).await;
    assert_eq!(numbers(&claim(&operator, "w2", 10).await), [1, 2]);
}

/// Routes that are applied while a claim of the lane is not committed yet wait for it, and leave alone what is behind its leases.
/// A claim that comes while they are being applied leaves the lanes alone, at both sinks.
#[tokio::test]
async fn apply_routes_against_an_uncommitted_claim() {
    const APPLY: &str = "select added + removed from outbox.apply_routes()";
    const OF_ORDERS: &str = ", sink => 'orders'";
    let (database, client, operator) = with_impatient().await;
    enqueue_lanes(&client, 1, 5).await;
    enqueue(&client, "t", "").await;
    run(&client, "select outbox.add_route('orders')").await;
    run(&client, "begin").await;
    let held = claim(&client, "w", 3).await;
    let applied = in_background(database.connect().await, APPLY);
    until_blocked(&operator, 1).await;
    run(&client, "commit").await;
    let plain = held.iter().all(|one| one.lane.is_some());
    assert_eq!(applied.await.unwrap(), Ok(if plain { 2 } else { 0 }), "what the claim has not taken, outside of lanes");
    mark_delivered(&client, &held).await;
    let waiting = number(&client, "select count(*) from outbox.deliveries where sink = 'default'").await;
    run(&client, "begin").await;
    assert_eq!(number(&client, APPLY).await, 2 * waiting);
    assert_eq!(claim(&operator, "w2", 10).await, [], "moved, and not committed");
    let before = claim_with(&operator, "w2", 10, OF_ORDERS).await;
    assert!(before.iter().all(|one| one.lane.is_none()), "{before:?}");
    run(&client, "commit").await;
    assert_eq!(claim(&operator, "w2", 10).await, []);
    let moved = claim_with(&operator, "w2", 10, OF_ORDERS).await;
    assert_eq!(i64::try_from(moved.iter().filter(|one| one.lane.is_some()).count()), Ok(waiting));
    assert_eq!(number(&client, APPLY).await, 0, "a second run changes nothing");
}

/// A head that was claimed with others and handed back alone while a slow claim was under way: it looks the same as in
/// the slow claim's snapshot, but the others are in another hand now, so the lane is left alone.
///
/// The slow claim passes 40,000 lanes that are not due before it comes to the one; the test goes on only if it was
/// still on its way when everything had happened.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_head_that_changed_underway_is_left_alone() {
    const TENANT: &str = ", tenant_id => '00000000-0000-0000-0000-000000000001'";
    let (database, client) = fresh().await;
    for _ in 0..4 {
        enqueue_lanes(&client, 10_000, 1).await;
        run(
            &client,
            "update outbox.delivery set due_at = now() + interval '1 hour', lane = lane || '-' || txid_current() \
                 where due_at <= now()",
        )
        .await;
    }
    for _ in 0..3 {
        enqueue(&client, "t", &format!(", lane => 'z'{TENANT}")).await;
    }
    for _ in 0..20 {
        let slow = database.connect().await;
        // Once before, so that it has its plans and takes its snapshot at once.
        assert_eq!(claim_with(&slow, "slow", 10, ", hop_limit => 1").await, []);
        let waiting = tokio::spawn(async move { claim_with(&slow, "slow", 10, ", hop_limit => 1000000").await });
        let running = "select count(*) from pg_stat_activity where query like '%hop_limit%' and state = 'active' and pid <> pg_backend_pid()";
        while number(&client, running).await == 0 && !waiting.is_finished() {}
        let held = claim_with(&client, "w", 3, TENANT).await;
        if held.len() == 3 {
            client.query("select outbox.release($1, array[$2::uuid])", &[&held[0].token, &held[0].id]).await.unwrap();
        }
        let underway = number(&client, running).await == 1;
        let late = waiting.await.unwrap();
        if held.len() == 3 && underway {
            assert_eq!(late, [], "2 and 3 are in another hand");
            return;
        }
        // One of them was too quick: everything back, and again.
        for held in held.iter().chain(&late) {
            client.query("select outbox.release($1, array[$2::uuid])", &[&held.token, &held.id]).await.unwrap();
        }
    }
    panic!("the slow claim was never slow enough");
}

/// Replay and prune look again after they have waited for a lock, so they refuse an isolation that cannot look again.
#[tokio::test]
async fn replay_and_prune_refuse_a_stale_snapshot() {
    let (_database, client) = fresh().await;
    for call in ["select outbox.replay('{}'::uuid[])", "select outbox.apply_routes()", "select outbox.prune()"] {
        run(&client, "begin isolation level repeatable read").await;
        assert_eq!(sqlstate(&client.query(call, &[]).await.unwrap_err()), "25001");
        run(&client, "rollback").await;
    }
}
