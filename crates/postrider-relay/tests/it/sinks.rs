//! The sinks against real servers of their kind: the contract that all keep, and what is special about each.

mod reader;
mod throughput;

#[cfg(feature = "rabbitmq")]
mod rabbitmq;
