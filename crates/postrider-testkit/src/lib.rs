//! Private servers for Postrider's own tests: a PostgreSQL cluster per test process, a fresh migrated database per
//! test, a pgbouncer, a proxy that counts round trips and one that breaks connections, and the brokers that sinks
//! deliver to, with consumers in another language. Every test of the workspace calls
//! it; nothing that is published may depend on it. A helper here panics when it cannot do its work, with what to do about
//! it, and leaves neither a process nor a directory behind, even when the test process is killed.

#![expect(
    clippy::missing_panics_doc,
    clippy::must_use_candidate,
    reason = "unpublished, for tests: a helper panics when it cannot do its work, and a case when a promise is broken"
)]

/// The examples of the front page and of every page that has some in Rust, compiled.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
#[doc = include_str!("../../../docs/inbox.md")]
#[doc = include_str!("../../../docs/relay.md")]
#[doc = include_str!("../../../docs/sqlite.md")]
#[doc = include_str!("../../../docs/testing-your-app.md")]
mod examples {}

mod account;
mod binaries;
mod browser;
mod cache;
mod cluster;
mod consumer;
pub mod contract;
mod database;
mod error;
mod fault_proxy;
mod kafka;
mod mosquitto;
mod nats;
mod pgbouncer;
mod processes;
mod protocol;
mod psql;
mod python;
mod rabbitmq;
mod redis;
mod script;
mod server;
pub mod sink_contract;
mod supervisor;
mod template;
mod wire;
pub mod worlds;

pub use browser::{StoryOutput, story};
pub use cluster::Cluster;
pub use consumer::{Arrival, Consumer};
pub use database::{Database, database};
pub use fault_proxy::{FaultCounts, FaultProxy};
pub use kafka::Kafka;
pub use mosquitto::Mosquitto;
pub use nats::Nats;
pub use pgbouncer::PgBouncer;
pub use psql::{PsqlOutput, psql};
pub use python::{PythonOutput, python};
pub use rabbitmq::RabbitMq;
pub use redis::Redis;
pub use server::{Broker, Server};
pub use wire::WireCounter;
