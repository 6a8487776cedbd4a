//! The real binary against real databases: what it prints, what it writes, how it ends.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

mod support;

mod admin;
mod bench;
mod browser;
mod config;
mod databases;
mod deliver;
mod demo;
mod deploy;
mod deployment;
mod doctor;
mod documents;
mod edge;
mod enqueue;
mod environment;
mod errors;
mod first_message;
mod help;
mod import;
mod inspect;
mod languages;
mod migrate;
mod ndjson;
mod operate;
mod pictures;
mod receive;
mod secrets;
mod shell;
mod signals;
mod sqlite;
mod standing;
mod top;
mod traces;
