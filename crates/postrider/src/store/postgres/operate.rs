//! Carries out an operator's action in PostgreSQL: one statement calls the function that does it and `write_audit`, so
//! both commit or neither does, in one round trip. Called by [`super::PostgresStore`]; no rule is here.

use serde_json::Value;
use tokio_postgres::types::Type;

use super::dead::filter_parameters;
use super::{Parameter, PostgresStore, int, seconds};
use crate::enqueue::{self, Columns, Enqueued, Outbox};
use crate::error::Error;
use crate::message::Message;
use crate::operate::{Action, Done, ReplayAction, check};

/// The filter of `filter_parameters`, which stand behind actor, action and detail.
const MATCHING: &str = "message_ids => $4, sink => $5, namespace => $6, topic => $7, tenant_id => $8, lane => $9, \
                        reason => $10, error_code => $11, died_from => $12, died_to => $13, at_most => $14";

pub(super) async fn operate(store: &PostgresStore, actor: &str, action: &Action) -> Result<Done, Error> {
    let given = Given { store, actor, action: action.name(), detail: action.to_detail(actor)? };
    match action {
        Action::Redrive { which, at_most } | Action::Discard { which, at_most } => {
            let at_most = int(*at_most);
            let mut parameters = filter_parameters(which).to_vec();
            parameters.push((&at_most, Type::INT4));
            let verb = if matches!(action, Action::Redrive { .. }) { "redrive" } else { "discard" };
            given.carry_out(&format!("outbox.{verb}_matching({MATCHING})"), &parameters).await
        }
        Action::RetryNow { which, at_most } => {
            let call = "outbox.retry_now(message_ids => $4, sink => $5, at_most => $6)";
            let parameters: [Parameter<'_>; 3] =
                [(&which.message_ids, Type::UUID_ARRAY), (&which.sink, Type::TEXT), (&int(*at_most), Type::INT4)];
            given.carry_out(call, &parameters).await
        }
        Action::Skip { sink, lane } => {
            given.carry_out("outbox.skip(sink => $4, lane => $5)", &[(sink, Type::TEXT), (lane, Type::TEXT)]).await
        }
        Action::Replay(replay) => given.replay(replay).await,
        Action::Pause { sink } | Action::Resume { sink } => {
            let paused = matches!(action, Action::Pause { .. });
            given
                .carry_out(
                    "outbox.configure_sink(sink => $4, paused => $5)::integer",
                    &[(sink, Type::TEXT), (&paused, Type::BOOL)],
                )
                .await
        }
        Action::UnclaimStuck { older_than } => {
            let call = "outbox.unclaim_stuck(older_than_seconds => $4::text::numeric)";
            given.carry_out(call, &[(&seconds(*older_than), Type::TEXT)]).await
        }
        Action::Prune { older_than } => {
            let call = "(select p.partitions_dropped + p.rest_deleted + p.dedupe_deleted \
                        from outbox.prune(older_than_seconds => $4::text::numeric) p)";
            given.carry_out(call, &[(&older_than.map(seconds), Type::TEXT)]).await
        }
        Action::AddRoute { route } | Action::RemoveRoute { route } => {
            let verb = action.name();
            given
                .carry_out(
                    &format!("outbox.{verb}(sink => $4, topic => $5, namespace => $6)::integer"),
                    &[(&route.sink, Type::TEXT), (&route.topic, Type::TEXT), (&route.namespace, Type::TEXT)],
                )
                .await
        }
    }
}

/// The message's id is known only there, so the entry gets it there.
pub(super) async fn enqueue(store: &PostgresStore, actor: &str, message: &Message) -> Result<Enqueued, Error> {
    let detail = Value::Object(check::enqueue_detail(actor, message)?).to_string();
    let columns = Columns::from_messages(std::slice::from_ref(message))?;
    let sql = format!(
        "with done as materialized ({}) select d.message_id, d.sequence_id, d.created, outbox.write_audit(\
         actor => $14, action => $15, detail => $16::text::jsonb || jsonb_build_object('message_id', d.message_id), \
         affected => d.created::integer) from done d",
        Outbox::new(store.schema.clone()).sql()
    );
    let entry: [Parameter<'_>; 3] = [(&actor, Type::TEXT), (&check::ENQUEUE, Type::TEXT), (&detail, Type::TEXT)];
    let parameters = [&enqueue::tokio_postgres::parameters(&columns)[..], &entry].concat();
    let rows = store.change(&sql, &parameters).await?;
    enqueue::only(rows.iter().map(enqueue::tokio_postgres::enqueued).collect::<Result<_, _>>()?)
}

/// An action, with who gave it and how it is written down.
struct Given<'a> {
    store: &'a PostgresStore,
    actor: &'a str,
    action: &'static str,
    detail: String,
}

impl Given<'_> {
    /// `call` returns how much it changed; its parameters begin at $4.
    async fn carry_out(&self, call: &str, parameters: &[Parameter<'_>]) -> Result<Done, Error> {
        self.select(
            &format!("select {call} as affected, null::uuid as next_id, null::timestamptz as paced_until"),
            parameters,
        )
        .await
    }

    async fn replay(&self, replay: &ReplayAction) -> Result<Done, Error> {
        self.select(
            "select r.replayed as affected, r.next_id, r.paced_until from outbox.replay_batch(sink => $4, enqueued_from => $5, \
             enqueued_to => $6, namespace => $7, topic => $8, after_id => $9, at_most => $10, per_second => $11, \
             paced_from => $12) r",
            &[
                (&replay.sink, Type::TEXT),
                (&replay.from, Type::TIMESTAMPTZ),
                (&replay.to, Type::TIMESTAMPTZ),
                (&replay.namespace, Type::TEXT),
                (&replay.topic, Type::TEXT),
                (&replay.after, Type::UUID),
                (&int(replay.at_most), Type::INT4),
                (&replay.per_second.map(|rate| int(rate.get())), Type::INT4),
                (&replay.paced_from, Type::TIMESTAMPTZ),
            ],
        )
        .await
    }

    /// `work` selects `affected`, `next_id` and `paced_until`, one row of them. Materialized, so that it is done once.
    async fn select(&self, work: &str, parameters: &[Parameter<'_>]) -> Result<Done, Error> {
        let sql = format!(
            "with done as materialized ({work}) select d.affected, d.next_id, d.paced_until, outbox.write_audit(actor => $1, \
             action => $2, detail => $3::text::jsonb, affected => d.affected) from done d"
        );
        let action: [Parameter<'_>; 3] =
            [(&self.actor, Type::TEXT), (&self.action, Type::TEXT), (&self.detail, Type::TEXT)];
        let rows = self.store.change(&sql, &[&action, parameters].concat()).await?;
        let Some(row) = rows.first() else { return Ok(Done { affected: 0, next: None, paced_until: None }) };
        let affected: i32 = row.try_get("affected")?;
        Ok(Done {
            affected: u64::try_from(affected).unwrap_or(0),
            next: row.try_get("next_id")?,
            paced_until: row.try_get("paced_until")?,
        })
    }
}
