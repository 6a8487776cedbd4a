//! Dead letters as a filter means them, in PostgreSQL: listed, grouped, counted. Called by `inspect.rs` and, for the
//! parameters of a filter, by `operate.rs`. Nothing here writes.

use tokio_postgres::types::Type;
use uuid::Uuid;

use super::PostgresStore;
use super::statement::{Parameter, matching, sql};
use crate::error::Error;
use crate::inspect::{Cursor, DeadFilter, DeadGroup, DeadLetter, MAX_DEAD_GROUPS, Page, PageRequest};

pub(super) fn filter_parameters(filter: &DeadFilter) -> [Parameter<'_>; 10] {
    [
        (&filter.message_ids, Type::UUID_ARRAY),
        (&filter.sink, Type::TEXT),
        (&filter.namespace, Type::TEXT),
        (&filter.topic, Type::TEXT),
        (&filter.tenant_id, Type::TEXT),
        (&filter.lane, Type::TEXT),
        (&filter.reason, Type::TEXT),
        (&filter.error_code, Type::TEXT),
        (&filter.died_from, Type::TIMESTAMPTZ),
        (&filter.died_to, Type::TIMESTAMPTZ),
    ]
}

pub(super) async fn list(
    store: &PostgresStore,
    filter: &DeadFilter,
    page: &PageRequest,
) -> Result<Page<DeadLetter>, Error> {
    let after = page.after.as_ref().map(Cursor::letter).transpose()?;
    let (died_at, message_id, sink) =
        after.as_ref().map_or((None, None, None), |(at, id, sink)| (Some(at), Some(id), Some(sink)));
    let place: [Parameter<'_>; 4] = [
        (&died_at, Type::TIMESTAMPTZ),
        (&message_id, Type::UUID),
        (&sink, Type::TEXT),
        (&i64::from(page.limit), Type::INT8),
    ];
    let letters =
        store.ask(matching!("dead", "list"), &[&filter_parameters(filter)[..], &place].concat()).await?.all()?;
    Ok(Page::of_dead(letters, page.limit))
}

pub(super) async fn group(store: &PostgresStore, filter: &DeadFilter) -> Result<Vec<DeadGroup>, Error> {
    let at_most: [Parameter<'_>; 1] = [(&i64::from(MAX_DEAD_GROUPS), Type::INT8)];
    store.ask(matching!("dead", "group"), &[&filter_parameters(filter)[..], &at_most].concat()).await?.all()
}

pub(super) async fn count(store: &PostgresStore, filter: &DeadFilter) -> Result<u64, Error> {
    Ok(store.ask(matching!("dead", "count"), &filter_parameters(filter)).await?.value()?.unwrap_or(0))
}

pub(super) async fn missing(store: &PostgresStore, filter: &DeadFilter) -> Result<Vec<Uuid>, Error> {
    store.ask(matching!("dead", "missing"), &filter_parameters(filter)).await?.values()
}
