//! Each sink against the real server it sends to: the contract that all of them keep, and what is special about it.

#[cfg(any(feature = "nats", feature = "redis"))]
mod answers;
#[cfg(feature = "nats")]
mod nats;
#[cfg(feature = "redis")]
mod redis;
#[cfg(any(feature = "nats", feature = "redis"))]
mod throughput;
