//! What the databases' codes mean: which are errors of our own, and which pass by themselves. One table for each question;
//! an error's text decides only where the code does not.

use super::Cause;

/// The one table from SQLSTATE to error. What is not in it stays the driver's error, with its source.
pub(super) fn classify(sqlstate: &str, message: &str, hint: Option<&str>) -> Option<Cause> {
    match sqlstate {
        // 23514 is a CHECK under the functions' own checks, and 54 a limit of PostgreSQL's own, such as how deep JSON is
        // nested: all say that the input breaks a rule.
        code if code.starts_with("22") || code.starts_with("54") || code == "23514" => {
            Some(Cause::Refused { message: message.to_owned(), hint: hint.map(str::to_owned) })
        }
        "P7003" => Some(Cause::NoSuchSink { message: message.to_owned() }),
        "42501" => Some(Cause::Denied { message: message.to_owned() }),
        code if says_read_only(code, message) => Some(Cause::ReadOnly { message: message.to_owned() }),
        _ => None,
    }
}

/// What a standby says to whoever writes. Most is 25006. Locks and changes of the transaction have codes of their own that
/// mean other things too, and a number for a transaction is refused as an internal error: those are told by their words.
fn says_read_only(sqlstate: &str, message: &str) -> bool {
    match sqlstate {
        "25006" => true,
        "55000" | "0A000" | "XX000" => {
            message.contains("during recovery") || message.contains("recovery is in progress")
        }
        _ => false,
    }
}

/// The one table of SQLSTATEs that pass by themselves: the same statement may work later, or on another connection.
#[cfg(any(feature = "tokio-postgres", feature = "sqlx"))]
pub(super) fn passes(sqlstate: &str) -> bool {
    match sqlstate.get(..2) {
        // The connection broke; a deadlock or a conflict of transactions; too little memory, disk or connections; a file
        // could not be read or written.
        Some("08" | "40" | "53" | "58") => true,
        _ => matches!(
            sqlstate,
            // Read-only, ended by a timeout between two statements or of the whole transaction, or failed before.
            "25006" | "25P02" | "25P03" | "25P04"
            // A lock that was not to be had, an object in use.
            | "55P03" | "55006"
            // Cancelled or timed out; the server stops, crashed, starts, or ended an idle session.
            | "57014" | "57P01" | "57P02" | "57P03" | "57P05"
        ),
    }
}

/// The same for SQLite's result codes.
#[cfg(any(feature = "sqlite", feature = "sqlx-sqlite"))]
pub(super) fn passes_in_sqlite(code: i32) -> bool {
    use libsqlite3_sys as ffi;
    matches!(
        code & 0xff,
        ffi::SQLITE_BUSY
            | ffi::SQLITE_LOCKED
            | ffi::SQLITE_NOMEM
            | ffi::SQLITE_READONLY
            | ffi::SQLITE_INTERRUPT
            | ffi::SQLITE_IOERR
            | ffi::SQLITE_FULL
            | ffi::SQLITE_CANTOPEN
            | ffi::SQLITE_PROTOCOL
    )
}

#[cfg(any(feature = "sqlx", feature = "sqlx-sqlite"))]
pub(super) fn sqlx_is_refusal(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_)
        | sqlx::Error::Tls(_)
        | sqlx::Error::Protocol(_)
        | sqlx::Error::PoolTimedOut
        | sqlx::Error::PoolClosed
        | sqlx::Error::WorkerCrashed => false,
        sqlx::Error::Database(db) => {
            #[cfg(feature = "sqlx")]
            if let Some(pg) = db.try_downcast_ref::<sqlx::postgres::PgDatabaseError>() {
                return !passes(pg.code());
            }
            #[cfg(feature = "sqlx-sqlite")]
            if let Some(code) = db.code().and_then(|code| code.parse().ok()) {
                return !passes_in_sqlite(code);
            }
            true
        }
        _ => true,
    }
}

/// The one table from SQLite's extended result codes to error. What is not in it stays the driver's error.
#[cfg(any(feature = "sqlite", feature = "sqlx-sqlite"))]
pub(super) fn classify_sqlite(code: i32, message: &str) -> Option<Cause> {
    use libsqlite3_sys as ffi;
    match (code & 0xff, code) {
        (ffi::SQLITE_BUSY | ffi::SQLITE_LOCKED, _) => Some(Cause::SqliteBusy),
        // A CHECK, a type or a NOT NULL of the tables, or what a trigger raised: the input breaks a rule.
        (
            _,
            ffi::SQLITE_CONSTRAINT_CHECK
            | ffi::SQLITE_CONSTRAINT_NOTNULL
            | ffi::SQLITE_CONSTRAINT_TRIGGER
            | ffi::SQLITE_CONSTRAINT_DATATYPE,
        ) => Some(Cause::Refused { message: message.to_owned(), hint: None }),
        (ffi::SQLITE_ERROR, _) if message.starts_with("no such table: outbox_") => Some(Cause::SqliteOutboxMissing),
        _ => None,
    }
}

#[cfg(all(test, feature = "full"))]
mod tests {
    use uuid::Uuid;

    use super::super::{Error, InvalidMessage};
    use super::*;

    /// What passes by itself is no answer: a relay asks again, and does not look for the message that is to blame.
    #[test]
    fn what_passes_by_itself_is_no_answer() {
        for code in [
            "08000", "08006", "08P01", "25006", "25P02", "25P03", "25P04", "40001", "40P01", "53100", "53200", "53300",
            "55006", "55P03", "57014", "57P01", "57P02", "57P03", "57P05", "58030",
        ] {
            assert!(passes(code), "{code}");
        }
        for code in [
            "0A000", "21000", "22023", "23505", "23514", "28P01", "42501", "42P01", "54000", "55000", "57P04", "P0001",
            "XX000", "",
        ] {
            assert!(!passes(code), "{code}");
        }
        let owned = |text: &str| text.to_owned();
        for (error, answer) in [
            (Cause::InvalidMessage(InvalidMessage::Empty { field: "topic" }), true),
            (Cause::InvalidBatch { index: 0, source: InvalidMessage::Empty { field: "topic" } }, true),
            (Cause::BatchTooLarge { count: 2, max: 1 }, true),
            (Cause::BadSchemaName { name: owned("1") }, true),
            (Cause::LeaseLost { message_id: Uuid::nil() }, true),
            (Cause::Refused { message: owned("no"), hint: None }, true),
            (Cause::SchemaMissing { schema: owned("o") }, true),
            (Cause::SchemaTooOld { schema: owned("o"), found: 1, needed: 2 }, true),
            (Cause::SchemaTooNew { schema: owned("o"), found: 2, known: 1 }, true),
            (Cause::MigrationChanged { version: 1, name: owned("m") }, true),
            (Cause::BadUrl { reason: owned("no") }, true),
            (Cause::SqliteOutboxMissing, true),
            (Cause::Denied { message: owned("no") }, true),
            (Cause::Connect { target: owned("h"), reason: owned("no") }, false),
            (Cause::NoFreeConnection { target: owned("h"), max: 8, given_up: 8 }, false),
            (Cause::ReadOnly { message: owned("no") }, false),
            (Cause::CannotListen { reason: owned("no") }, false),
            (Cause::SqliteOpen { path: owned("f"), reason: owned("no") }, false),
            (Cause::SqliteBusy, false),
            (Cause::StoreStopped, false),
            (Cause::Sqlx(sqlx::Error::PoolTimedOut), false),
            (Cause::Sqlx(sqlx::Error::RowNotFound), true),
        ] {
            let error = Error::from(error);
            assert_eq!(error.is_refusal(), answer, "{error:?}");
        }
        for (code, answer) in [
            (libsqlite3_sys::SQLITE_FULL, false),
            (libsqlite3_sys::SQLITE_IOERR_FSYNC, false),
            (libsqlite3_sys::SQLITE_INTERRUPT, false),
            (libsqlite3_sys::SQLITE_CONSTRAINT_UNIQUE, true),
            (libsqlite3_sys::SQLITE_CORRUPT, true),
        ] {
            let error =
                Error::from(Cause::Sqlite(rusqlite::Error::SqliteFailure(libsqlite3_sys::Error::new(code), None)));
            assert_eq!(error.is_refusal(), answer, "{code}");
        }
    }

    /// The words of PostgreSQL 14 to 18.
    #[test]
    fn a_standby_is_known_by_what_it_says() {
        for (code, message, read_only) in [
            ("25006", "cannot execute UPDATE in a read-only transaction", true),
            ("25006", "cannot execute LISTEN during recovery", true),
            ("0A000", "cannot set transaction read-write mode during recovery", true),
            ("55000", "cannot acquire lock mode ExclusiveLock on database objects while recovery is in progress", true),
            ("55000", "recovery is in progress", true),
            ("XX000", "cannot assign TransactionIds during recovery", true),
            ("0A000", "cannot use serializable mode in a hot standby", false),
            ("55000", "currval of sequence \"s\" is not yet defined in this session", false),
            ("XX000", "cache lookup failed for type 0", false),
        ] {
            assert_eq!(says_read_only(code, message), read_only, "{code} {message}");
        }
    }
}
