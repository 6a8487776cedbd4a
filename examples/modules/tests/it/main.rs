//! Tests of the modules example: one binary, one module for each part. What a library of modules was asked to guarantee is in
//! `enqueue.rs` and `deliver.rs`.

#![expect(clippy::unwrap_used, reason = "a test that fails here has failed")]

#[path = "../../../script.rs"]
mod script;

mod deliver;
mod enqueue;
mod names;
mod run;
mod support;
