//! Carries out an operator's action in PostgreSQL: one call of the function that does it, which writes its entry of the
//! audit itself, so both commit or neither does, in one round trip. No rule is here.

use async_trait::async_trait;
use tokio_postgres::types::Type;

use super::PostgresStore;
use super::statement::{Answer, Argument, Parameter, int, seconds};
use crate::enqueue::columns::PostgresCall;
use crate::enqueue::{self, Enqueued};
use crate::error::Error;
use crate::inspect::{DeadFilter, DeliveryFilter, RouteChanges};
use crate::message::Message;
use crate::operate::{Action, Done, Pruned, Replay, check};
use crate::store::{Operate, Route};

#[async_trait]
impl Operate for PostgresStore {
    async fn operate(&self, actor: &str, action: &Action) -> Result<Done, Error> {
        action.check(actor)?;
        let call = Call { store: self, actor };
        match action {
            Action::Redrive { which, at_most } => call.many("redrive_matching", *at_most, &dead(which)).await,
            Action::Discard { which, at_most } => call.many("discard_matching", *at_most, &dead(which)).await,
            Action::RetryNow { which, at_most } => call.many("retry_now", *at_most, &pending(which)).await,
            Action::Cancel { which, at_most } => call.many("cancel", *at_most, &pending(which)).await,
            Action::Skip { sink, lane } => {
                call.one("skip", &[("sink", sink, Type::TEXT), ("lane", lane, Type::TEXT)]).await
            }
            Action::Replay(replay) => call.replay(replay).await,
            Action::Pause { sink } | Action::Resume { sink } => {
                let paused = matches!(action, Action::Pause { .. });
                call.one("configure_sink", &[("sink", sink, Type::TEXT), ("paused", &paused, Type::BOOL)]).await
            }
            Action::SetOnDead { sink, on_dead } => {
                call.one("configure_sink", &[("sink", sink, Type::TEXT), ("on_dead", on_dead, Type::TEXT)]).await
            }
            Action::UnclaimStuck { older_than, live } => {
                let older_than = seconds(*older_than);
                let which = [("older_than_seconds", &older_than as _, Type::TEXT), ("live", live as _, Type::BOOL)];
                call.one("unclaim_stuck", &which).await
            }
            Action::Prune { older_than } => {
                let answer = call.run("prune", &[("older_than_seconds", &older_than.map(seconds), Type::TEXT)]).await?;
                let pruned: Pruned = answer.one()?.unwrap_or_default();
                Ok(done(pruned.partitions_dropped + pruned.rest_deleted + pruned.dedupe_deleted))
            }
            Action::AddRoute { route } => call.one("add_route", &columns(route)).await,
            Action::RemoveRoute { route } => call.one("remove_route", &columns(route)).await,
            Action::ApplyRoutes { at_most } => {
                let answer = call.run("apply_routes", &[("at_most", &int(*at_most), Type::INT4)]).await?;
                let RouteChanges { added, removed } = answer.one()?.unwrap_or_default();
                Ok(done(added + removed))
            }
        }
    }

    async fn enqueue_as(&self, actor: &str, message: &Message) -> Result<Enqueued, Error> {
        check::enqueue(actor, message)?;
        let PostgresCall { arguments, arrays } = PostgresCall::of_one(message)?;
        // Behind the message, who acts.
        let sql = format!(
            "select message_id, sequence_id, created from :\"schema\".enqueue_as(actor => ${}, {arguments})",
            arrays.len() + 1
        );
        let actor: [Parameter<'_>; 1] = [(&actor, Type::TEXT)];
        let parameters = [&enqueue::tokio_postgres::parameters(&arrays)[..], &actor].concat();
        let answer = self.change(&sql, &parameters).await?;
        enqueue::only(answer.iter().map(enqueue::tokio_postgres::enqueued).collect::<Result<_, _>>()?)
    }
}

/// A filter as functions take it, and as the statements of `dead.sql` number it.
pub(super) fn dead(filter: &DeadFilter) -> [Argument<'_>; 10] {
    [
        ("message_ids", &filter.message_ids, Type::UUID_ARRAY),
        ("sink", &filter.sink, Type::TEXT),
        ("namespace", &filter.namespace, Type::TEXT),
        ("topic", &filter.topic, Type::TEXT),
        ("tenant_id", &filter.tenant_id, Type::TEXT),
        ("lane", &filter.lane, Type::TEXT),
        ("reason", &filter.reason, Type::TEXT),
        ("error_code", &filter.error_code, Type::TEXT),
        ("died_from", &filter.died_from, Type::TIMESTAMPTZ),
        ("died_to", &filter.died_to, Type::TIMESTAMPTZ),
    ]
}

/// The same for `pending.sql`.
pub(super) fn pending(filter: &DeliveryFilter) -> [Argument<'_>; 6] {
    [
        ("message_ids", &filter.message_ids, Type::UUID_ARRAY),
        ("sink", &filter.sink, Type::TEXT),
        ("namespace", &filter.namespace, Type::TEXT),
        ("topic", &filter.topic, Type::TEXT),
        ("tenant_id", &filter.tenant_id, Type::TEXT),
        ("lane", &filter.lane, Type::TEXT),
    ]
}

fn columns(route: &Route) -> [Argument<'_>; 3] {
    [
        ("sink", &route.sink, Type::TEXT),
        ("topic", &route.topic, Type::TEXT),
        ("namespace", &route.namespace, Type::TEXT),
    ]
}

fn done(affected: u64) -> Done {
    Done { affected, next: None, paced_until: None }
}

/// Who acts, and where.
struct Call<'a> {
    store: &'a PostgresStore,
    actor: &'a str,
}

impl Call<'_> {
    async fn run(&self, function: &str, arguments: &[Argument<'_>]) -> Result<Answer, Error> {
        let actor: [Argument<'_>; 1] = [("actor", &self.actor, Type::TEXT)];
        self.store.call_unlimited(function, &[&actor, arguments].concat()).await
    }

    async fn one(&self, function: &str, arguments: &[Argument<'_>]) -> Result<Done, Error> {
        Ok(done(self.run(function, arguments).await?.count()?))
    }

    async fn many(&self, function: &str, at_most: u32, filter: &[Argument<'_>]) -> Result<Done, Error> {
        let at_most: [Argument<'_>; 1] = [("at_most", &int(at_most), Type::INT4)];
        self.one(function, &[&at_most, filter].concat()).await
    }

    async fn replay(&self, replay: &Replay) -> Result<Done, Error> {
        let (at_most, per_second) = (int(replay.at_most), replay.per_second.map(|rate| int(rate.get())));
        let arguments: [Argument<'_>; 11] = [
            ("sink", &replay.sink, Type::TEXT),
            ("message_ids", &replay.message_ids, Type::UUID_ARRAY),
            ("enqueued_from", &replay.from, Type::TIMESTAMPTZ),
            ("enqueued_to", &replay.to, Type::TIMESTAMPTZ),
            ("namespace", &replay.namespace, Type::TEXT),
            ("topic", &replay.topic, Type::TEXT),
            ("include_never_delivered", &replay.include_never_delivered, Type::BOOL),
            ("after_id", &replay.after, Type::UUID),
            ("at_most", &at_most, Type::INT4),
            ("per_second", &per_second, Type::INT4),
            ("paced_from", &replay.paced_from, Type::TIMESTAMPTZ),
        ];
        let (affected, next, paced_until) = self.run("replay_batch", &arguments).await?.one()?.unwrap_or_default();
        Ok(Done { affected, next, paced_until })
    }
}
