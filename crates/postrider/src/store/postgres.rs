//! The PostgreSQL store: each transition is one call of one SQL function, one round trip. Statements carry their types
//! and are not prepared, so everything works through a pooler in transaction mode. No row is written any other way.

mod connect;
mod hosts;
mod inspect;
mod list;
mod listen;
mod operate;
mod pool;
mod queue;
pub(crate) mod statement;
#[cfg(feature = "testing")]
mod testing;
mod tls;
mod url;

use self::connect::Connector;
use self::pool::Pool;
pub use self::pool::PostgresConnection;
use crate::error::Error;
use crate::migrate;
use crate::schema::Schema;

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
