//! Each sink against a real server of its kind: the sink contract, and what is special about it.

#[cfg(feature = "http")]
mod http;
