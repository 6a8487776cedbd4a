// The front page is the README. Its example is of tokio-postgres, and is compiled where that feature is on.
#![cfg_attr(feature = "tokio-postgres", doc = include_str!("../README.md"))]
#![cfg_attr(not(feature = "tokio-postgres"), doc = "The database side of Postrider, a transactional outbox.")]
#![cfg_attr(docsrs, feature(doc_cfg))]

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
