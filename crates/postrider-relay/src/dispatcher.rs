//! Takes a group of messages to its end, batch by batch. Each batch goes through the same steps: wait for a slot
//! (`slots.rs`), check the lease, send with a deadline (`attempt.rs`), classify (`policy.rs`), report (`results.rs`). Every
//! message reaches the completer exactly once.

use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use std::vec;

use crate::attempt::{Attempt, Attempted};
use crate::batches::{Batch, Group};
use crate::lease::Lease;
use crate::results::Results;
use crate::sink::Verdict;
use crate::sink_runtime::SinkRuntime;
use crate::slots::Slots;

/// The dispatcher of one sink.
pub(crate) struct Dispatcher {
    pub(crate) sink: Arc<SinkRuntime>,
    pub(crate) slots: Slots,
    pub(crate) attempt: Attempt,
    pub(crate) results: Results,
}

/// What was claimed together and waits for its turn.
pub(crate) type Groups = Mutex<vec::IntoIter<Group>>;

impl Dispatcher {
    /// So many of these deliver all groups of a claim: no more could have a slot.
    pub(crate) fn workers(&self, groups: usize) -> usize {
        groups.min(self.sink.options.concurrency)
    }

    /// Delivers one group after the other until there are no more. When the relay stops, those that wait are handed back at
    /// once, however long the one under way takes.
    pub(crate) async fn work(self: Arc<Self>, lease: Arc<Lease>, groups: Arc<Groups>) {
        let next = || groups.lock().unwrap_or_else(PoisonError::into_inner).next();
        let mut stopping = pin!(self.slots.stopping.cancelled());
        while let Some(group) = next() {
            let mut delivery = pin!(self.deliver(&lease, group));
            tokio::select! {
                biased;
                () = &mut delivery => continue,
                () = &mut stopping => {}
            }
            while let Some(waiting) = next() {
                self.results.release(waiting.into_messages()).await;
            }
            return delivery.await;
        }
    }

    async fn deliver(&self, lease: &Lease, mut group: Group) {
        while let Some(batch) = group.next_batch() {
            match self.deliver_batch(lease, batch).await {
                // The rest of a lane waits for the message that did not arrive.
                Some(failed_runs) => {
                    let behind = group.remove_runs(&failed_runs);
                    if !behind.is_empty() {
                        self.sink.lane_broke();
                    }
                    self.results.release(behind).await;
                }
                None => return self.results.release(group.into_messages()).await,
            }
        }
    }

    /// Returns the runs that must not go on; `None`: none of the group.
    async fn deliver_batch(&self, lease: &Lease, batch: Batch) -> Option<Vec<usize>> {
        let Some(_slot) = self.slots.wait(&self.sink, &batch.messages).await else {
            self.results.release(batch.messages).await;
            return None;
        };
        let batch = self.check_lease(lease, batch).await?;
        let (batch, verdicts, latency) = self.send(lease, batch).await?;
        self.results.report(batch, verdicts, latency).await
    }

    /// The lease may have ended while the batch waited, or while the whole process stood still.
    async fn check_lease(&self, lease: &Lease, batch: Batch) -> Option<Batch> {
        if self.attempt.is_over(lease) {
            self.results.lose(batch.messages).await;
            return None;
        }
        if batch.messages.iter().all(|one| lease.holds(one.message.message_id)) {
            return Some(batch);
        }
        let (held, lost) = batch.messages.into_iter().partition(|one| lease.holds(one.message.message_id));
        self.results.lose(lost).await;
        self.results.release(held).await;
        None
    }

    async fn send(&self, lease: &Lease, mut batch: Batch) -> Option<(Batch, Vec<Verdict>, Duration)> {
        match self.attempt.run(&self.sink, lease, &mut batch.messages).await {
            Attempted::Answered(verdicts, latency) => return Some((batch, verdicts, latency)),
            Attempted::LeaseLost => self.results.lose(batch.messages).await,
            Attempted::CutShort(latency) => self.results.cut_short(batch.messages, latency).await,
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use postrider::lifecycle::LeaseToken;
    use tracing::Span;

    use super::*;
    use crate::batches::group;
    use crate::completer::Disposition;
    use crate::fixtures::Fixture;
    use crate::sink::SinkFailure;
    use crate::sink::handler::handler;

    fn fails_at(topic: &'static str) -> impl crate::sink::Sink {
        handler(move |message: Arc<postrider::lifecycle::Claimed>| async move {
            if message.topic == topic { Err(SinkFailure::retryable("NO", "not now")) } else { Ok(()) }
        })
    }

    /// Delivers one lane, and tells what became of each message.
    async fn deliver(fixture: &mut Fixture, topics: &[&str]) -> Vec<String> {
        let claimed = topics.iter().map(|topic| {
            fixture.message(|message| {
                message.topic = (*topic).to_owned();
                message.lane = Some("lane".to_owned());
            })
        });
        let groups = Mutex::new(group(claimed.collect(), fixture.sink.batching).into_iter());
        Arc::clone(&fixture.dispatcher).work(Arc::clone(&fixture.lease), Arc::new(groups)).await;
        let mut ended = Vec::new();
        while let Ok(one) = fixture.ended.try_recv() {
            ended.push(match one {
                Disposition::Complete(message, completion) => {
                    format!("{} {}", message.message.topic, completion.outcome.state().as_str())
                }
                Disposition::Release(message) => format!("{} released", message.message.topic),
                Disposition::Lost(message) => format!("{} lost", message.message.topic),
            });
        }
        ended
    }

    #[tokio::test]
    async fn a_lane_stops_at_the_message_that_did_not_arrive() {
        let mut fixture = Fixture::with(fails_at("b"));
        let ended = deliver(&mut fixture, &["a", "b", "c", "d"]).await;
        assert_eq!(ended, ["a DISPATCHED", "b RETRYABLE", "c released", "d released"]);
    }

    #[tokio::test]
    async fn what_is_no_longer_held_is_not_sent() {
        let mut fixture = Fixture::with(fails_at("b"));
        fixture.lease = Lease::new(LeaseToken::random(), [].into(), Instant::now(), Span::none()).0;
        assert_eq!(deliver(&mut fixture, &["a", "b"]).await, ["a lost", "b released"]);
    }

    #[tokio::test]
    async fn nothing_is_sent_once_the_relay_stops() {
        let mut fixture = Fixture::with(fails_at("b"));
        fixture.dispatcher.slots.stopping.cancel();
        assert_eq!(deliver(&mut fixture, &["a", "b"]).await, ["a released", "b released"]);
    }
}
