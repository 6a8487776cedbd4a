//! What arrived at a destination, as a foreign client read it there, and what is asked of all of it together.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use crate::consumer::{Arrival, Consumer};

/// Longer than a consumer takes to find its way back, even on a loaded machine.
const PATIENCE: Duration = Duration::from_mins(1);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A message as it arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrived {
    /// The value of `postrider-message-id`.
    pub message_id: String,
    /// Its lane and its number there.
    pub lane: Option<(String, i64)>,
    /// Every header, as bytes. Names are in lower case.
    pub headers: BTreeMap<String, Vec<u8>>,
    /// Its content.
    pub body: Vec<u8>,
}

impl Arrived {
    /// Reads the relay's own headers off a message.
    pub fn new(headers: BTreeMap<String, Vec<u8>>, body: Vec<u8>) -> Self {
        let text = |name: &str| headers.get(name).map(|value| String::from_utf8_lossy(value).into_owned());
        let sequence = text("postrider-sequence-id").and_then(|number| number.parse().ok());
        Self {
            message_id: text("postrider-message-id").unwrap_or_else(|| panic!("no message id among {headers:?}")),
            lane: text("postrider-lane").zip(sequence),
            headers,
            body,
        }
    }
}

/// What a broker's own consumer read.
impl From<Arrival> for Arrived {
    fn from(arrival: Arrival) -> Self {
        let headers = arrival.headers.into_iter().map(|(name, value)| (name.to_lowercase(), value));
        Self::new(headers.collect(), arrival.body)
    }
}

/// Everything that has come to a consumer, in its order, once there are so many different messages.
pub async fn until_arrived(consumer: &Consumer, different: usize) -> Vec<Arrived> {
    let started = std::time::Instant::now();
    loop {
        let arrived: Vec<Arrived> = consumer.arrived_so_far().into_iter().map(Arrived::from).collect();
        let found = distinct(&arrived);
        if found >= different {
            return arrived;
        }
        let remarks = || consumer.remarks();
        assert!(started.elapsed() < PATIENCE, "{found} of {different} came within {PATIENCE:?}; {}", remarks());
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// How many different messages there are.
pub fn distinct(arrived: &[Arrived]) -> usize {
    arrived.iter().map(|message| &message.message_id).collect::<HashSet<_>>().len()
}

/// The first arrival of each message of a lane came after the first arrival of the one before it.
pub fn assert_lanes_in_order(arrived: &[Arrived]) {
    let mut seen = HashSet::new();
    let mut last: HashMap<&str, i64> = HashMap::new();
    for message in arrived.iter().filter(|message| seen.insert(&message.message_id)) {
        let Some((lane, number)) = &message.lane else { continue };
        let before = last.insert(lane, *number).unwrap_or(0);
        assert_eq!(*number, before + 1, "lane {lane}: number {number} arrived after {before}");
    }
}
