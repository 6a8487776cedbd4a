//! Private servers for Postrider's own tests: a PostgreSQL cluster per test process, a fresh migrated database per
//! test, a pgbouncer, a proxy that counts round trips and one that breaks connections. Every test of the workspace calls
//! it; nothing that is published may depend on it. A helper here panics when it cannot do its work, with what to do about
//! it, and leaves neither a process nor a directory behind, even when the test process is killed.

mod account;
mod binaries;
mod cache;
mod cluster;
pub mod contract;
mod database;
mod error;
mod fault_proxy;
mod pgbouncer;
mod processes;
mod protocol;
mod psql;
pub mod sink_contract;
mod supervisor;
mod template;
mod wire;

pub use cluster::Cluster;
pub use database::{Database, database};
pub use fault_proxy::{FaultCounts, FaultProxy};
pub use pgbouncer::PgBouncer;
pub use psql::{PsqlOutput, psql};
pub use wire::WireCounter;
