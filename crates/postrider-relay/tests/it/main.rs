//! The relay against real stores: one integration binary, one module for each promise.

mod allocations;
mod away;
mod breaker;
mod burst;
mod embedded;
mod flow;
mod handle;
mod handlers;
mod idle_latency;
mod keeper;
mod kill;
mod lanes;
mod limits;
mod log;
#[cfg(feature = "schema")]
mod schema;
mod shutdown;
mod sinks;
mod support;
mod telemetry;
mod testing;
mod trace;
mod trouble;
mod wake;
