//! The receiver: a file that relays append lines to. Reads it back, and says what arrived, in which order, and how often.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::Path;

use serde::Deserialize;
use uuid::Uuid;

/// One line: one arrival of one message.
#[derive(Debug, Deserialize)]
pub(super) struct Arrival {
    pub(super) message_id: Uuid,
    pub(super) lane: Option<String>,
    pub(super) sequence_id: Option<i64>,
    pub(super) attempt_no: i32,
}

pub(super) struct Arrivals {
    pub(super) messages: Vec<Arrival>,
}

/// What has arrived until now, in order. A line that is still being written is not there yet.
pub(super) fn arrivals(file: &Path) -> Arrivals {
    let text = fs::read_to_string(file).unwrap_or_default();
    let mut arrivals = Arrivals { messages: Vec::new() };
    for line in text.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
        // A writer that is killed may leave the beginning of a line, which is no message: the kernel looks for a deadly
        // signal before each page of a file that it writes. The next writer's line stands right behind it.
        let begin = line.rfind("{\"message_id\"").unwrap_or_else(|| panic!("not a line: {line}"));
        match serde_json::from_str(&line[begin..]) {
            Ok(message) => arrivals.messages.push(message),
            Err(error) => panic!("{error}: {line}"),
        }
    }
    arrivals
}

impl Arrivals {
    /// Every message's first arrival, by id.
    pub(super) fn distinct(&self) -> HashMap<Uuid, &Arrival> {
        let mut first = HashMap::new();
        for arrival in &self.messages {
            first.entry(arrival.message_id).or_insert(arrival);
        }
        first
    }

    /// First arrivals of a lane are 1, 2, 3 and so on. Returns each lane's last number.
    pub(super) fn assert_lanes_in_order(&self) -> HashMap<&str, i64> {
        let mut last: HashMap<&str, i64> = HashMap::new();
        for (line, arrival) in self.messages.iter().enumerate() {
            let (Some(lane), Some(sequence_id)) = (arrival.lane.as_deref(), arrival.sequence_id) else { continue };
            let last = last.entry(lane).or_default();
            assert!(sequence_id <= *last + 1, "line {line}: {sequence_id} of {lane} came after {last}");
            *last = sequence_id.max(*last);
        }
        last
    }

    /// Proof that no two relays had one delivery at once: no attempt sends twice. Returns all attempts that arrived.
    pub(super) fn assert_no_attempt_twice(&self) -> HashSet<(Uuid, i32)> {
        let mut seen = HashSet::new();
        for arrival in &self.messages {
            assert!(seen.insert((arrival.message_id, arrival.attempt_no)), "one attempt arrived twice: {arrival:?}");
        }
        seen
    }
}
