//! What is SQLite's own about the inbox: two connections to one file, sqlx, and what a statement reads.

use std::sync::mpsc;

use postrider::{Event, Inbox, SqliteStore, sqlite};
use rusqlite::TransactionBehavior;
use sqlx::{Connection as _, SqliteConnection};

use super::{connect, id};

/// The second transaction waits for the write lock, and knows when the first has ended.
#[test]
fn the_second_waits_for_the_first() {
    for (commit, expected) in [(true, false), (false, true)] {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("app.db");
        let store = SqliteStore::open(&file).unwrap();
        let event = Event::new(id());
        let mut connection = connect(file.clone());
        let first = connection.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
        assert!(sqlite::receive(&first, &event).unwrap());
        std::thread::scope(|scope| {
            let (begins, began) = mpsc::channel();
            let (file, event) = (&file, &event);
            let second = scope.spawn(move || {
                let mut connection = connect(file.clone());
                begins.send(()).unwrap();
                let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
                let first = sqlite::receive(&tx, event).unwrap();
                tx.commit().unwrap();
                first
            });
            began.recv().unwrap();
            let ended = if commit { first.commit() } else { first.rollback() };
            ended.unwrap();
            assert_eq!(second.join().unwrap(), expected, "commit: {commit}");
        });
        drop(store);
    }
}

#[tokio::test]
async fn a_sqlx_transaction_receives() {
    let directory = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(directory.path().join("app.db")).unwrap();
    let mut connection = SqliteConnection::connect(&format!("sqlite://{}", store.path().display())).await.unwrap();
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
}

#[test]
fn neither_receive_nor_prune_reads_history() {
    let directory = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(directory.path().join("app.db")).unwrap();
    let app = connect(store.path());
    let statements = include_str!("../../../sql/sqlite/statements/inbox.sql");
    for name in ["receive", "prune_candidates", "prune_lanes", "prune_event", "spans"] {
        let (_, rest) = statements.split_once(&format!("-- name: {name}\n")).unwrap();
        let sql = rest.split("-- name: ").next().unwrap();
        let mut plan = app.prepare(&format!("explain query plan {sql}")).unwrap();
        let mut rows = plan.raw_query();
        while let Some(row) = rows.next().unwrap() {
            let step: String = row.get(3).unwrap();
            // The setting is one row, and the clock is none.
            let reads_all = step.starts_with("SCAN") && !["SCAN CONSTANT ROW", "SCAN c", "SCAN s"].contains(&&*step);
            assert!(!reads_all, "{name}: {step}");
        }
    }
}
