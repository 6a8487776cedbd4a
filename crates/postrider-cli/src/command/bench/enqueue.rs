//! Producers: one message in each transaction, or batches. Each has a connection of its own and has written once before the
//! clock starts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use postrider::{Message, Outbox, PostgresConnection};
use serde_json::value::RawValue;
use tokio::task::JoinSet;
use tokio_postgres::Statement;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::place::Postgres;
use super::run::{Run, Watch};
use super::{Bench, floor, load};
use crate::exit_code::ExitCode;
use crate::failure::{Failure, Result};

const FUNCTION: &str = "select message_id from :\"schema\".enqueue(topic => 'bench', payload => $1::text::jsonb)";

/// How a message is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// The library, in a transaction of the producer's: begin, enqueue, commit.
    Library,
    /// The SQL function as a prepared statement, which is its own transaction.
    Function,
    /// The floor of the library: begin, insert, commit.
    InsertInTransaction,
    /// The floor of the function.
    Insert,
    /// Begin, insert into one table with word of it, commit.
    Notify,
}

pub(super) struct Producer {
    client: PostgresConnection,
    way: Way,
    outbox: Outbox,
    message: Message,
    payload: String,
    sql: String,
    /// `None` where the driver sends the text each time, as the library does.
    prepared: Option<Statement>,
    channel: String,
}

impl Producer {
    pub(super) async fn new(place: &Postgres, way: Way, payload_bytes: u32) -> Result<Self> {
        let client = place.client().await?;
        let payload = load::payload(payload_bytes);
        let sql = place.fill(match way {
            Way::Library | Way::Function => FUNCTION,
            Way::InsertInTransaction | Way::Insert => floor::INSERT_ONE,
            Way::Notify => floor::NOTIFY,
        });
        let prepared = match way {
            Way::Library | Way::InsertInTransaction => None,
            Way::Function | Way::Insert | Way::Notify => Some(client.prepare(&sql).await?),
        };
        Ok(Self {
            prepared,
            client,
            way,
            outbox: Outbox::new(place.schema.clone()),
            message: message(&payload)?,
            payload,
            sql,
            channel: format!("{}.due", place.schema),
        })
    }

    /// Writes one message; when this returns it is committed.
    pub(super) async fn once(&mut self) -> Result<Uuid> {
        let id = Uuid::now_v7();
        if self.way == Way::Library {
            let tx = self.client.transaction().await?;
            let enqueued = self.outbox.enqueue(&tx, &self.message).await?;
            tx.commit().await?;
            return Ok(enqueued.message_id);
        }
        match (self.way, &self.prepared) {
            (Way::Function, Some(call)) => {
                return Ok(self.client.query_one(call, &[&self.payload]).await?.try_get(0)?);
            }
            (Way::Notify, Some(insert)) => {
                let tx = self.client.transaction().await?;
                tx.query(insert, &[&id, &self.payload, &self.channel]).await?;
                tx.commit().await?;
            }
            (_, Some(insert)) => self.client.execute(insert, &[&id, &self.payload]).await.map(drop)?,
            (_, None) => {
                let tx = self.client.transaction().await?;
                tx.query_typed(&self.sql, &[(&id, Type::UUID), (&self.payload, Type::TEXT)]).await?;
                tx.commit().await?;
            }
        }
        Ok(id)
    }
}

fn message(payload: &str) -> Result<Message> {
    let payload: &RawValue = serde_json::from_str(payload).map_err(internal)?;
    Message::json("bench", payload).map_err(internal)
}

fn internal(error: impl std::fmt::Display) -> Failure {
    Failure::new(ExitCode::Failure, format!("the payload cannot be built: {error}"))
}

/// Each in a transaction of its own, by so many producers at once.
pub(super) async fn single(bench: &Bench<Postgres>, way: Way, clients: u16) -> Result<Run> {
    let each = (bench.size.single() / u32::from(clients)).max(1);
    let done = Arc::new(AtomicU64::new(0));
    let mut producers = Vec::new();
    for _ in 0..clients {
        let mut producer = Producer::new(&bench.place, way, bench.size.payload_bytes).await?;
        producer.once().await?;
        producers.push(producer);
    }
    let seen = Arc::clone(&done);
    let watch = Watch::start(&bench.place, move || seen.load(Ordering::Relaxed)).await?;
    let mut tasks = JoinSet::new();
    for mut producer in producers {
        let done = Arc::clone(&done);
        tasks.spawn(async move {
            for _ in 0..each {
                producer.once().await?;
                done.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        });
    }
    all(tasks).await?;
    watch.finish(&bench.place, u64::from(each) * u64::from(clients)).await
}

/// Waits for tasks; the first failure is the answer.
pub(super) async fn all(mut tasks: JoinSet<Result<()>>) -> Result<()> {
    while let Some(ended) = tasks.join_next().await {
        ended.map_err(|error| Failure::new(ExitCode::Failure, format!("a producer failed: {error}")))??;
    }
    Ok(())
}

/// How a batch is written: by the library, or by one statement.
#[derive(Debug, Clone, Copy)]
pub(super) enum BatchWay {
    Library,
    Floor(&'static str),
}

/// Batches, each in a transaction, by one producer.
pub(super) async fn batches(bench: &Bench<Postgres>, way: BatchWay, payload_bytes: u32, messages: u32) -> Result<Run> {
    let (place, size) = (&bench.place, bench.size.batch.min(load::batch_of(payload_bytes)));
    let mut client = place.client().await?;
    let payload = load::payload(payload_bytes);
    let many = vec![message(&payload)?; size as usize];
    let outbox = Outbox::new(place.schema.clone());
    let insert = match way {
        BatchWay::Library => None,
        BatchWay::Floor(sql) => Some(client.prepare(&place.fill(sql)).await?),
    };
    let done = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&done);
    let watch = Watch::start(place, move || seen.load(Ordering::Relaxed)).await?;
    for batch in load::batches(messages, size) {
        let tx = client.transaction().await?;
        match &insert {
            None => drop(outbox.enqueue_many(&tx, &many[..batch as usize]).await?),
            Some(insert) => {
                let payloads = vec![payload.as_str(); batch as usize];
                tx.execute(insert, &[&load::ids(batch), &payloads]).await?;
            }
        }
        tx.commit().await?;
        done.fetch_add(u64::from(batch), Ordering::Relaxed);
    }
    watch.finish(place, u64::from(messages)).await
}
