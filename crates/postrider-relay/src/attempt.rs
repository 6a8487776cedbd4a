//! Takes one batch through one sink, once: with a deadline, apart from everything else, so that a panic or a hang is the
//! batch's own. Called by the dispatcher; it records nothing and decides nothing about what comes next.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use postrider::Claimed;
use tokio::task::JoinError;
use tokio_util::task::AbortOnDropHandle;
use tracing::{Instrument as _, info_span};

use crate::leases::{Held, Hold};
use crate::outlet::Outlet;
use crate::relay::Shared;
use crate::sink::{SinkFailure, Verdict};
use crate::trace;

/// How long a delivery that was cut off may take to notice before the relay goes on without it.
const CUT_OFF_WAIT: Duration = Duration::from_secs(1);

/// How one attempt at a batch ended.
pub(crate) enum Attempted {
    /// One verdict for each message.
    Answered(Vec<Verdict>, Duration),
    /// The lease could not be kept, so the delivery was cut off. Others have the messages or will: say nothing.
    LeaseLost,
    /// The relay ends, so the delivery was cut off. It may have been sent.
    CutShort(Duration),
}

pub(crate) async fn attempt(shared: &Shared, outlet: &Outlet, batch: &mut [Held], hold: &Hold) -> Attempted {
    if let Some(propagate) = shared.propagate.as_deref() {
        for held in &mut *batch {
            trace::begin(propagate, outlet, held);
        }
    }
    let messages: Vec<Arc<Claimed>> = batch.iter().map(|held| Arc::clone(&held.message)).collect();
    let count = messages.len();
    let sink = Arc::clone(&outlet.sink);
    let span = span(outlet, &messages);
    let started = shared.clock.now();
    let clock = Arc::clone(&shared.clock);
    let deliver = async move { (sink.deliver(&messages).await, clock.now()) };
    let mut delivery = AbortOnDropHandle::new(tokio::spawn(deliver.instrument(span)));
    let deadline = started + outlet.options.deadline;
    let margin = shared.options.lease_margin();
    let ended = loop {
        let joined = tokio::select! {
            joined = &mut delivery => Some(joined),
            () = shared.clock.sleep_until(deadline) => None,
            () = hold.lost(&*shared.clock, margin) => None,
            () = shared.cut_short.cancelled() => None,
        };
        // Asked again, in this order: after a thread was blocked, or the process stood still, several are true at once.
        let now = shared.clock.now();
        let in_time = !matches!(&joined, Some(Ok((_, finished_at))) if *finished_at >= deadline);
        match joined {
            // What is known to have arrived in time is handed in, whatever the hour: the store decides whether it is late.
            Some(Ok((known, _))) if in_time && known.iter().any(|one| matches!(one, Verdict::Delivered(_))) => {
                break Attempted::Answered(verdicts(Ok(known), count), now - started);
            }
            _ if now + margin >= hold.trusted_until() => break Attempted::LeaseLost,
            Some(joined) if in_time => {
                break Attempted::Answered(verdicts(joined.map(|(known, _)| known), count), now - started);
            }
            _ if now >= deadline => {
                let words = format!("not finished within {:?}", outlet.options.deadline);
                let late = Verdict::Failed(SinkFailure::retryable(SinkFailure::TIMEOUT, words));
                break Attempted::Answered(vec![late; count], now - started);
            }
            _ if shared.cut_short.is_cancelled() => break Attempted::CutShort(now - started),
            // The lease was renewed at the last moment.
            _ => {}
        }
    };
    if !delivery.is_finished() {
        // Nothing of it may still be on its way when the lane's next message, or the next relay, comes.
        delivery.abort();
        drop(tokio::time::timeout(CUT_OFF_WAIT, delivery).await);
    }
    ended
}

fn span(outlet: &Outlet, messages: &[Arc<Claimed>]) -> tracing::Span {
    let first = messages.first();
    info_span!(
        "attempt",
        sink = outlet.name,
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
