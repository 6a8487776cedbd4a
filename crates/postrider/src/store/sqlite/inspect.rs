//! Answers questions about an outbox in SQLite, on a connection of its own, so that a long look holds up no claim.
//! Nothing here writes.

use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use rusqlite::ToSql;
use uuid::Uuid;

use super::statement::{all, first, micros, sql, value};
use super::{SqliteStore, dead, input, list, operate, pending, prune, routes};
use crate::error::Error;
use crate::explain::Explanation;
use crate::inspect::{
    AuditRecord, DeadFilter, DeadGroup, DeadLetter, DeliveryFilter, Entry, FutureTimes, Inspect, LONGEST_LEASE,
    LaneFilter, LaneStatus, ListFilter, MessageDetail, MessageSummary, OpenCount, Page, PageRequest, RelayRecord,
    ReplayCount, RouteChanges, Sample, SinkStatus,
};
use crate::operate::{Pruned, Replay};
use crate::store::Route;
use crate::store::row::time;

#[async_trait]
impl Inspect for SqliteStore {
    async fn now(&self) -> Result<SystemTime, Error> {
        self.read(move |_, now| Ok(time(now))).await
    }

    async fn status(&self) -> Result<Vec<SinkStatus>, Error> {
        self.read(move |tx, _| all(tx, sql!("list", "status"), &[])).await
    }

    async fn list(&self, filter: &ListFilter, page: &PageRequest) -> Result<Page<MessageSummary>, Error> {
        let (filter, page) = (filter.clone(), page.clone());
        self.read(move |tx, _| list::list(tx, &filter, &page)).await
    }

    async fn show(&self, message_id: Uuid) -> Result<Option<MessageDetail>, Error> {
        self.read(move |tx, _| list::show(tx, message_id)).await
    }

    async fn entries(&self, message_ids: &[Uuid]) -> Result<Vec<Entry>, Error> {
        let message_ids = message_ids.to_vec();
        self.read(move |tx, _| list::entries(tx, &message_ids)).await
    }

    async fn routes(&self) -> Result<Vec<Route>, Error> {
        self.read(move |tx, _| all(tx, sql!("operate", "routes"), &[])).await
    }

    async fn lanes(&self, filter: &LaneFilter, page: &PageRequest) -> Result<Page<LaneStatus>, Error> {
        let (filter, page) = (filter.clone(), page.clone());
        self.read(move |tx, _| list::lanes(tx, &filter, &page)).await
    }

    async fn dead_letters(&self, filter: &DeadFilter, page: &PageRequest) -> Result<Page<DeadLetter>, Error> {
        let (filter, page) = (filter.clone(), page.clone());
        self.read(move |tx, _| dead::list(tx, &filter, &page)).await
    }

    async fn dead_groups(&self, filter: &DeadFilter) -> Result<Vec<DeadGroup>, Error> {
        let filter = filter.clone();
        self.read(move |tx, _| dead::group(tx, &filter)).await
    }

    async fn count_dead(&self, filter: &DeadFilter) -> Result<u64, Error> {
        let filter = filter.clone();
        self.read(move |tx, _| dead::count(tx, &filter)).await
    }

    async fn not_dead(&self, filter: &DeadFilter) -> Result<Vec<Uuid>, Error> {
        let filter = filter.clone();
        self.read(move |tx, _| dead::missing(tx, &filter)).await
    }

    async fn count_open(&self, filter: &DeliveryFilter) -> Result<OpenCount, Error> {
        let filter = filter.clone();
        self.read(move |tx, now| pending::count(tx, &filter, now)).await
    }

    async fn not_open(&self, filter: &DeliveryFilter) -> Result<Vec<Uuid>, Error> {
        let filter = filter.clone();
        self.read(move |tx, _| pending::missing(tx, &filter)).await
    }

    async fn count_replay(&self, replay: &Replay) -> Result<ReplayCount, Error> {
        replay.check()?;
        let replay = replay.clone();
        self.read(move |tx, _| operate::count_replay(tx, &replay)).await
    }

    async fn count_route_changes(&self) -> Result<RouteChanges, Error> {
        self.read(move |tx, _| routes::count(tx)).await
    }

    async fn count_stale(&self, older_than: Duration, live: bool) -> Result<u64, Error> {
        self.read(move |tx, now| {
            let until = now.saturating_sub(micros(older_than));
            let which: [(&str, &dyn ToSql); 3] = [(":now", &now), (":until", &until), (":live", &live)];
            Ok(value(tx, sql!("lease", "count_stale"), &which)?.unwrap_or(0))
        })
        .await
    }

    async fn prunable(&self, older_than: Option<Duration>) -> Result<Pruned, Error> {
        older_than.map_or(Ok(()), input::age)?;
        self.read(move |tx, now| prune::prunable(tx, older_than, now)).await
    }

    async fn future_times(&self, tolerance: Duration) -> Result<FutureTimes, Error> {
        self.read(move |tx, now| {
            let latest = now.saturating_add(micros(tolerance));
            let limits: [(&str, &dyn ToSql); 2] = [(":latest", &latest), (":longest_us", &micros(LONGEST_LEASE))];
            Ok(first(tx, sql!("watch", "future_times"), &limits)?.unwrap_or_default())
        })
        .await
    }

    async fn samples(&self, within: Duration) -> Result<Vec<Sample>, Error> {
        self.read(move |tx, now| all(tx, sql!("watch", "samples"), &[(":since", &now.saturating_sub(micros(within)))]))
            .await
    }

    async fn relays(&self) -> Result<Vec<RelayRecord>, Error> {
        self.read(move |tx, _| all(tx, sql!("watch", "relays"), &[])).await
    }

    async fn audit(&self, page: &PageRequest) -> Result<Page<AuditRecord>, Error> {
        let page = page.clone();
        self.read(move |tx, _| operate::audit(tx, &page)).await
    }

    async fn explain(&self, message_id: Uuid) -> Result<Option<Explanation>, Error> {
        self.read(move |tx, now| list::explain(tx, now, message_id)).await
    }
}
