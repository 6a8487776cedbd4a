//! The PostgreSQL store: each transition is one call of one SQL function, one round trip. Statements carry their types
//! and are not prepared, so everything works through a pooler in transaction mode. No row is written any other way.

mod claim;
mod complete;
mod connect;
mod dead;
mod hosts;
mod inspect;
mod lease;
mod list;
mod listen;
mod operate;
mod pending;
mod pool;
mod prune;
pub(crate) mod statement;
#[cfg(feature = "testing")]
mod testing;
mod tls;
mod url;
mod watch;

use std::time::Duration;

use async_trait::async_trait;
use tokio_postgres::IsolationLevel;
use uuid::Uuid;

use self::connect::Connector;
use self::pool::Pool;
pub use self::pool::PostgresConnection;
use crate::enqueue::{self, Batch, Enqueued, Outbox, Statement};
use crate::error::Error;
use crate::inbox::{Event, Inbox};
use crate::inspect::RelayReport;
use crate::lifecycle::{Claim, Claimed, ClaimedContent, Completed, Completion, LeaseToken};
use crate::message::Message;
use crate::migrate;
use crate::schema::Schema;
use crate::store::{Listener, Pruned, Queue};

/// An outbox in a PostgreSQL database, behind a small pool of connections.
#[derive(Clone)]
pub struct PostgresStore {
    pool: Pool,
    schema: Schema,
}

impl PostgresStore {
    /// Connects, and checks that the schema is one this build understands.
    ///
    /// `url` is `postgres://user:password@host:port/database?sslmode=…`; see `docs/operating/install.md` for the modes.
    pub async fn connect(url: &str, schema: Schema) -> Result<Self, Error> {
        let store = Self::open(url, schema)?;
        let connection = store.connection().await?;
        migrate::check(&*connection, &store.schema).await?;
        Ok(store)
    }

    /// Connects without looking at the schema: for migrations.
    pub fn open(url: &str, schema: Schema) -> Result<Self, Error> {
        Ok(Self { pool: Pool::new(Connector::new(url)?)?, schema })
    }

    /// A connection of the pool.
    pub async fn connection(&self) -> Result<PostgresConnection, Error> {
        self.pool.get().await
    }

    /// Where it is: `host:port,host:port/database`, without user and password.
    #[must_use]
    pub fn place(&self) -> &str {
        self.pool.connector().target()
    }

    /// The schema the outbox is in.
    #[must_use]
    pub fn schema(&self) -> &Schema {
        &self.schema
    }
}

#[async_trait]
impl Queue for PostgresStore {
    async fn enqueue(&self, messages: &[Message]) -> Result<Vec<Enqueued>, Error> {
        enqueue::check_many(messages)?;
        if messages.is_empty() {
            return Ok(Vec::new());
        }
        // The one statement is a transaction of its own.
        let Statement { sql, parameters } = Batch::new(&self.schema, messages).postgres()?;
        let rows = self.query(&sql, &enqueue::tokio_postgres::parameters(&parameters)).await?;
        rows.iter().map(enqueue::tokio_postgres::enqueued).collect()
    }

    async fn claim(&self, claim: &Claim) -> Result<Vec<Claimed>, Error> {
        claim::claim(self, claim).await
    }

    async fn complete(&self, worker_id: &str, completions: &[Completion]) -> Result<Vec<Completed>, Error> {
        complete::complete(self, worker_id, completions).await
    }

    async fn renew(&self, token: LeaseToken, message_ids: &[Uuid], lease: Duration) -> Result<Vec<Uuid>, Error> {
        lease::renew(self, token, message_ids, lease).await
    }

    async fn abandon(&self, token: LeaseToken) -> Result<u64, Error> {
        lease::abandon(self, token).await
    }

    async fn has_due(&self, sink: &str, tenant_id: Option<&str>) -> Result<bool, Error> {
        claim::has_due(self, sink, tenant_id).await
    }

    async fn content(&self, token: LeaseToken, message_id: Uuid) -> Result<Option<ClaimedContent>, Error> {
        lease::content(self, token, message_id).await
    }

    async fn release(&self, token: LeaseToken, message_ids: &[Uuid]) -> Result<Vec<Uuid>, Error> {
        lease::release(self, token, message_ids).await
    }

    async fn repair_expired_leases(&self, batch_size: u32) -> Result<u64, Error> {
        lease::repair(self, batch_size).await
    }

    async fn prune(&self) -> Result<Pruned, Error> {
        prune::prune(self).await
    }

    async fn forward(&self, arrivals: &[(Event, Message)]) -> Result<Vec<bool>, Error> {
        let (events, messages): (Vec<Event>, Vec<Message>) = arrivals.iter().cloned().unzip();
        enqueue::check_many(&messages)?;
        let mut call = self.pool.call().await?;
        let client = call.client();
        let done = async {
            let tx = client.build_transaction().isolation_level(IsolationLevel::ReadCommitted).start().await?;
            let inbox = Inbox::new(self.schema.clone());
            let (limited, first) =
                futures_util::future::join(tx.batch_execute(statement::LIMIT), inbox.receive_many(&tx, &events)).await;
            limited?;
            let first = first?;
            let new: Vec<Message> =
                messages.into_iter().zip(&first).filter(|(_, first)| **first).map(|(message, _)| message).collect();
            Outbox::new(self.schema.clone()).enqueue_many(&tx, &new).await?;
            tx.commit().await?;
            Ok(first)
        }
        .await;
        call.end(done)
    }

    async fn prune_inbox(&self, older_than: Option<Duration>) -> Result<u64, Error> {
        prune::prune_inbox(self, older_than).await
    }

    async fn make_partitions(&self) -> Result<u64, Error> {
        prune::make_partitions(self).await
    }

    async fn sleep(&self, worker_id: &str, at_most: Duration) -> Result<(), Error> {
        watch::sleep(self, worker_id, at_most).await
    }

    async fn woke(&self, worker_id: &str) -> Result<(), Error> {
        watch::woke(self, worker_id).await
    }

    async fn listen(&self) -> Result<Box<dyn Listener>, Error> {
        Ok(Box::new(listen::PostgresListener::connect(self).await?))
    }

    async fn can_write(&self) -> Result<(), Error> {
        watch::can_write(self).await
    }

    async fn report(&self, report: &RelayReport) -> Result<(), Error> {
        watch::report(self, report).await
    }

    async fn sign_off(&self, worker_id: &str) -> Result<(), Error> {
        watch::sign_off(self, worker_id).await
    }

    async fn measure(&self) -> Result<bool, Error> {
        watch::measure(self).await
    }
}
