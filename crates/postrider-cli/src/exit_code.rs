//! What the process says when it ends: a number for scripts, a word for `--json`. Every failure of the library is
//! given its number here, in one match; `docs/exit-codes.md` is the same table for people.

use postrider::{Error, ErrorKind};

/// How the process ends. Numbers and words are a contract: add, never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum ExitCode {
    Ok = 0,
    Failure = 1,
    Usage = 2,
    SchemaNotCurrent = 3,
    NotFound = 4,
    InvalidInput = 5,
    Unreachable = 6,
    Denied = 7,
    CheckFailed = 8,
    /// 128 + SIGINT, as shells count.
    Interrupted = 130,
    /// 128 + SIGTERM.
    Terminated = 143,
}

/// Stands at the end of `postrider --help`.
pub(crate) const HELP: &str = "\
Exit codes:
    0  success
    1  unexpected failure, or the answer to a question was not yes
    2  wrong usage: an option, the database URL or the schema name
    3  the schema is missing or not current
    4  no such message, route or sink, or no parked lane
    5  invalid input: a message that breaks a rule
    6  the database cannot be reached or opened, or refuses the login
    7  the database role lacks a privilege
    8  check or doctor found a problem
  130  interrupted
  143  terminated";

impl ExitCode {
    /// The word in `{"error": {"code": …}}`.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Failure => "failure",
            Self::Usage => "usage",
            Self::SchemaNotCurrent => "schema_not_current",
            Self::NotFound => "not_found",
            Self::InvalidInput => "invalid_input",
            Self::Unreachable => "unreachable",
            Self::Denied => "denied",
            Self::CheckFailed => "check_failed",
            Self::Interrupted => "interrupted",
            Self::Terminated => "terminated",
        }
    }

    /// The one table from the library's errors to exit codes and to what a person can do, where the error's own text
    /// does not say so already.
    pub(crate) fn of(error: &Error) -> (Self, Option<&'static str>) {
        match error.kind() {
            ErrorKind::InvalidMessage | ErrorKind::BatchTooLarge | ErrorKind::Refused => (Self::InvalidInput, None),
            ErrorKind::NoSuchSink => (Self::NotFound, Some("`postrider sinks` shows those that have something to do")),
            ErrorKind::BadSchemaName => (Self::Usage, Some("give another name with --schema or POSTRIDER_SCHEMA")),
            ErrorKind::BadUrl => (
                Self::Usage,
                Some(
                    "write it as postgres://user:password@host:5432/database (reserved characters as %XX), or as \
                     sqlite:FILE",
                ),
            ),
            ErrorKind::SchemaMissing => (
                Self::SchemaNotCurrent,
                Some(
                    "run `postrider migrate up`; or is it in another schema or database? See --schema and --database-url",
                ),
            ),
            ErrorKind::SchemaTooOld => (Self::SchemaNotCurrent, Some("run `postrider migrate up`")),
            ErrorKind::OutboxMissing | ErrorKind::SchemaTooNew => (Self::SchemaNotCurrent, None),
            ErrorKind::MigrationChanged => {
                (Self::SchemaNotCurrent, Some("use the postrider that made the schema, or a release after it"))
            }
            ErrorKind::Connect => (Self::Unreachable, Some("the address comes from --database-url or DATABASE_URL")),
            ErrorKind::NoFreeConnection | ErrorKind::FileGone => (Self::Unreachable, None),
            ErrorKind::ReadOnly => (
                Self::Unreachable,
                Some("the address comes from --database-url or DATABASE_URL; see docs/high-availability.md"),
            ),
            ErrorKind::FileUnusable => {
                (Self::Unreachable, Some("the file comes from --database-url or DATABASE_URL (sqlite:FILE)"))
            }
            ErrorKind::Denied => (Self::Denied, Some("`postrider migrate roles` makes the roles and their grants")),
            _ => (Self::Failure, None),
        }
    }
}

impl From<ExitCode> for std::process::ExitCode {
    fn from(code: ExitCode) -> Self {
        Self::from(code as u8)
    }
}
