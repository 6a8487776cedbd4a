//! Counts what an operator's action would take, and times from the future, in PostgreSQL. Called by `inspect.rs` and, for the
//! parameters of a filter, by `operate.rs`. Nothing here writes.

use std::time::Duration;

use tokio_postgres::Row;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::{Parameter, PostgresStore, seconds};
use crate::error::Error;
use crate::inspect::{DeliveryFilter, FutureTimes, LONGEST_LEASE, OpenCount, ReplayCount};
use crate::operate::Replay;
use crate::store::Pruned;

pub(super) fn filter_parameters(filter: &DeliveryFilter) -> [Parameter<'_>; 6] {
    [
        (&filter.message_ids, Type::UUID_ARRAY),
        (&filter.sink, Type::TEXT),
        (&filter.namespace, Type::TEXT),
        (&filter.topic, Type::TEXT),
        (&filter.tenant_id, Type::UUID),
        (&filter.lane, Type::TEXT),
    ]
}

pub(super) async fn count_open(store: &PostgresStore, filter: &DeliveryFilter) -> Result<OpenCount, Error> {
    let sql = include_str!("../../../sql/postgres/queries/count_open.sql");
    let rows = store.ask(sql, &filter_parameters(filter)).await?;
    let Some(row) = rows.first() else { return Ok(OpenCount::default()) };
    Ok(OpenCount { pending: count(row, 0)?, waiting: count(row, 1)?, leased: count(row, 2)? })
}

pub(super) async fn not_open(store: &PostgresStore, filter: &DeliveryFilter) -> Result<Vec<Uuid>, Error> {
    let sql = include_str!("../../../sql/postgres/queries/not_open.sql");
    let rows = store.ask(sql, &filter_parameters(filter)).await?;
    rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
}

pub(super) async fn count_replay(store: &PostgresStore, replay: &Replay) -> Result<ReplayCount, Error> {
    replay.check()?;
    let sql = include_str!("../../../sql/postgres/queries/count_replay.sql");
    let (id_from, id_before) = replay.ids();
    let parameters: [Parameter<'_>; 8] = [
        (&replay.message_ids, Type::UUID_ARRAY),
        (&replay.sink, Type::TEXT),
        (&id_from, Type::UUID),
        (&id_before, Type::UUID),
        (&replay.namespace, Type::TEXT),
        (&replay.topic, Type::TEXT),
        (&replay.after, Type::UUID),
        (&i64::from(replay.at_most), Type::INT8),
    ];
    let rows = store.ask(sql, &parameters).await?;
    let Some(row) = rows.first() else { return Ok(ReplayCount::default()) };
    if !row.try_get::<_, bool>("known")? {
        return Err(Error::NoSuchSink { message: format!("there is no sink {:?}", replay.sink) });
    }
    let last: Option<Uuid> = row.try_get("last_id")?;
    let met_its_limit = row.try_get::<_, i64>("looked_at")? >= i64::from(replay.at_most);
    Ok(ReplayCount { delivered: count(row, 0)?, never_delivered: count(row, 1)?, next: last.filter(|_| met_its_limit) })
}

pub(super) async fn count_stale(store: &PostgresStore, older_than: Duration) -> Result<u64, Error> {
    let sql = include_str!("../../../sql/postgres/queries/count_stale.sql");
    let rows = store.ask(sql, &[(&seconds(older_than), Type::TEXT)]).await?;
    rows.first().map_or(Ok(0), |row| count(row, 0))
}

pub(super) async fn prunable(store: &PostgresStore, older_than: Option<Duration>) -> Result<Pruned, Error> {
    let sql = "select partitions, rest, dedupe from outbox.prunable(older_than_seconds => $1::text::numeric)";
    let rows = store.ask(sql, &[(&older_than.map(seconds), Type::TEXT)]).await?;
    let Some(row) = rows.first() else { return Ok(Pruned::default()) };
    Ok(Pruned { partitions_dropped: count(row, 0)?, rest_deleted: count(row, 1)?, dedupe_deleted: count(row, 2)? })
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
