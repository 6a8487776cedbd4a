//! Keeps the order of lanes where a server answers each message of a batch by itself and may refuse one and take the next.
//! Called by the sinks of MQTT, NATS and RabbitMQ, which send a wave and settle what became of it.

use std::sync::Arc;

use postrider::lifecycle::Claimed;

use super::runs;
use crate::sink::{SinkFailure, Verdict};

/// A batch that is sent in waves. A wave is the first unsettled message of every lane, and all that have no lane; the next
/// wave waits for its answers. So the message behind a failed one is never on the wire. Messages are named by their place
/// in the batch.
pub struct Waves {
    verdicts: Vec<Option<Verdict>>,
    /// The next message of the same lane.
    behind: Vec<Option<usize>>,
    ready: Vec<usize>,
    /// Parts of a wave that are to be sent again, the next one last.
    again: Vec<Vec<usize>>,
}

impl Waves {
    /// The batch, of which nothing was sent yet.
    #[must_use]
    pub fn new(batch: &[Arc<Claimed>]) -> Self {
        let verdicts = vec![None; batch.len()];
        let mut waves = Self { verdicts, behind: vec![None; batch.len()], ready: Vec::new(), again: Vec::new() };
        for run in runs(batch) {
            waves.ready.push(run[0]);
            for pair in run.windows(2) {
                waves.behind[pair[0]] = Some(pair[1]);
            }
        }
        waves
    }

    /// What may be sent now, in the order of the batch; none when the batch has come to its end. Each of them is to be
    /// settled, or sent again, before this is called again.
    pub fn next_wave(&mut self) -> Option<Vec<usize>> {
        self.again.pop().or_else(|| {
            let mut wave = std::mem::take(&mut self.ready);
            wave.sort_unstable();
            (!wave.is_empty()).then_some(wave)
        })
    }

    /// What became of a message. If it was delivered, the next of its lane may go.
    pub fn settle(&mut self, place: usize, verdict: Verdict) {
        if matches!(verdict, Verdict::Delivered(_)) {
            self.ready.extend(self.behind[place]);
        }
        self.verdicts[place] = Some(verdict);
    }

    /// What has become ready since, for a sink that need not wait for the rest of the wave.
    #[must_use]
    pub fn released(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.ready)
    }

    /// They failed, all for the same reason.
    pub fn fail(&mut self, places: impl IntoIterator<Item = usize>, failure: &SinkFailure) {
        places.into_iter().for_each(|place| self.settle(place, Verdict::Failed(failure.clone())));
    }

    /// One of these, and it is not known which, spoiled the wave for all: they go again in halves, until it is alone.
    pub fn halve(&mut self, mut places: Vec<usize>) {
        let second = places.split_off(places.len().div_ceil(2));
        self.again.extend([second, places].into_iter().filter(|half| !half.is_empty()));
    }

    /// One verdict for each message. What was to be sent again may have arrived; what else is not settled was never sent.
    #[must_use]
    pub fn into_verdicts(mut self) -> Vec<Verdict> {
        let words = "the connection ended before it was confirmed, and there was no time left to send it again";
        let in_doubt = SinkFailure::retryable(SinkFailure::UNREACHABLE, words);
        for places in std::mem::take(&mut self.again) {
            self.fail(places, &in_doubt);
        }
        self.verdicts.into_iter().map(|verdict| verdict.unwrap_or(Verdict::NotSent)).collect()
    }
}
