// The front page is the README. Its example is of tokio-postgres, and is compiled where that feature is on.
#![cfg_attr(feature = "tokio-postgres", doc = include_str!("../README.md"))]
#![cfg_attr(not(feature = "tokio-postgres"), doc = "The database side of Postrider, a transactional outbox.")]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(
    not(all(feature = "postgres", feature = "sqlite")),
    expect(dead_code, reason = "errors and records of the stores that this build leaves out")
)]

pub mod doctor;
pub mod enqueue;
mod error;
pub mod explain;
#[cfg(feature = "postgres")]
pub mod import;
pub mod inbox;
pub mod inspect;
mod json;
pub mod lifecycle;
mod message;
#[cfg(feature = "postgres")]
pub mod migrate;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod migration;
pub mod operate;
mod record;
mod schema;
mod statement;
mod store;
#[cfg(feature = "testing")]
pub mod testing;
pub mod text;
mod words;

/// An outbox in SQLite, inside the application's own file and its own rusqlite transactions.
#[cfg(feature = "sqlite")]
pub mod sqlite {
    pub use crate::enqueue::rusqlite::{enqueue, enqueue_many};
    pub use crate::inbox::rusqlite::{prune_inbox, receive, receive_many};
    pub use crate::store::sqlite::{holds_outbox, migrate, try_enqueue};
}

pub use crate::enqueue::{Enqueue, Enqueued, MAX_BATCH_MESSAGES, Outbox};
pub use crate::error::{Error, ErrorKind, InvalidMessage};
pub use crate::inbox::{Event, Inbox, Receive};
pub use crate::inspect::Inspect;
pub use crate::message::{Message, limit};
pub use crate::operate::Operate;
pub use crate::schema::Schema;
#[cfg(feature = "postgres")]
pub use crate::store::postgres::{PostgresConnection, PostgresStore};
#[cfg(feature = "sqlite")]
pub use crate::store::sqlite::SqliteStore;
pub use crate::store::{Listener, OnDead, Queue, Route, Store};
