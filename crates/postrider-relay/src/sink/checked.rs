//! Looks at each message before it is sent: what breaks a rule fails for good, with the reason, and the sink behind never
//! sees it. Wraps any sink and keeps its contract, the order of lanes included.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use postrider::lifecycle::Claimed;

use super::lanes::FailedLanes;
use super::{Batching, Finding, Sink, SinkFailure, Verdict};

/// A sink with a check in front: see [`checked`].
pub struct Checked<S, F> {
    sink: S,
    check: F,
}

/// Puts a check in front of a sink. `check` says what is wrong with a message, if something is; such a message is a
/// terminal failure with the code [`SinkFailure::INVALID_PAYLOAD`], and no byte of it is sent.
pub fn checked<S, F>(sink: S, check: F) -> Checked<S, F>
where
    S: Sink,
    F: Fn(&Claimed) -> Result<(), String> + Send + Sync + 'static,
{
    Checked { sink, check }
}

#[async_trait]
impl<S, F> Sink for Checked<S, F>
where
    S: Sink,
    F: Fn(&Claimed) -> Result<(), String> + Send + Sync + 'static,
{
    fn kind(&self) -> &'static str {
        self.sink.kind()
    }

    fn batching(&self) -> Batching {
        self.sink.batching()
    }

    fn longest(&self) -> Option<Duration> {
        self.sink.longest()
    }

    async fn deliver(&self, batch: &[Arc<Claimed>]) -> Vec<Verdict> {
        let mut failed_lanes = FailedLanes::default();
        let mut valid: Vec<Arc<Claimed>> = Vec::with_capacity(batch.len());
        // `None`: it is among the valid ones, in their order.
        let mut verdicts: Vec<Option<Verdict>> = Vec::with_capacity(batch.len());
        for message in batch {
            if failed_lanes.contains(message) {
                verdicts.push(Some(Verdict::NotSent));
            } else if let Err(reason) = (self.check)(message) {
                failed_lanes.insert(message);
                let failure = SinkFailure::terminal(SinkFailure::INVALID_PAYLOAD, reason);
                verdicts.push(Some(Verdict::Failed(failure)));
            } else {
                valid.push(Arc::clone(message));
                verdicts.push(None);
            }
        }
        let answers = if valid.is_empty() { Vec::new() } else { self.sink.deliver(&valid).await };
        let mut answers = answers.into_iter();
        verdicts
            .into_iter()
            .map(|verdict| {
                verdict.or_else(|| answers.next()).unwrap_or_else(|| Verdict::Failed(SinkFailure::no_answer()))
            })
            .collect()
    }

    async fn check(&self) -> Vec<Finding> {
        self.sink.check().await
    }
}
