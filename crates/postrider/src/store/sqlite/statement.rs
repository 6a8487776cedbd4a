//! How the statements of `sql/sqlite/statements` are run: prepared once a connection, with named parameters. Beside that
//! the translation of times and ids. No statement's text is here, and no rule.

use std::time::{Duration, SystemTime};

use rusqlite::{Connection, ToSql};
use uuid::Uuid;

use crate::error::Error;
use crate::store::row::{Column, FromRow, Row};

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
pub(crate) fn first<T: FromRow>(
    connection: &Connection,
    sql: &str,
    parameters: Parameters<'_>,
) -> Result<Option<T>, Error> {
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query(parameters)?;
    rows.next()?.map(T::from_row).transpose()
}

/// Every row.
pub(crate) fn all<T: FromRow>(connection: &Connection, sql: &str, parameters: Parameters<'_>) -> Result<Vec<T>, Error> {
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query(parameters)?;
    let mut all = Vec::new();
    while let Some(row) = rows.next()? {
        all.push(T::from_row(row)?);
    }
    Ok(all)
}

/// The first column of the first row, if there is one.
pub(crate) fn value<T: Column>(
    connection: &Connection,
    sql: &str,
    parameters: Parameters<'_>,
) -> Result<Option<T>, Error> {
    Ok(first(connection, sql, parameters)?.map(|Value(value)| value))
}

/// The first column of every row.
pub(crate) fn values<T: Column>(
    connection: &Connection,
    sql: &str,
    parameters: Parameters<'_>,
) -> Result<Vec<T>, Error> {
    Ok(all(connection, sql, parameters)?.into_iter().map(|Value(value)| value).collect())
}

/// The first column of a row.
struct Value<T>(T);

impl<T: Column> FromRow for Value<T> {
    fn from_row(row: &impl Row) -> Result<Self, Error> {
        row.at(0).map(Self)
    }
}

/// SQLite's clock, in microseconds since 1970.
pub(crate) fn now(connection: &Connection) -> Result<i64, Error> {
    Ok(connection.prepare_cached(sql!("watch", "clock"))?.query_row([], |row| row.get(0))?)
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

/// Ids as the statements take them: a JSON array of 32 hexadecimal digits each.
pub(super) fn digits(ids: Option<&Vec<Uuid>>) -> Option<String> {
    let digits = |id: &Uuid| serde_json::Value::String(id.simple().to_string());
    ids.map(|ids| serde_json::Value::Array(ids.iter().map(digits).collect()).to_string())
}
