//! Rows of either store, read as records. A record's columns are declared beside it, by `records!`, and every statement
//! names them so. What differs between the drivers is how a column's value is read: [`Column`].

use std::collections::BTreeMap;
#[cfg(feature = "sqlite")]
use std::time::Duration;
use std::time::SystemTime;

#[cfg(feature = "sqlite")]
use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ValueRef};
use serde_json::value::RawValue;
#[cfg(feature = "postgres")]
use tokio_postgres::types::{Json, Type};
use uuid::Uuid;

use crate::error::{Cause, Error, words_and_causes};
use crate::lifecycle::Content;
#[cfg(feature = "postgres")]
use crate::words::UnknownWord;

/// A row, as a driver hands it over.
pub(crate) trait Row {
    fn read<T: Column>(&self, column: &str) -> Result<T, Error>;
    fn at<T: Column>(&self, place: usize) -> Result<T, Error>;
}

/// What a whole row says.
pub(crate) trait FromRow: Sized {
    fn from_row(row: &impl Row) -> Result<Self, Error>;
}

/// The value of one column. In SQLite a time is the microseconds since 1970, and a JSON document is text.
pub(crate) trait Column: Sized {
    #[cfg(feature = "postgres")]
    type Postgres: for<'a> tokio_postgres::types::FromSql<'a>;
    #[cfg(feature = "postgres")]
    fn from_postgres(value: Self::Postgres) -> Result<Self, Error>;
    #[cfg(feature = "sqlite")]
    fn from_sqlite(value: ValueRef<'_>) -> FromSqlResult<Self>;
}

#[cfg(feature = "postgres")]
impl Row for tokio_postgres::Row {
    fn read<T: Column>(&self, column: &str) -> Result<T, Error> {
        T::from_postgres(self.try_get(column)?)
    }

    fn at<T: Column>(&self, place: usize) -> Result<T, Error> {
        T::from_postgres(self.try_get(place)?)
    }
}

#[cfg(feature = "sqlite")]
impl Row for rusqlite::Row<'_> {
    fn read<T: Column>(&self, column: &str) -> Result<T, Error> {
        self.get(column).map(|Sqlite(value)| value).map_err(unreadable)
    }

    fn at<T: Column>(&self, place: usize) -> Result<T, Error> {
        self.get(place).map(|Sqlite(value)| value).map_err(unreadable)
    }
}

#[cfg(feature = "sqlite")]
struct Sqlite<T>(T);

#[cfg(feature = "sqlite")]
impl<T: Column> FromSql for Sqlite<T> {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        T::from_sqlite(value).map(Self)
    }
}

/// The row is there and does not hold what it should: another program wrote it.
#[cfg(feature = "sqlite")]
fn unreadable(error: rusqlite::Error) -> Error {
    match error {
        rusqlite::Error::FromSqlConversionFailure(..) | rusqlite::Error::Utf8Error(..) => {
            Cause::Unreadable { reason: error.to_string() }.into()
        }
        error => error.into(),
    }
}

/// A word in a row that this build does not know: another one wrote it.
#[cfg(feature = "postgres")]
pub(crate) fn unknown(word: &UnknownWord) -> Error {
    Cause::Unreadable { reason: word.to_string() }.into()
}

impl<T: Column> Column for Option<T> {
    #[cfg(feature = "postgres")]
    type Postgres = Option<T::Postgres>;

    #[cfg(feature = "postgres")]
    fn from_postgres(value: Self::Postgres) -> Result<Self, Error> {
        value.map(T::from_postgres).transpose()
    }

    #[cfg(feature = "sqlite")]
    fn from_sqlite(value: ValueRef<'_>) -> FromSqlResult<Self> {
        if value == ValueRef::Null { Ok(None) } else { T::from_sqlite(value).map(Some) }
    }
}

/// `type: what PostgreSQL gives => the value of it, what SQLite gives => the value of it`.
macro_rules! columns {
    ($($type:ty: $postgres:ty => $from_postgres:expr, $sqlite:ty => $from_sqlite:expr;)*) => { $(
        impl Column for $type {
            #[cfg(feature = "postgres")]
            type Postgres = $postgres;

            #[cfg(feature = "postgres")]
            fn from_postgres(value: $postgres) -> Result<Self, Error> {
                Ok(($from_postgres)(value))
            }

            #[cfg(feature = "sqlite")]
            fn from_sqlite(value: ValueRef<'_>) -> FromSqlResult<Self> {
                <$sqlite>::column_result(value).and_then($from_sqlite)
            }
        }
    )* };
}

columns! {
    bool: bool => same, bool => Ok;
    i32: i32 => same, i32 => Ok;
    i64: i64 => same, i64 => Ok;
    f64: f64 => same, f64 => Ok;
    String: String => same, String => Ok;
    Uuid: Uuid => same, Uuid => Ok;
    Vec<u8>: Vec<u8> => same, Vec<u8> => Ok;
    SystemTime: SystemTime => same, i64 => |micros| Ok(time(micros));
    u64: Count => |Count(count)| count, i64 => |count| Ok(u64::try_from(count).unwrap_or(0));
    Box<RawValue>: Json<Self> => |Json(json)| json, String => |json| RawValue::from_string(json).map_err(not_json);
    BTreeMap<String, String>: Json<Self> => |Json(map)| map, String => |json| serde_json::from_str(&json).map_err(not_json);
}

/// A number of either width, or whether there was one.
#[cfg(feature = "postgres")]
pub(crate) struct Count(u64);

#[cfg(feature = "postgres")]
impl<'a> tokio_postgres::types::FromSql<'a> for Count {
    fn from_sql(kind: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        let count = match *kind {
            Type::BOOL => bool::from_sql(kind, raw)?.into(),
            Type::INT4 => i32::from_sql(kind, raw)?.into(),
            _ => i64::from_sql(kind, raw)?,
        };
        Ok(Self(u64::try_from(count).unwrap_or(0)))
    }

    tokio_postgres::types::accepts!(BOOL, INT4, INT8);
}

#[cfg(feature = "postgres")]
fn same<T>(value: T) -> T {
    value
}

#[cfg(feature = "sqlite")]
fn not_json(error: serde_json::Error) -> FromSqlError {
    FromSqlError::other(error)
}

/// The moment that is so many microseconds after 1970, or before it.
#[cfg(feature = "sqlite")]
pub(crate) fn time(micros: i64) -> SystemTime {
    let distance = Duration::from_micros(micros.unsigned_abs());
    if micros < 0 { SystemTime::UNIX_EPOCH - distance } else { SystemTime::UNIX_EPOCH + distance }
}

impl<A: Column, B: Column> FromRow for (A, B) {
    fn from_row(row: &impl Row) -> Result<Self, Error> {
        Ok((row.at(0)?, row.at(1)?))
    }
}

impl<A: Column, B: Column, C: Column> FromRow for (A, B, C) {
    fn from_row(row: &impl Row) -> Result<Self, Error> {
        Ok((row.at(0)?, row.at(1)?, row.at(2)?))
    }
}

pub(crate) fn headers(row: &impl Row) -> Result<BTreeMap<String, String>, Error> {
    Ok(row.read::<Option<_>>("headers").map_err(of_content)?.unwrap_or_default())
}

/// The table's CHECK makes it exactly one of the two; neither, if it was not asked for.
pub(crate) fn content(row: &impl Row) -> Result<Content, Error> {
    if let Some(payload) = row.read("payload").map_err(of_content)? {
        return Ok(Content::Json(payload));
    }
    Ok(Content::Bytes(row.read::<Option<_>>("body").map_err(of_content)?.unwrap_or_default()))
}

/// What was sent and is not what it should be is the message's fault, not the connection's.
fn of_content(error: Error) -> Error {
    match error.cause() {
        Cause::Unreadable { .. } => error,
        _ => Cause::Unreadable { reason: words_and_causes(&error) }.into(),
    }
}
