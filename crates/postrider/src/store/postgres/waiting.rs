//! Counts deliveries that wait for their time, and times from the future, in PostgreSQL. Called by `inspect.rs`.

use std::time::Duration;

use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::PostgresStore;
use crate::error::Error;
use crate::inspect::{FutureTimes, LONGEST_LEASE, WaitingFilter};

pub(super) async fn count_waiting(store: &PostgresStore, filter: &WaitingFilter) -> Result<u64, Error> {
    let sql = include_str!("../../../sql/postgres/queries/count_waiting.sql");
    let rows = store.ask(sql, &[(&filter.message_ids, Type::UUID_ARRAY), (&filter.sink, Type::TEXT)]).await?;
    rows.first().map_or(Ok(0), |row| count(row, 0))
}

pub(super) async fn future_times(store: &PostgresStore, tolerance: Duration) -> Result<FutureTimes, Error> {
    let sql = include_str!("../../../sql/postgres/queries/future_times.sql");
    let seconds = [tolerance.as_secs_f64(), LONGEST_LEASE.as_secs_f64()];
    let rows = store.ask(sql, &[(&seconds[0], Type::FLOAT8), (&seconds[1], Type::FLOAT8)]).await?;
    let Some(row) = rows.first() else { return Ok(FutureTimes::default()) };
    Ok(FutureTimes { leases: count(row, 0)?, reports: count(row, 1)?, samples: count(row, 2)? })
}

fn count(row: &Row, column: usize) -> Result<u64, Error> {
    Ok(u64::try_from(row.try_get::<_, i64>(column)?).unwrap_or(0))
}
