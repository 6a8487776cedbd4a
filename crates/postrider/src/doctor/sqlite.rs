//! Looks at an SQLite outbox: whether the file is whole, keeps a write-ahead log, and is closed to strangers. Opens it to
//! read; a file that cannot be opened is a finding like any other.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use crate::doctor::{Finding, Level, kept_how_long};
use crate::store::sqlite::statement::sql;
use crate::text::counted;

/// How long a look waits for others that write.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// A write-ahead log that was never cut back: somebody reads for ever. The store cuts it back after 16 MiB.
const LONG_LOG_BYTES: u64 = 256 * 1024 * 1024;
/// Faults that `quick_check` tells at most.
const MAX_FAULTS: u32 = 10;

/// Looks at everything.
#[must_use]
pub fn sqlite(file: &Path) -> Vec<Finding> {
    let mut findings = Vec::new();
    match look(file) {
        Ok(found) => findings.extend(found),
        Err(error) => findings.push(
            Finding::new("file", Level::Bad, format!("cannot be read: {error}"), "nothing works without the file")
                .fix("is it the right file, and may this user read it and its directory?"),
        ),
    }
    findings.extend(permissions(file));
    findings.push(log_size(file));
    findings
}

fn look(file: &Path) -> rusqlite::Result<Vec<Finding>> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(file, flags)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    let mode: String = connection.pragma_query_value(None, "journal_mode", |row| row.get(0))?;
    let version = rusqlite::version();
    let mut findings =
        vec![Finding::ok("version", format!("SQLite {version}")), whole(&connection)?, journal(&mode, file)];
    findings.extend(retention(&connection));
    Ok(findings)
}

fn whole(connection: &Connection) -> rusqlite::Result<Finding> {
    let mut faults = Vec::new();
    connection.pragma(None, "quick_check", MAX_FAULTS, |row| {
        faults.push(row.get::<_, String>(0)?);
        Ok(())
    })?;
    Ok(match faults.first() {
        Some(first) if first != "ok" => {
            let seen = format!("{}, the first: {first}", counted(faults.len(), "fault"));
            Finding::new("integrity", Level::Bad, seen, "the file is damaged: messages may be lost")
                .fix("stop everything, keep a copy, and recover it: sqlite3 FILE .recover | sqlite3 NEW")
        }
        _ => Finding::ok("integrity", "quick_check finds the file whole"),
    })
}

/// Nothing in a file without an outbox.
fn retention(connection: &Connection) -> Option<Finding> {
    let sql = sql!("prune", "kept");
    let (history, keys) = connection.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?))).ok()?;
    Some(Finding::ok("retention", kept_how_long(history, keys)))
}

fn journal(mode: &str, file: &Path) -> Finding {
    if mode == "wal" {
        return Finding::ok("journal", "it has a write-ahead log: readers and the writer do not wait for one another");
    }
    let seen = format!("its journal is {mode:?}, not a write-ahead log");
    let why = "producers and the relay wait for one another; with \"off\" or \"memory\" a crash damages the file";
    let level = if matches!(mode, "off" | "memory") { Level::Bad } else { Level::Warning };
    Finding::new("journal", level, seen, why).fix(format!("sqlite3 {} 'pragma journal_mode = wal'", file.display()))
}

/// The file and the two that stand beside it while it is open.
fn companions(file: &Path) -> [PathBuf; 3] {
    ["", "-wal", "-shm"].map(|suffix| {
        let mut name = file.as_os_str().to_owned();
        name.push(suffix);
        PathBuf::from(name)
    })
}

#[cfg(unix)]
fn permissions(file: &Path) -> Option<Finding> {
    use std::os::unix::fs::PermissionsExt as _;
    let mode = |path: &PathBuf| fs::metadata(path).ok().map(|data| data.permissions().mode());
    let modes: Vec<u32> = companions(file).iter().filter_map(mode).collect();
    let any = |bits: u32| modes.iter().any(|mode| mode & bits != 0);
    let fix = format!("chmod o-rwx {}*", file.display());
    Some(if any(0o002) {
        let why = "any user of this machine can change or destroy messages";
        Finding::new("permissions", Level::Bad, "every user may write the file", why).fix(fix)
    } else if any(0o004) {
        let why = "payloads may hold what not every user of this machine should read";
        Finding::new("permissions", Level::Note, "every user may read the file", why).fix(fix)
    } else if modes.is_empty() {
        return None;
    } else {
        Finding::ok("permissions", "only its owner and group may use the file")
    })
}

#[cfg(not(unix))]
fn permissions(_: &Path) -> Option<Finding> {
    None
}

fn log_size(file: &Path) -> Finding {
    let [_, log, _] = companions(file);
    let bytes = fs::metadata(log).map_or(0, |data| data.len());
    let seen = format!("the write-ahead log has {} MiB", bytes / (1024 * 1024));
    if bytes < LONG_LOG_BYTES {
        return Finding::ok("log", seen);
    }
    let why = "it cannot be cut back while somebody reads: every read gets slower and the disk fills";
    Finding::new("log", Level::Warning, seen, why)
        .fix("find the program that keeps a read transaction open, and end it")
}
