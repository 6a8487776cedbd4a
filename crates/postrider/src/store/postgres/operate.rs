//! Carries out an operator's action in PostgreSQL: one call of the function that does it, which writes its entry of the
//! audit itself, so both commit or neither does, in one round trip. No rule is here.

use async_trait::async_trait;
use tokio_postgres::types::Type;

use super::statement::{Parameter, int, seconds, sql};
use super::{PostgresStore, dead, pending};
use crate::enqueue::columns::PostgresCall;
use crate::enqueue::{self, Enqueued};
use crate::error::{Cause, Error};
use crate::inspect::{AuditRecord, Cursor, Page, PageRequest, ReplayCount};
use crate::message::Message;
use crate::operate::{Action, Done, Replay, check};
use crate::store::row::Row as _;
use crate::store::{Operate, Route};

#[async_trait]
impl Operate for PostgresStore {
    async fn operate(&self, actor: &str, action: &Action) -> Result<Done, Error> {
        operate(self, actor, action).await
    }

    async fn enqueue_as(&self, actor: &str, message: &Message) -> Result<Enqueued, Error> {
        enqueue(self, actor, message).await
    }
}

async fn operate(store: &PostgresStore, actor: &str, action: &Action) -> Result<Done, Error> {
    action.check(actor)?;
    let call = Call { store, actor };
    match action {
        Action::Redrive { which, at_most } => {
            call.many(sql!("operate", "redrive"), *at_most, &dead::filter_parameters(which)).await
        }
        Action::Discard { which, at_most } => {
            call.many(sql!("operate", "discard"), *at_most, &dead::filter_parameters(which)).await
        }
        Action::RetryNow { which, at_most } => {
            call.many(sql!("operate", "retry_now"), *at_most, &pending::filter_parameters(which)).await
        }
        Action::Cancel { which, at_most } => {
            call.many(sql!("operate", "cancel"), *at_most, &pending::filter_parameters(which)).await
        }
        Action::Skip { sink, lane } => {
            call.one(sql!("operate", "skip"), &[(sink, Type::TEXT), (lane, Type::TEXT)]).await
        }
        Action::Replay(replay) => call.replay(replay).await,
        Action::Pause { sink } | Action::Resume { sink } => {
            let paused = matches!(action, Action::Pause { .. });
            call.one(sql!("operate", "pause"), &[(sink, Type::TEXT), (&paused, Type::BOOL)]).await
        }
        Action::SetOnDead { sink, on_dead } => {
            call.one(sql!("operate", "set_on_dead"), &[(sink, Type::TEXT), (on_dead, Type::TEXT)]).await
        }
        Action::UnclaimStuck { older_than, live } => {
            let older_than = seconds(*older_than);
            call.one(sql!("operate", "unclaim_stuck"), &[(&older_than, Type::TEXT), (live, Type::BOOL)]).await
        }
        Action::Prune { older_than } => {
            call.one(sql!("operate", "prune"), &[(&older_than.map(seconds), Type::TEXT)]).await
        }
        Action::AddRoute { route } => call.one(sql!("operate", "add_route"), &route_parameters(route)).await,
        Action::RemoveRoute { route } => call.one(sql!("operate", "remove_route"), &route_parameters(route)).await,
        Action::ApplyRoutes { at_most } => call.many(sql!("operate", "apply_routes"), *at_most, &[]).await,
    }
}

async fn enqueue(store: &PostgresStore, actor: &str, message: &Message) -> Result<Enqueued, Error> {
    check::enqueue(actor, message)?;
    let PostgresCall { arguments, arrays } = PostgresCall::of_one(message)?;
    // Behind the message, who acts.
    let sql = format!(
        "select message_id, sequence_id, created from :\"schema\".enqueue_as(actor => ${}, {arguments})",
        arrays.len() + 1
    );
    let actor: [Parameter<'_>; 1] = [(&actor, Type::TEXT)];
    let parameters = [&enqueue::tokio_postgres::parameters(&arrays)[..], &actor].concat();
    let answer = store.change(&sql, &parameters).await?;
    enqueue::only(answer.iter().map(enqueue::tokio_postgres::enqueued).collect::<Result<_, _>>()?)
}

fn route_parameters(route: &Route) -> [Parameter<'_>; 3] {
    [(&route.sink, Type::TEXT), (&route.topic, Type::TEXT), (&route.namespace, Type::TEXT)]
}

pub(super) async fn count_replay(store: &PostgresStore, replay: &Replay) -> Result<ReplayCount, Error> {
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
    let answer = store.ask(sql!("operate", "count_replay"), &parameters).await?;
    let Some(row) = answer.first() else { return Ok(ReplayCount::default()) };
    if !row.read::<bool>("known")? {
        return Err(Error::from(Cause::NoSuchSink { message: format!("there is no sink {:?}", replay.sink) }));
    }
    let met_its_limit = row.read::<u64>("looked_at")? >= u64::from(replay.at_most);
    let next = row.read::<Option<_>>("last_id")?.filter(|_| met_its_limit);
    Ok(ReplayCount { delivered: row.read("delivered")?, never_delivered: row.read("never_delivered")?, next })
}

pub(super) async fn audit(store: &PostgresStore, page: &PageRequest) -> Result<Page<AuditRecord>, Error> {
    let before = page.after.as_ref().map(Cursor::entry).transpose()?;
    let which = [(&before as _, Type::INT8), (&i64::from(page.limit) as _, Type::INT8)];
    Ok(Page::of_audit(store.ask(sql!("operate", "audit"), &which).await?.all()?, page.limit))
}

/// Who acts, and where. Their parameters begin at $2.
struct Call<'a> {
    store: &'a PostgresStore,
    actor: &'a str,
}

impl Call<'_> {
    async fn one(&self, sql: &str, parameters: &[Parameter<'_>]) -> Result<Done, Error> {
        let actor: [Parameter<'_>; 1] = [(&self.actor, Type::TEXT)];
        let affected = self.store.change(sql, &[&actor, parameters].concat()).await?.count()?;
        Ok(Done { affected, next: None, paced_until: None })
    }

    async fn many(&self, sql: &str, at_most: u32, filter: &[Parameter<'_>]) -> Result<Done, Error> {
        let at_most: [Parameter<'_>; 1] = [(&int(at_most), Type::INT4)];
        self.one(sql, &[&at_most, filter].concat()).await
    }

    async fn replay(&self, replay: &Replay) -> Result<Done, Error> {
        let parameters: [Parameter<'_>; 12] = [
            (&self.actor, Type::TEXT),
            (&replay.sink, Type::TEXT),
            (&replay.message_ids, Type::UUID_ARRAY),
            (&replay.from, Type::TIMESTAMPTZ),
            (&replay.to, Type::TIMESTAMPTZ),
            (&replay.namespace, Type::TEXT),
            (&replay.topic, Type::TEXT),
            (&replay.include_never_delivered, Type::BOOL),
            (&replay.after, Type::UUID),
            (&int(replay.at_most), Type::INT4),
            (&replay.per_second.map(|rate| int(rate.get())), Type::INT4),
            (&replay.paced_from, Type::TIMESTAMPTZ),
        ];
        let answer = self.store.change(sql!("operate", "replay"), &parameters).await?;
        let (affected, next, paced_until) = answer.one()?.unwrap_or_default();
        Ok(Done { affected, next, paced_until })
    }
}
