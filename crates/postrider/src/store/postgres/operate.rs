//! Carries out an operator's action in PostgreSQL: one call of the function that does it, which writes its entry of the
//! audit itself, so both commit or neither does, in one round trip. No rule is here.

use async_trait::async_trait;
use tokio_postgres::types::Type;

use super::dead::filter_parameters;
use super::{Parameter, PostgresStore, int, seconds, waiting};
use crate::enqueue::{self, Columns, Enqueued};
use crate::error::Error;
use crate::message::Message;
use crate::operate::{Action, Done, Replay, check};
use crate::store::{Operate, Route};

/// The filter of [`filter_parameters`], behind who acts and how many at most.
const MATCHING_DEAD: &str = "actor => $1, at_most => $2, message_ids => $3, sink => $4, namespace => $5, topic => $6, \
                             tenant_id => $7, lane => $8, reason => $9, error_code => $10, died_from => $11, died_to => $12";

/// The same for [`waiting::filter_parameters`].
const MATCHING_OPEN: &str = "actor => $1, at_most => $2, message_ids => $3, sink => $4, namespace => $5, topic => $6, \
                             tenant_id => $7, lane => $8";

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
    let given = Given { store, actor };
    let verb = action.name();
    match action {
        Action::Redrive { which, at_most } | Action::Discard { which, at_most } => {
            let at_most = int(*at_most);
            let at_most: [Parameter<'_>; 1] = [(&at_most, Type::INT4)];
            let parameters = [&at_most, &filter_parameters(which)[..]].concat();
            given.call(&format!("{verb}_matching({MATCHING_DEAD})"), &parameters).await
        }
        Action::RetryNow { which, at_most } | Action::Cancel { which, at_most } => {
            let at_most = int(*at_most);
            let at_most: [Parameter<'_>; 1] = [(&at_most, Type::INT4)];
            let parameters = [&at_most, &waiting::filter_parameters(which)[..]].concat();
            given.call(&format!("{verb}({MATCHING_OPEN})"), &parameters).await
        }
        Action::Skip { sink, lane } => {
            let call = "skip(actor => $1, sink => $2, lane => $3)";
            given.call(call, &[(sink, Type::TEXT), (lane, Type::TEXT)]).await
        }
        Action::Replay(replay) => given.replay(replay).await,
        Action::Pause { sink } | Action::Resume { sink } => {
            let paused = matches!(action, Action::Pause { .. });
            let call = "configure_sink(actor => $1, sink => $2, paused => $3)";
            given.call(call, &[(sink, Type::TEXT), (&paused, Type::BOOL)]).await
        }
        Action::SetOnDead { sink, on_dead } => {
            let call = "configure_sink(actor => $1, sink => $2, on_dead => $3)";
            given.call(call, &[(sink, Type::TEXT), (&on_dead.as_str(), Type::TEXT)]).await
        }
        Action::UnclaimStuck { older_than } => {
            let call = "unclaim_stuck(actor => $1, older_than_seconds => $2::text::numeric)";
            given.call(call, &[(&seconds(*older_than), Type::TEXT)]).await
        }
        Action::Prune { older_than } => given.prune(older_than.map(seconds)).await,
        Action::AddRoute { route: Route { sink, topic, namespace } }
        | Action::RemoveRoute { route: Route { sink, topic, namespace } } => {
            let call = format!("{verb}(actor => $1, sink => $2, topic => $3, namespace => $4)");
            given.call(&call, &[(sink, Type::TEXT), (topic, Type::TEXT), (namespace, Type::TEXT)]).await
        }
    }
}

async fn enqueue(store: &PostgresStore, actor: &str, message: &Message) -> Result<Enqueued, Error> {
    check::enqueue(actor, message)?;
    let columns = Columns::from_messages(std::slice::from_ref(message))?;
    // The columns of a batch, of which this is the only line.
    let sql = "select message_id, sequence_id, created from outbox.enqueue_as(actor => $14, topic => $1[1], \
               payload => $2[1]::jsonb, namespace => $3[1], tenant_id => $4[1], lane => $5[1], dedupe_key => $6[1], \
               priority => $7[1], headers => $8[1]::jsonb, due_at => $9[1]::timestamptz, \
               occurred_at => $10[1]::timestamptz, body => $11[1], content_type => $12[1], \
               delay_seconds => $13[1]::numeric)";
    let actor: [Parameter<'_>; 1] = [(&actor, Type::TEXT)];
    let parameters = [&enqueue::tokio_postgres::parameters(&columns)[..], &actor].concat();
    let rows = store.change(sql, &parameters).await?;
    enqueue::only(rows.iter().map(enqueue::tokio_postgres::enqueued).collect::<Result<_, _>>()?)
}

/// Who acts, and where.
struct Given<'a> {
    store: &'a PostgresStore,
    actor: &'a str,
}

impl Given<'_> {
    /// `call` says how much it changed, or whether; its parameters begin at $2.
    async fn call(&self, call: &str, parameters: &[Parameter<'_>]) -> Result<Done, Error> {
        let sql = format!("select outbox.{call}::integer, null::uuid, null::timestamptz");
        self.select(&sql, parameters).await
    }

    async fn prune(&self, older_than: Option<String>) -> Result<Done, Error> {
        let sql = "select p.partitions_dropped + p.rest_deleted + p.dedupe_deleted, null::uuid, null::timestamptz \
                   from outbox.prune(actor => $1, older_than_seconds => $2::text::numeric) p";
        self.select(sql, &[(&older_than, Type::TEXT)]).await
    }

    async fn replay(&self, replay: &Replay) -> Result<Done, Error> {
        let sql = "select r.replayed, r.next_id, r.paced_until from outbox.replay_batch(actor => $1, sink => $2, \
                   message_ids => $3, enqueued_from => $4, enqueued_to => $5, namespace => $6, topic => $7, \
                   include_never_delivered => $8, after_id => $9, at_most => $10, per_second => $11, paced_from => $12) r";
        let parameters: [Parameter<'_>; 11] = [
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
        self.select(sql, &parameters).await
    }

    /// `sql` selects one row: how much was changed, and for a replay where and when to go on.
    async fn select(&self, sql: &str, parameters: &[Parameter<'_>]) -> Result<Done, Error> {
        let actor: [Parameter<'_>; 1] = [(&self.actor, Type::TEXT)];
        let rows = self.store.change(sql, &[&actor, parameters].concat()).await?;
        let Some(row) = rows.first() else { return Ok(Done { affected: 0, next: None, paced_until: None }) };
        let affected: i32 = row.try_get(0)?;
        Ok(Done { affected: u64::try_from(affected).unwrap_or(0), next: row.try_get(1)?, paced_until: row.try_get(2)? })
    }
}
