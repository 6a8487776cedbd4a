//! A worker, a producer and an operator in one, so that a case reads like the contract: each call is one line, and what
//! the store refuses unexpectedly ends the test there. No promise is checked here.

use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use postrider::inspect::{AttemptCounts, DeadFilter, DeadLetter, MessageDetail, PageRequest, SinkStatus};
use postrider::lifecycle::{Claim, Claimed, Completed, Completion, Failure, LeaseToken, Outcome};
use postrider::operate::{Action, MAX_PER_ACTION, Replay};
use postrider::{Enqueued, Error, Message, OnDead, Route, Store};
use uuid::Uuid;

use super::Fixture;

/// Long enough that no lease ends during a test by accident.
pub(crate) const LONG: Duration = Duration::from_mins(10);
/// Short enough that a test can wait for the end of a lease.
const SHORT: Duration = Duration::from_millis(1);
/// How long a test waits for a state before it gives up.
const PATIENCE: Duration = Duration::from_secs(30);
/// Between two looks at a state.
const LOOK_EVERY: Duration = Duration::from_millis(1);

pub(crate) const NO_IDS: [Uuid; 0] = [];

/// A store, the name of the worker that uses it, and the outbox that it is on.
#[derive(Clone)]
pub struct Hand {
    store: Arc<dyn Store>,
    worker: String,
    outbox: Arc<dyn Fixture>,
}

impl Deref for Hand {
    type Target = dyn Store;

    fn deref(&self) -> &Self::Target {
        &*self.store
    }
}

/// A message whose payload does not matter.
pub(crate) fn message(topic: &str) -> Message {
    Message::json(topic, &1).expect("a number is JSON")
}

pub(crate) fn ids(claimed: &[Claimed]) -> Vec<Uuid> {
    claimed.iter().map(|one| one.message_id).collect()
}

pub(crate) fn topics(claimed: &[Claimed]) -> Vec<&str> {
    claimed.iter().map(|one| one.topic.as_str()).collect()
}

/// Their numbers in their lanes.
pub(crate) fn numbers(claimed: &[Claimed]) -> Vec<i64> {
    claimed.iter().filter_map(|one| one.sequence_id).collect()
}

pub(crate) fn token(claimed: &[Claimed]) -> LeaseToken {
    claimed[0].lease_token
}

fn dead(message_ids: Option<&[Uuid]>, sink: Option<&str>) -> DeadFilter {
    let (message_ids, sink) = (message_ids.map(<[Uuid]>::to_vec), sink.map(str::to_owned));
    DeadFilter { message_ids, sink, ..DeadFilter::default() }
}

impl Hand {
    /// A hand on a fresh outbox.
    pub async fn on<F: Fixture>() -> Self {
        Self::open(Arc::new(F::fresh().await)).await
    }

    /// Another one on the same outbox, which shares nothing with this one but the rows.
    pub(crate) async fn another(&self) -> Self {
        Self::open(Arc::clone(&self.outbox)).await
    }

    async fn open(outbox: Arc<dyn Fixture>) -> Self {
        Self { store: outbox.open().await, worker: format!("worker-{}", Uuid::new_v4().simple()), outbox }
    }

    pub(crate) fn worker(&self) -> &str {
        &self.worker
    }

    pub(crate) async fn put(&self, message: Message) -> Enqueued {
        self.put_all(&[message]).await.remove(0)
    }

    pub(crate) async fn put_all(&self, messages: &[Message]) -> Vec<Enqueued> {
        self.store.enqueue(messages).await.expect("enqueue")
    }

    /// Messages without a lane.
    pub(crate) async fn put_plain(&self, count: usize) -> Vec<Uuid> {
        let messages: Vec<Message> = (0..count).map(|_| message("t")).collect();
        self.put_all(&messages).await.into_iter().map(|enqueued| enqueued.message_id).collect()
    }

    /// Messages in one lane.
    pub(crate) async fn put_lane(&self, lane: &str, count: usize) -> Vec<Uuid> {
        let messages: Vec<Message> = (0..count).map(|_| message("t").lane(lane)).collect();
        self.put_all(&messages).await.into_iter().map(|enqueued| enqueued.message_id).collect()
    }

    /// Messages in each of many lanes: `lane-00000` and so on.
    pub(crate) async fn put_lanes(&self, lanes: usize, per_lane: usize) {
        let messages: Vec<Message> =
            (0..per_lane).flat_map(|_| (0..lanes).map(|lane| message("t").lane(format!("lane-{lane:05}")))).collect();
        for batch in messages.chunks(postrider::MAX_BATCH_MESSAGES) {
            self.put_all(batch).await;
        }
    }

    /// A claim of up to so many, with a long lease, to be changed where a case needs it.
    pub(crate) fn wants(&self, batch_size: u32) -> Claim {
        Claim::new(&self.worker).batch_size(batch_size).lease(LONG)
    }

    pub(crate) async fn take(&self, batch_size: u32) -> Vec<Claimed> {
        self.take_as(&self.wants(batch_size)).await
    }

    pub(crate) async fn take_as(&self, claim: &Claim) -> Vec<Claimed> {
        self.store.claim(claim).await.expect("claim")
    }

    pub(crate) async fn take_from(&self, sink: &str, batch_size: u32) -> Vec<Claimed> {
        self.take_as(&self.wants(batch_size).sink(sink.to_owned())).await
    }

    /// A claim whose lease has ended when this returns, by the store's clock.
    pub(crate) async fn lose(&self, batch_size: u32) -> Vec<Claimed> {
        self.lose_as(&self.wants(batch_size)).await
    }

    pub(crate) async fn lose_as(&self, claim: &Claim) -> Vec<Claimed> {
        let claimed = self.take_as(&claim.clone().lease(SHORT)).await;
        self.until_ended(&claimed).await;
        claimed
    }

    /// Waits until these leases have ended, as they were when they were taken.
    pub(crate) async fn until_ended(&self, claimed: &[Claimed]) {
        if let Some(end) = claimed.iter().map(|one| one.lease_expires_at).max() {
            self.until(end).await;
        }
    }

    /// Waits until the store's clock has come to this time.
    pub(crate) async fn until(&self, time: SystemTime) {
        let waited = tokio::time::timeout(PATIENCE, async {
            while self.clock().await < time {
                tokio::time::sleep(LOOK_EVERY).await;
            }
        });
        waited.await.expect("the store's clock goes on");
    }

    /// Records the same outcome for each; what was really recorded.
    pub(crate) async fn finish_all(&self, claimed: &[Claimed], outcome: &Outcome) -> Vec<Completed> {
        let completions: Vec<Completion> = claimed.iter().map(|one| Completion::new(one, outcome.clone())).collect();
        self.store.complete(&self.worker, &completions).await.expect("complete")
    }

    /// Delivered, all of them.
    pub(crate) async fn deliver(&self, claimed: &[Claimed]) {
        assert_eq!(self.finish_all(claimed, &Outcome::Dispatched).await.len(), claimed.len());
    }

    /// Failed for good.
    pub(crate) async fn fail(&self, claimed: &[Claimed]) {
        let outcome = Outcome::Failed(Failure::new("REFUSED", "no"));
        assert_eq!(self.finish_all(claimed, &outcome).await.len(), claimed.len());
    }

    /// Failed, and due again after a delay.
    pub(crate) async fn retry(&self, claimed: &[Claimed], retry_after: Duration) {
        let outcome = Outcome::Retryable { retry_after, failure: Failure::new("BUSY", "later") };
        assert_eq!(self.finish_all(claimed, &outcome).await.len(), claimed.len());
    }

    /// What an operator does, called by its worker's name; how much it changed.
    pub(crate) async fn act(&self, action: Action) -> Result<u64, Error> {
        Ok(self.store.operate(&self.worker, &action).await?.affected)
    }

    pub(crate) async fn redrive_all(&self) -> u64 {
        self.redrive(None, None).await.expect("redrive")
    }

    /// Dead letters of these messages, or all, for one sink, or all.
    pub(crate) async fn redrive(&self, message_ids: Option<&[Uuid]>, sink: Option<&str>) -> Result<u64, Error> {
        self.act(Action::Redrive { which: dead(message_ids, sink), at_most: MAX_PER_ACTION }).await
    }

    pub(crate) async fn discard(&self, message_ids: &[Uuid], sink: Option<&str>) -> Result<u64, Error> {
        self.act(Action::Discard { which: dead(Some(message_ids), sink), at_most: MAX_PER_ACTION }).await
    }

    /// Messages that were delivered to a sink before.
    pub(crate) async fn replay(&self, sink: &str, message_ids: &[Uuid]) -> Result<u64, Error> {
        let message_ids = Some(message_ids.to_vec());
        let replay = Replay { sink: sink.to_owned(), message_ids, at_most: MAX_PER_ACTION, ..Replay::default() };
        self.act(Action::Replay(replay)).await
    }

    pub(crate) async fn unclaim_stuck(&self, older_than: Duration) -> Result<u64, Error> {
        self.act(Action::UnclaimStuck { older_than, live: false }).await
    }

    /// Every lease, whoever works under it.
    pub(crate) async fn unclaim_all(&self) -> Result<u64, Error> {
        self.act(Action::UnclaimStuck { older_than: Duration::ZERO, live: true }).await
    }

    pub(crate) async fn pause(&self, sink: &str) -> Result<u64, Error> {
        self.act(Action::Pause { sink: sink.to_owned() }).await
    }

    pub(crate) async fn resume(&self, sink: &str) -> Result<u64, Error> {
        self.act(Action::Resume { sink: sink.to_owned() }).await
    }

    pub(crate) async fn on_dead(&self, on_dead: OnDead) -> Result<u64, Error> {
        self.act(Action::SetOnDead { sink: "default".to_owned(), on_dead }).await
    }

    pub(crate) async fn prune(&self, older_than: Duration) -> Result<u64, Error> {
        self.act(Action::Prune { older_than: Some(older_than) }).await
    }

    /// Whether the route is new.
    pub(crate) async fn add_route(&self, route: &Route) -> Result<bool, Error> {
        Ok(self.act(Action::AddRoute { route: route.clone() }).await? > 0)
    }

    pub(crate) async fn remove_route(&self, route: &Route) -> Result<u64, Error> {
        self.act(Action::RemoveRoute { route: route.clone() }).await
    }

    /// The whole story of a message.
    pub(crate) async fn shown(&self, message_id: Uuid) -> MessageDetail {
        self.store.show(message_id).await.expect("show").expect("the message is there")
    }

    /// What the store's clock says.
    pub(crate) async fn clock(&self) -> SystemTime {
        self.store.now().await.expect("now")
    }

    /// The attempts of a message, by sink and number: `1 FAILED`.
    pub(crate) async fn attempts(&self, message_id: Uuid) -> Vec<String> {
        let mut attempts = self.shown(message_id).await.attempts;
        attempts.sort_by(|one, other| (&one.sink, one.attempt_no).cmp(&(&other.sink, other.attempt_no)));
        attempts.iter().map(|attempt| format!("{} {}", attempt.attempt_no, attempt.state)).collect()
    }

    /// Where a message stands for each sink, by name: `default pending`. Nothing: it was delivered.
    pub(crate) async fn stands(&self, message_id: Uuid) -> Vec<String> {
        let detail = self.shown(message_id).await;
        detail.deliveries.iter().map(|delivery| format!("{} {}", delivery.sink, delivery.state)).collect()
    }

    /// A dead letter, by its message.
    pub(crate) async fn dead_letter(&self, message_id: Uuid) -> DeadLetter {
        let page = PageRequest::first(10);
        let mut letters =
            self.store.dead_letters(&dead(Some(&[message_id]), None), &page).await.expect("dead_letters").items;
        assert_eq!(letters.len(), 1, "{letters:?}");
        letters.remove(0)
    }

    pub(crate) async fn status_of(&self, sink: &str) -> SinkStatus {
        let all = self.store.status().await.expect("status");
        all.into_iter().find(|status| status.sink == sink).expect("the sink has a line")
    }

    /// Pending, leased and dead of the sink `default`.
    pub(crate) async fn counts(&self) -> (i64, i64, i64) {
        let status = self.status_of("default").await;
        (status.pending, status.leased, status.dead)
    }
}

/// Attempts by outcome: dispatched, retryable, failed, zombie.
pub(crate) fn by_outcome([dispatched, retryable, failed, zombie_requeue]: [i64; 4]) -> AttemptCounts {
    AttemptCounts { dispatched, retryable, failed, zombie_requeue }
}
