//! Rows of either store, read as records. A record's columns are declared once, in the list at the end of this file, and every
//! statement names them so. What differs between the drivers is how a column's value is read: [`Column`].

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

#[cfg(feature = "sqlite")]
use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ValueRef};
use serde_json::value::RawValue;
#[cfg(feature = "postgres")]
use tokio_postgres::types::{Json, Type};
use uuid::Uuid;

use crate::error::{Cause, Error, words_and_causes};
use crate::explain::LaneHead;
use crate::inspect::{
    AttemptCounts, AttemptRecord, AuditRecord, DeadGroup, DeadLetter, DeliveryRecord, Entry, FutureTimes, LaneStatus,
    MessageDetail, MessageSummary, OpenCount, RelayRecord, RelayReport, RouteChanges, Sample, SinkStatus,
};
use crate::lifecycle::{Claimed, ClaimedContent, Completed, Content, LeaseToken};
#[cfg(feature = "postgres")]
use crate::migrate::MigrationState;
use crate::store::{Pruned, Route};
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

/// A record's columns; a field that is no column of its own says how it is read.
macro_rules! records {
    ($($record:ident ($row:ident) { $($field:ident $(: $value:expr)?),* $(,)? })*) => { $(
        impl FromRow for $record {
            fn from_row($row: &impl Row) -> Result<Self, Error> {
                Ok(Self { $($field: records!(@ $row $field $($value)?)),* })
            }
        }
    )* };
    (@ $row:ident $field:ident) => { $row.read(stringify!($field))? };
    (@ $row:ident $field:ident $value:expr) => { $value };
}
pub(crate) use records;

records! {
    Claimed(row) {
        message_id, sink, namespace, topic, tenant_id, lane, sequence_id, dedupe_key, priority,
        headers: headers(row)?, content: content(row)?,
        content_type, occurred_at, due_at, attempt_no, attempt_count, lost_leases,
        lease_token: LeaseToken(row.read("lease_token")?), claimed_at, lease_expires_at,
    }
    ClaimedContent(row) { headers: headers(row)?, content: content(row)? }
    Completed(row) { message_id, sink, attempt_no, dead }
    Pruned(row) { partitions_dropped, rest_deleted, dedupe_deleted }
    Route(row) { sink, topic, namespace }
    OpenCount(row) { pending, waiting, leased }
    RouteChanges(row) { added, removed }
    FutureTimes(row) { leases, reports, samples }
    AttemptCounts(row) { dispatched, retryable, failed, zombie_requeue }
    SinkStatus(row) {
        sink, paused, on_dead, pending, due, leased, expired, dead, parked_lanes, oldest_pending_age_seconds,
        oldest_due_age_seconds, recent_seconds,
        recent: AttemptCounts {
            dispatched: row.read("recent_dispatched")?, retryable: row.read("recent_retryable")?,
            failed: row.read("recent_failed")?, zombie_requeue: row.read("recent_zombies")?,
        },
        last_success_at, last_error_at,
    }
    MessageSummary(row) {
        message_id, enqueued_at, namespace, topic, lane, sequence_id, sink, state, attempt_no, due_at,
    }
    MessageDetail(row) {
        message_id, enqueued_at, occurred_at, namespace, topic, tenant_id, lane, sequence_id, dedupe_key, priority,
        content_type, headers, payload, body, deliveries: Vec::new(), attempts: Vec::new(),
    }
    DeliveryRecord(row) {
        sink, state, due_at, attempt_no, attempt_count, max_attempts, claimed_by, lease_expires_at,
    }
    AttemptRecord(row) {
        sink, attempt_no, state, worker_id, claimed_at, completed_at, latency_ms, code, reference, error_code,
        error_message, answer,
    }
    Entry(row) {
        message_id, sink, state, topic, tenant_id, priority, occurred_at, due_at, claimed_by, claimed_at,
        lease_expires_at, attempt_count, last_attempt_at, error_code, error_message, died_at, reason,
        payload_size_bytes,
    }
    LaneStatus(row) {
        sink, lane, state, depth, head_sequence_id, head_message_id, head_due_at, head_attempt_count, head_failed,
        head_error_code, head_error_message,
    }
    LaneHead(row) {
        sink, message_id, sequence_id, due_at, claimed_by, lease_expires_at, error_code, error_message,
    }
    DeadLetter(row) {
        message_id, sink, died_at, reason, error_code, error_message, attempt_no, attempt_count, parked, namespace, topic,
        tenant_id, lane, sequence_id, occurred_at, payload_size_bytes,
    }
    DeadGroup(row) {
        sink, topic, reason, error_code, count, first_died_at, last_died_at, error_message,
    }
    AuditRecord(row) { id, at, actor, db_user, action, detail, affected }
    Sample(row) {
        at, seconds, sink, pending, due, leased, expired, dead, parked_lanes, oldest_pending_age_seconds,
        oldest_due_age_seconds,
        attempts: AttemptCounts::from_row(row)?,
        latency_p50_ms, latency_p99_ms,
    }
    RelayRecord(row) { report: RelayReport::from_row(row)?, started_at, reported_at, silent }
    RelayReport(row) {
        worker_id, version,
        every: Duration::try_from_secs_f64(row.read("every_seconds")?).unwrap_or_default(),
        sinks: RelayReport::sinks_from(&row.read::<String>("sinks")?),
    }
}

#[cfg(feature = "postgres")]
records! { MigrationState(row) { version, name, applied_at } }

fn headers(row: &impl Row) -> Result<BTreeMap<String, String>, Error> {
    Ok(row.read::<Option<_>>("headers").map_err(of_content)?.unwrap_or_default())
}

/// The table's CHECK makes it exactly one of the two; neither, if it was not asked for.
fn content(row: &impl Row) -> Result<Content, Error> {
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
