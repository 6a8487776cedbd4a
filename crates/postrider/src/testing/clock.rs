//! A store whose time a test can move. The stores implement it, in `store/*/testing.rs`.

use std::time::Duration;

use async_trait::async_trait;

use crate::error::Error;
use crate::store::Store;

/// A store whose time a test can move forward, so that a backoff, a delay or a lease is over without a wait.
///
/// Time goes on by itself, too. What a relay believes about its own leases does not move: advance between two runs, or to take
/// a lease away from a relay that runs.
#[async_trait]
pub trait MovableClock: Store {
    /// As if so much time had passed.
    ///
    /// In SQLite the outbox's clock is set ahead, in the file and for everybody who uses it: retention and ages follow.
    /// PostgreSQL's clock cannot be moved: there every delivery that is pending or leased has waited so much longer, and nothing
    /// else changes. The login must own the outbox.
    async fn advance(&self, by: Duration) -> Result<(), Error>;
}
