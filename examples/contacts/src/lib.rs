//! A service that resolves identities to contacts: the one that has this email address, or this external id. Every change
//! writes its event to the outbox in the same transaction. `main.rs` serves it, `run` shows it, and the tests call it.
//! It sends nothing itself: relays deliver the events.

mod http;
mod resolve;

pub use http::router;
pub use resolve::{Identity, Resolved, TenantId, Unresolved, resolve, resolve_in};
