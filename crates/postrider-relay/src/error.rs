//! What can go wrong with a relay as a whole. What goes wrong with one message is a `SinkFailure`, and what goes wrong
//! with the store for a while is waited out: neither comes through here.

/// Why a relay does not start, or does not go on. [`Self::kind`] says what it is, its text what happened and what to do.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct Error(Cause);

/// What an [`Error`] is: what a program decides by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// An option, or two that do not go together. Nothing was started.
    Options,
    /// The store refused what the relay needs before it can begin: see [`Error::into_store`].
    Store,
    /// The store went away during a drain, and did not come back in time. What was due still is.
    StoreAway,
    /// A part of the relay ended that must not end. What it held returns to the queue when the leases end.
    Internal,
}

#[derive(Debug, thiserror::Error)]
enum Cause {
    #[error("the relay cannot run like this: {reason}")]
    Options { reason: String },
    #[error(transparent)]
    Store(postrider::Error),
    #[error("the store is away, so the drain ended before everything due was delivered: {reason}")]
    StoreAway { reason: String },
    #[error("the relay stopped because its {part} failed: {reason}")]
    Internal { part: &'static str, reason: String },
}

impl Error {
    /// Options that cannot work: what is wrong, and what would be right. For a sink of your own, too.
    pub fn options(reason: impl Into<String>) -> Self {
        Self(Cause::Options { reason: reason.into() })
    }

    pub(crate) fn store_away(reason: String) -> Self {
        Self(Cause::StoreAway { reason })
    }

    pub(crate) fn internal(part: &'static str, reason: String) -> Self {
        Self(Cause::Internal { part, reason })
    }

    /// What it is.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self.0 {
            Cause::Options { .. } => ErrorKind::Options,
            Cause::Store(_) => ErrorKind::Store,
            Cause::StoreAway { .. } => ErrorKind::StoreAway,
            Cause::Internal { .. } => ErrorKind::Internal,
        }
    }

    /// What happened, without what is said around it; the whole text if the store refused.
    #[must_use]
    pub fn reason(&self) -> String {
        match &self.0 {
            Cause::Options { reason } | Cause::StoreAway { reason } | Cause::Internal { reason, .. } => reason.clone(),
            Cause::Store(error) => error.to_string(),
        }
    }

    /// What the store said, if it refused; otherwise the error itself.
    pub fn into_store(self) -> Result<postrider::Error, Self> {
        if let Cause::Store(error) = self.0 { Ok(error) } else { Err(self) }
    }
}

impl From<postrider::Error> for Error {
    fn from(error: postrider::Error) -> Self {
        Self(Cause::Store(error))
    }
}
