//! The sinks against real servers of their kind: the contract that all keep, and what is special about each.

mod reader;

#[cfg(feature = "rabbitmq")]
mod rabbitmq;
