//! Every sink against the real thing it sends to: the contract that all keep, and what is special about each.

#[cfg(feature = "_network")]
mod answers;
#[cfg(feature = "_network")]
mod authority;
mod file;
#[cfg(feature = "http")]
mod http;
#[cfg(feature = "kafka")]
mod kafka;
#[cfg(feature = "mqtt")]
mod mqtt;
#[cfg(feature = "nats")]
mod nats;
#[cfg(feature = "rabbitmq")]
mod rabbitmq;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "_network")]
mod throughput;
#[cfg(feature = "full")]
mod tls;
