//! What can go wrong, said so that a person knows what happened, to what, and what to do. One opaque type for the crate;
//! callers match on its kind, never on text. Inside the crate an error is made as a [`Cause`].

mod tables;

use uuid::Uuid;

/// Everything this crate can fail with. [`Self::kind`] says what it is, its text says what happened and what to do, and its
/// [source](std::error::Error::source) is what the driver said.
pub struct Error(Box<Cause>);

/// What an [`Error`] is: what a program decides by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A message or an event breaks a rule; nothing was sent to the database. See [`Error::invalid_message`].
    InvalidMessage,
    /// More messages or events than one call takes.
    BatchTooLarge,
    /// The schema name is not a plain identifier.
    BadSchemaName,
    /// The lease ended or was taken over. The message is with somebody else: log it and do nothing more.
    LeaseLost,
    /// The database refused an argument.
    Refused,
    /// There is no sink of this name: a replay to it would wait for ever.
    NoSuchSink,
    /// The database has no outbox in this schema.
    SchemaMissing,
    /// The schema is older than this build needs.
    SchemaTooOld,
    /// The schema was made by a newer build.
    SchemaTooNew,
    /// A migration that was applied differs from the one in this build.
    MigrationChanged,
    /// A migration did not get a lock in time.
    Locked,
    /// The database URL cannot be used.
    BadUrl,
    /// No connection to the database.
    Connect,
    /// Every connection of the store's pool is in use, for longer than one waits.
    NoFreeConnection,
    /// The server takes no writes.
    ReadOnly,
    /// The store cannot tell when something becomes due; polling still finds it.
    CannotListen,
    /// The SQLite file cannot be opened.
    FileUnusable,
    /// The SQLite file was deleted or replaced while it was open.
    FileGone,
    /// Another connection kept SQLite's write lock for longer than this one waits.
    Busy,
    /// The SQLite database has no outbox.
    OutboxMissing,
    /// The store's thread has ended.
    Stopped,
    /// A message that the store holds and cannot hand out.
    Unreadable,
    /// The role may not do this.
    Denied,
    /// Anything else that a driver reports: see its source.
    Driver,
}

/// An error from within.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Cause {
    /// The message breaks a rule; nothing was sent to the database.
    #[error("invalid message: {0}")]
    InvalidMessage(#[source] InvalidMessage),

    /// One message or event of a batch breaks a rule; nothing was sent to the database.
    #[error("number {} of the batch is invalid: {source}", index + 1)]
    InvalidBatch { index: usize, source: InvalidMessage },

    /// More messages or events than one call takes.
    #[error("a batch of {count} is too large: give at most {max} in one call")]
    BatchTooLarge { count: usize, max: usize },

    /// The schema name is not a plain identifier.
    #[error(
        "schema name {name:?} is not usable: 1 to 48 ASCII letters, digits and underscores, not beginning with a digit \
         or pg_"
    )]
    BadSchemaName { name: String },

    /// The lease ended or was taken over. The message is with somebody else: log it and do nothing more.
    #[error("lease lost: message {message_id} is no longer held under this token")]
    LeaseLost { message_id: Uuid },

    /// The database refused an argument (SQLSTATE 22023 and the other data exceptions).
    #[error("the database refused the input: {message}{}", hint.as_deref().map(|hint| format!(" ({hint})")).unwrap_or_default())]
    Refused { message: String, hint: Option<String> },

    /// There is no sink of this name (SQLSTATE P7003): a replay to it would wait for ever.
    #[error("{message}: a new sink is known once it has a route, or a relay delivers to it")]
    NoSuchSink { message: String },

    /// The database has no outbox in this schema.
    #[error("there is no outbox in schema {schema:?} of this database: its migrations were not applied")]
    SchemaMissing { schema: String },

    /// The schema is older than this build needs.
    #[error("schema {schema:?} is at version {found}, this build needs {needed}: apply its migrations")]
    SchemaTooOld { schema: String, found: i32, needed: i32 },

    /// The schema was made by a newer build.
    #[error("schema {schema:?} is at version {found}, this build understands up to {known}: use a newer postrider")]
    SchemaTooNew { schema: String, found: i32, known: i32 },

    /// A migration that was applied differs from the one in this build.
    #[error(
        "migration {version} ({name}) was applied with another content: this build and the database do not belong together"
    )]
    MigrationChanged { version: i32, name: String },

    /// A migration did not get a lock in time.
    #[error(
        "schema {schema:?} cannot be migrated now: a lock on it was not to be had in {waited}. {}",
        if holders.is_empty() {
            "Whoever had it has let go, is making the schema, or is a prepared transaction (pg_prepared_xacts): run it again".to_owned()
        } else {
            format!("Those with locks there now: {}. End what should not be there, and run it again", holders.join("; "))
        }
    )]
    Locked { schema: String, waited: String, holders: Vec<String> },

    /// The database URL cannot be used.
    #[error("the database URL is not usable: {reason}")]
    BadUrl { reason: String },

    /// No connection to the database.
    #[error("cannot connect to PostgreSQL at {target}: {reason}")]
    Connect { target: String, reason: String },

    /// Every connection of the store's pool is in use, for longer than one waits.
    #[error(
        "all {max} connections to PostgreSQL at {target} are in use{}",
        if *given_up == 0 {
            String::new()
        } else {
            format!(
                ", {given_up} of them by statements that were given up and that the server has not ended: \
                 pg_stat_activity says what they wait for"
            )
        }
    )]
    NoFreeConnection { target: String, max: usize, given_up: usize },

    /// The server takes no writes (SQLSTATE 25006, and what PostgreSQL says during recovery).
    #[error(
        "this server takes no writes ({message}): it is a standby, or set to be read-only. Connect to the primary; with \
         several hosts in the URL it is found by itself"
    )]
    ReadOnly { message: String },

    /// The store cannot tell when something becomes due; polling still finds it.
    #[error("this connection hears no notifications: {reason}")]
    CannotListen { reason: String },

    /// The SQLite file cannot be used.
    #[error("cannot open the SQLite file {path}: {reason}")]
    SqliteOpen { path: String, reason: String },

    /// The SQLite file was deleted or replaced while it was open.
    #[error(
        "the SQLite file {path} was deleted, or another file is in its place: this process still has the old one open, \
         where nobody else writes. Put the old file back, or restart this process to use what is there now"
    )]
    SqliteFileGone { path: String },

    /// Another connection kept SQLite's write lock for longer than this one waits.
    #[error(
        "the SQLite database is busy: another connection has kept a transaction open for too long. End it sooner; and \
         begin a transaction that will write with BEGIN IMMEDIATE, for one that has read before cannot wait"
    )]
    SqliteBusy,

    /// The SQLite database has no outbox.
    #[error("there is no outbox in this SQLite database: open its file with SqliteStore::open, which makes the tables")]
    SqliteOutboxMissing,

    /// The store's thread has ended.
    #[error("the store has stopped: its thread ended with a panic, which stands in the log")]
    StoreStopped,

    /// A message that the store holds and cannot hand out.
    #[error("a message cannot be read: {reason}")]
    Unreadable { reason: String },

    /// The role may not do this.
    #[error("permission denied: {message}")]
    Denied { message: String },

    /// Said by a store or an adapter that is not of this crate.
    #[error("{message}")]
    Custom { kind: ErrorKind, message: String },

    /// Anything else that a driver which is not of this crate reports.
    #[error("database error")]
    OtherDriver(#[source] Box<dyn std::error::Error + Send + Sync>),

    /// Anything else the PostgreSQL driver reports.
    #[cfg(feature = "tokio-postgres")]
    #[error("database error{}", .0.as_db_error().map(|db| format!(": {} ({})", db.message(), db.code().code())).unwrap_or_default())]
    Postgres(#[source] tokio_postgres::Error),

    /// Anything else SQLite reports.
    #[cfg(feature = "sqlite")]
    #[error("SQLite error")]
    Sqlite(#[source] rusqlite::Error),

    /// Anything else sqlx reports.
    #[cfg(any(feature = "sqlx", feature = "sqlx-sqlite"))]
    #[error("database error")]
    Sqlx(#[source] sqlx::Error),
}

impl Error {
    /// An error of a store or an adapter of your own.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Cause::Custom { kind, message: message.into() }.into()
    }

    /// An error of a driver that this crate has no adapter for.
    pub fn from_driver(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Cause::OtherDriver(error.into()).into()
    }

    /// The same, if the driver tells what PostgreSQL said: what this crate knows gets its kind.
    pub fn from_sqlstate(
        sqlstate: &str,
        message: &str,
        hint: Option<&str>,
        error: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        tables::classify(sqlstate, message, hint).unwrap_or_else(|| Cause::OtherDriver(error.into())).into()
    }

    /// What it is.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind()
    }

    /// The rule that a message or an event breaks, if that is why.
    #[must_use]
    pub fn invalid_message(&self) -> Option<&InvalidMessage> {
        match &*self.0 {
            Cause::InvalidMessage(invalid) | Cause::InvalidBatch { source: invalid, .. } => Some(invalid),
            _ => None,
        }
    }

    /// Which one of a batch breaks a rule, from 0.
    #[must_use]
    pub fn batch_index(&self) -> Option<usize> {
        if let Cause::InvalidBatch { index, .. } = *self.0 { Some(index) } else { None }
    }

    /// What the store or the server said, without what this crate says around it.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        match &*self.0 {
            Cause::Refused { message, .. }
            | Cause::NoSuchSink { message }
            | Cause::ReadOnly { message }
            | Cause::Denied { message }
            | Cause::Custom { message, .. } => Some(message),
            Cause::BadUrl { reason }
            | Cause::Connect { reason, .. }
            | Cause::CannotListen { reason }
            | Cause::SqliteOpen { reason, .. }
            | Cause::Unreadable { reason } => Some(reason),
            _ => None,
        }
    }

    /// What the database advises, if it refused something.
    #[must_use]
    pub fn hint(&self) -> Option<&str> {
        if let Cause::Refused { hint, .. } = &*self.0 { hint.as_deref() } else { None }
    }

    /// The SQLSTATE of a [`ErrorKind::Driver`] error, if PostgreSQL told one.
    #[must_use]
    pub fn sqlstate(&self) -> Option<&str> {
        match &*self.0 {
            #[cfg(feature = "tokio-postgres")]
            Cause::Postgres(driver) => driver.code().map(tokio_postgres::error::SqlState::code),
            _ => None,
        }
    }

    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    pub(crate) fn cause(&self) -> &Cause {
        &self.0
    }

    /// Whether the store itself said no, rather than being away or busy: asking the same again gets the same answer.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        match &*self.0 {
            #[cfg(feature = "tokio-postgres")]
            Cause::Postgres(driver) => driver.as_db_error().is_some_and(|db| !tables::passes(db.code().code())),
            #[cfg(feature = "sqlite")]
            Cause::Sqlite(driver) => {
                driver.sqlite_error().is_none_or(|error| !tables::passes_in_sqlite(error.extended_code))
            }
            #[cfg(any(feature = "sqlx", feature = "sqlx-sqlite"))]
            Cause::Sqlx(driver) => tables::sqlx_is_refusal(driver),
            other => other.kind().is_refusal(),
        }
    }

    /// Whether it is certain that nothing was changed: the server said so, or it was never asked. After any other error a
    /// statement may have been carried out, and its answer lost.
    #[must_use]
    pub fn changed_nothing(&self) -> bool {
        match &*self.0 {
            // A session that was ended, or a server that was lost behind a pooler, may have been so after the commit.
            #[cfg(feature = "tokio-postgres")]
            Cause::Postgres(driver) => driver.code().is_some_and(|code| {
                let code = code.code();
                code != "40003" && !["57P", "08", "58"].iter().any(|class| code.starts_with(class))
            }),
            #[cfg(feature = "sqlite")]
            Cause::Sqlite(_) => true,
            // It was carried out, and what came back cannot be read; or nobody knows.
            other => !matches!(other.kind(), ErrorKind::Unreadable | ErrorKind::Stopped | ErrorKind::Driver),
        }
    }

    /// Whether the content of a message is why it cannot be handed out: what the store says about data, not about rights,
    /// the schema or itself.
    #[must_use]
    pub fn is_about_content(&self) -> bool {
        match &*self.0 {
            #[cfg(feature = "tokio-postgres")]
            Cause::Postgres(driver) => driver.code().is_some_and(|code| code.code().starts_with("XX")),
            other => matches!(other.kind(), ErrorKind::Unreadable | ErrorKind::Refused),
        }
    }

    /// The error and its causes in one line, without saying anything twice: for a log or a terminal.
    #[must_use]
    pub fn in_short(&self) -> String {
        // What the server said is in the error's own text.
        #[cfg(feature = "tokio-postgres")]
        if matches!(&*self.0, Cause::Postgres(driver) if driver.as_db_error().is_some()) {
            return self.to_string();
        }
        words_and_causes(self)
    }
}

impl Cause {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Custom { kind, .. } => *kind,
            Self::InvalidMessage(_) | Self::InvalidBatch { .. } => ErrorKind::InvalidMessage,
            Self::BatchTooLarge { .. } => ErrorKind::BatchTooLarge,
            Self::BadSchemaName { .. } => ErrorKind::BadSchemaName,
            Self::LeaseLost { .. } => ErrorKind::LeaseLost,
            Self::Refused { .. } => ErrorKind::Refused,
            Self::NoSuchSink { .. } => ErrorKind::NoSuchSink,
            Self::SchemaMissing { .. } => ErrorKind::SchemaMissing,
            Self::SchemaTooOld { .. } => ErrorKind::SchemaTooOld,
            Self::SchemaTooNew { .. } => ErrorKind::SchemaTooNew,
            Self::MigrationChanged { .. } => ErrorKind::MigrationChanged,
            Self::Locked { .. } => ErrorKind::Locked,
            Self::BadUrl { .. } => ErrorKind::BadUrl,
            Self::Connect { .. } => ErrorKind::Connect,
            Self::NoFreeConnection { .. } => ErrorKind::NoFreeConnection,
            Self::ReadOnly { .. } => ErrorKind::ReadOnly,
            Self::CannotListen { .. } => ErrorKind::CannotListen,
            Self::SqliteOpen { .. } => ErrorKind::FileUnusable,
            Self::SqliteFileGone { .. } => ErrorKind::FileGone,
            Self::SqliteBusy => ErrorKind::Busy,
            Self::SqliteOutboxMissing => ErrorKind::OutboxMissing,
            Self::StoreStopped => ErrorKind::Stopped,
            Self::Unreadable { .. } => ErrorKind::Unreadable,
            Self::Denied { .. } => ErrorKind::Denied,
            Self::OtherDriver(_) => ErrorKind::Driver,
            #[cfg(feature = "tokio-postgres")]
            Self::Postgres(_) => ErrorKind::Driver,
            #[cfg(feature = "sqlite")]
            Self::Sqlite(_) => ErrorKind::Driver,
            #[cfg(any(feature = "sqlx", feature = "sqlx-sqlite"))]
            Self::Sqlx(_) => ErrorKind::Driver,
        }
    }
}

impl ErrorKind {
    /// Whether the store itself said no: see [`Error::is_refusal`].
    fn is_refusal(self) -> bool {
        match self {
            Self::InvalidMessage
            | Self::BatchTooLarge
            | Self::BadSchemaName
            | Self::LeaseLost
            | Self::Refused
            | Self::NoSuchSink
            | Self::SchemaMissing
            | Self::SchemaTooOld
            | Self::SchemaTooNew
            | Self::MigrationChanged
            | Self::BadUrl
            | Self::OutboxMissing
            | Self::Unreadable
            | Self::Denied => true,
            Self::Connect
            | Self::NoFreeConnection
            | Self::ReadOnly
            | Self::CannotListen
            | Self::Locked
            | Self::FileUnusable
            | Self::FileGone
            | Self::Busy
            | Self::Stopped
            | Self::Driver => false,
        }
    }
}

impl std::fmt::Debug for Error {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Debug::fmt(&self.0, formatter)
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(&self.0, formatter)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source()
    }
}

impl From<Cause> for Error {
    fn from(cause: Cause) -> Self {
        Self(Box::new(cause))
    }
}

impl From<InvalidMessage> for Error {
    fn from(invalid: InvalidMessage) -> Self {
        Cause::InvalidMessage(invalid).into()
    }
}

pub(crate) fn words_and_causes(error: &dyn std::error::Error) -> String {
    let mut words = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_words = cause.to_string();
        if !words.contains(&cause_words) {
            words = format!("{words}: {cause_words}");
        }
        source = cause.source();
    }
    words
}

/// Why a message was refused before the database was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the texts say what the fields are")]
pub enum InvalidMessage {
    /// A required text is empty.
    #[error("{field} is empty")]
    Empty { field: &'static str },
    /// A text is longer than its limit.
    #[error("{field} is {bytes} bytes long, at most {max} are allowed")]
    TooLong { field: &'static str, bytes: usize, max: usize },
    /// A text contains the NUL character, which PostgreSQL cannot store.
    #[error("{field} contains a NUL character")]
    Nul { field: &'static str },
    /// The payload or body is too large.
    #[error("the content is {bytes} bytes long, at most {max} are allowed: store it elsewhere and send a reference")]
    ContentTooLarge { bytes: usize, max: usize },
    /// The payload cannot be written as JSON.
    #[error("the payload is not JSON: {reason}")]
    NotJson { reason: String },
    /// The priority is out of range.
    #[error("priority {priority} is not between {min} and {max}")]
    Priority { priority: i32, min: i32, max: i32 },
    /// The dedupe key does not begin with the tenant id and "/".
    #[error("dedupe key {key:?} does not belong to tenant {tenant_id}: begin it with \"{tenant_id}/\"")]
    ForeignDedupeKey { key: String, tenant_id: String },
    /// A lane counts from 1.
    #[error("sequence_id {sequence_id} is not a number of a lane: they begin at 1")]
    Sequence { sequence_id: i64 },
    /// A time or delay that the database cannot hold.
    #[error("{field} is out of range: times are in the years 1 to 9999, a delay is at most 100 years")]
    TimeOutOfRange { field: &'static str },
}

#[cfg(feature = "tokio-postgres")]
impl From<tokio_postgres::Error> for Error {
    fn from(error: tokio_postgres::Error) -> Self {
        match error.as_db_error() {
            Some(db) => tables::classify(db.code().code(), db.message(), db.hint()).unwrap_or(Cause::Postgres(error)),
            None => Cause::Postgres(error),
        }
        .into()
    }
}

#[cfg(feature = "sqlite")]
impl From<rusqlite::Error> for Error {
    fn from(error: rusqlite::Error) -> Self {
        let known = match &error {
            rusqlite::Error::SqliteFailure(code, message) => {
                tables::classify_sqlite(code.extended_code, message.as_deref().unwrap_or_default())
            }
            rusqlite::Error::SqlInputError { error: code, msg, .. } => tables::classify_sqlite(code.extended_code, msg),
            _ => None,
        };
        known.unwrap_or(Cause::Sqlite(error)).into()
    }
}

#[cfg(any(feature = "sqlx", feature = "sqlx-sqlite"))]
impl From<sqlx::Error> for Error {
    fn from(error: sqlx::Error) -> Self {
        let known = error.as_database_error().and_then(|db| {
            #[cfg(feature = "sqlx")]
            if let Some(pg) = db.try_downcast_ref::<sqlx::postgres::PgDatabaseError>() {
                return tables::classify(pg.code(), pg.message(), pg.hint());
            }
            #[cfg(feature = "sqlx-sqlite")]
            if db.try_downcast_ref::<sqlx::sqlite::SqliteError>().is_some() {
                return tables::classify_sqlite(db.code()?.parse().ok()?, db.message());
            }
            None
        });
        known.unwrap_or(Cause::Sqlx(error)).into()
    }
}
