//! A batch on its way to Kafka: which message may go now, which must wait for another, and what became of each. It knows
//! lanes and verdicts, and no producer.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use postrider::lifecycle::Claimed;
use rdkafka::types::RDKafkaErrorCode as Code;

use super::connection::ProducerState;
use super::failure;
use super::options::KafkaOptions;
use super::reports::Report;
use crate::sink::{Receipt, SinkFailure, Verdict};

/// How the names of Kafka's own topics begin: `__consumer_offsets`, `__transaction_state`.
const OWN: [&str; 1] = ["__"];
/// The longest name of a topic that Kafka takes.
const MAX_TOPIC_CHARACTERS: usize = 249;

pub(super) struct Batch<'a> {
    items: Vec<Item<'a>>,
    /// Without the idempotent producer nothing keeps two of a lane in order on their way.
    one_of_a_lane: bool,
}

pub(super) struct Item<'a> {
    pub(super) message: &'a Claimed,
    pub(super) topic: String,
    pub(super) key: String,
    state: State,
}

enum State {
    Pending {
        /// A request with it and others was refused: it is to have one of its own.
        alone: bool,
        /// The producer it was handed to came to an end, with this.
        cut_off: Option<Code>,
    },
    Settled(Verdict),
}

/// A message of the batch, and the partition it goes to.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) at: usize,
    pub(super) partition: i32,
}

/// How the wait for a wave's reports ended.
pub(super) enum Ended {
    /// The producer answered for all of them, or came to its end, for this reason.
    Answered(Option<Code>),
    /// Nothing came in time.
    TimedOut(SinkFailure),
}

impl<'a> Batch<'a> {
    pub(super) fn new(messages: &'a [Arc<Claimed>], options: &KafkaOptions) -> Self {
        let mut batch = Self { items: Vec::with_capacity(messages.len()), one_of_a_lane: !options.idempotent };
        let mut refused = Vec::new();
        for message in messages {
            let addressed = address(message, options);
            let (topic, key) = addressed.unwrap_or_else(|failure| {
                refused.push((batch.items.len(), failure));
                Default::default()
            });
            let state = State::Pending { alone: false, cut_off: None };
            batch.items.push(Item { message, topic, key, state });
        }
        for (place, failure) in refused {
            batch.fail(place, &failure);
        }
        batch
    }

    pub(super) fn item(&self, place: usize) -> &Item<'a> {
        &self.items[place]
    }

    /// Whether there is anything left to send.
    pub(super) fn is_settled(&self) -> bool {
        self.items.iter().all(|item| matches!(item.state, State::Settled(_)))
    }

    /// The next message that has to go alone, if there is one that nothing of its lane stands before.
    pub(super) fn next_alone(&self) -> Option<usize> {
        let mut lanes: HashSet<&str> = HashSet::new();
        self.items.iter().position(|item| {
            let State::Pending { alone, .. } = item.state else { return false };
            let is_first = item.message.lane.as_deref().is_none_or(|lane| lanes.insert(lane));
            alone && is_first
        })
    }

    /// The topics of what is left to send.
    pub(super) fn topics(&self) -> BTreeSet<String> {
        let pending = self.items.iter().filter(|item| matches!(item.state, State::Pending { .. }));
        pending.map(|item| item.topic.clone()).collect()
    }

    /// One message, if it is still to be sent.
    pub(super) fn only(&self, at: usize, producer: &ProducerState) -> Vec<Place> {
        let Item { topic, key, .. } = &self.items[at];
        let (partition, _) = producer.place(topic, key);
        if self.is_pending(at) { vec![Place { at, partition }] } else { Vec::new() }
    }

    /// Who may go now, topic by topic: of each lane what stands first, as far as it goes to one partition whose broker knows
    /// the producer, and will not take a record after it has refused the one before.
    pub(super) fn wave(&self, producer: &ProducerState) -> Vec<Place> {
        let mut runs: HashMap<&str, Option<(&str, i32)>> = HashMap::new();
        let mut wave = Vec::new();
        for (at, item) in self.items.iter().enumerate() {
            let State::Pending { alone, .. } = item.state else { continue };
            let (partition, is_known) = producer.place(&item.topic, &item.key);
            let to = (item.topic.as_str(), partition);
            if let Some(lane) = item.message.lane.as_deref() {
                let goes = match runs.get(lane) {
                    None => !alone,
                    Some(run) => *run == Some(to) && is_known && !alone && !self.one_of_a_lane,
                };
                runs.insert(lane, goes.then_some(to));
                if !goes {
                    continue;
                }
            }
            if !alone {
                wave.push(Place { at, partition });
            }
        }
        // A lane's messages of one wave have one topic, so they keep their order.
        wave.sort_by_key(|place| &self.items[place.at].topic);
        wave
    }

    pub(super) fn is_pending(&self, place: usize) -> bool {
        matches!(self.items[place].state, State::Pending { .. })
    }

    /// A message fails, and with it what comes after it in its lane is not sent.
    pub(super) fn fail(&mut self, place: usize, failure: &SinkFailure) {
        if !self.is_pending(place) {
            return;
        }
        self.items[place].state = State::Settled(Verdict::Failed(failure.clone()));
        let Some(lane) = self.items[place].message.lane.as_deref() else { return };
        for later in &mut self.items[place + 1..] {
            if later.message.lane.as_deref() == Some(lane) && matches!(later.state, State::Pending { .. }) {
                later.state = State::Settled(Verdict::NotSent);
            }
        }
    }

    /// Everything that is left fails.
    pub(super) fn fail_all(&mut self, failure: &SinkFailure) {
        for place in 0..self.items.len() {
            self.fail(place, failure);
        }
    }

    /// Everything of a topic fails.
    pub(super) fn fail_topic(&mut self, topic: &str, failure: &SinkFailure) {
        for place in 0..self.items.len() {
            if self.items[place].topic == topic {
                self.fail(place, failure);
            }
        }
    }

    /// Takes a wave's reports. Says whether some have to be sent again because their producer came to an end.
    pub(super) fn record_reports(
        &mut self,
        sent: &[usize],
        reports: &[Report],
        alone: bool,
        ended: &Ended,
        producer: &ProducerState,
    ) -> bool {
        let mut cut = false;
        for (place, report) in sent.iter().copied().zip(reports) {
            match *report {
                Report::Delivered { partition, offset } => {
                    let topic = &self.items[place].topic;
                    producer.has_taken(topic, partition);
                    let at = if offset < 0 { String::new() } else { format!("@{offset}") };
                    let reference = Some(format!("{topic}/{partition}{at}"));
                    self.items[place].state = State::Settled(Verdict::Delivered(Receipt { reference, code: None }));
                }
                Report::Refused(code) if failure::is_an_interruption(code) => match ended {
                    Ended::TimedOut(failure) => self.fail(place, failure),
                    Ended::Answered(Some(reason)) if !failure::is_an_interruption(*reason) => {
                        let failure = failure::of(*reason, &self.items[place].topic);
                        self.fail(place, &failure);
                    }
                    Ended::Answered(_) => cut |= self.set_pending(place, alone, Some(code)),
                },
                Report::Refused(code) if failure::is_of_the_whole_request(code) && !alone => {
                    self.set_pending(place, true, None);
                }
                Report::Refused(code) => {
                    let failure = failure::of(code, &self.items[place].topic);
                    self.fail(place, &failure);
                }
            }
        }
        cut
    }

    fn set_pending(&mut self, place: usize, alone: bool, cut_off: Option<Code>) -> bool {
        let pending = self.is_pending(place);
        if pending {
            self.items[place].state = State::Pending { alone, cut_off };
        }
        pending
    }

    /// The time is over. What was handed over and cut off fails, what was never handed over was not sent.
    pub(super) fn give_up(&mut self) {
        for place in 0..self.items.len() {
            match self.items[place].state {
                State::Pending { cut_off: Some(code), .. } => {
                    let words = format!("the Kafka producer came to an end before the broker confirmed it: {code}");
                    self.fail(place, &SinkFailure::retryable(SinkFailure::UNREACHABLE, words));
                }
                State::Pending { cut_off: None, .. } => self.items[place].state = State::Settled(Verdict::NotSent),
                State::Settled(_) => {}
            }
        }
    }

    /// The verdicts, in the order of the batch.
    pub(super) fn into_verdicts(mut self) -> Vec<Verdict> {
        self.give_up();
        let settled = self.items.into_iter().map(|item| match item.state {
            State::Settled(verdict) => verdict,
            State::Pending { .. } => Verdict::NotSent,
        });
        settled.collect()
    }
}

fn address(message: &Claimed, options: &KafkaOptions) -> Result<(String, String), SinkFailure> {
    let topic = options.topic.render(message)?;
    let is_fine = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '_' | '-');
    if topic.len() > MAX_TOPIC_CHARACTERS || !topic.chars().all(is_fine) || matches!(topic.as_str(), "" | "." | "..") {
        return Err(failure::of(Code::InvalidTopic, &format!("{topic:?}")));
    }
    options.destinations.admit(&options.topic, &topic, &OWN)?;
    Ok((topic, options.key.of(message)?))
}
