//! The transactional outbox for people who cannot lose a message.
//!
//! An application writes a message inside its own database transaction: both commit or neither does. A relay then
//! delivers it, at least once, in order where order matters. This crate is the database side: the [`Message`] and how
//! it is enqueued, the [`Store`] with one method for each transition of a delivery, and the migrations. It
//! sends nothing; that is the relay's work. (A store in PostgreSQL has a task for each of its connections; a store in
//! SQLite has two threads of its own, since SQLite's calls block.)
//!
//! ```no_run
//! # async fn example(client: &mut tokio_postgres::Client) -> Result<(), Box<dyn std::error::Error>> {
//! use postrider::{Message, Outbox};
//!
//! let outbox = Outbox::default();
//! let tx = client.transaction().await?;
//! tx.execute("insert into orders (id) values ($1)", &[&7_i64]).await?;
//! let message = Message::json("order.placed", &serde_json::json!({"id": 7}))?.lane("order-7");
//! outbox.enqueue(&tx, &message).await?;
//! tx.commit().await?;
//! # Ok(()) }
//! ```

pub mod doctor;
pub mod enqueue;
mod error;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod explain;
pub mod inbox;
mod inspect;
mod json;
mod lifecycle;
mod message;
#[cfg(feature = "postgres")]
pub mod migrate;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod migration;
mod operate;
mod schema;
mod statement;
mod store;

/// An outbox in SQLite, inside the application's own file and its own rusqlite transactions.
#[cfg(feature = "sqlite")]
pub mod sqlite {
    pub use crate::enqueue::rusqlite::{enqueue, enqueue_many};
    pub use crate::inbox::rusqlite::{prune_inbox, receive, receive_many};
    pub use crate::store::sqlite::migrate;
}

pub use crate::enqueue::{Enqueue, Enqueued, MAX_BATCH_MESSAGES, Outbox};
pub use crate::error::{Error, ErrorKind, InvalidMessage};
pub use crate::inbox::{Event, Inbox, Receive};
pub use crate::inspect::{
    AttemptRecord, AuditRecord, DeadFilter, DeadGroup, DeadLetter, DeadPage, DeliveryFilter, DeliveryRecord, Entry,
    Explanation, FutureTimes, IdTail, Inspect, LaneFilter, LaneState, LaneStatus, ListFilter, ListState,
    MAX_DEAD_GROUPS, MAX_IDS_LOOKED_AT, MAX_KEY_TOPICS, MAX_LOOKED_AT, MAX_NAMED, MAX_PAGE, MIN_ID_TAIL_DIGITS,
    MessageDetail, MessageSummary, NotAnIdTail, OpenCount, Page, Reason, RelayRecord, RelayReport, ReplayCount, Sample,
    SinkReport, SinkService, SinkState, SinkStatus, enqueued_at,
};
pub use crate::lifecycle::{
    AttemptState, Claim, Claimed, ClaimedContent, Completed, Completion, Content, Failure, LeaseToken, Outcome,
};
pub use crate::message::{Message, limit};
pub use crate::operate::{Action, Done, MAX_PER_ACTION, Replay};
pub use crate::schema::Schema;
#[cfg(feature = "postgres")]
pub use crate::store::postgres::{PostgresConnection, PostgresStore};
#[cfg(feature = "sqlite")]
pub use crate::store::sqlite::SqliteStore;
pub use crate::store::{Listener, OnDead, Operate, Pruned, Queue, Route, Store};
