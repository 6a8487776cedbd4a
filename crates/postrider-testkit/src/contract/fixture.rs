//! Where the contract runs: a fresh outbox in PostgreSQL or SQLite, and hands on it. A further store needs one more type
//! here and nothing else.

use std::future::Future;
use std::sync::Arc;

use postrider::{PostgresStore, Schema, SqliteStore, Store};
use tempfile::TempDir;

use crate::contract::Hand;
use crate::database::{Database, database};

/// A fresh outbox.
pub trait Fixture: Sized + Send + Sync {
    /// Nobody else uses it.
    fn fresh() -> impl Future<Output = Self> + Send;

    /// A store on it, as another process would open one.
    fn open(&self) -> impl Future<Output = Arc<dyn Store>> + Send;

    /// A fresh outbox and one hand on it.
    #[must_use]
    fn one_hand() -> impl Future<Output = (Self, Hand)> + Send {
        async {
            let outbox = Self::fresh().await;
            let hand = Hand::new(outbox.open().await);
            (outbox, hand)
        }
    }

    /// A fresh outbox and two hands on it, which share nothing but the rows.
    #[must_use]
    fn two_hands() -> impl Future<Output = (Self, Hand, Hand)> + Send {
        async {
            let (outbox, hand) = Self::one_hand().await;
            let other = Hand::new(outbox.open().await);
            (outbox, hand, other)
        }
    }
}

/// A database of a private PostgreSQL server.
pub struct OnPostgres(Database);

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

impl Fixture for OnSqlite {
    async fn fresh() -> Self {
        Self(tempfile::tempdir().expect("a temporary directory can be made"))
    }

    async fn open(&self) -> Arc<dyn Store> {
        Arc::new(SqliteStore::open(self.0.path().join("outbox.db")).expect("a fresh file can be opened"))
    }
}
