//! Splits the messages of a claim into groups that may be delivered side by side, and each group into batches for the
//! sink. Pure: it keeps lanes in order and batches within the sink's limits, and sends nothing.

use std::collections::VecDeque;

use crate::lease::LeasedMessage;
use crate::sink::Batching;

/// Messages that go one after the other: those of one lane, or one message without a lane.
type Run = VecDeque<LeasedMessage>;

/// Runs that share batches.
pub(crate) struct Group {
    runs: Vec<Run>,
    batching: Batching,
}

pub(crate) struct Batch {
    pub(crate) messages: Vec<LeasedMessage>,
    /// The run in the group that each message belongs to.
    pub(crate) runs: Vec<usize>,
}

/// Splits a claim, which is in delivery order with each lane's messages together.
pub(crate) fn group(claimed: Vec<LeasedMessage>, batching: Batching) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    // What is left of the first batch of the last group.
    let (mut messages_left, mut bytes_left) = (0, 0);
    for run in split_into_runs(claimed) {
        let (messages, bytes) = first_part(&run, batching);
        let max_messages = max_batch(&run, batching);
        if let Some(last) = groups.last_mut()
            && messages <= messages_left
            && bytes <= bytes_left
            && max_messages == max_batch(&last.runs[0], batching)
        {
            messages_left -= messages;
            bytes_left -= bytes;
            last.runs.push(run);
        } else {
            messages_left = max_messages.saturating_sub(messages);
            bytes_left = batching.max_bytes.saturating_sub(bytes);
            groups.push(Group { runs: vec![run], batching });
        }
    }
    groups
}

fn split_into_runs(claimed: Vec<LeasedMessage>) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for next in claimed {
        let lane = &next.message.lane;
        match runs.last_mut() {
            Some(run) if lane.is_some() && run.back().is_some_and(|last| last.message.lane == *lane) => {
                run.push_back(next);
            }
            _ => runs.push(VecDeque::from([next])),
        }
    }
    runs
}

/// Messages and bytes of a run that go into one batch: one message, or all of them if the sink keeps order.
fn first_part(run: &Run, batching: Batching) -> (usize, usize) {
    let messages = if batching.ordered { run.len() } else { 1 };
    (messages, run.iter().take(messages).map(size).sum())
}

/// Most messages of a batch with this run. It halves with every attempt: a message that fails its whole batch, by a panic
/// or a timeout, must not take the same neighbours with it until they are all dead.
fn max_batch(run: &Run, batching: Batching) -> usize {
    let tried_before = run.front().map_or(0, |first| first.message.attempt_count.saturating_sub(1));
    batching.max_messages.checked_shr(tried_before.unsigned_abs()).unwrap_or(0).max(1)
}

fn size(message: &LeasedMessage) -> usize {
    message.message.content.as_bytes().len()
}

impl Group {
    pub(crate) fn next_batch(&mut self) -> Option<Batch> {
        self.runs.retain(|run| !run.is_empty());
        let max_messages = max_batch(self.runs.first()?, self.batching);
        let of_each_run = if self.batching.ordered { usize::MAX } else { 1 };
        let (mut batch, mut bytes) = (Batch { messages: Vec::new(), runs: Vec::new() }, 0_usize);
        for (index, run) in self.runs.iter_mut().enumerate() {
            for _ in 0..of_each_run {
                let Some(next) = run.front() else { break };
                bytes = bytes.saturating_add(size(next));
                let fits = batch.messages.len() < max_messages && bytes <= self.batching.max_bytes;
                if !batch.messages.is_empty() && !fits {
                    return Some(batch);
                }
                batch.messages.extend(run.pop_front());
                batch.runs.push(index);
            }
        }
        Some(batch)
    }

    /// Takes out the rest of these runs of the last batch.
    pub(crate) fn remove_runs(&mut self, runs: &[usize]) -> Vec<LeasedMessage> {
        runs.iter().flat_map(|run| std::mem::take(&mut self.runs[*run])).collect()
    }

    pub(crate) fn into_messages(self) -> Vec<LeasedMessage> {
        self.runs.into_iter().flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::Fixture;

    /// Messages as `lane/attempt_count`; no lane if it is empty.
    fn messages(fixture: &Fixture, words: &str) -> Vec<LeasedMessage> {
        let message = |word: &str| {
            let (lane, attempts) = word.split_once('/').unwrap();
            fixture.message(|message| {
                message.lane = Some(lane.to_owned()).filter(|lane| !lane.is_empty());
                message.attempt_count = attempts.parse().unwrap();
            })
        };
        words.split(' ').map(message).collect()
    }

    /// The lanes of every batch of every group.
    fn batches(groups: Vec<Group>) -> Vec<Vec<String>> {
        let lane = |one: &LeasedMessage| one.message.lane.clone().unwrap_or_default();
        let batches = |mut group: Group| {
            let mut batches = Vec::new();
            while let Some(batch) = group.next_batch() {
                batches.push(batch.messages.iter().map(lane).collect::<Vec<_>>().join(" "));
            }
            batches
        };
        groups.into_iter().map(batches).collect()
    }

    #[test]
    fn a_batch_has_one_message_of_a_lane_unless_the_sink_keeps_order() {
        let fixture = Fixture::new();
        let split = |batching| batches(group(messages(&fixture, "a/1 a/1 b/1 c/1 c/1"), batching));
        assert_eq!(split(Batching::unordered(10)), [["a b c", "a c"]]);
        assert_eq!(split(Batching::ordered(10)), [["a a b c c"]]);
        assert_eq!(split(Batching::one_by_one()), [vec!["a", "a"], vec!["b"], vec!["c", "c"]]);
    }

    #[test]
    fn what_was_tried_before_goes_in_smaller_batches() {
        let fixture = Fixture::new();
        let split = batches(group(messages(&fixture, "/3 /3 /1 /1 /1 /1"), Batching::unordered(4)));
        assert_eq!(split.iter().map(Vec::len).collect::<Vec<_>>(), [1, 1, 1], "two alone, then four together");
    }

    #[test]
    fn the_rest_of_a_failed_run_is_taken_out() {
        let fixture = Fixture::new();
        let mut group = group(messages(&fixture, "a/1 a/1 b/1 b/1"), Batching::unordered(10)).remove(0);
        let batch = group.next_batch().unwrap();
        assert_eq!(batch.runs, [0, 1]);
        assert_eq!(group.remove_runs(&[0]).len(), 1);
        assert_eq!(batches(vec![group]), [["b"]]);
    }
}
