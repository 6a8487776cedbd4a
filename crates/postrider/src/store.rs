//! The store, split by who calls it: [`Queue`] for a relay, [`Operate`] for an operator, [`Inspect`] for everybody who
//! asks. Implementations sit under `store/`; whatever the store, the same suite of tests holds. Nothing is changed by id
//! alone: every write after a claim carries its lease token.

#[cfg(feature = "postgres")]
pub(crate) mod postgres;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) mod row;
#[cfg(feature = "sqlite")]
pub(crate) mod sqlite;

use std::time::Duration;

use async_trait::async_trait;
use serde::Serialize;
use uuid::Uuid;

use crate::enqueue::Enqueued;
use crate::error::{Cause, Error};
use crate::inbox::Event;
use crate::inspect::{Inspect, RelayReport};
use crate::lifecycle::{Claim, Claimed, ClaimedContent, Completed, Completion, Failure, LeaseToken, Outcome};
use crate::message::Message;
use crate::operate::{Action, Done};
use crate::record::records;
use crate::words::words;

/// A whole store: what a relay does with it ([`Queue`]), what an operator does ([`Operate`]) and what anybody asks
/// ([`Inspect`]). Every type that has the three is one; `dyn Store` has the methods of all of them.
pub trait Store: Queue + Operate + Inspect {}

impl<S: Queue + Operate + Inspect + ?Sized> Store for S {}

/// Messages in, deliveries out: what a relay needs, and a receiver that forwards.
///
/// **Order.** Deliveries of one lane and sink are claimed in the order of their sequence, and a lane is under one token at
/// a time. Without a lane, a higher priority comes first, then what is due longer.
///
/// **Duplicates.** Delivery is at least once. A lease that ends is taken over, so a slow worker and its successor may
/// both send a message. Only one of them is recorded: every write after a claim carries the lease token and changes
/// nothing once the lease has ended.
///
/// **Concurrency.** A store is cheap to share, and any number of workers, tasks and processes may call every method at
/// once. Claimers neither wait for one another nor get the same delivery. Each method is one transaction, and with
/// PostgreSQL one round trip; only the two `prune` methods work batch by batch.
///
/// **Cancellation.** Dropping a future may leave its statement running in the store, on a connection that serves nobody
/// else until it ends: within half a minute, except for house-keeping. A completion is then recorded as a whole or not at
/// all. A claim whose answer nobody received can be abandoned; otherwise it ends with its lease.
///
/// **Errors.** [`Error::is_refusal`] tells a refusal from a store that is away, and [`Error::changed_nothing`] whether a
/// write is certain not to have been carried out.
#[async_trait]
pub trait Queue: Send + Sync {
    /// nothing → pending. Writes messages in a transaction of their own, all or none, and answers in their order. An
    /// application that changes data of its own enqueues in its own transaction instead: see [`crate::Outbox`].
    async fn enqueue(&self, messages: &[Message]) -> Result<Vec<Enqueued>, Error>;

    /// unknown → received, and its message → pending. Receives each event and enqueues the message beside it if the event
    /// came for the first time, all in one transaction: nothing is lost between the two, and nothing comes twice. Answers
    /// in their order, true for the first time. A consumer that does work of its own receives in its own transaction
    /// instead: see [`crate::Inbox`].
    async fn forward(&self, arrivals: &[(Event, Message)]) -> Result<Vec<bool>, Error>;

    /// pending → leased. Up to `batch_size` due deliveries of one sink, in delivery order, under one new token. Never
    /// waits for another claimer and never overlaps one. Empty: nothing is due, or the sink is paused.
    async fn claim(&self, claim: &Claim) -> Result<Vec<Claimed>, Error>;

    /// Headers and content of a message that was claimed without them. `None`: it is not held under this token any more.
    async fn content(&self, token: LeaseToken, message_id: Uuid) -> Result<Option<ClaimedContent>, Error>;

    /// leased → delivered, pending or dead. Returns what was really recorded; what is missing lost its lease: log it
    /// and do nothing more.
    async fn complete(&self, worker_id: &str, completions: &[Completion]) -> Result<Vec<Completed>, Error>;

    /// leased → leased for longer. Returns the messages whose lease was extended.
    async fn renew(&self, token: LeaseToken, message_ids: &[Uuid], lease: Duration) -> Result<Vec<Uuid>, Error>;

    /// leased → pending, as if it had not been claimed. Returns the messages that were handed back.
    async fn release(&self, token: LeaseToken, message_ids: &[Uuid]) -> Result<Vec<Uuid>, Error>;

    /// What a claim leased under this token → pending, as if it had not been claimed; and nothing is leased under it any
    /// more, however late the claim arrives. For a worker whose claim was not answered. Returns how many were found.
    async fn abandon(&self, token: LeaseToken) -> Result<u64, Error>;

    /// Whether something of the sink is due and held by nobody. A claim passes by what others have locked, so its empty
    /// answer does not tell; this does.
    async fn has_due(&self, sink: &str, tenant_id: Option<&str>) -> Result<bool, Error>;

    /// leased, lease ended → pending or dead, with a `ZOMBIE_REQUEUE` attempt. Returns how many.
    async fn repair_expired_leases(&self, batch_size: u32) -> Result<u64, Error>;

    /// A worker says that it sleeps, for this long at most: from now on it is to be notified. It then claims once more
    /// (a producer may have looked just before) and waits.
    async fn sleep(&self, worker_id: &str, at_most: Duration) -> Result<(), Error>;

    /// A worker says that it is awake: it need not be notified.
    async fn woke(&self, worker_id: &str) -> Result<(), Error>;

    /// Hears when something may have become due. [`crate::ErrorKind::CannotListen`]: only polling works with this store.
    async fn listen(&self) -> Result<Box<dyn Listener>, Error>;

    /// Whether it can be written to, now: [`crate::ErrorKind::ReadOnly`] if its server is a standby or read-only.
    async fn can_write(&self) -> Result<(), Error>;

    /// A relay says that it is alive, and how its sinks are: see [`Inspect::relays`].
    async fn report(&self, report: &RelayReport) -> Result<(), Error>;

    /// A relay stops in good order: it is not missed.
    async fn sign_off(&self, worker_id: &str) -> Result<(), Error>;

    /// Writes down how every sink stands and what happened since the last time, unless somebody has just done so: see
    /// [`Inspect::samples`]. False: it was too early. Any number of relays may call it; one does the work.
    async fn measure(&self) -> Result<bool, Error>;

    /// Makes partitions for the messages of the next days, where the store has partitions. Returns how many are new.
    async fn make_partitions(&self) -> Result<u64, Error>;

    /// Drops history older than the store's retention, and never anything undelivered. If something went, that is
    /// audited in the name of the login. A person prunes with [`Operate::operate`].
    async fn prune(&self) -> Result<Pruned, Error>;

    /// Deletes received events older than this (the inbox's retention if `None`), batch by batch; lanes remember their
    /// numbers. Returns how many. See [`crate::Inbox`].
    async fn prune_inbox(&self, older_than: Option<Duration>) -> Result<u64, Error>;

    /// Records one delivered message. An error of [`crate::ErrorKind::LeaseLost`] is to be logged, never turned into a nack.
    async fn ack(&self, worker_id: &str, claimed: &Claimed) -> Result<(), Error> {
        self.finish(worker_id, claimed, Outcome::Dispatched).await
    }

    /// Records one failed message, due again after `retry_after`. An error of [`crate::ErrorKind::LeaseLost`] is to be logged.
    async fn nack(
        &self,
        worker_id: &str,
        claimed: &Claimed,
        retry_after: Duration,
        failure: Failure,
    ) -> Result<(), Error> {
        self.finish(worker_id, claimed, Outcome::Retryable { retry_after, failure }).await
    }

    /// Records one outcome, or fails with [`crate::ErrorKind::LeaseLost`] and changes nothing.
    async fn finish(&self, worker_id: &str, claimed: &Claimed, outcome: Outcome) -> Result<(), Error> {
        let completed = self.complete(worker_id, &[Completion::new(claimed, outcome)]).await?;
        if completed.is_empty() {
            Err(Error::from(Cause::LeaseLost { message_id: claimed.message_id }))
        } else {
            Ok(())
        }
    }
}

/// What an operator does, and a relay that pauses a sink or adds a route of its configuration (as `relay:<worker id>`).
///
/// Every method changes what it is asked to and writes an entry of the audit with who asked for it, in one transaction:
/// see [`Inspect::audit`]. An action that changes nothing is written down, too. One call changes at most
/// [`crate::MAX_PER_ACTION`] deliveries; repeating a call is safe, for it takes what is left.
#[async_trait]
pub trait Operate: Send + Sync {
    /// Carries out an action.
    async fn operate(&self, actor: &str, action: &Action) -> Result<Done, Error>;

    /// nothing → pending, by an operator's hand. The entry tells what the message is about, not what it says.
    async fn enqueue_as(&self, actor: &str, message: &Message) -> Result<Enqueued, Error>;
}

/// Hears that something may have become due.
#[async_trait]
pub trait Listener: Send {
    /// Waits for the next news, and takes all that came until now as one. Cancel safe: nothing heard is forgotten. After
    /// an error the listener is of no use any more: make a new one, and claim, for news may have been missed.
    async fn news(&mut self) -> Result<(), Error>;
}

/// Which new messages go to a sink; in the patterns `*` stands for any characters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct Route {
    /// Where they go.
    pub sink: String,
    /// Their topic.
    pub topic: String,
    /// Their namespace.
    pub namespace: String,
}

impl Route {
    /// Every message of the topic, whatever its namespace.
    #[must_use]
    pub fn new(topic: impl Into<String>, sink: impl Into<String>) -> Self {
        Self { sink: sink.into(), topic: topic.into(), namespace: "*".to_owned() }
    }

    /// Only of this namespace.
    #[must_use]
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = namespace.into();
        self
    }
}

words! {
    /// What a dead lane head does to its lane.
    #[derive(Default)]
    pub enum OnDead {
        /// The lane waits for a person: the default.
        #[default]
        Park = "park",
        /// The lane goes on without it.
        Skip = "skip",
    }
}

/// What was pruned, or would be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Pruned {
    /// Partitions of messages, each with its attempts.
    pub partitions_dropped: u64,
    /// Messages and attempts in the default partitions, row by row.
    pub rest_deleted: u64,
    /// Dedupe keys past their window.
    pub dedupe_deleted: u64,
}

records! {
    Pruned(row) { partitions_dropped, rest_deleted, dedupe_deleted }
    Route(row) { sink, topic, namespace }
}
