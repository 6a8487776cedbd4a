//! What is PostgreSQL's own about the inbox: races of two real connections with each step in its place, what a call
//! reads, the plain SQL call, sqlx, and who may do what.

use postrider::{Event, Inbox};
use postrider_testkit::Database;
use sqlx::{Connection as _, PgConnection};
use tokio::task::JoinHandle;
use tokio_postgres::Client;
use uuid::Uuid;

use super::id;
use crate::support::{fresh, number, sqlstate, texts, try_sql, until_blocked};

fn receive_sql(event_id: Uuid) -> String {
    format!("select outbox.receive('{event_id}')")
}

async fn receive(client: &Client, event_id: Uuid) -> bool {
    client.query_one(&receive_sql(event_id), &[]).await.unwrap().get(0)
}

/// In the background, on a connection of its own.
fn receive_later(client: Client, sql: String) -> JoinHandle<Result<bool, String>> {
    tokio::spawn(async move {
        let row = client.query_one(&sql, &[]).await.map_err(|error| sqlstate(&error).to_owned())?;
        Ok(row.get(0))
    })
}

/// Proves E1: two deliveries of one event at once. The second waits, and knows when the first has ended.
#[tokio::test]
async fn the_second_waits_for_the_first() {
    for (ending, first) in [("commit", false), ("rollback", true)] {
        let (database, client) = fresh().await;
        let event = id();
        client.batch_execute("begin").await.unwrap();
        assert!(receive(&client, event).await);
        let second = receive_later(database.connect().await, receive_sql(event));
        until_blocked(&database.connect().await, 1).await;
        client.batch_execute(ending).await.unwrap();
        assert_eq!(second.await.unwrap(), Ok(first), "{ending}");
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
    for (ending, in_lane, without) in [("commit", false, true), ("rollback", false, false)] {
        let (database, client) = fresh().await;
        let (numbered, plain) = (id(), id());
        let numbered_sql = format!("select outbox.receive('{numbered}', lane => 'orders', sequence_id => 1)");
        assert_eq!(texts(&client, &format!("select ({numbered_sql})::text")).await, ["true"]);
        assert!(receive(&client, plain).await);
        client.batch_execute("begin").await.unwrap();
        assert_eq!(number(&client, "select outbox.prune_inbox(older_than_seconds => 0)").await, 2);
        let again = receive_later(database.connect().await, numbered_sql);
        let unknown = receive_later(database.connect().await, receive_sql(plain));
        until_blocked(&database.connect().await, 2).await;
        client.batch_execute(ending).await.unwrap();
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
    client
        .batch_execute(&format!("begin; select from outbox.inbox where event_id = '{}' for update", events[0]))
        .await
        .unwrap();
    let other = database.connect().await;
    other.batch_execute("set lock_timeout = '1ms'; begin").await.unwrap();
    assert_eq!(number(&other, "select outbox.prune_inbox(older_than_seconds => 0)").await, 1);
    assert_eq!(
        number(&client, "select outbox.prune_inbox(older_than_seconds => 0)").await,
        0,
        "the other one is at it"
    );
    other.batch_execute("commit").await.unwrap();
    client.batch_execute("commit").await.unwrap();
    assert_eq!(number(&client, "select outbox.prune_inbox(0, batch_size => 1)").await, 1);
    client.batch_execute("begin isolation level repeatable read").await.unwrap();
    assert_eq!(try_sql(&client, "select outbox.prune_inbox()").await, "25001");
}

/// Index scans and sequential scans of the inbox's tables, by one statement, on a connection that has done nothing yet.
async fn scans(database: &Database, sql: &str) -> Vec<String> {
    let client = &database.connect().await;
    client.batch_execute("begin").await.unwrap();
    client.query(sql, &[]).await.unwrap();
    let scans = texts(
        client,
        "select case c.relkind when 'r' then 'seq ' else '' end || c.relname from pg_class c \
         where c.relnamespace = 'outbox'::regnamespace and c.relname like 'inbox%' and c.relkind in ('r', 'i') \
         and pg_stat_get_xact_numscans(c.oid) > 0 order by 1",
    )
    .await;
    client.batch_execute("rollback").await.unwrap();
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
                client.batch_execute(load).await.unwrap();
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
async fn the_plain_call_says_what_is_wrong() {
    let (_database, client) = fresh().await;
    for (call, words) in [
        ("receive(null)", "event_id must not be null"),
        ("receive(gen_random_uuid(), lane => 'a')", "lane and sequence_id belong together"),
        ("receive(gen_random_uuid(), sequence_id => 1)", "lane and sequence_id belong together"),
        ("receive(gen_random_uuid(), lane => '', sequence_id => 1)", "lane must be"),
        ("receive(gen_random_uuid(), lane => 'a', sequence_id => 0)", "sequence_id must be at least 1"),
        ("receive(gen_random_uuid(), source => repeat('x', 256))", "source must be"),
        ("receive_many(array[[gen_random_uuid()]])", "one-dimensional"),
        ("receive_many(array[gen_random_uuid()], source => '{}')", "differ in length"),
        ("receive_many(array[gen_random_uuid(), null])", "event 2 of 2: event_id must not be null"),
        ("prune_inbox(-1)", "older_than_seconds must be"),
        ("prune_inbox(batch_size => 0)", "batch_size must be"),
    ] {
        let error = client.query(&format!("select outbox.{call}"), &[]).await.unwrap_err();
        assert_eq!(sqlstate(&error), "22023", "{call}");
        assert!(error.as_db_error().unwrap().message().contains(words), "{call}: {error:?}");
    }
    assert_eq!(number(&client, "select count(*) from outbox.inbox").await, 0);
    assert_eq!(number(&client, "select count(*) from outbox.receive_many('{}')").await, 0);
}

#[tokio::test]
async fn a_sqlx_transaction_receives() {
    let (database, client) = fresh().await;
    let mut connection = PgConnection::connect(&database.url()).await.unwrap();
    let inbox = Inbox::default();
    let event = Event::new(id()).tenant(id()).source("s").lane("a", 1);
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
