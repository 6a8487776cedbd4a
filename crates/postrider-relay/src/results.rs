//! Reports what became of a batch: to the sink's breaker, to the metrics, to the completer, and to the store if the
//! destination asks to be paused. What a failure means is decided in `policy.rs`.

use std::sync::Arc;
use std::time::Duration;

use postrider::lifecycle::{Completion, Outcome};
use postrider::operate::Action;
use tracing::{error, warn};

use crate::batches::Batch;
use crate::clock::Clock;
use crate::completer::{CompleterHandle, Disposition};
use crate::jitter::Jitter;
use crate::lease::LeasedMessage;
use crate::policy::{self, Health};
use crate::sink::{Receipt, SinkFailure, Verdict};
use crate::sink_runtime::SinkRuntime;
use crate::store_client::{StoreClient, StoreError};
use crate::trace;

pub(crate) struct Results {
    pub(crate) sink: Arc<SinkRuntime>,
    pub(crate) store: Arc<StoreClient>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) jitter: Arc<Jitter>,
    pub(crate) completer: CompleterHandle,
}

impl Results {
    /// Returns the runs whose message did not arrive; `None` if the sink is paused.
    pub(crate) async fn report(&self, batch: Batch, verdicts: Vec<Verdict>, latency: Duration) -> Option<Vec<usize>> {
        let delivered = |verdict: &Verdict| matches!(verdict, Verdict::Delivered(_));
        self.sink.calls.ended(latency, verdicts.iter().all(delivered));
        match policy::health(&verdicts, &self.sink.options.codes) {
            Health::Answered(messages) => self.sink.answered(messages),
            Health::Failed(failure) => self.sink.failed(self.clock.now(), failure),
            Health::Unknown => {}
        }
        let paused = self.pause_if_asked(&verdicts).await;
        let mut failed_runs = Vec::new();
        for ((message, verdict), run) in batch.messages.into_iter().zip(verdicts).zip(batch.runs) {
            if !delivered(&verdict) {
                failed_runs.push(run);
            }
            self.completer.send(self.disposition(message, verdict, Some(latency))).await;
        }
        (!paused).then_some(failed_runs)
    }

    /// The batch may have been sent, so the attempt counts.
    pub(crate) async fn cut_short(&self, messages: Vec<LeasedMessage>, latency: Duration) {
        for message in messages {
            let words = "the relay ended before the destination answered";
            let verdict = Verdict::Failed(SinkFailure::retryable(SinkFailure::CUT_SHORT, words));
            self.completer.send(self.disposition(message, verdict, Some(latency))).await;
        }
    }

    /// The store could not hand out the content of these messages.
    pub(crate) async fn unreadable(&self, messages: Vec<LeasedMessage>, error: &StoreError) {
        let (sink, words) = (&self.sink.name, error.words());
        for message in messages {
            let message_id = message.message.message_id;
            let failure = if error.is_about_content() {
                error!(%message_id, sink, error = words, "this message cannot be read: it is dead now");
                SinkFailure::terminal(SinkFailure::UNREADABLE, &words)
            } else {
                warn!(%message_id, sink, error = words, "this message could not be read: later again");
                SinkFailure::retryable(SinkFailure::UNREADABLE, &words)
            };
            self.completer.send(self.disposition(message, Verdict::Failed(failure), None)).await;
        }
    }

    pub(crate) async fn release(&self, messages: Vec<LeasedMessage>) {
        self.completer.release(messages).await;
    }

    pub(crate) async fn lose(&self, messages: Vec<LeasedMessage>) {
        for mut message in messages {
            trace::end(&mut message, "LEASE_LOST", Some("LEASE_LOST"));
            self.completer.send(Disposition::Lost(message)).await;
        }
    }

    fn disposition(&self, mut message: LeasedMessage, verdict: Verdict, latency: Option<Duration>) -> Disposition {
        let (outcome, receipt) = match verdict {
            Verdict::NotSent => {
                trace::end(&mut message, "NOT_SENT", None);
                return Disposition::Release(message);
            }
            Verdict::Delivered(receipt) => (Outcome::Dispatched, receipt),
            Verdict::Failed(mut failure) => {
                let (options, attempts) = (&self.sink.options, message.message.attempt_count);
                let class = options.codes.class_of(&failure);
                let receipt = Receipt { code: failure.reply_code.take(), ..Receipt::default() };
                (policy::outcome(failure, class, attempts, &options.retry, &mut *self.jitter.rng()), receipt)
            }
        };
        let code = outcome.failure().map(|failure| failure.error_code.as_deref().unwrap_or(SinkFailure::ERROR));
        trace::end(&mut message, outcome.state().as_str(), code);
        let mut completion = Completion::new(&message.message, outcome);
        completion.reference = receipt.reference;
        completion.code = receipt.code;
        completion.latency = latency;
        Disposition::Complete(message, completion)
    }

    /// Pauses the sink, until a person resumes it, if the destination wants nothing more.
    async fn pause_if_asked(&self, verdicts: &[Verdict]) -> bool {
        let asked = verdicts.iter().find_map(|verdict| match verdict {
            Verdict::Failed(failure) if failure.pause => Some(failure),
            _ => None,
        });
        let Some(failure) = asked else { return false };
        let sink = &self.sink.name;
        warn!(sink, code = failure.code, "the destination wants nothing more: pausing the sink until it is resumed");
        if self.store.operate("pause a sink", &Action::Pause { sink: sink.clone() }).await.is_err() {
            warn!(sink, "the sink could not be paused; it is asked again when it is tried again");
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use postrider::Inspect as _;
    use postrider::inspect::PageRequest;

    use super::*;
    use crate::fixtures::Fixture;

    /// The audit has the relay's name, and the message still gets its outcome.
    #[tokio::test]
    async fn a_destination_that_wants_nothing_more_is_paused() {
        let mut fixture = Fixture::new();
        let batch = Batch { messages: vec![fixture.message(|_| {})], runs: vec![0] };
        let gone = SinkFailure::retryable("GONE", "no more").pausing();
        let results = &fixture.dispatcher.results;
        assert_eq!(results.report(batch, vec![Verdict::Failed(gone)], Duration::ZERO).await, None);
        assert!(matches!(fixture.ended.try_recv(), Ok(Disposition::Complete(..))));
        let audit = fixture.raw_store.audit(&PageRequest::first(10)).await.unwrap().items;
        assert_eq!(audit[0].actor, "relay:worker");
    }
}
