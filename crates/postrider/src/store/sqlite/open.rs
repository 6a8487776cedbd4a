//! Opens connections to an application's SQLite file, set so that a commit survives a power cut and several processes
//! share the file. Says in a person's words why a file cannot be used. Makes no table: that is `migrate.rs`.

use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};

use crate::error::{Cause, Error};
use crate::message::Message;

/// How long to wait for another connection's write transaction. SQLite knows no queue for the lock: under many writers
/// an unlucky one waits longer than its share.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(30);

/// What SQLite itself cuts the write-ahead log back to when it begins it anew, in bytes; `session.rs` does more.
const LOG_BYTES: i64 = 64 * 1024 * 1024;

/// Statements kept prepared: all there are, and some room.
const KEPT_STATEMENTS: usize = 128;

/// Read and written by the owner, and by nobody else.
#[cfg(unix)]
const OWNER_ONLY: u32 = 0o600;

/// Between two tries to switch a file to its write-ahead log while somebody else does the same.
const SWITCH_PAUSE: Duration = Duration::from_millis(5);

/// Opens the file, making it if it is not there, in a directory that is.
pub(super) fn open(path: &Path) -> Result<Connection, Error> {
    make(path)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(|error| explain(path, error))?;
    connection.set_prepared_statement_cache_capacity(KEPT_STATEMENTS);
    connection.busy_timeout(BUSY_TIMEOUT).map_err(|error| explain(path, error))?;
    switch_to_wal(&connection, path)?;
    if connection.is_readonly(rusqlite::MAIN_DB).map_err(|error| explain(path, error))? {
        return Err(refuse(path, "it is read-only for this user: let the user write the file and its directory"));
    }
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "journal_size_limit", LOG_BYTES)?;
    Ok(connection)
}

/// Makes the file, if it is not there, for its owner alone: payloads are nobody else's business. SQLite gives the log and the
/// index beside it the same mode. A file that is there keeps its own. Nothing is made at the far end of a symbolic link,
/// which somebody else may have put there; one that leads to a file is followed.
#[cfg(unix)]
fn make(path: &Path) -> Result<(), Error> {
    use std::os::unix::fs::OpenOptionsExt as _;
    // Names that are no files for SQLite.
    if path.as_os_str().is_empty() || path.as_os_str() == ":memory:" {
        return Ok(());
    }
    let made = std::fs::OpenOptions::new().read(true).write(true).create_new(true).mode(OWNER_ONLY).open(path);
    let leads_nowhere = || path.is_symlink() && !path.exists();
    match made {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists && leads_nowhere() => {
            Err(refuse(path, "it is a symbolic link to a file that is not there: make that file, or give its own path"))
        }
        // What is wrong otherwise, SQLite finds too; `explain` says it.
        _ => Ok(()),
    }
}

#[cfg(not(unix))]
#[expect(clippy::unnecessary_wraps, reason = "other systems have no modes")]
fn make(_: &Path) -> Result<(), Error> {
    Ok(())
}

/// Two connections that switch a new file at the same moment would wait for each other for ever; SQLite tells one of
/// them at once that the file is busy, whatever the timeout.
fn switch_to_wal(connection: &Connection, path: &Path) -> Result<(), Error> {
    let deadline = Instant::now() + BUSY_TIMEOUT;
    loop {
        let mode = connection.pragma_update_and_check(None, "journal_mode", "wal", |row| row.get::<_, String>(0));
        match mode {
            Ok(mode) if mode == "wal" => return Ok(()),
            // A file that was made elsewhere and may not be written: the caller says so.
            Ok(_) if connection.is_readonly(rusqlite::MAIN_DB)? => return Ok(()),
            Ok(mode) => {
                let reason =
                    format!("it cannot have a write-ahead log (its journal is {mode:?}): give a file on a local disk");
                return Err(refuse(path, reason));
            }
            Err(error) if is_busy(&error) && Instant::now() < deadline => std::thread::sleep(SWITCH_PAUSE),
            Err(error) => return Err(explain(path, error)),
        }
    }
}

fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

fn refuse(path: &Path, reason: impl Into<String>) -> Error {
    Error::from(Cause::SqliteOpen { path: path.display().to_string(), reason: reason.into() })
}

/// What SQLite says about a file that it cannot open is "unable to open database file", whatever the cause.
fn explain(path: &Path, error: rusqlite::Error) -> Error {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => {
            refuse(path, "it is not a SQLite database (or it is encrypted): give another path, or move it away")
        }
        Some(ErrorCode::DatabaseCorrupt) => {
            refuse(path, "it is damaged: keep a copy, and recover it with `sqlite3 FILE .recover` or from a backup")
        }
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            refuse(path, "another program keeps it locked: end its transaction, or the program")
        }
        Some(ErrorCode::ReadOnly) => {
            refuse(path, "it is read-only for this user: let the user write the file and its directory")
        }
        Some(ErrorCode::CannotOpen | ErrorCode::PermissionDenied | ErrorCode::SystemIoFailure) => {
            if path.is_dir() {
                refuse(path, "it is a directory: give the path of a file")
            } else if let Some(parent) = parent.filter(|parent| !parent.exists()) {
                refuse(path, format!("the directory {} does not exist: create it first", parent.display()))
            } else {
                refuse(path, unusable(path))
            }
        }
        _ => Error::from(error),
    }
}

/// What the system says when the file is opened without SQLite.
fn unusable(path: &Path) -> String {
    let found = path.exists();
    match std::fs::OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path) {
        Ok(_) => {
            if !found {
                // It was not there before this question was asked.
                drop(std::fs::remove_file(path));
            }
            "its directory cannot be written, and SQLite keeps its log beside the file: let this user write it"
                .to_owned()
        }
        Err(cause) => format!("{cause}: let this user write the file and its directory, or give another path"),
    }
}

/// How long a try waits for others that write to the same file.
const TRY_WAIT: Duration = Duration::from_secs(10);

/// Whether the outbox in this file would take these messages. Everything is rolled back.
///
/// # Errors
///
/// As `enqueue_many`; or the file cannot be opened, or is locked for longer than ten seconds.
pub fn try_enqueue(file: &Path, messages: &[Message]) -> Result<(), Error> {
    let mut connection = Connection::open(file)?;
    connection.busy_timeout(TRY_WAIT)?;
    let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    crate::enqueue::rusqlite::enqueue_many(&tx, messages)?;
    Ok(tx.rollback()?)
}

/// Whether this file holds an outbox. It is not changed.
///
/// # Errors
///
/// It cannot be opened, or is no SQLite file.
pub fn holds_outbox(file: &Path) -> Result<bool, Error> {
    let connection = Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    Ok(connection.table_exists(None, "outbox_message")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves E11: what was committed survives a power cut: every commit is synced, also in a write-ahead log.
    #[test]
    fn every_connection_syncs_every_commit() {
        let directory = tempfile::tempdir().unwrap();
        let connection = open(&directory.path().join("app.db")).unwrap();
        let number = |pragma: &str| connection.query_row(pragma, [], |row| row.get::<_, i64>(0)).unwrap();
        assert_eq!(number("pragma synchronous"), 2, "FULL");
        assert_eq!(number("pragma busy_timeout"), 30_000);
        let mode: String = connection.query_row("pragma journal_mode", [], |row| row.get(0)).unwrap();
        assert_eq!(mode, "wal");
    }
}
