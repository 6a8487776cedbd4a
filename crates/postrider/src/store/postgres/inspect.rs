//! Answers questions about an outbox in PostgreSQL: one line for each, what it asks is in the module of its verb. Nothing here
//! writes.

use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::statement::sql;
use super::{PostgresStore, dead, lease, list, operate, pending, prune, watch};
use crate::error::Error;
use crate::explain::Explanation;
use crate::inspect::{
    AuditRecord, DeadFilter, DeadGroup, DeadLetter, DeliveryFilter, Entry, FutureTimes, Inspect, LaneFilter,
    LaneStatus, ListFilter, MessageDetail, MessageSummary, OpenCount, Page, PageRequest, RelayRecord, ReplayCount,
    RouteChanges, Sample, SinkStatus,
};
use crate::operate::{Pruned, Replay};
use crate::store::Route;

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
        dead::list(self, filter, page).await
    }

    async fn dead_groups(&self, filter: &DeadFilter) -> Result<Vec<DeadGroup>, Error> {
        dead::group(self, filter).await
    }

    async fn count_dead(&self, filter: &DeadFilter) -> Result<u64, Error> {
        dead::count(self, filter).await
    }

    async fn not_dead(&self, filter: &DeadFilter) -> Result<Vec<Uuid>, Error> {
        dead::missing(self, filter).await
    }

    async fn count_open(&self, filter: &DeliveryFilter) -> Result<OpenCount, Error> {
        pending::count(self, filter).await
    }

    async fn not_open(&self, filter: &DeliveryFilter) -> Result<Vec<Uuid>, Error> {
        pending::missing(self, filter).await
    }

    async fn count_replay(&self, replay: &Replay) -> Result<ReplayCount, Error> {
        operate::count_replay(self, replay).await
    }

    async fn count_route_changes(&self) -> Result<RouteChanges, Error> {
        Ok(self.ask(sql!("operate", "count_route_changes"), &[]).await?.one()?.unwrap_or_default())
    }

    async fn count_stale(&self, older_than: Duration, live: bool) -> Result<u64, Error> {
        lease::count_stale(self, older_than, live).await
    }

    async fn prunable(&self, older_than: Option<Duration>) -> Result<Pruned, Error> {
        prune::prunable(self, older_than).await
    }

    async fn future_times(&self, tolerance: Duration) -> Result<FutureTimes, Error> {
        watch::future_times(self, tolerance).await
    }

    async fn samples(&self, within: Duration) -> Result<Vec<Sample>, Error> {
        watch::samples(self, within).await
    }

    async fn relays(&self) -> Result<Vec<RelayRecord>, Error> {
        watch::relays(self).await
    }

    async fn audit(&self, page: &PageRequest) -> Result<Page<AuditRecord>, Error> {
        operate::audit(self, page).await
    }

    async fn explain(&self, message_id: Uuid) -> Result<Option<Explanation>, Error> {
        list::explain(self, message_id).await
    }
}
