//! Quiet NOTIFY: producers notify when something is due and some relay has said that it sleeps, once, and never
//! otherwise. What was heard is counted without waiting: notifications come in commit order, so everything sent before
//! a sentinel has arrived when the sentinel has.

use std::future::poll_fn;

use postrider::{Schema, migrate};
use postrider_testkit::Database;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio_postgres::{AsyncMessage, Client, NoTls};

use crate::support::{
    claim, claim_expired, complete, enqueue, enqueue_plain, fresh, mark_delivered, number, run, try_sql,
};

/// A connection that listens on one channel.
struct Ear {
    channel: &'static str,
    payloads: UnboundedReceiver<String>,
    client: Client,
}

impl Ear {
    async fn on(database: &Database, channel: &'static str) -> Self {
        let (client, mut connection) = tokio_postgres::connect(&database.url(), NoTls).await.unwrap();
        let (tell, payloads) = unbounded_channel();
        tokio::spawn(async move {
            while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
                if let AsyncMessage::Notification(notification) = message {
                    drop(tell.send(notification.payload().to_owned()));
                }
            }
        });
        run(&client, &format!("listen \"{channel}\"")).await;
        Self { channel, payloads, client }
    }

    /// How many notifications came since the last look.
    async fn heard(&mut self) -> usize {
        run(&self.client, &format!("notify \"{}\", 'sentinel'", self.channel)).await;
        let mut heard = 0;
        while self.payloads.recv().await.expect("the connection lives") != "sentinel" {
            heard += 1;
        }
        heard
    }
}

/// A database, a connection, and an ear on the usual channel.
async fn listening() -> (Database, Client, Ear) {
    let (database, client) = fresh().await;
    let ear = Ear::on(&database, "outbox.due").await;
    (database, client, ear)
}

async fn sleep(client: &Client, worker: &str) {
    client.query("select outbox.sleep($1, 60)", &[&worker]).await.unwrap();
}

/// Proves P8: nobody sleeps, nobody is notified.
#[tokio::test]
async fn nobody_asleep_means_no_notification() {
    let (_database, client, mut ear) = listening().await;
    enqueue(&client, "t", "").await;
    enqueue(&client, "t", ", lane => 'a'").await;
    enqueue_plain(&client, 100).await;
    let held = claim(&client, "w", 1).await;
    complete(&client, "w", &held[0], "FAILED").await.unwrap();
    assert_eq!(number(&client, "select outbox.redrive(all_dead => true)").await, 1);
    assert_eq!(ear.heard().await, 0);
    sleep(&client, "w").await;
    enqueue(&client, "t", "").await;
    assert_eq!(ear.heard().await, 1, "the ear is not deaf");
}

/// Proves P8: one notification a statement, and one a transaction, however many messages and sleepers.
#[tokio::test]
async fn one_notification_for_a_statement_and_for_a_transaction() {
    let (_database, client, mut ear) = listening().await;
    for worker in ["v", "w"] {
        sleep(&client, worker).await;
    }
    enqueue(&client, "t", "").await;
    assert_eq!(ear.heard().await, 1, "one message");
    enqueue_plain(&client, 1000).await;
    assert_eq!(ear.heard().await, 1, "a thousand in one statement");
    run(&client, "begin").await;
    for _ in 0..10 {
        enqueue(&client, "t", ", lane => 'a'").await;
    }
    assert_eq!(ear.heard().await, 0, "not before the commit");
    run(&client, "commit").await;
    assert_eq!(ear.heard().await, 1, "ten statements in one transaction");
}

/// Proves P8: what rolls back notifies nobody.
#[tokio::test]
async fn a_rolled_back_enqueue_notifies_nobody() {
    let (_database, client, mut ear) = listening().await;
    sleep(&client, "w").await;
    run(&client, "begin").await;
    enqueue(&client, "t", "").await;
    run(&client, "rollback; begin; savepoint s").await;
    enqueue(&client, "t", "").await;
    run(&client, "rollback to s; commit").await;
    assert_eq!(ear.heard().await, 0);
}

/// Proves P8: a message for later wakes nobody now.
#[tokio::test]
async fn what_is_due_later_does_not_notify() {
    let (_database, client, mut ear) = listening().await;
    sleep(&client, "w").await;
    for later in
        [", delay_seconds => 60", ", due_at => now() + interval '1 minute'", ", delay_seconds => 0.5, lane => 'a'"]
    {
        enqueue(&client, "t", later).await;
        assert_eq!(ear.heard().await, 0, "{later}");
    }
    for now in
        [", delay_seconds => 0", ", due_at => now() - interval '1 day'", ", occurred_at => now() + interval '1 day'"]
    {
        enqueue(&client, "t", now).await;
        assert_eq!(ear.heard().await, 1, "{now}");
    }
    let mixed = "select count(*) from outbox.enqueue_many(array['a', 'b', 'c'], array['1', '1', '1']::jsonb[], \
                 delay_seconds => array[60, null, 60])";
    assert_eq!(number(&client, mixed).await, 3);
    assert_eq!(ear.heard().await, 1, "one of three is due");
    assert_eq!(number(&client, &mixed.replace("null", "60")).await, 3);
    assert_eq!(ear.heard().await, 0, "none of three is due");
}

/// Proves P8: a relay that is awake, or whose sleep is over, is not notified.
#[tokio::test]
async fn the_awake_and_the_expired_do_not_count() {
    let (_database, client, mut ear) = listening().await;
    sleep(&client, "v").await;
    sleep(&client, "w").await;
    run(&client, "select outbox.woke('w')").await;
    enqueue(&client, "t", "").await;
    assert_eq!(ear.heard().await, 1, "v still sleeps");
    run(&client, "select outbox.woke('v'); select outbox.woke('v'); select outbox.woke(null)").await;
    enqueue(&client, "t", "").await;
    assert_eq!(ear.heard().await, 0, "all are awake");

    run(&client, "select outbox.sleep('w', 0.001)").await;
    run(&client, "select pg_sleep(0.01)").await;
    enqueue(&client, "t", "").await;
    assert_eq!(ear.heard().await, 0, "its sleep is over by the database's clock");
    sleep(&client, "w").await;
    enqueue(&client, "t", "").await;
    assert_eq!(ear.heard().await, 1, "it sleeps again");
    assert_eq!(number(&client, "select count(*) from outbox.sleeper").await, 1);
}

/// Proves P8: whatever makes something due wakes the sleepers, and what changed nothing does not.
#[tokio::test]
async fn whatever_makes_something_due_notifies() {
    let (_database, client, mut ear) = listening().await;
    for _ in 0..6 {
        enqueue(&client, "t", "").await;
    }
    let held = claim(&client, "w", 5).await;
    complete(&client, "w", &held[0], "FAILED").await.unwrap();
    mark_delivered(&client, &held[1..2]).await;
    sleep(&client, "w").await;
    let released = &held[2];
    let id = |at: usize| held[at].id;
    let calls = [
        format!("redrive(array['{}']::uuid[])", id(0)),
        format!("replay(array['{}']::uuid[])", id(1)),
        format!("release('{}', array['{}']::uuid[])", released.token, released.id),
    ];
    for call in &calls {
        run(&client, &format!("select outbox.{call}")).await;
        assert_eq!(ear.heard().await, 1, "{call}");
        run(&client, &format!("select outbox.{call}")).await;
        assert_eq!(ear.heard().await, 0, "{call}, which has nothing left to do");
    }
    assert_eq!(number(&client, "select outbox.unclaim_stuck(0, live => true)").await, 2);
    assert_eq!(ear.heard().await, 1, "unclaim_stuck");
    assert_eq!(claim_expired(&client, "w", 3).await.len(), 3);
    assert_eq!(ear.heard().await, 0, "a claim");
    assert_eq!(number(&client, "select outbox.repair_expired_leases()").await, 3);
    assert_eq!(ear.heard().await, 1, "repair_expired_leases");
    assert_eq!(number(&client, "select outbox.repair_expired_leases()").await, 0);
    assert_eq!(ear.heard().await, 0, "repair_expired_leases of nothing");
    run(&client, "update outbox.delivery set due_at = now() + interval '1 hour'").await;
    assert_eq!(number(&client, "select outbox.retry_now(at_most => 2)").await, 2);
    assert_eq!(ear.heard().await, 1, "retry_now");
    for (paused, notifications) in [("true", 0), ("false", 1)] {
        run(&client, &format!("select outbox.configure_sink('default', paused => {paused})")).await;
        assert_eq!(ear.heard().await, notifications, "paused => {paused}");
    }
}

/// Proves P8: giving up a dead head lets its lane go on, so it wakes too.
#[tokio::test]
async fn discarding_a_parked_head_notifies() {
    let (_database, client, mut ear) = listening().await;
    for _ in 0..2 {
        enqueue(&client, "t", ", lane => 'a'").await;
    }
    let held = claim(&client, "w", 1).await;
    complete(&client, "w", &held[0], "FAILED").await.unwrap();
    assert_eq!(claim(&client, "w", 1).await, []);
    sleep(&client, "w").await;
    assert_eq!(number(&client, &format!("select outbox.discard(array['{}']::uuid[])", held[0].id)).await, 1);
    assert_eq!(ear.heard().await, 1);
    assert_eq!(claim(&client, "w", 1).await[0].sequence, Some(2));
}

/// Proves P8: each schema has a channel of its own.
#[tokio::test]
async fn another_schema_has_its_own_channel() {
    let (database, mut client, mut ear) = listening().await;
    migrate::up(&mut client, &Schema::new("Mail_2").unwrap()).await.unwrap();
    let mut second = Ear::on(&database, "Mail_2.due").await;
    sleep(&client, "w").await;
    run(&client, "select outbox.enqueue('t', '1'); select \"Mail_2\".enqueue('t', '1')").await;
    assert_eq!((ear.heard().await, second.heard().await), (1, 0));
    run(&client, "select \"Mail_2\".sleep('w', 60); select \"Mail_2\".enqueue('t', '1')").await;
    assert_eq!((ear.heard().await, second.heard().await), (0, 1));
}

/// A transaction that has notified cannot be prepared: PostgreSQL says so. A producer with two-phase commit sets
/// `postrider.notify` to off, and the poll of whoever sleeps finds its message.
#[tokio::test]
async fn a_producer_may_commit_in_two_phases() {
    let cluster = postrider_testkit::Cluster::start_with(&[("max_prepared_transactions", "5")]).await;
    let database = cluster.database().await;
    let (client, relay) = (database.connect().await, database.connect().await);
    run(&relay, "select outbox.sleep('w', 600)").await;
    let prepare = |set: &str| format!("begin; {set} select outbox.enqueue('t', '1'); prepare transaction 'two'");
    assert_eq!(try_sql(&client, &prepare("")).await, "0A000", "it has executed NOTIFY");
    run(&client, "rollback").await;
    for quiet in ["off", "false"] {
        run(&client, &prepare(&format!("set local postrider.notify = {quiet};"))).await;
        assert_eq!(number(&relay, "select count(*) from outbox.claim('w', 10, 60)").await, 0, "not committed yet");
        run(&client, "commit prepared 'two'").await;
        assert_eq!(number(&relay, "select count(*) from outbox.claim('w', 10, 60)").await, 1);
    }
    // The setting was that transaction's; whatever else it says, sleepers are notified.
    for loud in ["", "set local postrider.notify = on;", "set local postrider.notify = '';"] {
        assert_eq!(try_sql(&client, &prepare(loud)).await, "0A000", "{loud}");
        run(&client, "rollback").await;
    }
    run(&relay, "select outbox.woke('w')").await;
    run(&client, &prepare("")).await;
    run(&client, "rollback prepared 'two'").await;
}
