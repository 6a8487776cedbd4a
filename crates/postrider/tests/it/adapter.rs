//! Drivers that the crate has no adapter for, written as a user would write them: with the public API alone. The messages
//! must be in the caller's transaction, and the answers as from the adapters of the crate.

use std::future::ready;

use postrider::enqueue::{Batch, PostgresArray, SqliteAnswer, SqliteValue, Statement};
use postrider::inbox::{self, Event, Inbox, Receive};
use postrider::{Enqueue, Enqueued, Error, ErrorKind, Message, Outbox, SqliteStore};
use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row};
use uuid::Uuid;

use crate::support::{fresh, number};

/// A connection on which the caller has begun a transaction by hand.
struct Plain<'a>(&'a Client);

impl Plain<'_> {
    async fn rows(&self, statement: Statement<PostgresArray<'_>>) -> Result<Vec<Row>, Error> {
        let parameters: Vec<(&(dyn ToSql + Sync), Type)> = statement
            .parameters
            .iter()
            .map(|array| -> (&(dyn ToSql + Sync), Type) {
                match array {
                    PostgresArray::Text(texts) => (texts, Type::TEXT_ARRAY),
                    PostgresArray::Uuid(ids) => (ids, Type::UUID_ARRAY),
                    PostgresArray::Integer(numbers) => (numbers, Type::INT4_ARRAY),
                    PostgresArray::BigInteger(numbers) => (numbers, Type::INT8_ARRAY),
                    PostgresArray::Bytes(bytes) => (bytes, Type::BYTEA_ARRAY),
                }
            })
            .collect();
        self.0.query_typed(&statement.sql, &parameters).await.map_err(|error| match error.as_db_error() {
            Some(said) => Error::from_sqlstate(said.code().code(), said.message(), said.hint(), error.to_string()),
            None => Error::from_driver(error),
        })
    }
}

impl Enqueue for Plain<'_> {
    async fn write(self, batch: &Batch<'_>) -> Result<Vec<Enqueued>, Error> {
        let rows = self.rows(batch.postgres()?).await?;
        Ok(rows.iter().map(|row| Enqueued::new(row.get(0), row.get(1), row.get(2))).collect())
    }
}

impl Receive for Plain<'_> {
    async fn receive(self, batch: &inbox::Batch<'_>) -> Result<Vec<bool>, Error> {
        Ok(self.rows(batch.postgres()).await?.iter().map(|row| row.get(0)).collect())
    }
}

#[tokio::test]
async fn a_driver_of_ones_own_on_postgresql() {
    let (_database, client) = fresh().await;
    let messages = [Message::json("a", &1).unwrap().lane("l"), Message::bytes("b", vec![7], "x/y").dedupe_key("k")];
    for (end, expected) in [("rollback", 0), ("commit", 2)] {
        client.batch_execute("begin").await.unwrap();
        let written = Outbox::default().enqueue_many(Plain(&client), &messages).await.unwrap();
        assert_eq!(
            written.iter().map(|one| (one.sequence_id, one.created)).collect::<Vec<_>>(),
            [(Some(1), true), (None, true)]
        );
        client.batch_execute(end).await.unwrap();
        assert_eq!(number(&client, "select count(*) from outbox.message").await, expected, "{end}");
    }
    let event = Event::new(Uuid::now_v7()).lane("l", 1);
    assert!(Inbox::default().receive(Plain(&client), &event).await.unwrap());
    assert!(!Inbox::default().receive(Plain(&client), &event).await.unwrap());
    let wide = Message::json("t", &vec![1_u8; 6_000_000]).unwrap();
    let error = Outbox::default().enqueue(Plain(&client), &wide).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Refused && error.hint().is_some(), "{error:?}");
}

/// A driver whose calls block: it has its answer before anybody waits for it.
struct Blocking<'a>(&'a Connection);

impl Blocking<'_> {
    fn run(&self, statement: &Statement<SqliteValue<'_>>) -> rusqlite::Result<usize> {
        self.0.execute(&statement.sql, params_from_iter(values(statement)))
    }

    fn write_all(&self, batch: &Batch<'_>) -> Result<Vec<Enqueued>, Error> {
        let mut written = Vec::new();
        for one in batch.sqlite() {
            let one = one?;
            self.run(&one.insert).map_err(Error::from_driver)?;
            written.push(match one.answer {
                SqliteAnswer::Known(enqueued) => enqueued,
                SqliteAnswer::Ask(ask) => self
                    .0
                    .query_row(&ask.sql, params_from_iter(values(&ask)), |row| {
                        Ok(Enqueued::new(row.get(0)?, row.get(1)?, row.get(2)?))
                    })
                    .map_err(Error::from_driver)?,
            });
        }
        Ok(written)
    }
}

fn values(statement: &Statement<SqliteValue<'_>>) -> impl Iterator<Item = Value> {
    statement.parameters.iter().map(|value| match value {
        SqliteValue::Null => Value::Null,
        SqliteValue::Integer(number) => Value::Integer(*number),
        SqliteValue::Text(text) => Value::Text(text.to_string()),
        SqliteValue::Blob(bytes) => Value::Blob(bytes.to_vec()),
    })
}

impl Enqueue for Blocking<'_> {
    fn write(self, batch: &Batch<'_>) -> impl Future<Output = Result<Vec<Enqueued>, Error>> + Send {
        let begun = self.0.execute_batch(Batch::SQLITE_BEGIN).map_err(Error::from_driver);
        let written = begun.and_then(|()| self.write_all(batch));
        let end = if written.is_ok() { Batch::SQLITE_KEEP } else { Batch::SQLITE_UNDO };
        ready(self.0.execute_batch(end).map_err(Error::from_driver).and(written))
    }
}

impl Receive for Blocking<'_> {
    fn receive(self, batch: &inbox::Batch<'_>) -> impl Future<Output = Result<Vec<bool>, Error>> + Send {
        ready(batch.sqlite().map(|one| Ok(self.run(&one).map_err(Error::from_driver)? == 1)).collect())
    }
}

#[tokio::test]
async fn a_driver_of_ones_own_on_sqlite() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("app.db");
    drop(SqliteStore::open(&path).unwrap());
    let mut connection = Connection::open(&path).unwrap();
    let messages = [Message::json("a", &1).unwrap().lane("l"), Message::bytes("b", vec![7], "x/y")];
    for (commit, expected) in [(false, 0), (true, 2)] {
        let tx = connection.transaction().unwrap();
        let written = Outbox::default().enqueue_many(Blocking(&tx), &messages).await.unwrap();
        assert_eq!(written.iter().map(|one| one.sequence_id).collect::<Vec<_>>(), [Some(1), None]);
        let end = if commit { tx.commit() } else { tx.rollback() };
        end.unwrap();
        let count = connection.query_row("select count(*) from outbox_message", [], |row| row.get::<_, i64>(0));
        assert_eq!(count.unwrap(), expected);
    }
    let event = Event::new(Uuid::now_v7()).lane("l", 1);
    assert!(Inbox::default().receive(Blocking(&connection), &event).await.unwrap());
    assert!(!Inbox::default().receive(Blocking(&connection), &event).await.unwrap());
}
