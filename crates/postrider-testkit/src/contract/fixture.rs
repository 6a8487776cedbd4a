//! Where the contract runs: a fresh outbox in PostgreSQL or SQLite. A further store needs one more type here and nothing
//! else.

use std::sync::Arc;

use async_trait::async_trait;
use postrider::{PostgresStore, Schema, SqliteStore, Store};
use tempfile::TempDir;

use crate::database::{Database, database};

/// A fresh outbox.
#[async_trait]
pub trait Fixture: Send + Sync + 'static {
    /// Nobody else uses it.
    async fn fresh() -> Self
    where
        Self: Sized;

    /// A store on it, as another process would open one.
    async fn open(&self) -> Arc<dyn Store>;
}

/// A database of a private PostgreSQL server.
pub struct OnPostgres(Database);

#[async_trait]
impl Fixture for OnPostgres {
    async fn fresh() -> Self {
        Self(database().await)
    }

    async fn open(&self) -> Arc<dyn Store> {
        let store = PostgresStore::connect(&self.0.url(), Schema::default()).await;
        Arc::new(store.expect("a migrated database can be opened"))
    }
}

/// A file in a directory of its own, which goes with it.
pub struct OnSqlite(TempDir);

#[async_trait]
impl Fixture for OnSqlite {
    async fn fresh() -> Self {
        Self(tempfile::tempdir().expect("a temporary directory can be made"))
    }

    async fn open(&self) -> Arc<dyn Store> {
        Arc::new(SqliteStore::open(self.0.path().join("outbox.db")).expect("a fresh file can be opened"))
    }
}
