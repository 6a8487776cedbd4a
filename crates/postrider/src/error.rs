//! What can go wrong, said so that a person knows what happened, to what, and what to do. One type for the crate;
//! callers match on the variant, never on text.

#[cfg(any(feature = "tokio-postgres", feature = "sqlx", feature = "sqlite", feature = "sqlx-sqlite"))]
mod tables;

use uuid::Uuid;

/// Everything this crate can fail with.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The message breaks a rule; nothing was sent to the database.
    #[error("invalid message: {0}")]
    InvalidMessage(#[from] InvalidMessage),

    /// One message or event of a batch breaks a rule; nothing was sent to the database.
    #[error("number {} of the batch is invalid: {source}", index + 1)]
    InvalidBatch {
        /// Position in the batch, from 0.
        index: usize,
        /// The rule it breaks.
        source: InvalidMessage,
    },

    /// More messages or events than one call takes.
    #[error("a batch of {count} is too large: give at most {max} in one call")]
    BatchTooLarge {
        /// How many were given.
        count: usize,
        /// How many are allowed.
        max: usize,
    },

    /// The schema name is not a plain identifier.
    #[error(
        "schema name {name:?} is not usable: 1 to 48 ASCII letters, digits and underscores, not beginning with a digit \
         or pg_"
    )]
    BadSchemaName {
        /// The name that was refused.
        name: String,
    },

    /// The lease ended or was taken over. The message is with somebody else: log it and do nothing more.
    #[error("lease lost: message {message_id} is no longer held under this token")]
    LeaseLost {
        /// The message whose lease is lost.
        message_id: Uuid,
    },

    /// The database refused an argument (SQLSTATE 22023 and the other data exceptions).
    #[error("the database refused the input: {message}{}", hint.as_deref().map(|hint| format!(" ({hint})")).unwrap_or_default())]
    Refused {
        /// What is wrong with it.
        message: String,
        /// What to do about it.
        hint: Option<String>,
    },

    /// There is no sink of this name (SQLSTATE P7003): a replay to it would wait for ever.
    #[error("{message}: a new sink is known once it has a route, or a relay delivers to it")]
    NoSuchSink {
        /// Which one.
        message: String,
    },

    /// The database has no outbox in this schema.
    #[error("there is no outbox in schema {schema:?} of this database: run `postrider migrate up`")]
    SchemaMissing {
        /// The schema that was looked for.
        schema: String,
    },

    /// The schema is older than this build needs.
    #[error("schema {schema:?} is at version {found}, this build needs {needed}: run `postrider migrate up`")]
    SchemaTooOld {
        /// The schema.
        schema: String,
        /// Its version.
        found: i32,
        /// The version this build needs.
        needed: i32,
    },

    /// The schema was made by a newer build.
    #[error("schema {schema:?} is at version {found}, this build understands up to {known}: use a newer postrider")]
    SchemaTooNew {
        /// The schema.
        schema: String,
        /// Its version.
        found: i32,
        /// The newest version this build understands.
        known: i32,
    },

    /// A migration that was applied differs from the one in this build.
    #[error(
        "migration {version} ({name}) was applied with another content: this build and the database do not belong together"
    )]
    MigrationChanged {
        /// Its number.
        version: i32,
        /// Its name.
        name: String,
    },

    /// A migration did not get a lock in time.
    #[error(
        "schema {schema:?} cannot be migrated now: a lock on it was not to be had in {waited}. {}",
        if holders.is_empty() {
            "Whoever had it has let go, is making the schema, or is a prepared transaction (pg_prepared_xacts): run it again".to_owned()
        } else {
            format!("Those with locks there now: {}. End what should not be there, and run it again", holders.join("; "))
        }
    )]
    Locked {
        /// The schema.
        schema: String,
        /// How long the lock was waited for, as PostgreSQL writes it.
        waited: String,
        /// The sessions that hold locks there: process, login, and since when.
        holders: Vec<String>,
    },

    /// The database URL cannot be used.
    #[error("the database URL is not usable: {reason}")]
    BadUrl {
        /// Why not. Never contains the URL, which may hold a password.
        reason: String,
    },

    /// No connection to the database.
    #[error("cannot connect to PostgreSQL at {target}: {reason}")]
    Connect {
        /// Host, port and database; never the password.
        target: String,
        /// What the server or the network said, and what to do.
        reason: String,
    },

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
    NoFreeConnection {
        /// Hosts, ports and database; never the password.
        target: String,
        /// How many connections the pool has.
        max: usize,
        /// How many of them wait for the end of a statement that nobody waits for any more.
        given_up: usize,
    },

    /// The server takes no writes (SQLSTATE 25006, and what PostgreSQL says during recovery).
    #[error(
        "this server takes no writes ({message}): it is a standby, or set to be read-only. Connect to the primary; with \
         several hosts in the URL it is found by itself"
    )]
    ReadOnly {
        /// What PostgreSQL said.
        message: String,
    },

    /// The store cannot tell when something becomes due; polling still finds it.
    #[error("this connection hears no notifications: {reason}")]
    CannotListen {
        /// Why not.
        reason: String,
    },

    /// The SQLite file cannot be used.
    #[error("cannot open the SQLite file {path}: {reason}")]
    SqliteOpen {
        /// The file.
        path: String,
        /// Why not, and what to do.
        reason: String,
    },

    /// The SQLite file was deleted or replaced while it was open.
    #[error(
        "the SQLite file {path} was deleted, or another file is in its place: this process still has the old one open, \
         where nobody else writes. Put the old file back, or restart this process to use what is there now"
    )]
    SqliteFileGone {
        /// The file.
        path: String,
    },

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
    Unreadable {
        /// What is wrong with it.
        reason: String,
    },

    /// The role may not do this.
    #[error("permission denied: {message} (see `postrider migrate roles`)")]
    Denied {
        /// What PostgreSQL said.
        message: String,
    },

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
    /// Whether the store itself said no, rather than being away or busy: asking the same again gets the same answer.
    #[must_use]
    pub fn is_an_answer(&self) -> bool {
        match self {
            Self::InvalidMessage(_)
            | Self::InvalidBatch { .. }
            | Self::BatchTooLarge { .. }
            | Self::BadSchemaName { .. }
            | Self::LeaseLost { .. }
            | Self::Refused { .. }
            | Self::NoSuchSink { .. }
            | Self::SchemaMissing { .. }
            | Self::SchemaTooOld { .. }
            | Self::SchemaTooNew { .. }
            | Self::MigrationChanged { .. }
            | Self::BadUrl { .. }
            | Self::SqliteOutboxMissing
            | Self::Unreadable { .. }
            | Self::Denied { .. } => true,
            Self::Connect { .. }
            | Self::NoFreeConnection { .. }
            | Self::ReadOnly { .. }
            | Self::CannotListen { .. }
            | Self::Locked { .. }
            | Self::SqliteOpen { .. }
            | Self::SqliteFileGone { .. }
            | Self::SqliteBusy
            | Self::StoreStopped => false,
            #[cfg(feature = "tokio-postgres")]
            Self::Postgres(driver) => driver.as_db_error().is_some_and(|db| !tables::passes(db.code().code())),
            #[cfg(feature = "sqlite")]
            Self::Sqlite(driver) => {
                driver.sqlite_error().is_none_or(|error| !tables::passes_in_sqlite(error.extended_code))
            }
            #[cfg(any(feature = "sqlx", feature = "sqlx-sqlite"))]
            Self::Sqlx(driver) => tables::sqlx_is_an_answer(driver),
        }
    }

    /// Whether it is certain that nothing was changed: the server said so, or it was never asked. After any other error a
    /// statement may have been carried out, and its answer lost.
    #[must_use]
    pub fn nothing_happened(&self) -> bool {
        match self {
            // It was carried out, and what came back cannot be read; or nobody knows.
            Self::Unreadable { .. } | Self::StoreStopped => false,
            // A session that was ended, or a server that was lost behind a pooler, may have been so after the commit.
            #[cfg(feature = "tokio-postgres")]
            Self::Postgres(driver) => driver.code().is_some_and(|code| {
                let code = code.code();
                code != "40003" && !["57P", "08", "58"].iter().any(|class| code.starts_with(class))
            }),
            _ => true,
        }
    }

    /// Whether the content of a message is why it cannot be handed out: what the store says about data, not about rights,
    /// the schema or itself.
    #[must_use]
    pub fn is_about_the_content(&self) -> bool {
        match self {
            Self::Unreadable { .. } | Self::Refused { .. } => true,
            #[cfg(feature = "tokio-postgres")]
            Self::Postgres(driver) => driver.code().is_some_and(|code| code.code().starts_with("XX")),
            _ => false,
        }
    }

    /// The error and its causes in one line, without saying anything twice: for a log or a terminal.
    #[must_use]
    pub fn in_short(&self) -> String {
        // What the server said is in the error's own text.
        #[cfg(feature = "tokio-postgres")]
        if matches!(self, Self::Postgres(driver) if driver.as_db_error().is_some()) {
            return self.to_string();
        }
        words_and_causes(self)
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
pub enum InvalidMessage {
    /// A required text is empty.
    #[error("{field} is empty")]
    Empty {
        /// Which field.
        field: &'static str,
    },
    /// A text is longer than its limit.
    #[error("{field} is {bytes} bytes long, at most {max} are allowed")]
    TooLong {
        /// Which field.
        field: &'static str,
        /// How long it is.
        bytes: usize,
        /// How long it may be.
        max: usize,
    },
    /// A text contains the NUL character, which PostgreSQL cannot store.
    #[error("{field} contains a NUL character")]
    Nul {
        /// Which field.
        field: &'static str,
    },
    /// The payload or body is too large.
    #[error("the content is {bytes} bytes long, at most {max} are allowed: store it elsewhere and send a reference")]
    ContentTooLarge {
        /// How long it is.
        bytes: usize,
        /// How long it may be.
        max: usize,
    },
    /// The payload cannot be written as JSON.
    #[error("the payload is not JSON: {reason}")]
    NotJson {
        /// What the serializer said.
        reason: String,
    },
    /// The priority is out of range.
    #[error("priority {priority} is not between {min} and {max}")]
    Priority {
        /// What was given.
        priority: i32,
        /// Lowest allowed.
        min: i32,
        /// Highest allowed.
        max: i32,
    },
    /// The dedupe key does not begin with the tenant id and "/".
    #[error("dedupe key {key:?} does not belong to tenant {tenant_id}: begin it with \"{tenant_id}/\"")]
    ForeignDedupeKey {
        /// The key.
        key: String,
        /// The tenant it should begin with.
        tenant_id: Uuid,
    },
    /// A lane counts from 1.
    #[error("sequence_id {sequence_id} is not a number of a lane: they begin at 1")]
    Sequence {
        /// What was given.
        sequence_id: i64,
    },
    /// A time or delay that the database cannot hold.
    #[error("{field} is out of range: times are in the years 1 to 9999, a delay is at most 100 years")]
    TimeOutOfRange {
        /// Which field.
        field: &'static str,
    },
}

#[cfg(feature = "tokio-postgres")]
impl From<tokio_postgres::Error> for Error {
    fn from(error: tokio_postgres::Error) -> Self {
        match error.as_db_error() {
            Some(db) => tables::classify(db.code().code(), db.message(), db.hint()).unwrap_or(Self::Postgres(error)),
            None => Self::Postgres(error),
        }
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
        known.unwrap_or(Self::Sqlite(error))
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
        known.unwrap_or(Self::Sqlx(error))
    }
}
