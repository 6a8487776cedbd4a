//! What is PostgreSQL's own about the inbox: races of two real connections with each step in its place, what a call
//! reads, the plain SQL call, sqlx, and who may do what.

use postrider::{Event, Inbox};
use postrider_testkit::Database;
use sqlx::{Connection as _, PgConnection};
use tokio_postgres::Client;
use uuid::Uuid;

use super::id;
use crate::support::{fresh, in_background, number, run, texts, try_sql, until_blocked, waits};

/// 1 if it comes for the first time.
fn receive_sql(event_id: Uuid) -> String {
    format!("select outbox.receive('{event_id}')::int")
}

async fn receive(client: &Client, event_id: Uuid) -> bool {
    number(client, &receive_sql(event_id)).await == 1
}

/// Proves E1: two deliveries of one event at once. The second waits, and knows when the first has ended.
#[tokio::test]
async fn the_second_waits_for_the_first() {
    for (ending, first) in [("commit", 0), ("rollback", 1)] {
        let (database, client) = fresh().await;
        let event = id();
        run(&client, "begin").await;
        assert!(receive(&client, event).await);
        assert_eq!(waits(&database, &client, &receive_sql(event), ending).await, Ok(first), "{ending}");
    }
}

/// Two batches of the same events in opposite order, both begun while a third transaction holds one in the middle.
#[tokio::test]
async fn opposite_batches_never_deadlock() {
    let (database, client) = fresh().await;
    let there: Vec<Event> = (0..9).map(|_| Event::new(id())).collect();
    let back: Vec<Event> = there.iter().rev().cloned().collect();
    let mut holder = database.connect().await;
    let held = holder.transaction().await.unwrap();
    assert!(Inbox::default().receive(&held, &there[4]).await.unwrap());
    let mut waiting = Vec::new();
    for batch in [there, back] {
        let mut other = database.connect().await;
        waiting.push(tokio::spawn(async move { receive_batch(&mut other, &batch).await }));
    }
    until_blocked(&client, 2).await;
    held.rollback().await.unwrap();
    let mut first = 0;
    for batch in waiting {
        first += batch.await.expect("no deadlock");
    }
    assert_eq!(first, 9, "each is first once");
}

async fn receive_batch(client: &mut Client, events: &[Event]) -> usize {
    let tx = client.transaction().await.unwrap();
    let first = Inbox::default().receive_many(&tx, events).await.unwrap();
    tx.commit().await.unwrap();
    first.iter().filter(|first| **first).count()
}

/// The row goes while its duplicate arrives: what the lane remembers is seen, or the row stays.
#[tokio::test]
async fn a_prune_of_the_same_event_is_waited_for() {
    for (ending, in_lane, without) in [("commit", 0, 1), ("rollback", 0, 0)] {
        let (database, client) = fresh().await;
        let (numbered, plain) = (id(), id());
        let numbered_sql = format!("select outbox.receive('{numbered}', lane => 'orders', sequence_id => 1)::int");
        assert_eq!(number(&client, &numbered_sql).await, 1);
        assert!(receive(&client, plain).await);
        run(&client, "begin").await;
        assert_eq!(number(&client, "select outbox.prune_inbox(older_than_seconds => 0)").await, 2);
        let again = in_background(database.connect().await, &numbered_sql);
        let unknown = in_background(database.connect().await, &receive_sql(plain));
        until_blocked(&database.connect().await, 2).await;
        run(&client, ending).await;
        assert_eq!(again.await.unwrap(), Ok(in_lane), "{ending}");
        assert_eq!(unknown.await.unwrap(), Ok(without), "{ending}");
    }
}

/// One prune at a time; a second one, and one that meets rows in use, does not wait.
#[tokio::test]
async fn a_prune_waits_for_nobody() {
    let (database, client) = fresh().await;
    let events = [id(), id()];
    for event in events {
        receive(&client, event).await;
    }
    run(&client, &format!("begin; select from outbox.inbox where event_id = '{}' for update", events[0])).await;
    let other = database.connect().await;
    run(&other, "set lock_timeout = '1ms'; begin").await;
    assert_eq!(number(&other, "select outbox.prune_inbox(older_than_seconds => 0)").await, 1);
    assert_eq!(
        number(&client, "select outbox.prune_inbox(older_than_seconds => 0)").await,
        0,
        "the other one is at it"
    );
    run(&other, "commit").await;
    run(&client, "commit").await;
    assert_eq!(number(&client, "select outbox.prune_inbox(0, batch_size => 1)").await, 1);
    run(&client, "begin isolation level repeatable read").await;
    assert_eq!(try_sql(&client, "select outbox.prune_inbox()").await, "25001");
}

/// Index scans and sequential scans of the inbox's tables, by one statement, on a connection that has done nothing yet.
async fn scans(database: &Database, sql: &str) -> Vec<String> {
    let client = &database.connect().await;
    run(client, "begin").await;
    client.query(sql, &[]).await.unwrap();
    let scans = texts(
        client,
        "select case c.relkind when 'r' then 'seq ' else '' end || c.relname from pg_class c \
         where c.relnamespace = 'outbox'::regnamespace and c.relname like 'inbox%' and c.relkind in ('r', 'i') \
         and pg_stat_get_xact_numscans(c.oid) > 0 order by 1",
    )
    .await;
    run(client, "rollback").await;
    scans
}

/// With history in place, and before the planner has seen any of it.
#[tokio::test]
async fn neither_receive_nor_prune_reads_history() {
    let (database, client) = fresh().await;
    let many = "select outbox.receive_many(array(select gen_random_uuid() from generate_series(1, 100)), \
                lane => array(select 'l' from generate_series(1, 100)), \
                sequence_id => array(select n::int8 from generate_series(1, 100) n))";
    // A UUIDv7 by hand: the lane's memory is asked for no other.
    let one = "select outbox.receive('01900000-0000-7000-8000-000000000001', lane => 'l', sequence_id => 500)";
    for when in ["empty", "loaded", "analyzed"] {
        match when {
            "loaded" => {
                let load = "insert into outbox.inbox (event_id, received_at, tenant, source) \
                            select gen_random_uuid(), now() - n * interval '1 second', '', '' \
                            from generate_series(1, 50000) n; \
                            insert into outbox.inbox_lane select 1, 1000, gen_random_uuid(), now(), '', '', 'lane-' || n \
                            from generate_series(1, 20000) n";
                run(&client, load).await;
            }
            "analyzed" => client.batch_execute("analyze").await.unwrap(),
            _ => {}
        }
        assert!(!scans(&database, many).await.iter().any(|scan| scan.starts_with("seq")), "{when}");
        assert_eq!(scans(&database, one).await, ["inbox_lane_pk", "inbox_pk"], "{when}");
        let prune = scans(&database, "select outbox.prune_inbox(49990)").await;
        assert_eq!(prune, ["inbox_by_age", "inbox_lane_by_age"], "{when}");
    }
}

#[tokio::test]
async fn a_sqlx_transaction_receives() {
    let (database, client) = fresh().await;
    let mut connection = PgConnection::connect(&database.url()).await.unwrap();
    let inbox = Inbox::default();
    let event = Event::new(id()).tenant("tenant-1").source("s").lane("a", 1);
    for (commit, first) in [(false, true), (true, true), (true, false)] {
        let mut tx = connection.begin().await.unwrap();
        assert_eq!(inbox.receive(&mut tx, &event).await.unwrap(), first);
        let ended = if commit { tx.commit().await } else { tx.rollback().await };
        ended.unwrap();
    }
    let batch = [Event::new(id()), event];
    assert_eq!(inbox.receive_many(&mut connection, &batch).await.unwrap(), [true, false]);
    assert_eq!(number(&client, "select count(*) from outbox.inbox").await, 2);
}
