//! Open deliveries as a filter means them, in PostgreSQL: counted, and those that are missing. Called by `inspect.rs` and, for the
//! parameters of a filter, by `operate.rs`. Nothing here writes.

use tokio_postgres::types::Type;
use uuid::Uuid;

use super::PostgresStore;
use super::statement::{Parameter, matching, sql};
use crate::error::Error;
use crate::inspect::{DeliveryFilter, OpenCount};

pub(super) fn filter_parameters(filter: &DeliveryFilter) -> [Parameter<'_>; 6] {
    [
        (&filter.message_ids, Type::UUID_ARRAY),
        (&filter.sink, Type::TEXT),
        (&filter.namespace, Type::TEXT),
        (&filter.topic, Type::TEXT),
        (&filter.tenant_id, Type::TEXT),
        (&filter.lane, Type::TEXT),
    ]
}

pub(super) async fn count(store: &PostgresStore, filter: &DeliveryFilter) -> Result<OpenCount, Error> {
    let answer = store.ask(matching!("pending", "count"), &filter_parameters(filter)).await?;
    Ok(answer.one()?.unwrap_or_default())
}

pub(super) async fn missing(store: &PostgresStore, filter: &DeliveryFilter) -> Result<Vec<Uuid>, Error> {
    store.ask(matching!("pending", "missing"), &filter_parameters(filter)).await?.values()
}
