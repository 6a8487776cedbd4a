//! What a relay does with an outbox in PostgreSQL: each method is one call of the function that has the rules, in
//! `sql/postgres/functions`. Called through the trait. Nothing is decided here.

use std::time::Duration;

use async_trait::async_trait;
use tokio_postgres::IsolationLevel;
use tokio_postgres::types::{Json, Type};
use uuid::Uuid;

use super::statement::{Answer, Argument, LIMIT, int, seconds, sql};
use super::{PostgresStore, listen};
use crate::enqueue::{self, Batch, Enqueued, Outbox, Statement};
use crate::error::{Cause, Error};
use crate::inbox::{Event, Inbox};
use crate::inspect::RelayReport;
use crate::lifecycle::{Claim, Claimed, ClaimedContent, Completed, Completion, Failure, LeaseToken, Outcome};
use crate::message::Message;
use crate::statement::without_nul;
use crate::store::{Listener, Pruned, Queue};

/// How many blocked lanes a claim looks at before it stops; a thorough one looks at this many.
const THOROUGH_HOPS: i32 = 1_000_000;
const USUAL_HOPS: i32 = 2_000;

/// Received events that go in one transaction of a prune.
const INBOX_BATCH: u32 = 10_000;

#[async_trait]
impl Queue for PostgresStore {
    async fn enqueue(&self, messages: &[Message]) -> Result<Vec<Enqueued>, Error> {
        enqueue::check_many(messages)?;
        if messages.is_empty() {
            return Ok(Vec::new());
        }
        // The one statement is a transaction of its own.
        let Statement { sql, parameters } = Batch::new(&self.schema, messages).postgres()?;
        let rows = self.query(&sql, &enqueue::tokio_postgres::parameters(&parameters)).await?;
        rows.iter().map(enqueue::tokio_postgres::enqueued).collect()
    }

    async fn claim(&self, claim: &Claim) -> Result<Vec<Claimed>, Error> {
        let lease = seconds(claim.lease);
        let hop_limit = if claim.thorough { THOROUGH_HOPS } else { USUAL_HOPS };
        let max_bytes = claim.max_bytes.map(|bytes| i64::try_from(bytes).unwrap_or(i64::MAX));
        let token = claim.lease_token.map(|token| token.0);
        let (batch_size, max_attempts, lane_run) =
            (int(claim.batch_size), int(claim.max_attempts), int(claim.lane_run));
        let mut arguments: Vec<Argument<'_>> = vec![
            ("worker_id", &claim.worker_id, Type::TEXT),
            ("batch_size", &batch_size, Type::INT4),
            ("lease_seconds", &lease, Type::TEXT),
            ("sink", &claim.sink, Type::TEXT),
            ("max_attempts", &max_attempts, Type::INT4),
            ("tenant_id", &claim.tenant_id, Type::TEXT),
            ("lane_run", &lane_run, Type::INT4),
            ("hop_limit", &hop_limit, Type::INT4),
            ("max_bytes", &max_bytes, Type::INT8),
            ("lease_token", &token, Type::UUID),
            ("with_content", &claim.with_content, Type::BOOL),
        ];
        arguments.extend(claim.due_from.as_ref().map(|from| ("due_from", from as _, Type::TIMESTAMPTZ)));
        self.call("claim", &arguments).await?.all()
    }

    /// One array for each argument.
    async fn complete(&self, worker_id: &str, completions: &[Completion]) -> Result<Vec<Completed>, Error> {
        if completions.is_empty() {
            return Ok(Vec::new());
        }
        let texts = |said: fn(&Completion) -> Option<&str>| {
            column_if_any(completions, |completion| without_nul(said(completion)))
        };
        let failure = |said: fn(&Failure) -> Option<&str>| {
            column_if_any(completions, |completion| without_nul(completion.outcome.failure().and_then(said)))
        };
        let arguments: &[Argument<'_>] = &[
            ("message_id", &column(completions, |completion| completion.message_id), Type::UUID_ARRAY),
            ("lease_token", &column(completions, |completion| completion.lease_token.0), Type::UUID_ARRAY),
            ("state", &column(completions, |completion| completion.outcome.state().as_str()), Type::TEXT_ARRAY),
            ("worker_id", &worker_id, Type::TEXT),
            ("retry_after_seconds", &column_if_any(completions, retry_after), Type::TEXT_ARRAY),
            ("error_code", &failure(|failure| failure.error_code.as_deref()), Type::TEXT_ARRAY),
            ("error_message", &failure(|failure| failure.error_message.as_deref()), Type::TEXT_ARRAY),
            ("reference", &texts(|completion| completion.reference.as_deref()), Type::TEXT_ARRAY),
            ("code", &texts(|completion| completion.code.as_deref()), Type::TEXT_ARRAY),
            ("latency_ms", &column(completions, Completion::latency_ms), Type::INT4_ARRAY),
            ("answer", &failure(|failure| failure.answer.as_deref()), Type::TEXT_ARRAY),
        ];
        self.call("complete_many", arguments).await?.all()
    }

    async fn renew(&self, token: LeaseToken, message_ids: &[Uuid], lease: Duration) -> Result<Vec<Uuid>, Error> {
        let lease = seconds(lease);
        let arguments: [Argument<'_>; 3] = [
            ("lease_token", &token.0, Type::UUID),
            ("message_ids", &message_ids, Type::UUID_ARRAY),
            ("lease_seconds", &lease, Type::TEXT),
        ];
        self.call("renew", &arguments).await?.values()
    }

    async fn release(&self, token: LeaseToken, message_ids: &[Uuid]) -> Result<Vec<Uuid>, Error> {
        let arguments: [Argument<'_>; 2] =
            [("lease_token", &token.0, Type::UUID), ("message_ids", &message_ids, Type::UUID_ARRAY)];
        self.call("release", &arguments).await?.values()
    }

    async fn abandon(&self, token: LeaseToken) -> Result<u64, Error> {
        self.call("abandon", &[("lease_token", &token.0, Type::UUID)]).await?.count()
    }

    async fn content(&self, token: LeaseToken, message_id: Uuid) -> Result<Option<ClaimedContent>, Error> {
        let arguments: [Argument<'_>; 2] =
            [("lease_token", &token.0, Type::UUID), ("message_id", &message_id, Type::UUID)];
        self.call("content", &arguments).await?.one()
    }

    async fn has_due(&self, sink: &str, tenant_id: Option<&str>) -> Result<bool, Error> {
        let arguments: [Argument<'_>; 2] = [("sink", &sink, Type::TEXT), ("tenant_id", &tenant_id, Type::TEXT)];
        Ok(self.call("has_due", &arguments).await?.value()?.unwrap_or(false))
    }

    async fn repair_expired_leases(&self, batch_size: u32) -> Result<u64, Error> {
        self.call("repair_expired_leases", &[("batch_size", &int(batch_size), Type::INT4)]).await?.count()
    }

    async fn forward(&self, arrivals: &[(Event, Message)]) -> Result<Vec<bool>, Error> {
        let (events, messages): (Vec<Event>, Vec<Message>) = arrivals.iter().cloned().unzip();
        enqueue::check_many(&messages)?;
        let mut call = self.pool.call().await?;
        let client = call.client();
        let done = async {
            let tx = client.build_transaction().isolation_level(IsolationLevel::ReadCommitted).start().await?;
            let inbox = Inbox::new(self.schema.clone());
            let (limited, first) =
                futures_util::future::join(tx.batch_execute(LIMIT), inbox.receive_many(&tx, &events)).await;
            limited?;
            let first = first?;
            let new: Vec<Message> =
                messages.into_iter().zip(&first).filter(|(_, first)| **first).map(|(message, _)| message).collect();
            Outbox::new(self.schema.clone()).enqueue_many(&tx, &new).await?;
            tx.commit().await?;
            Ok(first)
        }
        .await;
        call.end(done)
    }

    async fn sleep(&self, worker_id: &str, at_most: Duration) -> Result<(), Error> {
        let at_most = seconds(at_most);
        let arguments: [Argument<'_>; 2] = [("worker_id", &worker_id, Type::TEXT), ("seconds", &at_most, Type::TEXT)];
        self.call("sleep", &arguments).await.map(drop)
    }

    async fn woke(&self, worker_id: &str) -> Result<(), Error> {
        self.call("woke", &[("worker_id", &worker_id, Type::TEXT)]).await.map(drop)
    }

    async fn listen(&self) -> Result<Box<dyn Listener>, Error> {
        Ok(Box::new(listen::PostgresListener::connect(self).await?))
    }

    /// Asked as a statement that writes is: a pool that leads to a standby is left, then.
    async fn can_write(&self) -> Result<(), Error> {
        let judge = |answer: Answer| {
            let message = match answer.one()? {
                Some((true, _)) => "it is in recovery",
                Some((_, true)) => "its transactions are read-only",
                _ => return Ok(()),
            };
            Err(Error::from(Cause::ReadOnly { message: message.to_owned() }))
        };
        self.check(sql!("watch", "can_write"), judge).await
    }

    async fn report(&self, report: &RelayReport) -> Result<(), Error> {
        let (every, sinks) = (seconds(report.every), Json(&report.sinks));
        let arguments: [Argument<'_>; 4] = [
            ("worker_id", &report.worker_id, Type::TEXT),
            ("version", &report.version, Type::TEXT),
            ("every_seconds", &every, Type::TEXT),
            ("sinks", &sinks, Type::JSONB),
        ];
        self.call("report", &arguments).await.map(drop)
    }

    async fn sign_off(&self, worker_id: &str) -> Result<(), Error> {
        self.call("sign_off", &[("worker_id", &worker_id, Type::TEXT)]).await.map(drop)
    }

    async fn measure(&self) -> Result<bool, Error> {
        Ok(self.call("measure", &[]).await?.value()?.unwrap_or(false))
    }

    async fn make_partitions(&self) -> Result<u64, Error> {
        self.call_unlimited("make_partitions", &[]).await?.count()
    }

    async fn prune(&self) -> Result<Pruned, Error> {
        Ok(self.call_unlimited("prune_at_retention", &[]).await?.one()?.unwrap_or_default())
    }

    /// A relay may prune at the retention, and nothing else, so that has a function of its own.
    async fn prune_inbox(&self, older_than: Option<Duration>) -> Result<u64, Error> {
        let (batch_size, older_than) = (int(INBOX_BATCH), older_than.map(seconds));
        let mut arguments: Vec<Argument<'_>> = vec![("batch_size", &batch_size, Type::INT4)];
        arguments.extend(older_than.as_ref().map(|age| ("older_than_seconds", age as _, Type::TEXT)));
        let function = if older_than.is_some() { "prune_inbox" } else { "prune_inbox_at_retention" };
        let mut pruned = 0;
        loop {
            let deleted = self.call_unlimited(function, &arguments).await?.count()?;
            pruned += deleted;
            if deleted < u64::from(INBOX_BATCH) {
                return Ok(pruned);
            }
        }
    }
}

fn column<'a, T>(completions: &'a [Completion], value: impl Fn(&'a Completion) -> T) -> Vec<T> {
    completions.iter().map(value).collect()
}

/// No array at all, as usual, if nobody has a value.
fn column_if_any<T>(completions: &[Completion], value: impl Fn(&Completion) -> Option<T>) -> Option<Vec<Option<T>>> {
    let values = column(completions, value);
    values.iter().any(Option::is_some).then_some(values)
}

fn retry_after(completion: &Completion) -> Option<String> {
    match &completion.outcome {
        Outcome::Retryable { retry_after, .. } => Some(seconds(*retry_after)),
        _ => None,
    }
}
