//! The drivers that bring a whole library with them, SeaORM and diesel-async, beside tokio-postgres and sqlx: the caller's
//! rows and the messages commit together or not at all, and every driver writes the same. Each driver is one function here,
//! written as an application would write it. Neither works behind the pooler of `pooler.rs`: both prepare their own
//! statements by name.

use std::time::{Duration, SystemTime};

use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use postrider::{Enqueued, Error, ErrorKind, Event, Inbox, Message, Outbox};
use sea_orm::{ConnectionTrait, Database, TransactionTrait};
use sqlx::{Connection, PgConnection};
use tokio_postgres::{Client, NoTls};
use uuid::Uuid;

use crate::support::{fresh, number, run, texts};

const ORDER: &str = "insert into orders default values";

/// A transaction: an order, these messages, these events, and its end.
#[derive(Clone)]
struct Work {
    messages: Vec<Message>,
    events: Vec<Event>,
    commit: bool,
}

impl Work {
    fn of(messages: Vec<Message>) -> Self {
        Self { messages, events: Vec::new(), commit: true }
    }
}

/// What became of the messages, and which events were first.
type Done = Result<(Vec<Enqueued>, Vec<bool>), Error>;

async fn by_tokio_postgres(url: String, work: Work) -> Done {
    let (mut client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
    tokio::spawn(connection);
    let tx = client.transaction().await.unwrap();
    tx.batch_execute(ORDER).await.unwrap();
    let enqueued = Outbox::default().enqueue_many(&tx, &work.messages).await?;
    let first = Inbox::default().receive_many(&tx, &work.events).await?;
    if work.commit { tx.commit().await } else { tx.rollback().await }.unwrap();
    Ok((enqueued, first))
}

async fn by_sqlx(url: String, work: Work) -> Done {
    let mut connection = PgConnection::connect(&url).await.unwrap();
    let mut tx = connection.begin().await.unwrap();
    sqlx::query(ORDER).execute(&mut *tx).await.unwrap();
    let enqueued = Outbox::default().enqueue_many(&mut tx, &work.messages).await?;
    let first = Inbox::default().receive_many(&mut tx, &work.events).await?;
    if work.commit { tx.commit().await } else { tx.rollback().await }.unwrap();
    Ok((enqueued, first))
}

async fn by_sea_orm(url: String, work: Work) -> Done {
    let database = Database::connect(url).await.unwrap();
    let tx = database.begin().await.unwrap();
    tx.execute_unprepared(ORDER).await.unwrap();
    let enqueued = Outbox::default().enqueue_many(&tx, &work.messages).await?;
    let first = Inbox::default().receive_many(&tx, &work.events).await?;
    if work.commit { tx.commit().await } else { tx.rollback().await }.unwrap();
    Ok((enqueued, first))
}

async fn by_diesel_async(url: String, work: Work) -> Done {
    let mut connection = AsyncPgConnection::establish(&url).await.unwrap();
    let mut done = None;
    let ended = connection.transaction(async |tx| {
        diesel::sql_query(ORDER).execute(tx).await?;
        let enqueued = Outbox::default().enqueue_many(&mut *tx, &work.messages).await;
        let first = match &enqueued {
            Ok(_) => Inbox::default().receive_many(&mut *tx, &work.events).await,
            Err(_) => Ok(Vec::new()),
        };
        done = Some(enqueued.and_then(|enqueued| Ok((enqueued, first?))));
        if work.commit && done.as_ref().is_some_and(Result::is_ok) {
            return Ok(());
        }
        Err(diesel::result::Error::RollbackTransaction)
    });
    drop(ended.await);
    done.unwrap()
}

async fn counts(client: &Client) -> (i64, i64, i64) {
    let count = |table| number(client, table);
    (
        count("select count(*) from orders").await,
        count("select count(*) from outbox.message").await,
        count("select count(*) from outbox.inbox").await,
    )
}

async fn orders() -> (postrider_testkit::Database, Client) {
    let (database, client) = fresh().await;
    run(&client, "create table orders (id serial primary key)").await;
    (database, client)
}

async fn commits_both_or_neither<D: Future<Output = Done>>(driver: impl Fn(String, Work) -> D) {
    let (database, client) = orders().await;
    let message = Message::json("order.placed", &7).unwrap().lane("a");
    let event = Event::new(Uuid::now_v7());
    let mut work = Work { messages: vec![message.clone()], events: vec![event], commit: false };
    for (commit, first, numbers) in [(false, true, [1].as_slice()), (true, true, &[1]), (true, false, &[2, 3])] {
        work.commit = commit;
        work.messages = vec![message.clone(); numbers.len()];
        let before = counts(&client).await;
        let (enqueued, was_first) = driver(database.url(), work.clone()).await.unwrap();
        let numbered: Vec<i64> = enqueued.iter().filter_map(|one| one.sequence_id).collect();
        assert_eq!((numbered.as_slice(), was_first.as_slice()), (numbers, [first].as_slice()), "commit: {commit}");
        let written = i64::try_from(if commit { numbers.len() } else { 0 }).unwrap();
        let after = (before.0 + i64::from(commit), before.1 + written, before.2 + i64::from(commit && first));
        assert_eq!(counts(&client).await, after, "commit: {commit}");
    }
}

/// Proves M1: SeaORM, for one message and for more.
#[tokio::test]
async fn a_sea_orm_transaction_commits_both_or_neither() {
    commits_both_or_neither(by_sea_orm).await;
}

/// Proves M1: diesel-async, for one message and for more.
#[tokio::test]
async fn a_diesel_async_transaction_commits_both_or_neither() {
    commits_both_or_neither(by_diesel_async).await;
}

/// Messages that have each column and lack it, with texts that are hard to quote.
fn varied() -> Vec<Message> {
    let hard = ["NULL", "{}", " a, b ", "\"q\"", "back\\slash\\", "line\nbreak", "\\x00", "ünïcode ✉", "'; --"];
    let json = |text: &str| Message::json("topic", &serde_json::json!({ "text": text })).unwrap();
    let headers = |message: Message, text: &str| message.header("key", text);
    let mut messages: Vec<Message> = hard
        .iter()
        .flat_map(|text| {
            let bytes = Message::bytes("topic", text.as_bytes(), *text);
            [headers(json(text), text).lane(*text), bytes, json(text).dedupe_key(*text).namespace(*text)]
        })
        .collect();
    let tenant = "tenant-1";
    let at = SystemTime::UNIX_EPOCH + Duration::from_micros(1_700_000_000_123_456);
    messages.push(json("plain"));
    messages.push(json("due").due_at(at).occurred_at(at).priority(-7));
    messages.push(json("tenant").tenant(tenant).dedupe_key(format!("{tenant}/1")));
    messages.push(Message::bytes("topic", (0..=255).collect::<Vec<u8>>(), "all/bytes"));
    messages.push(Message::bytes("topic", Vec::new(), "no/bytes"));
    messages
}

/// Proves M1, M2: the same rows in the database, whichever driver wrote them: one by one, and all in one call.
#[tokio::test]
async fn every_driver_writes_the_same() {
    async fn written<D: Future<Output = Done>>(driver: impl Fn(String, Work) -> D) -> Vec<String> {
        let (database, client) = orders().await;
        let messages = varied();
        for message in &messages {
            let (enqueued, _) = driver(database.url(), Work::of(vec![message.clone()])).await.unwrap();
            assert!(enqueued[0].created);
        }
        let (enqueued, _) = driver(database.url(), Work::of(messages.clone())).await.unwrap();
        assert_eq!(enqueued.len(), messages.len());
        let lanes = enqueued
            .iter()
            .zip(&messages)
            .all(|(one, message)| one.sequence_id.is_none() == format!("{message:?}").contains("lane: None"));
        assert!(lanes, "one answer for each, in their order");
        let rows = "select (namespace, topic, tenant_id, lane, sequence_id, dedupe_key, priority, headers, payload, body, \
                    content_type, case when occurred_at < '2024-01-01' then occurred_at end)::text from outbox.message \
                    order by id";
        let mut rows = texts(&client, rows).await;
        rows.push(format!("{:?}", enqueued.iter().map(|one| one.created).collect::<Vec<_>>()));
        rows
    }
    let expected = written(by_tokio_postgres).await;
    assert!(expected.len() > varied().len());
    assert_eq!(written(by_sqlx).await, expected, "sqlx");
    assert_eq!(written(by_sea_orm).await, expected, "SeaORM");
    assert_eq!(written(by_diesel_async).await, expected, "diesel-async");
}

/// What the database refuses. Diesel does not tell the SQLSTATE: there it is a driver's error that says what was wrong.
#[tokio::test]
async fn what_is_refused_is_told() {
    let (database, client) = orders().await;
    let wide = Work::of(vec![Message::json("t", &vec![1_u8; 6_000_000]).unwrap()]);
    let error = by_sea_orm(database.url(), wide.clone()).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Refused && error.hint().is_some(), "{error:?}");
    let error = by_diesel_async(database.url(), wide).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Driver);
    let said = std::error::Error::source(&error).unwrap().to_string();
    assert!(said.contains("larger than 16 MiB"), "{said}");
    // What Diesel does tell.
    run(&client, &format!("alter database \"{}\" set default_transaction_read_only = on", database.name())).await;
    let mut connection = AsyncPgConnection::establish(&database.url()).await.unwrap();
    connection.batch_execute("begin").await.unwrap();
    let message = Message::json("t", &1).unwrap();
    let error = Outbox::default().enqueue(&mut connection, &message).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ReadOnly, "{error:?}");
}
