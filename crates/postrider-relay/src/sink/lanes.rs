//! Takes a batch apart by lane, for sinks that send several messages at once: what one message of a lane suffers decides
//! over the later ones of that lane and over nothing else. A message without a lane stands alone.

use std::collections::HashMap;
use std::sync::Arc;

use postrider::Claimed;

/// The places in the batch of one lane's messages, in their order; never empty.
pub(crate) type Run = Vec<usize>;

/// The batch, lane by lane, in the order in which each lane comes first.
pub(crate) fn runs(batch: &[Arc<Claimed>]) -> Vec<Run> {
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
