//! The sinks against real servers of their kind: the contract that all keep, and what is special about each.

#[cfg(feature = "mqtt")]
mod mqtt;
#[cfg(feature = "rabbitmq")]
mod rabbitmq;
mod reader;
mod throughput;
