//! The relay against real stores: one integration binary, one module for each promise.

mod breaker;
mod embedded;
mod flow;
mod handlers;
mod idle_latency;
mod kill;
mod lanes;
mod limits;
mod shutdown;
#[cfg(any(feature = "mqtt", feature = "rabbitmq"))]
mod sinks;
mod support;
mod telemetry;
mod wake;
