//! Tests of the contacts example: one binary, one module for each part.

#![expect(clippy::unwrap_used, reason = "a test that fails here has failed")]

#[path = "../../../script.rs"]
mod script;

mod kafka;
mod names;
mod resolve;
mod run;
