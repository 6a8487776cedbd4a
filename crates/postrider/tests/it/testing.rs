//! The kit for an application's tests: each driver sees what its own transaction has enqueued, what is missing is told with what
//! is there, and time can be moved on either store.

use std::time::Duration;

use diesel_async::{AsyncConnection as _, AsyncPgConnection};
use postrider::lifecycle::Claim;
use postrider::testing::{Expected, MovableClock, enqueued};
use postrider::{Message, Outbox, PostgresStore, Schema, SqliteStore, assert_enqueued};
use sea_orm::TransactionTrait as _;
use serde_json::json;
use sqlx::{Connection as _, PgConnection, SqliteConnection};

use crate::support::fresh;

fn message() -> Message {
    Message::json("order.placed", &json!({"order": 7, "lines": [{"sku": "a", "count": 2}]}))
        .unwrap()
        .namespace("shop")
        .lane("customer-7")
        .dedupe_key("order/7")
        .header("trace", "abc")
}

/// In the caller's transaction, before its commit. A macro: every driver borrows its transaction in its own way.
macro_rules! sees_its_own {
    ($tx:expr) => {{
        let message = message();
        Outbox::default().enqueue($tx, &message).await.unwrap();
        let part = json!({"lines": [{"count": 2}]});
        let written = assert_enqueued!(
            $tx,
            "order.placed",
            payload = part,
            namespace = "shop",
            lane = "customer-7",
            dedupe_key = "order/7",
        );
        assert_eq!((written.sequence_id, written.headers["trace"].as_str()), (Some(1), "abc"));
        assert_eq!(enqueued($tx, &Schema::default()).await.unwrap(), [written]);
    }};
}

#[tokio::test]
async fn every_driver_sees_what_its_transaction_enqueued() {
    let (database, mut client) = fresh().await;
    let tx = client.transaction().await.unwrap();
    sees_its_own!(&tx);
    tx.rollback().await.unwrap();
    assert!(enqueued(&client, &Schema::default()).await.unwrap().is_empty(), "it was rolled back");

    let mut connection = PgConnection::connect(&database.url()).await.unwrap();
    let mut tx = connection.begin().await.unwrap();
    sees_its_own!(&mut tx);
    tx.rollback().await.unwrap();

    let tx = sea_orm::Database::connect(database.url()).await.unwrap().begin().await.unwrap();
    sees_its_own!(&tx);
    tx.rollback().await.unwrap();

    let mut connection = AsyncPgConnection::establish(&database.url()).await.unwrap();
    connection.begin_test_transaction().await.unwrap();
    sees_its_own!(&mut connection);
}

#[tokio::test]
async fn sqlite_drivers_see_what_their_transactions_enqueued() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("app.db");
    drop(SqliteStore::open(&path).unwrap());
    let mut connection = SqliteConnection::connect(&format!("sqlite:{}", path.display())).await.unwrap();
    let mut tx = connection.begin().await.unwrap();
    sees_its_own!(&mut tx);
    tx.rollback().await.unwrap();

    let connection = rusqlite::Connection::open(&path).unwrap();
    connection.execute_batch("begin").unwrap();
    postrider::sqlite::enqueue(&connection, &message()).unwrap();
    assert_enqueued!(&connection, "order.placed", payload = json!({"order": 7}), lane = "customer-7");
}

/// What is missing is told with what is there, and what about it is other.
#[tokio::test]
async fn what_is_missing_is_told() {
    let (_database, mut client) = fresh().await;
    let tx = client.transaction().await.unwrap();
    let expected = || Expected::topic("order.placed").lane("customer-8").payload(json!({"order": 8}));
    let nothing = expected().find(&tx).await.unwrap_err();
    assert!(nothing.ends_with("There is no message at all."), "{nothing}");

    Outbox::default().enqueue(&tx, &message()).await.unwrap();
    let long = Message::bytes("order.paid", vec![0; 10], "x/y");
    Outbox::default().enqueue_many(&tx, &vec![long; 25]).await.unwrap();
    Outbox::default().enqueue(&tx, &message().dedupe_key("order/8").lane("customer-8")).await.unwrap();
    let other = expected().find(&tx).await.unwrap_err();
    let expected_first = "no message like this was enqueued:\n  \
                          {\"topic\":\"order.placed\",\"lane\":\"customer-8\",\"payload\":{\"order\":8}}\n\
                          There are, the newest first:\n  \
                          {\"topic\":\"order.placed\",\"lane\":\"customer-8\",\"dedupe_key\":\"order/8\"} with the payload \
                          {\"lines\":[{\"count\":2,\"sku\":\"a\"}],\"order\":7} (other: payload)\n  \
                          {\"topic\":\"order.paid\"} with the payload bytes (other: topic, lane, payload)\n";
    assert!(other.starts_with(expected_first), "{other}");
    assert!(other.ends_with("\n  … and 7 more"), "{other}");
    for (what, other) in [
        (Expected::topic("order.placed").namespace("other"), "namespace"),
        (Expected::topic("order.placed").tenant("acme"), "tenant"),
        (Expected::topic("order.placed").dedupe_key("order/9"), "dedupe_key"),
        (Expected::topic("order.placed").header("trace", "abd"), "headers"),
    ] {
        let told = what.find(&tx).await.unwrap_err();
        assert!(told.contains(&format!("(other: {other})")), "{told}");
    }
    let nowhere = Expected::topic("t").schema(Schema::new("nowhere").unwrap()).find(&tx).await.unwrap_err();
    assert!(nowhere.contains("cannot be looked at"), "{nowhere}");
}

/// A delay, a backoff and a lease are over when the time was moved past them, and not before.
async fn time_moves(store: &impl MovableClock) {
    let claim = async || store.claim(&Claim::new("w").lease(Duration::from_hours(1))).await.unwrap();
    let later = Message::json("t", &1).unwrap().delay(Duration::from_hours(2));
    store.enqueue(&[later]).await.unwrap();
    store.advance(Duration::from_mins(119)).await.unwrap();
    assert!(claim().await.is_empty());
    store.advance(Duration::from_mins(2)).await.unwrap();
    let held = claim().await.remove(0);
    store.nack("w", &held, Duration::from_mins(10), postrider::lifecycle::Failure::default()).await.unwrap();
    store.advance(Duration::from_mins(9)).await.unwrap();
    assert!(claim().await.is_empty());
    store.advance(Duration::from_mins(2)).await.unwrap();
    assert_eq!(claim().await[0].attempt_no, 2);
    store.advance(Duration::from_mins(59)).await.unwrap();
    assert!(claim().await.is_empty(), "it is held");
    store.advance(Duration::from_mins(2)).await.unwrap();
    let held = claim().await.remove(0);
    assert_eq!((held.attempt_no, held.lost_leases), (3, 1));
    store.ack("w", &held).await.unwrap();
}

#[tokio::test]
async fn time_moves_in_postgres() {
    let (database, _client) = fresh().await;
    time_moves(&PostgresStore::connect(&database.url(), Schema::default()).await.unwrap()).await;
}

#[tokio::test]
async fn time_moves_in_sqlite() {
    let directory = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(directory.path().join("app.db")).unwrap();
    time_moves(&store).await;
    let before = postrider::Inspect::now(&store).await.unwrap();
    let ahead = before.duration_since(std::time::SystemTime::now()).unwrap();
    assert!(ahead > Duration::from_mins(192), "the file's own clock: {ahead:?}");
    // The file is as good as any other: another store opens it, and time goes on.
    drop(store);
    let store = SqliteStore::open(directory.path().join("app.db")).unwrap();
    assert!(postrider::Inspect::now(&store).await.unwrap() >= before);
    time_moves(&store).await;
}
