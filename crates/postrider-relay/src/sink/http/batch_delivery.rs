//! Several messages in one request. A request that is refused as a whole says nothing about which of its messages is to
//! blame, so it is sent again in halves, until the one is found or the time is up: no message dies of its neighbour.
//!
//! Order: a request holds one message of a lane at most, so it does not depend on the receiver. With `lanes_in_order` it
//! may hold several, and relies on the receiver: in one request, it takes nothing of a lane behind the first event of it
//! that it does not take. Whatever it answers, what stands behind a failed message of its lane is handed back here.

use std::sync::Arc;

use postrider::lifecycle::Claimed;
use tokio::time::Instant;

use super::options::HttpBody;
use super::{HttpSink, batch};
use crate::policy::FailureClass;
use crate::sink::lanes::FailedLanes;
use crate::sink::{SinkFailure, Verdict};

/// What became of a request as a whole.
enum Exchanged {
    /// It was taken: a verdict for each.
    Taken(Vec<Verdict>),
    /// It was refused for good, by the receiver.
    Refused(SinkFailure),
    /// It may go another time.
    Failed(SinkFailure),
}

impl HttpSink {
    pub(super) async fn deliver_batch(&self, messages: &[Arc<Claimed>], deadline: Instant) -> Vec<Verdict> {
        let mut settled = Settled::new(messages);
        // What is still to be sent, the next part last.
        let mut parts: Vec<Vec<usize>> = vec![(0..messages.len()).collect()];
        while let Some(part) = parts.pop() {
            let sent: Vec<usize> = part.into_iter().filter(|index| !settled.is_behind_a_failure(*index)).collect();
            if sent.is_empty() {
                continue;
            }
            match self.exchange_batch(messages, &sent, deadline).await {
                Exchanged::Taken(verdicts) => settled.settle(&sent, verdicts),
                Exchanged::Refused(_) if sent.len() > 1 && Instant::now() < deadline => {
                    let (first, second) = sent.split_at(sent.len() / 2);
                    parts.extend([second.to_vec(), first.to_vec()]);
                }
                Exchanged::Refused(failure) if sent.len() > 1 => {
                    let undecided = SinkFailure { class: FailureClass::Retryable, ..failure };
                    settled.settle(&sent, vec![Verdict::Failed(undecided); sent.len()]);
                    break;
                }
                Exchanged::Refused(failure) => settled.settle(&sent, vec![Verdict::Failed(failure)]),
                // Not the time to send what is left: it is handed back.
                Exchanged::Failed(failure) => {
                    settled.settle(&sent, vec![Verdict::Failed(failure); sent.len()]);
                    break;
                }
            }
        }
        settled.verdicts
    }

    async fn exchange_batch(&self, messages: &[Arc<Claimed>], sent: &[usize], deadline: Instant) -> Exchanged {
        let messages: Vec<&Claimed> = sent.iter().map(|index| &*messages[*index]).collect();
        let exchanged = match self.composer.several(&messages) {
            Ok(outgoing) => self.exchange(outgoing, deadline).await,
            Err(failure) => Err(failure),
        };
        match exchanged {
            Ok((answer, _)) if answer.status.is_success() && self.options.body == HttpBody::Batch => {
                Exchanged::Taken(batch::verdicts(&answer, &messages, &self.reading))
            }
            Ok((answer, _)) if answer.status.is_success() => {
                Exchanged::Taken(vec![Verdict::Delivered(answer.receipt()); messages.len()])
            }
            Ok((answer, host)) => {
                let failure = self.reading.failure(&answer, &host);
                match failure.class {
                    FailureClass::Terminal => Exchanged::Refused(failure),
                    FailureClass::Retryable => Exchanged::Failed(failure),
                }
            }
            Err(failure) if failure.class == FailureClass::Terminal => Exchanged::Refused(failure),
            Err(failure) => Exchanged::Failed(failure),
        }
    }
}

/// What is known until now. What was never sent is handed back.
struct Settled<'a> {
    messages: &'a [Arc<Claimed>],
    verdicts: Vec<Verdict>,
    failed_lanes: FailedLanes<'a>,
}

impl<'a> Settled<'a> {
    fn new(messages: &'a [Arc<Claimed>]) -> Self {
        Self { messages, verdicts: vec![Verdict::NotSent; messages.len()], failed_lanes: FailedLanes::default() }
    }

    fn is_behind_a_failure(&self, index: usize) -> bool {
        self.failed_lanes.contains(&self.messages[index])
    }

    fn settle(&mut self, sent: &[usize], verdicts: Vec<Verdict>) {
        for (index, verdict) in sent.iter().copied().zip(verdicts) {
            if self.is_behind_a_failure(index) {
                continue;
            }
            if !matches!(verdict, Verdict::Delivered(_)) {
                self.failed_lanes.insert(&self.messages[index]);
            }
            self.verdicts[index] = verdict;
        }
    }
}
