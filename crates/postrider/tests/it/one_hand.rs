//! A lane is in one hand at a time: at every commit, whatever happens beside the claim. Each race is played out by hand, with
//! the step that has not committed yet in the middle.

use tokio_postgres::Client;
use uuid::Uuid;

use crate::support::{
    attempts, claim, claim_with, complete, enqueue, enqueue_lanes, fresh, mark_delivered, number, numbers, run,
    sqlstate, until_blocked,
};

/// Lanes in which more than one worker holds something now.
async fn in_two_hands(client: &Client) -> i64 {
    number(
        client,
        "select count(*) from (select from outbox.delivery where lane is not null and lease_expires_at > now() \
         group by sink, lane having count(distinct lease_token) > 1) l",
    )
    .await
}

/// Number 1 dead and passed by, number 2 delivered: one to redrive, one to replay, and an empty lane.
async fn passed_by(client: &Client) -> (Uuid, Uuid) {
    run(client, "select outbox.configure_sink('default', on_dead => 'skip')").await;
    enqueue_lanes(client, 1, 2).await;
    let held = claim(client, "w", 2).await;
    complete(client, "w", &held[0], "FAILED").await.unwrap();
    complete(client, "w", &held[1], "DISPATCHED").await.unwrap();
    (held[0].id, held[1].id)
}

/// A lower number is put in front while a higher one is enqueued and claimed.
#[tokio::test]
async fn what_is_put_in_front_keeps_the_lane_until_it_is_committed() {
    for (ending, next) in [("commit", vec![1, 3]), ("rollback", vec![3])] {
        for again in ["redrive(array[$1::uuid])", "replay(array[$1::uuid])"] {
            let (database, client) = fresh().await;
            let worker = database.connect().await;
            let (dead, delivered) = passed_by(&client).await;
            let (id, first) = if again.starts_with("redrive") { (dead, 1) } else { (delivered, 2) };
            run(&client, "begin").await;
            client.query(&format!("select outbox.{again}"), &[&id]).await.unwrap();
            enqueue(&worker, "t", ", lane => 'lane-00000'").await;
            let before = claim(&worker, "w1", 10).await;
            run(&client, ending).await;
            let after = claim(&worker, "w2", 10).await;
            assert_eq!(in_two_hands(&client).await, 0, "{again}, {ending}");
            let wanted: Vec<i64> = next.iter().map(|number| if *number == 1 { first } else { *number }).collect();
            assert_eq!(numbers(&[before, after].concat()), wanted, "{again}, {ending}");
        }
    }
}

/// Others go on meanwhile: what has no lane, and the lanes of another sink.
#[tokio::test]
async fn what_is_put_in_front_holds_up_no_other_sink() {
    let (database, client) = fresh().await;
    let worker = database.connect().await;
    run(&client, "select outbox.add_route('other', 'o')").await;
    let (dead, _) = passed_by(&client).await;
    enqueue(&client, "t", "").await;
    enqueue(&client, "o", ", lane => 'lane-00000'").await;
    run(&client, "begin").await;
    client.query("select outbox.redrive(array[$1::uuid])", &[&dead]).await.unwrap();
    assert_eq!(claim(&worker, "w", 10).await.len(), 1, "without a lane");
    assert_eq!(claim_with(&worker, "w", 10, ", sink => 'other'").await.len(), 1);
    run(&client, "commit").await;
    assert_eq!(numbers(&claim(&worker, "w", 10).await), [1]);
}

/// The end of a run is renewed, not committed, when its lease ends; its head is not renewed. The lane stays where it is.
#[tokio::test]
async fn a_renewal_under_way_keeps_the_lane() {
    for more in [", lane_run => 100", ", lane_run => 1"] {
        for (ending, next) in [("commit", vec![]), ("rollback", vec![2])] {
            let (database, client) = fresh().await;
            let other = database.connect().await;
            enqueue_lanes(&client, 1, 3).await;
            let held = claim_with(&client, "w1", 3, ", lease_seconds => 0.5").await;
            complete(&client, "w1", &held[0], "DISPATCHED").await.unwrap();
            run(&client, "begin").await;
            let renewed = number(
                &client,
                &format!("select count(*) from outbox.renew('{}', array['{}'::uuid], 60)", held[0].token, held[2].id),
            )
            .await;
            assert_eq!(renewed, 1);
            other.query("select pg_sleep(0.6)", &[]).await.unwrap();
            assert_eq!(claim_with(&other, "w2", 10, more).await, [], "3 is just being renewed");
            run(&client, ending).await;
            let taken = claim_with(&other, "w2", 1, more).await;
            assert_eq!(numbers(&taken), next, "{ending}");
            assert_eq!(in_two_hands(&client).await, 0, "{ending}");
        }
    }
}

/// An ended run that is taken over one by one: its other numbers are still under their old leases, and hold nothing up.
#[tokio::test]
async fn an_ended_run_is_taken_over_one_by_one() {
    let (_database, client) = fresh().await;
    enqueue_lanes(&client, 1, 3).await;
    let stale = claim_with(&client, "w1", 3, ", lease_seconds => 0.001").await;
    client.query("select pg_sleep(0.01)", &[]).await.unwrap();
    for (number, held) in (1..).zip(&stale) {
        let taken = claim_with(&client, "w2", 10, ", lane_run => 1").await;
        assert_eq!(numbers(&taken), [number]);
        assert_eq!(claim(&client, "w3", 10).await, [], "the lane is in w2's hand");
        mark_delivered(&client, &taken).await;
        assert_eq!(attempts(&client, held.id).await, ["1 ZOMBIE_REQUEUE", "2 DISPATCHED"]);
    }
}

/// A renewal that waits for a row until the lease has ended renews nothing: others may have the lane by then.
#[tokio::test]
async fn a_renewal_that_waited_too_long_renews_nothing() {
    let (database, client) = fresh().await;
    let (slow, other) = (database.connect().await, database.connect().await);
    let first = enqueue(&client, "t", "").await;
    enqueue_lanes(&client, 1, 6).await;
    let held = claim_with(&client, "w1", 10, ", lease_seconds => 1").await;
    assert_eq!((held.len(), held[0].id), (7, first));
    run(&client, "begin").await;
    complete(&client, "w1", &held[0], "DISPATCHED").await.unwrap();
    let ids: Vec<Uuid> = held.iter().map(|held| held.id).collect();
    let token = held[0].token;
    let renewal =
        tokio::spawn(
            async move { slow.query("select outbox.renew($1, $2, 60)", &[&token, &ids]).await.unwrap().len() },
        );
    until_blocked(&other, 1).await;
    other.query("select pg_sleep(1.1)", &[]).await.unwrap();
    assert_eq!(numbers(&claim(&other, "w2", 2).await), [1, 2]);
    run(&client, "commit").await;
    assert_eq!(renewal.await.unwrap(), 0);
    assert_eq!(in_two_hands(&client).await, 0);
}

/// A snapshot from before says nothing about who holds a lane now.
#[tokio::test]
async fn a_claim_with_an_old_snapshot_is_refused() {
    let (database, client) = fresh().await;
    enqueue(&client, "t", ", lane => 'a'").await;
    for level in ["repeatable read", "serializable"] {
        let other = database.connect().await;
        run(&other, &format!("begin isolation level {level}; select 1")).await;
        let error = other.query("select from outbox.claim('w', 1, 60)", &[]).await.unwrap_err();
        assert_eq!(sqlstate(&error), "25001", "{level}");
    }
    assert_eq!(claim(&client, "w", 1).await.len(), 1);
}
