//! The admin API of real processes on both stores, asked over HTTP: who may do what, what is refused, and what each
//! endpoint says and does.

mod access;
mod connections;
mod guard;
mod health;
mod operate;
mod outage;

mod schema;
mod secrets;
pub(crate) mod server;
mod sync;
mod token;
mod views;
