//! Answers questions about an outbox in PostgreSQL: each is a statement of `sql/postgres/statements` or a call of a function that
//! reads. What takes several steps is in `list.rs`. Nothing here writes.

use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::statement::{Parameter, matching, seconds, sql, values};
use super::{PostgresStore, list, operate};
use crate::error::{Cause, Error};
use crate::explain::Explanation;
use crate::inspect::{
    AuditRecord, Cursor, DeadFilter, DeadGroup, DeadLetter, DeliveryFilter, Entry, FutureTimes, Inspect, LONGEST_LEASE,
    LaneFilter, LaneStatus, ListFilter, MAX_DEAD_GROUPS, MessageDetail, MessageSummary, OpenCount, Page, PageRequest,
    RelayRecord, ReplayCount, RouteChanges, Sample, SinkStatus,
};
use crate::message::limit;
use crate::operate::{Pruned, Replay};
use crate::store::Route;
use crate::store::row::Row as _;

#[async_trait]
impl Inspect for PostgresStore {
    async fn now(&self) -> Result<SystemTime, Error> {
        Ok(self.ask(sql!("list", "now"), &[]).await?.value()?.unwrap_or_else(SystemTime::now))
    }

    async fn status(&self) -> Result<Vec<SinkStatus>, Error> {
        self.ask(sql!("list", "status"), &[]).await?.all()
    }

    async fn list(&self, filter: &ListFilter, page: &PageRequest) -> Result<Page<MessageSummary>, Error> {
        list::list(self, filter, page).await
    }

    async fn show(&self, message_id: Uuid) -> Result<Option<MessageDetail>, Error> {
        list::show(self, message_id).await
    }

    async fn entries(&self, message_ids: &[Uuid]) -> Result<Vec<Entry>, Error> {
        self.ask(sql!("list", "entries"), &[(&message_ids, Type::UUID_ARRAY)]).await?.all()
    }

    async fn routes(&self) -> Result<Vec<Route>, Error> {
        self.ask(sql!("operate", "routes"), &[]).await?.all()
    }

    async fn lanes(&self, filter: &LaneFilter, page: &PageRequest) -> Result<Page<LaneStatus>, Error> {
        list::lanes(self, filter, page).await
    }

    async fn dead_letters(&self, filter: &DeadFilter, page: &PageRequest) -> Result<Page<DeadLetter>, Error> {
        let after = page.after.as_ref().map(Cursor::letter).transpose()?;
        let (died_at, message_id, sink) =
            after.as_ref().map_or((None, None, None), |(at, id, sink)| (Some(at), Some(id), Some(sink)));
        let limit = i64::from(page.limit);
        let place: [Parameter<'_>; 4] =
            [(&died_at, Type::TIMESTAMPTZ), (&message_id, Type::UUID), (&sink, Type::TEXT), (&limit, Type::INT8)];
        let parameters = [&values(&operate::dead(filter))[..], &place].concat();
        Ok(Page::of_dead(self.ask(matching!("dead", "list"), &parameters).await?.all()?, page.limit))
    }

    async fn dead_groups(&self, filter: &DeadFilter) -> Result<Vec<DeadGroup>, Error> {
        let at_most: [Parameter<'_>; 1] = [(&i64::from(MAX_DEAD_GROUPS), Type::INT8)];
        self.ask(matching!("dead", "group"), &[&values(&operate::dead(filter))[..], &at_most].concat()).await?.all()
    }

    async fn count_dead(&self, filter: &DeadFilter) -> Result<u64, Error> {
        self.ask(matching!("dead", "count"), &values(&operate::dead(filter))).await?.count()
    }

    async fn not_dead(&self, filter: &DeadFilter) -> Result<Vec<Uuid>, Error> {
        self.ask(matching!("dead", "missing"), &values(&operate::dead(filter))).await?.values()
    }

    async fn count_open(&self, filter: &DeliveryFilter) -> Result<OpenCount, Error> {
        let answer = self.ask(matching!("pending", "count"), &values(&operate::pending(filter))).await?;
        Ok(answer.one()?.unwrap_or_default())
    }

    async fn not_open(&self, filter: &DeliveryFilter) -> Result<Vec<Uuid>, Error> {
        self.ask(matching!("pending", "missing"), &values(&operate::pending(filter))).await?.values()
    }

    async fn count_replay(&self, replay: &Replay) -> Result<ReplayCount, Error> {
        replay.check()?;
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
        let answer = self.ask(sql!("operate", "count_replay"), &parameters).await?;
        let Some(row) = answer.first() else { return Ok(ReplayCount::default()) };
        if !row.read::<bool>("known")? {
            return Err(Error::from(Cause::NoSuchSink { message: format!("there is no sink {:?}", replay.sink) }));
        }
        let met_its_limit = row.read::<u64>("looked_at")? >= u64::from(replay.at_most);
        let next = row.read::<Option<_>>("last_id")?.filter(|_| met_its_limit);
        Ok(ReplayCount { delivered: row.read("delivered")?, never_delivered: row.read("never_delivered")?, next })
    }

    async fn count_route_changes(&self) -> Result<RouteChanges, Error> {
        let counted = self.look_up("apply_routes", &[("dry_run", &true, Type::BOOL)]).await?;
        Ok(counted.one()?.unwrap_or_default())
    }

    async fn count_stale(&self, older_than: Duration, live: bool) -> Result<u64, Error> {
        let older_than = seconds(older_than);
        self.ask(sql!("operate", "count_stale"), &[(&older_than, Type::TEXT), (&live, Type::BOOL)]).await?.count()
    }

    async fn prunable(&self, older_than: Option<Duration>) -> Result<Pruned, Error> {
        let answer = self.ask(sql!("operate", "prunable"), &[(&older_than.map(seconds), Type::TEXT)]).await?;
        Ok(answer.one()?.unwrap_or_default())
    }

    async fn future_times(&self, tolerance: Duration) -> Result<FutureTimes, Error> {
        let seconds = [tolerance.as_secs_f64(), LONGEST_LEASE.as_secs_f64()];
        let limits = [(&seconds[0] as _, Type::FLOAT8), (&seconds[1] as _, Type::FLOAT8)];
        Ok(self.ask(sql!("watch", "future_times"), &limits).await?.one()?.unwrap_or_default())
    }

    async fn samples(&self, within: Duration) -> Result<Vec<Sample>, Error> {
        let within = seconds(within.min(Duration::from_secs(limit::DELAY_SECONDS)));
        self.ask(sql!("watch", "samples"), &[(&within, Type::TEXT)]).await?.all()
    }

    async fn relays(&self) -> Result<Vec<RelayRecord>, Error> {
        self.ask(sql!("watch", "relays"), &[]).await?.all()
    }

    async fn audit(&self, page: &PageRequest) -> Result<Page<AuditRecord>, Error> {
        let before = page.after.as_ref().map(Cursor::entry).transpose()?;
        let which = [(&before as _, Type::INT8), (&i64::from(page.limit) as _, Type::INT8)];
        Ok(Page::of_audit(self.ask(sql!("operate", "audit"), &which).await?.all()?, page.limit))
    }

    async fn explain(&self, message_id: Uuid) -> Result<Option<Explanation>, Error> {
        list::explain(self, message_id).await
    }
}
