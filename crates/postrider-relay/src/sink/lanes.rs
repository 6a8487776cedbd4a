//! Lanes inside a batch, for every sink that is given several messages of a lane at once
//! ([`Batching::ordered`](super::Batching::ordered)): what one message of a lane suffers decides over the later ones of
//! that lane and over nothing else. A message without a lane stands alone.

mod waves;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use postrider::lifecycle::Claimed;

pub use self::waves::Waves;

/// Lanes of which a message was not delivered: nothing of them may follow.
#[derive(Debug, Default)]
pub struct FailedLanes<'a>(HashSet<&'a str>);

impl<'a> FailedLanes<'a> {
    /// This message was not delivered.
    pub fn insert(&mut self, message: &'a Claimed) {
        self.0.extend(message.lane.as_deref());
    }

    /// Whether a message of the same lane was not delivered.
    #[must_use]
    pub fn contains(&self, message: &Claimed) -> bool {
        message.lane.as_deref().is_some_and(|lane| self.0.contains(lane))
    }
}

/// The places in the batch of one lane's messages, in their order; never empty.
pub type Run = Vec<usize>;

/// The batch, lane by lane, in the order in which each lane comes first.
#[must_use]
pub fn runs(batch: &[Arc<Claimed>]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    let mut run_of: HashMap<&str, usize> = HashMap::new();
    for (place, message) in batch.iter().enumerate() {
        match message.lane.as_deref() {
            None => runs.push(vec![place]),
            Some(lane) => {
                let run = *run_of.entry(lane).or_insert(runs.len());
                if run == runs.len() {
                    runs.push(Vec::new());
                }
                runs[run].push(place);
            }
        }
    }
    runs
}
