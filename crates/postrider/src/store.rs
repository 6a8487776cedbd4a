//! The store: one method for each transition of a delivery. Implementations sit under `store/`; whatever the store,
//! the same suite of tests holds. Nothing is changed by id alone: every write after a claim carries its lease token.

#[cfg(feature = "postgres")]
pub(crate) mod postgres;

use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use uuid::Uuid;

use crate::error::Error;
use crate::lifecycle::{Claim, Claimed, Completed, Completion, Failure, LeaseToken, Outcome};

/// Where messages wait. Cheap to share; every method is one round trip and safe to call from many tasks at once.
///
/// Cancellation: dropping a future may leave its statement running in the store. That is safe: a claim nobody received
/// ends with its lease, and a completion is recorded or not, as a whole.
#[async_trait]
pub trait Store: Send + Sync {
    /// pending → leased. Up to `batch_size` due deliveries of one sink, in delivery order, under one new token. Never
    /// waits for another claimer and never overlaps one. Empty: nothing is due, or the sink is paused.
    async fn claim(&self, claim: &Claim) -> Result<Vec<Claimed>, Error>;

    /// leased → delivered, pending or dead. Returns what was really recorded; what is missing lost its lease: log it
    /// and do nothing more.
    async fn complete(&self, worker_id: &str, completions: &[Completion]) -> Result<Vec<Completed>, Error>;

    /// leased → leased for longer. Returns the messages whose lease was extended.
    async fn renew(&self, token: LeaseToken, message_ids: &[Uuid], lease: Duration) -> Result<Vec<Uuid>, Error>;

    /// leased → pending, as if it had not been claimed. Returns the messages that were handed back.
    async fn release(&self, token: LeaseToken, message_ids: &[Uuid]) -> Result<Vec<Uuid>, Error>;

    /// leased, lease ended → pending or dead, with a `ZOMBIE_REQUEUE` attempt. Returns how many.
    async fn repair_expired_leases(&self, batch_size: u32) -> Result<u64, Error>;

    /// leased, lease ended or taken longer ago than this → pending or dead. For an operator. Returns how many.
    async fn unclaim_stuck(&self, older_than: Duration) -> Result<u64, Error>;

    /// dead → pending, with a new attempt budget. `None` means every dead letter (of the sink, if given).
    async fn redrive(&self, message_ids: Option<&[Uuid]>, sink: Option<&str>) -> Result<u64, Error>;

    /// dead → gone. Returns how many.
    async fn discard(&self, message_ids: &[Uuid], sink: Option<&str>) -> Result<u64, Error>;

    /// delivered → pending again. Returns how many.
    async fn replay(&self, sink: &str, what: &Replay) -> Result<u64, Error>;

    /// Drops history older than this (the store's retention if `None`), and never anything undelivered.
    async fn prune(&self, older_than: Option<Duration>) -> Result<Pruned, Error>;

    /// Records one delivered message. An error of [`Error::LeaseLost`] is to be logged, never turned into a nack.
    async fn ack(&self, worker_id: &str, claimed: &Claimed) -> Result<(), Error> {
        self.finish(worker_id, claimed, Outcome::Dispatched).await
    }

    /// Records one failed message, due again after `retry_after`. An error of [`Error::LeaseLost`] is to be logged.
    async fn nack(
        &self,
        worker_id: &str,
        claimed: &Claimed,
        retry_after: Duration,
        failure: Failure,
    ) -> Result<(), Error> {
        self.finish(worker_id, claimed, Outcome::Retryable { retry_after, failure }).await
    }

    /// Records one outcome, or fails with [`Error::LeaseLost`] and changes nothing.
    async fn finish(&self, worker_id: &str, claimed: &Claimed, outcome: Outcome) -> Result<(), Error> {
        let completed = self.complete(worker_id, &[Completion::new(claimed, outcome)]).await?;
        if completed.is_empty() { Err(Error::LeaseLost { message_id: claimed.message_id }) } else { Ok(()) }
    }
}

/// What to replay.
#[derive(Debug, Clone, PartialEq)]
pub enum Replay {
    /// These messages.
    Messages(Vec<Uuid>),
    /// Messages enqueued in `[from, to)`.
    Enqueued {
        /// From this time on.
        from: SystemTime,
        /// Before this time.
        to: SystemTime,
        /// Only of this namespace.
        namespace: Option<String>,
        /// Only of this topic.
        topic: Option<String>,
    },
}

/// What was pruned.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pruned {
    /// Partitions of messages, each with its attempts.
    pub partitions_dropped: u64,
    /// Messages in the default partition, row by row.
    pub rest_deleted: u64,
    /// Dedupe keys past their window.
    pub dedupe_deleted: u64,
}
