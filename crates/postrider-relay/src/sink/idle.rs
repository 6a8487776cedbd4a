//! Connections that rest between two deliveries. A delivery owns the one it uses, so that dropping the delivery closes the
//! connection and what was not yet written is never sent; as many are open as deliveries run at once. The sinks connect
//! and decide which connections are still good; here they only wait.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Connections kept for later: as many as deliveries run at once by default.
const MAX_IDLE: usize = 32;
/// A connection that rested longer may have been cut off by something on the way, without a word.
const MAX_REST: Duration = Duration::from_secs(30);

pub(crate) struct Idle<C>(Mutex<Vec<(C, Instant)>>);

impl<C> Default for Idle<C> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<C> Idle<C> {
    /// The one that was used last, if it has not rested too long.
    pub(crate) fn take(&self) -> Option<C> {
        let (connection, since) = self.lock().pop()?;
        if since.elapsed() < MAX_REST {
            return Some(connection);
        }
        // The others have rested even longer.
        self.forget();
        None
    }

    /// Keeps a connection for later.
    pub(crate) fn give_back(&self, connection: C) {
        let mut idle = self.lock();
        if idle.len() < MAX_IDLE {
            idle.push((connection, Instant::now()));
        }
    }

    /// Closes them all: what one of them found out is likely true of the others.
    pub(crate) fn forget(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(C, Instant)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
