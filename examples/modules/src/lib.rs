//! An application of two modules that never call each other. `chat` finishes turns, each of which costs tokens; `billing`
//! counts them and tells when a tenant has used up its own. Each module writes under its own namespace and has its own sink;
//! one relay, in the application's process, calls the other module with what was written. `main.rs` serves it, `run` shows it,
//! the tests call it.

pub mod billing;
pub mod chat;
mod http;

use std::sync::Arc;
use std::time::Duration;

use postrider::{Route, Store};
use postrider_relay::{Backoff, Relay, RelayBuilder, RelayOptions, RetryOptions, SinkOptions};
use sqlx::PgPool;

pub use http::{Driver, Drivers, router};

/// When a module's events are tried again, and how often. A module may have its own.
#[must_use]
pub fn retry() -> RetryOptions {
    let backoff = Backoff::new(Duration::from_secs(1), Duration::from_mins(1));
    RetryOptions::default().backoff(backoff).max_attempts(10)
}

/// The relay of this process. Every process of the application may have one: they share the work. What a killed process held
/// comes back after the lease. A poll of more than a third of it is refused, and so is a callback's deadline beyond it.
pub fn relay(store: Arc<dyn Store>, pool: &PgPool, lease: Duration) -> RelayBuilder {
    let route = |namespace| Route::new("*", namespace).namespace(namespace);
    let options = SinkOptions::default().deadline(lease * 2 / 3).concurrency(8).retry(retry());
    Relay::builder(store)
        .options(RelayOptions::default().lease(lease).poll(lease / 10))
        .route(route(chat::NAMESPACE))
        .sink_with(chat::NAMESPACE, billing::hears_chat(pool.clone()), options.clone())
        .route(route(billing::NAMESPACE))
        .sink_with(billing::NAMESPACE, chat::hears_billing(pool.clone()), options)
}
