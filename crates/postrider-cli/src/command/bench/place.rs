//! Where it is measured: a schema of its own in a PostgreSQL database, made anew for every run and removed at the end, or a
//! directory of its own for SQLite. It never touches a schema that it did not make. The URL may hold a password and is shown
//! nowhere.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use postrider::{PostgresConnection, PostgresStore, Schema, migrate};

use super::server::Server;
use super::wire::{self, Wire};
use crate::exit_code::ExitCode;
use crate::failure::{Failure, Result};

const TABLES: &str = include_str!("sql/floor.sql");
const POSITION: &str = include_str!("sql/position.sql");
/// Dropping a schema waits for statements that are still under way, and may meet one of them in a deadlock.
const DROP_TRIES: u32 = 10;
const DROP_AGAIN_AFTER: Duration = Duration::from_millis(300);

/// How far a store is.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Position {
    pub(super) wal_bytes: Option<i64>,
    pub(super) commits: Option<i64>,
    pub(super) round_trips: Option<u64>,
}

/// What every place can be asked.
pub(super) trait Place {
    /// An outbox with nothing in it, in place of the one before.
    async fn fresh(&self) -> Result<()>;

    async fn position(&self) -> Result<Position>;
}

/// A PostgreSQL database.
#[derive(Clone)]
pub(super) struct Postgres {
    url: String,
    /// Past any proxy.
    direct_url: String,
    pub(super) schema: Schema,
    /// All that were made, by this and by those beside it.
    made: Rc<RefCell<Vec<Schema>>>,
    round_trips: Option<Arc<AtomicU64>>,
    server: Option<Arc<Server>>,
}

impl Postgres {
    /// A database that was given.
    pub(super) fn at(url: String) -> Result<Self> {
        let direct_url = url.clone();
        Ok(Self { url, direct_url, schema: fresh_name()?, made: Rc::default(), round_trips: None, server: None })
    }

    /// A server of its own, which ends with the last of these.
    pub(super) fn on(server: Arc<Server>) -> Result<Self> {
        let place = Self::at(server.url())?;
        Ok(Self { server: Some(server), ..place })
    }

    pub(super) fn is_private(&self) -> bool {
        self.server.is_some()
    }

    /// Another schema of the same database.
    pub(super) fn beside(&self, name: &str) -> Result<Self> {
        Ok(Self { schema: Schema::new(format!("{}_{name}", self.schema))?, ..self.clone() })
    }

    /// The same, through a proxy that counts round trips.
    pub(super) fn through(&self, wire: &Wire) -> Self {
        let (begin, between) = match (self.url.contains("://"), self.url.contains('?')) {
            (true, true) => ("&", "&"),
            (true, false) => ("?", "&"),
            (false, _) => (" ", " "),
        };
        let options = [format!("host={}", wire::HOST), format!("port={}", wire.port()), "sslmode=disable".to_owned()];
        let url = format!("{}{begin}{}", self.url, options.join(between));
        Self { url, round_trips: Some(wire.count()), ..self.clone() }
    }

    /// A store with connections of its own.
    pub(super) fn store(&self) -> Result<PostgresStore> {
        Ok(PostgresStore::open(&self.url, self.schema.clone())?)
    }

    /// A connection of its own.
    pub(super) async fn client(&self) -> Result<PostgresConnection> {
        Ok(self.store()?.connection().await?)
    }

    pub(super) fn fill(&self, sql: &str) -> String {
        sql.replace(":\"schema\"", &self.schema.quoted())
    }

    /// Removes every schema that was made. Nobody works in them any more.
    pub(super) async fn remove(&self) -> Result<()> {
        let schemas = self.made.take();
        for schema in schemas {
            self.drop_schema(&schema).await?;
        }
        Ok(())
    }

    async fn drop_schema(&self, schema: &Schema) -> Result<()> {
        let client = self.client().await?;
        let drop = format!("drop schema if exists {} cascade", schema.quoted());
        let mut tries = 1;
        while let Err(error) = client.batch_execute(&drop).await {
            if tries == DROP_TRIES {
                let failure = Failure::from(error);
                return Err(failure.hint(format!("the measurement's schema is still there: {drop}")));
            }
            tries += 1;
            tokio::time::sleep(DROP_AGAIN_AFTER).await;
        }
        Ok(())
    }
}

impl Place for Postgres {
    async fn fresh(&self) -> Result<()> {
        let mine = self.made.borrow().contains(&self.schema);
        if mine {
            self.drop_schema(&self.schema).await?;
        } else {
            // Its name is random; if it is there nevertheless, this fails and the schema stays as it is.
            self.client().await?.batch_execute(&format!("create schema {}", self.schema.quoted())).await?;
            self.made.borrow_mut().push(self.schema.clone());
        }
        let mut client = self.client().await?;
        migrate::up(&mut client, &self.schema).await?;
        Ok(client.batch_execute(&self.fill(TABLES)).await?)
    }

    async fn position(&self) -> Result<Position> {
        let control = PostgresStore::open(&self.direct_url, self.schema.clone())?.connection().await?;
        let row = control.query_one(POSITION, &[]).await?;
        Ok(Position {
            wal_bytes: Some(row.try_get(0)?),
            commits: Some(row.try_get(1)?),
            round_trips: self.round_trips.as_ref().map(|count| count.load(Ordering::Relaxed)),
        })
    }
}

fn fresh_name() -> Result<Schema> {
    let name = format!("postrider_bench_{:08x}", rand::random::<u32>());
    Schema::new(name).map_err(|error| Failure::new(ExitCode::Failure, error.in_short()))
}
