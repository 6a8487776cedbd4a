//! A producer's or a consumer's own snapshot may be older than a prune. Whether a key is known, or an event new, is then
//! decided by what is really there, at every isolation level, or the transaction has to be repeated.

use postrider_testkit::Database;
use tokio_postgres::Client;
use uuid::Uuid;

use crate::support::{claim, enqueue, fresh, mark_delivered, number, run, sqlstate, until_blocked};

const LEVELS: [&str; 3] = ["read committed", "repeatable read", "serializable"];

/// A delivered message whose key is past its window.
async fn old_key(client: &Client, key: &str) -> Uuid {
    let id = enqueue(client, "t", &format!(", dedupe_key => '{key}'")).await;
    mark_delivered(client, &claim(client, "w", 10).await).await;
    run(client, "update outbox.setting set dedupe_window = '1 microsecond'").await;
    id
}

async fn begin(database: &Database, level: &str) -> Client {
    let client = database.connect().await;
    run(&client, &format!("begin isolation level {level}; select 1")).await;
    client
}

/// Every key stands for a message that is there.
async fn keys_without_a_message(client: &Client) -> i64 {
    number(client, "select count(*) from outbox.dedupe k where not exists (select from outbox.message m where m.id = k.message_id)")
        .await
}

/// Proves M3: a key that was pruned after the snapshot is free, its message is written, and from then on it is known.
#[tokio::test]
async fn a_pruned_key_is_free_for_an_old_snapshot() {
    for level in LEVELS {
        let (database, client) = fresh().await;
        let old = old_key(&client, "k").await;
        let producer = begin(&database, level).await;
        assert_eq!(number(&client, "select dedupe_deleted from outbox.prune()").await, 1);
        let sql = "select message_id, created from outbox.enqueue('t', '2', dedupe_key => 'k')";
        let row = producer.query_one(sql, &[]).await.unwrap();
        let (new, created): (Uuid, bool) = (row.get(0), row.get(1));
        assert!(created && new != old, "{level}");
        run(&producer, "commit").await;
        assert_eq!(keys_without_a_message(&client).await, 0, "{level}");
        assert_eq!(claim(&client, "w", 10).await[0].id, new, "{level}");
        let again = client.query_one(sql, &[]).await.unwrap();
        assert_eq!((again.get::<_, Uuid>(0), again.get::<_, bool>(1)), (new, false), "{level}");
    }
}

/// Proves M3: a key that is pruned while the batch waits for another one is written with its message.
#[tokio::test]
async fn a_key_that_is_pruned_while_a_batch_waits_is_written_again() {
    let (database, client) = fresh().await;
    old_key(&client, "a").await;
    let (rival, producer) = (database.connect().await, database.connect().await);
    run(&rival, "begin; select outbox.enqueue('t', '1', dedupe_key => 'b')").await;
    let batch = tokio::spawn(async move {
        let sql = "select message_id, created from outbox.enqueue_many(array['t', 't'], array['2'::jsonb, '2'], \
                   dedupe_key => array['a', 'b']) order by ordinal";
        let rows = producer.query(sql, &[]).await.unwrap();
        rows.iter().map(|row| (row.get(0), row.get(1))).collect::<Vec<(Uuid, bool)>>()
    });
    until_blocked(&client, 1).await;
    assert_eq!(number(&client, "select dedupe_deleted from outbox.prune()").await, 1);
    run(&rival, "commit").await;
    let written = batch.await.unwrap();
    assert_eq!(written.iter().map(|(_, created)| *created).collect::<Vec<_>>(), [true, false]);
    let known =
        format!("select count(*) from outbox.dedupe where dedupe_key = 'a' and message_id = '{}'", written[0].0);
    assert_eq!(number(&client, &known).await, 1, "the message has its key");
    assert_eq!(keys_without_a_message(&client).await, 0);
}

/// One event of a lane, numbered 1.
const RECEIVE: &str =
    "select outbox.receive('01900000-0000-7000-8000-000000000001', source => 's', lane => 'l', sequence_id => 1)::int";

/// Proves E1: an event whose row was pruned after the snapshot is not first again.
#[tokio::test]
async fn a_pruned_event_is_not_first_again_for_an_old_snapshot() {
    for level in LEVELS {
        let (database, client) = fresh().await;
        assert_eq!(number(&client, RECEIVE).await, 1);
        let consumer = begin(&database, level).await;
        assert_eq!(number(&client, "select outbox.prune_inbox(0)").await, 1);
        let again = consumer.query_one(RECEIVE, &[]).await;
        match again {
            Ok(row) => assert_eq!((level, row.get::<_, i32>(0)), ("read committed", 0)),
            Err(error) => {
                assert_ne!(level, "read committed");
                assert_eq!(sqlstate(&error), "40001", "{level}");
            }
        }
    }
}

/// A prune passes by while a consumer with a snapshot of its own is under way, and takes nobody's time.
#[tokio::test]
async fn a_prune_of_the_inbox_passes_by_a_consumer_with_a_snapshot() {
    let (database, client) = fresh().await;
    assert_eq!(number(&client, "select outbox.receive(gen_random_uuid())::int").await, 1);
    run(&client, "set lock_timeout = '1ms'").await;
    let consumer = begin(&database, "repeatable read").await;
    consumer.query_one(RECEIVE, &[]).await.unwrap();
    assert_eq!(number(&client, "select outbox.prune_inbox(0)").await, 0);
    run(&consumer, "commit").await;
    assert_eq!(number(&client, "select outbox.prune_inbox(0)").await, 2);
}
