//! Sends one batch to a sink, once and with a deadline, in a task of its own: a panic or a hang concerns that batch only.
//! Called by the dispatcher. It records nothing and decides nothing about what comes next.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use postrider::lifecycle::Claimed;
use tokio::task::JoinError;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::{Instrument as _, info_span};

use crate::clock::Clock;
use crate::lease::{Lease, LeasedMessage};
use crate::sink::{SinkFailure, Verdict};
use crate::sink_runtime::SinkRuntime;
use crate::trace::{self, Propagate};

/// How long a delivery that was cut off may take to end.
const CUT_OFF_WAIT: Duration = Duration::from_secs(1);

#[derive(Clone)]
pub(crate) struct Attempt {
    pub(crate) clock: Arc<dyn Clock>,
    /// Between the end of a delivery and the end of its lease: time to record the outcome.
    pub(crate) lease_margin: Duration,
    /// Cancelled when the grace period of a shutdown is over.
    pub(crate) cut_short: CancellationToken,
    /// How traces go on, if there is a tracer.
    pub(crate) propagate: Option<Arc<dyn Propagate>>,
}

/// How one attempt at a batch ended.
pub(crate) enum Attempted {
    /// One verdict for each message.
    Answered(Vec<Verdict>, Duration),
    /// The delivery was cut off because the lease could not be kept. Others have the messages, or will.
    LeaseLost,
    /// The delivery was cut off because the relay ends. It may have been sent.
    CutShort(Duration),
}

impl Attempt {
    /// The lease does not last long enough to send anything under it.
    pub(crate) fn is_over(&self, lease: &Lease) -> bool {
        self.clock.now() + self.lease_margin >= lease.valid_until()
    }

    pub(crate) async fn run(&self, sink: &SinkRuntime, lease: &Lease, batch: &mut [LeasedMessage]) -> Attempted {
        if let Some(propagate) = self.propagate.as_deref() {
            for message in &mut *batch {
                trace::begin(propagate, sink, message);
            }
        }
        let messages: Vec<Arc<Claimed>> = batch.iter().map(|one| Arc::clone(&one.message)).collect();
        let count = messages.len();
        let span = span(sink, &messages);
        let started = self.clock.now();
        let (destination, clock) = (Arc::clone(&sink.sink), Arc::clone(&self.clock));
        let deliver = async move { (destination.deliver(&messages).await, clock.now()) };
        let mut delivery = AbortOnDropHandle::new(tokio::spawn(deliver.instrument(span)));
        let deadline = started + sink.options.deadline;
        let mut valid_until = lease.watch();
        let ended = loop {
            // One timer for the deadline and the end of the lease; a renewal sets it again.
            let lease_end = *valid_until.borrow_and_update();
            let wake_at = deadline.min(lease_end.checked_sub(self.lease_margin).unwrap_or(lease_end));
            let joined = tokio::select! {
                joined = &mut delivery => Some(joined),
                () = self.clock.sleep_until(wake_at) => None,
                _ = valid_until.changed() => None,
                () = self.cut_short.cancelled() => None,
            };
            // After a blocked thread or a stopped process several of these are true at once; this order decides.
            let now = self.clock.now();
            let in_time = !matches!(&joined, Some(Ok((_, finished_at))) if *finished_at >= deadline);
            match joined {
                // What is known to have arrived in time is reported, even if the lease is over: the store decides.
                Some(Ok((known, _))) if in_time && known.iter().any(|one| matches!(one, Verdict::Delivered(_))) => {
                    break Attempted::Answered(verdicts(Ok(known), count), now - started);
                }
                _ if self.is_over(lease) => break Attempted::LeaseLost,
                Some(joined) if in_time => {
                    break Attempted::Answered(verdicts(joined.map(|(known, _)| known), count), now - started);
                }
                _ if now >= deadline => {
                    let words = format!("not finished within {:?}", sink.options.deadline);
                    let late = Verdict::Failed(SinkFailure::retryable(SinkFailure::TIMEOUT, words));
                    break Attempted::Answered(vec![late; count], now - started);
                }
                _ if self.cut_short.is_cancelled() => break Attempted::CutShort(now - started),
                // The lease was renewed.
                _ => {}
            }
        };
        if !delivery.is_finished() {
            // It must not still be sending when the next message of the lane, or the next relay, begins.
            delivery.abort();
            drop(tokio::time::timeout(CUT_OFF_WAIT, delivery).await);
        }
        ended
    }
}

fn span(sink: &SinkRuntime, messages: &[Arc<Claimed>]) -> tracing::Span {
    let first = messages.first();
    info_span!(
        "attempt",
        sink = sink.name,
        messages = messages.len(),
        message_id = first.map(|message| tracing::field::display(message.message_id)),
        topic = first.map(|message| message.topic.as_str()),
        attempt_no = first.map(|message| message.attempt_no),
    )
}

fn verdicts(joined: Result<Vec<Verdict>, JoinError>, count: usize) -> Vec<Verdict> {
    let failure = match joined {
        Ok(mut verdicts) => {
            verdicts.resize(count, Verdict::Failed(SinkFailure::no_answer()));
            return verdicts;
        }
        Err(error) => match error.try_into_panic() {
            Ok(panic) => SinkFailure::retryable(SinkFailure::PANIC, format!("the sink panicked: {}", words(&*panic))),
            Err(error) => SinkFailure::retryable(SinkFailure::ERROR, error.to_string()),
        },
    };
    vec![Verdict::Failed(failure); count]
}

fn words(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without a message")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::Fixture;
    use crate::sink::handler::handler;

    /// One attempt by a handler that does this; the code of its failure.
    async fn attempt<F>(body: impl Fn() -> F + Send + Sync + 'static) -> String
    where
        F: Future<Output = Result<(), SinkFailure>> + Send + 'static,
    {
        let fixture = Fixture::with(handler(move |_: Arc<Claimed>| body()));
        let mut batch = [fixture.message(|_| {})];
        match fixture.dispatcher.attempt.run(&fixture.sink, &fixture.lease, &mut batch).await {
            Attempted::Answered(verdicts, _) => match &verdicts[..] {
                [Verdict::Failed(failure)] => failure.code.clone(),
                other => format!("{other:?}"),
            },
            Attempted::LeaseLost => "lost".to_owned(),
            Attempted::CutShort(_) => "cut short".to_owned(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_panic_and_a_hang_are_failures_of_the_batch() {
        assert_eq!(attempt(|| async { panic!("no") }).await, SinkFailure::PANIC);
        assert_eq!(attempt(std::future::pending).await, SinkFailure::TIMEOUT);
        assert_eq!(attempt(|| async { Err(SinkFailure::terminal("NO", "")) }).await, "NO");
    }
}
