//! Enqueue inside a sqlx transaction on SQLite. The statements are those of every SQLite driver; only binding and
//! running them is here.

use ::sqlx::{Executor as _, Row as _, Sqlite, SqliteConnection, Transaction};

use super::sqlite::{BEGIN, ENQUEUE, ENQUEUED, KEEP, Parameters, UNDO};
use super::{Enqueue, Enqueued, Outbox};
use crate::error::Error;
use crate::message::Message;

impl Enqueue for &mut SqliteConnection {
    async fn write(self, _outbox: &Outbox, messages: &[Message]) -> Result<Vec<Enqueued>, Error> {
        self.execute(BEGIN).await?;
        match write_all(self, messages).await {
            Ok(enqueued) => {
                self.execute(KEEP).await?;
                Ok(enqueued)
            }
            Err(error) => {
                // Some errors (a full disk) have rolled back everything already, the savepoint with it.
                drop(::sqlx::raw_sql(UNDO).execute(self).await);
                Err(error)
            }
        }
    }
}

impl Enqueue for &mut Transaction<'_, Sqlite> {
    async fn write(self, outbox: &Outbox, messages: &[Message]) -> Result<Vec<Enqueued>, Error> {
        (&mut **self).write(outbox, messages).await
    }
}

async fn write_all(connection: &mut SqliteConnection, messages: &[Message]) -> Result<Vec<Enqueued>, Error> {
    let mut enqueued = Vec::with_capacity(messages.len());
    for message in messages {
        enqueued.push(write_one(connection, message).await?);
    }
    Ok(enqueued)
}

async fn write_one(connection: &mut SqliteConnection, message: &Message) -> Result<Enqueued, Error> {
    let row = Parameters::from_message(message)?;
    let certain = row.certain_answer();
    ::sqlx::query(ENQUEUE)
        .bind(row.message_id)
        .bind(row.topic)
        .bind(row.payload)
        .bind(row.namespace)
        .bind(row.tenant_id)
        .bind(row.lane)
        .bind(row.dedupe_key)
        .bind(row.priority)
        .bind(row.headers)
        .bind(row.due_at)
        .bind(row.occurred_at)
        .bind(row.body)
        .bind(row.content_type)
        .bind(row.delay_us)
        .execute(&mut *connection)
        .await?;
    if let Some(enqueued) = certain {
        return Ok(enqueued);
    }
    let answer = ::sqlx::query(ENQUEUED)
        .bind(row.message_id)
        .bind(row.namespace)
        .bind(row.topic)
        .bind(row.tenant_id)
        .bind(row.dedupe_key)
        .fetch_one(&mut *connection)
        .await?;
    Ok(Enqueued { message_id: answer.try_get(0)?, sequence_id: answer.try_get(1)?, created: answer.try_get(2)? })
}
