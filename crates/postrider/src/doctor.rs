//! What hurts an outbox, looked for: in the server, in the schema, in the file, in what waits. Each finding says what was
//! seen, why it matters and how to mend it. Called by the command line; looks only, and mends nothing.

mod backlog;
#[cfg(feature = "postgres")]
mod drift;
#[cfg(feature = "postgres")]
mod grants;
#[cfg(feature = "postgres")]
pub(crate) mod locks;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "postgres")]
mod server;
#[cfg(feature = "sqlite")]
mod sqlite;

use std::time::Duration;

use serde::Serialize;

use crate::error::{Error, ErrorKind};
use crate::inspect::LATE;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
use crate::text::{seconds, short_span};

pub use backlog::backlog;
#[cfg(feature = "postgres")]
pub use postgres::postgres;
#[cfg(feature = "sqlite")]
pub use sqlite::sqlite;

#[cfg(any(feature = "postgres", feature = "sqlite"))]
fn kept(for_seconds: Option<f64>) -> String {
    for_seconds.map_or_else(|| "ever".to_owned(), |long| short_span(seconds(long)))
}

/// What is kept how long, in words. Both stores say so.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
fn kept_how_long(retention_seconds: Option<f64>, dedupe_seconds: Option<f64>) -> String {
    format!(
        "history is kept for {} after its delivery ended, dedupe keys for {}",
        kept(retention_seconds),
        kept(dedupe_seconds)
    )
}

/// How a finding is to be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// As it should be.
    Ok,
    /// Good to know.
    Note,
    /// It will hurt.
    Warning,
    /// It hurts.
    Bad,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Finding {
    /// What was looked at, in one stable word, such as `old_transaction`.
    pub check: &'static str,
    /// How it is to be taken.
    pub level: Level,
    /// What was seen.
    pub seen: String,
    /// Why it matters; empty where it is as it should be.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub why: &'static str,
    /// What mends it: SQL, or what to see to. Which command helps, the command line adds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

impl Finding {
    /// As it should be.
    pub fn ok(check: &'static str, seen: impl Into<String>) -> Self {
        Self { check, level: Level::Ok, seen: seen.into(), why: "", fix: None }
    }

    /// Something to say about it.
    pub fn new(check: &'static str, level: Level, seen: impl Into<String>, why: &'static str) -> Self {
        Self { check, level, seen: seen.into(), why, fix: None }
    }

    /// What mends it.
    #[must_use]
    pub fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(fix.into());
        self
    }

    /// It could not be looked at: no reason to stop.
    fn unseen(check: &'static str, error: &Error) -> Self {
        let seen = format!("cannot be looked at: {}", error.in_short());
        if error.kind() == ErrorKind::Denied {
            let fix = "run it as a member of the roles outbox_reader and pg_monitor";
            return Self::new(check, Level::Note, seen, "a role with more rights sees more").fix(fix);
        }
        Self::new(check, Level::Warning, seen, "nobody knows how it stands")
    }
}

/// From when on something is said. The defaults suit an outbox that delivers within minutes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// A transaction older than this keeps too many dead rows; twelve times as old is bad.
    pub old_transaction: Duration,
    /// A transaction with locks on the outbox's tables is named when it is older than this.
    pub old_lock: Duration,
    /// Something due for longer than this is late.
    pub late: Duration,
    /// The clocks of this machine and of the database differ by more than this.
    pub clock_skew: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            old_transaction: Duration::from_mins(5),
            old_lock: Duration::from_mins(1),
            late: LATE,
            clock_skew: Duration::from_secs(2),
        }
    }
}
