//! The testkit's own tests: what the tests of every other crate take for granted. One process or more is killed,
//! frozen or left behind on purpose in each.

#![expect(clippy::unwrap_used, reason = "a helper of a test fails as the test itself does")]

mod brokers;
mod clean_up;
mod cluster;
mod proxies;
mod public_api;
mod template;
mod torture;
mod worlds;
