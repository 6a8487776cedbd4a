//! The relay's own clock: for deadlines, backoff of the breaker, and how long it may trust a lease. Due times and leases
//! themselves are the store's and never computed from it.

use std::future::Future;
use std::pin::Pin;
use std::time::Instant;

/// A monotonic clock that can be waited on.
pub trait Clock: Send + Sync + 'static {
    /// Now.
    fn now(&self) -> Instant;

    /// Waits until then.
    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn Future<Output = ()> + Send>>;
}

/// Tokio's clock, which a test may pause.
#[derive(Debug, Clone, Copy, Default)]
pub struct TokioClock;

impl Clock for TokioClock {
    fn now(&self) -> Instant {
        tokio::time::Instant::now().into_std()
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(tokio::time::sleep_until(deadline.into()))
    }
}
