//! What can go wrong with a relay as a whole. What goes wrong with one message is a `SinkFailure`, and what goes wrong
//! with the store for a while is waited out: neither comes through here.

/// Why a relay does not start, or does not go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An option, or two that do not go together. Nothing was started.
    #[error("the relay cannot run like this: {reason}")]
    Options {
        /// What is wrong, and what would be right.
        reason: String,
    },

    /// The store refused what the relay needs before it can begin.
    #[error(transparent)]
    Store(#[from] postrider::Error),

    /// The store went away during a drain, and did not come back in time. What was due still is.
    #[error("the store is away, so the drain ended before everything due was delivered: {reason}")]
    StoreAway {
        /// What the store said last.
        reason: String,
    },

    /// A part of the relay ended that must not end. What it held returns to the queue when the leases end.
    #[error("the relay stopped because its {part} failed: {reason}")]
    Internal {
        /// Which part.
        part: &'static str,
        /// What was seen.
        reason: String,
    },
}
