//! Each sink against the real thing: the contract that all keep, and what is special about one.

#[cfg(feature = "kafka")]
mod kafka;
