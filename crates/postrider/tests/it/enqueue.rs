//! What a producer is promised in PostgreSQL: the message and the business row commit together or not at all, whatever
//! the driver; a rolled back transaction leaves no hole in a lane; due times count by the database's clock. What every
//! store promises a producer is in the contract.

use std::time::{Duration, SystemTime};

use futures_util::future::join_all;
use postrider::{Enqueued, ErrorKind, MAX_BATCH_MESSAGES, Message, Outbox};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use sqlx::{Connection, PgConnection};
use tokio_postgres::Client;

use crate::support::{claim, fresh, number, run, texts};

fn message(topic: &str) -> Message {
    Message::json(topic, &serde_json::json!({"id": 7})).unwrap()
}

/// Orders and messages that are there.
async fn counts(client: &Client) -> (i64, i64) {
    (number(client, "select count(*) from orders").await, number(client, "select count(*) from outbox.message").await)
}

/// Proves M1: tokio-postgres. Commit both, roll back both; a transaction that is dropped is rolled back.
#[tokio::test]
async fn a_tokio_postgres_transaction_commits_both_or_neither() {
    let (_database, mut client) = fresh().await;
    run(&client, "create table orders (id serial primary key)").await;
    for (nth, end) in [(0, "rollback"), (0, "drop"), (1, "commit")] {
        let tx = client.transaction().await.unwrap();
        tx.execute("insert into orders default values", &[]).await.unwrap();
        assert!(Outbox::default().enqueue(&tx, &message("order.placed").lane("a")).await.unwrap().created);
        match end {
            "commit" => tx.commit().await.unwrap(),
            "rollback" => tx.rollback().await.unwrap(),
            _ => drop(tx),
        }
        assert_eq!(counts(&client).await, (nth, nth), "{end}");
    }
}

/// Proves M1: sqlx, with its transaction and with a bare connection in one.
#[tokio::test]
async fn a_sqlx_transaction_commits_both_or_neither() {
    let (database, client) = fresh().await;
    run(&client, "create table orders (id serial primary key)").await;
    let outbox = Outbox::default();
    let mut connection = PgConnection::connect(&database.url()).await.unwrap();
    for (nth, commit) in [(1, true), (1, false), (2, true)] {
        let mut tx = connection.begin().await.unwrap();
        sqlx::query("insert into orders default values").execute(&mut *tx).await.unwrap();
        outbox.enqueue(&mut tx, &message("order.placed")).await.unwrap();
        let end = if commit { tx.commit().await } else { tx.rollback().await };
        end.unwrap();
        assert_eq!(counts(&client).await, (nth, nth), "commit: {commit}");
    }
    for (nth, end) in [(3, "commit"), (3, "rollback")] {
        sqlx::query("begin").execute(&mut connection).await.unwrap();
        sqlx::query("insert into orders default values").execute(&mut connection).await.unwrap();
        let batch = [message("order.placed")];
        assert_eq!(outbox.enqueue_many(&mut connection, &batch).await.unwrap().len(), 1);
        sqlx::query(end).execute(&mut connection).await.unwrap();
        assert_eq!(counts(&client).await, (nth, nth), "{end}");
    }
    // What the database refuses is typed here too, hint included.
    let wide = Message::json("t", &vec![1_u8; 6_000_000]).unwrap();
    let error = outbox.enqueue(&mut connection, &wide).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Refused && error.hint().is_some(), "{error:?}");
}

/// Proves P1: numbers are 1..n without a hole, whatever was rolled back, by whole transactions and by savepoints.
#[tokio::test]
async fn a_lane_has_no_hole_after_rollbacks() {
    let (database, client) = fresh().await;
    let mut producers = Vec::new();
    for seed in 1..=4 {
        producers.push((database.connect().await, StdRng::seed_from_u64(seed)));
    }
    let committed: i64 = join_all(producers.iter_mut().map(async |(client, rng)| {
        let mut committed = 0;
        for _ in 0..50 {
            let lanes: Vec<String> =
                (0..rng.random_range(1..=3)).map(|_| format!("lane-{}", rng.random_range(0..3))).collect();
            let messages: Vec<Message> = lanes.iter().map(|lane| message("t").lane(lane)).collect();
            let (commit, savepoint) = (rng.random_bool(0.5), rng.random_bool(0.3));
            let tx = client.transaction().await.unwrap();
            if savepoint {
                tx.batch_execute("savepoint s").await.unwrap();
                Outbox::default().enqueue_many(&tx, &messages).await.unwrap();
                tx.batch_execute("rollback to s").await.unwrap();
            }
            Outbox::default().enqueue_many(&tx, &messages).await.unwrap();
            if commit {
                tx.commit().await.unwrap();
                committed += i64::try_from(messages.len()).unwrap();
            } else {
                tx.rollback().await.unwrap();
            }
        }
        committed
    }))
    .await
    .iter()
    .sum();
    assert_eq!(number(&client, "select count(*) from outbox.message").await, committed);
    let holes = "select m.lane from outbox.message m join outbox.lane_sequence s using (lane) group by m.lane, s.last_sequence \
                 having (min(m.sequence_id), max(m.sequence_id), count(distinct m.sequence_id), count(*)) \
                 <> (1, s.last_sequence, s.last_sequence, s.last_sequence)";
    assert_eq!(texts(&client, holes).await, Vec::<String>::new());
    assert_eq!(number(&client, "select count(distinct lane) from outbox.message").await, 3);
    let twice = "insert into outbox.delivery (message_id, occurred_at, due_at, priority, size_bytes, sequence_id, sink, lane) \
                 select gen_random_uuid(), occurred_at, due_at, 0, 1, sequence_id, sink, lane from outbox.delivery limit 1";
    assert_eq!(crate::support::try_sql(&client, twice).await, "23505", "a number is taken once");
}

/// Other drivers number the elements of an array from anywhere. A key that is known answers with the number of its message,
/// whether this batch has lanes or not.
#[tokio::test]
async fn a_batch_counts_its_arrays_from_their_beginning() {
    let (_database, client) = fresh().await;
    for (lane, created) in [(", lane => '[-1:0]={x,x}'", "t"), ("", "f")] {
        let sql = format!(
            "select concat_ws(' ', ordinal, sequence_id, created) \
             from outbox.enqueue_many('[0:1]={{a,b}}', '[5:6]={{1,2}}', dedupe_key => '{{k,k}}'{lane})"
        );
        assert_eq!(texts(&client, &sql).await, [format!("1 1 {created}"), format!("2 2 {created}")]);
    }
    let kept = "select concat_ws(' ', topic, payload, sequence_id) from outbox.message order by id";
    assert_eq!(texts(&client, kept).await, ["a 1 1", "b 2 2"]);
}

/// The largest batch: one row per message, ids are UUIDv7 in the order of the input, the clock in them is now.
#[tokio::test]
async fn ten_thousand_messages_in_one_call() {
    let (_database, mut client) = fresh().await;
    let messages: Vec<Message> = (0..MAX_BATCH_MESSAGES)
        .map(|n| Message::json("t", &n).unwrap().lane(format!("lane-{}", n % 7)).dedupe_key(format!("{n}")))
        .collect();
    let tx = client.transaction().await.unwrap();
    let rows: Vec<Enqueued> = Outbox::default().enqueue_many(&tx, &messages).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(rows.len(), MAX_BATCH_MESSAGES);
    assert!(rows.windows(2).all(|pair| pair[0].message_id < pair[1].message_id));
    for (n, row) in rows.iter().enumerate() {
        let id = row.message_id;
        assert_eq!((row.created, id.get_version_num(), id.get_variant()), (true, 7, uuid::Variant::RFC4122));
        assert_eq!(row.sequence_id, Some(i64::try_from(n / 7 + 1).unwrap()), "message {n}");
    }
    let kept = "select count(*) from (select row_number() over (order by id) - 1 as n, payload from outbox.message) m \
                where payload = to_jsonb(n)";
    assert_eq!(number(&client, kept).await, 10_000, "each id carries its own payload");
    let off = "select count(*) from outbox.messages where abs(extract(epoch from enqueued_at - now())) > 60";
    assert_eq!(number(&client, off).await, 0);
}

/// Delays and due times count by the database's clock, from the beginning of the transaction.
#[tokio::test]
async fn due_times_are_the_databases() {
    let (_database, mut client) = fresh().await;
    let then = SystemTime::UNIX_EPOCH + Duration::from_secs(4_000_000_000);
    let past = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let messages = [
        message("now"),
        message("delay").delay(Duration::from_micros(1_500_001)),
        message("at").due_at(then),
        message("past").occurred_at(past),
        message("future").occurred_at(then),
        message("late").occurred_at(past).delay(Duration::from_secs(9)),
    ];
    let tx = client.transaction().await.unwrap();
    tx.batch_execute("select pg_sleep(0.02)").await.unwrap();
    Outbox::default().enqueue_many(&tx, &messages).await.unwrap();
    let sql = "select topic || ' ' || case when due_at > '2090-01-01' or due_at < '2010-01-01' then due_at::text else (due_at - now())::text end \
               || ' ' || case when m.occurred_at = now() then 'now' else m.occurred_at::text end from outbox.message m \
               join outbox.delivery d on d.message_id = m.id and d.occurred_at = m.occurred_at order by m.id";
    let found: Vec<String> = tx.query(sql, &[]).await.unwrap().iter().map(|row| row.get(0)).collect();
    let (then, past) = ("2096-10-02 07:06:40+00", "2001-09-09 01:46:40+00");
    assert_eq!(
        found,
        [
            "now 00:00:00 now".to_owned(),
            "delay 00:00:01.500001 now".to_owned(),
            format!("at {then} now"),
            format!("past {past} {past}"),
            format!("future 00:00:00 {then}"),
            format!("late 00:00:09 {past}")
        ]
    );
    tx.commit().await.unwrap();
    let claimed: Vec<String> = claim(&client, "w", 10).await.into_iter().map(|held| held.topic).collect();
    assert_eq!(claimed, ["past", "now", "future"], "what is due, oldest first");
}
