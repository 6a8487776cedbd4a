//! How the statements of `sql/sqlite/statements` are run: prepared once a connection, with named parameters. Beside that
//! the translation of times and of SQLite's values. No statement's text is here, and no rule.

use std::time::{Duration, SystemTime};

use rusqlite::{Connection, OptionalExtension as _, Row, ToSql};

use crate::error::Error;

pub(crate) type Parameters<'a> = &'a [(&'a str, &'a dyn ToSql)];

/// The text of a statement: `sql!("claim", "due")` is the section `due` of `sql/sqlite/statements/claim.sql`.
macro_rules! sql {
    ($file:literal, $name:literal) => {
        $crate::statement::named!("sqlite", $file, $name)
    };
}
pub(crate) use sql;

/// The text of a statement about what a filter means: behind the section `matching` of its file.
macro_rules! matching {
    ($file:literal, $name:literal) => {
        &[sql!($file, "matching"), sql!($file, $name)].concat()
    };
}
pub(super) use matching;

/// Runs a statement that writes; how many rows it wrote.
pub(crate) fn execute(connection: &Connection, sql: &str, parameters: Parameters<'_>) -> Result<usize, Error> {
    Ok(connection.prepare_cached(sql)?.execute(parameters)?)
}

/// The first row, if there is one.
pub(crate) fn first<T>(
    connection: &Connection,
    sql: &str,
    parameters: Parameters<'_>,
    read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
) -> Result<Option<T>, Error> {
    Ok(connection.prepare_cached(sql)?.query_row(parameters, read).optional()?)
}

/// Every row.
pub(crate) fn all<T>(
    connection: &Connection,
    sql: &str,
    parameters: Parameters<'_>,
    read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
) -> Result<Vec<T>, Error> {
    let mut statement = connection.prepare_cached(sql)?;
    let rows = statement.query_map(parameters, read)?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// SQLite's clock, in microseconds since 1970.
pub(crate) fn now(connection: &Connection) -> Result<i64, Error> {
    Ok(connection.prepare_cached(sql!("watch", "clock"))?.query_row([], |row| row.get(0))?)
}

pub(super) fn time(micros: i64) -> SystemTime {
    let distance = Duration::from_micros(micros.unsigned_abs());
    if micros < 0 { SystemTime::UNIX_EPOCH - distance } else { SystemTime::UNIX_EPOCH + distance }
}

/// For a time that a caller gave; what is before or after every possible message becomes the first or last moment.
pub(super) fn micros_of(time: SystemTime) -> i64 {
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => micros(since),
        Err(before) => -micros(before.duration()),
    }
}

pub(crate) fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

/// What a destination said may hold NUL, which ends a text for SQLite's functions; an outcome must not be lost over it.
pub(super) fn text(said: Option<&str>) -> Option<String> {
    said.map(|said| said.replace('\0', "\u{fffd}"))
}
