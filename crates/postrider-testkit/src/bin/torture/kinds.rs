//! What each message is: which lane it has, when it is due, and what the receiver answers to it. All of it follows from
//! the seed and the message's number, so nobody has to write it down and everybody agrees. Called by the producers, the
//! receiver and the checker.

use std::time::Duration;

use postrider::Message;
use serde::{Deserialize, Serialize};

use crate::books::Answer;

/// The topic of what an operator takes back before it is due.
pub(crate) const CANCELLED: &str = "cancelled";
/// Attempts before a message is dead. The relays' default is 10; kills come hundreds of times as often here.
pub(crate) const MAX_ATTEMPTS: u32 = 25;
/// How far ahead what is to be cancelled is due.
const NEVER: Duration = Duration::from_hours(2);

/// Which message: its producer, and its place among what that one wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Number {
    #[serde(rename = "p")]
    pub(crate) producer: u32,
    #[serde(rename = "n")]
    pub(crate) position: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Plain,
    /// Busy so many times first.
    Busy(u8),
    /// Refused once; an operator redrives it.
    RefusedOnce,
    /// Refused always; an operator discards it, or it stays dead.
    Doomed,
    /// Busy until its attempts are over.
    Exhausting,
    /// Due after this.
    Delayed(Duration),
    /// Due in some hours, and cancelled before.
    Cancelled,
}

/// What everything about the messages of a round follows from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) producers: u32,
    /// Of each producer.
    pub(crate) lanes: u32,
}

impl Kind {
    pub(crate) fn delay(self) -> Option<Duration> {
        match self {
            Self::Delayed(delay) => Some(delay),
            _ => None,
        }
    }

    /// What the receiver says, after this many refusals.
    pub(crate) fn answer(self, refusals: u8) -> Answer {
        match self {
            Self::Busy(times) if refusals < times => Answer::Busy,
            Self::RefusedOnce if refusals == 0 => Answer::Refused,
            Self::Doomed => Answer::Doomed,
            Self::Exhausting => Answer::Busy,
            _ => Answer::Accepted,
        }
    }

    /// Whether it is delivered in the end.
    pub(crate) fn is_delivered(self) -> bool {
        !matches!(self, Self::Doomed | Self::Exhausting | Self::Cancelled)
    }

    /// The highest number that an attempt of it may have.
    pub(crate) fn attempts_at_most(self) -> u32 {
        if self == Self::RefusedOnce { 2 * MAX_ATTEMPTS } else { MAX_ATTEMPTS }
    }
}

impl Plan {
    /// Every other message of a producer is in one of its lanes, in turn.
    pub(crate) fn lane(self, number: Number) -> Option<String> {
        let in_lane = number.position.is_multiple_of(2);
        in_lane.then(|| format!("lane-{}-{}", number.producer, number.position / 2 % self.lanes))
    }

    pub(crate) fn kind(self, number: Number) -> Kind {
        let dice = mixed(self.seed ^ (u64::from(number.producer) << 32 | u64::from(number.position)));
        let (dice, rest) = (dice % 10_000, dice / 10_000);
        let alone = !number.position.is_multiple_of(2);
        match dice {
            0..15 if alone => Kind::Doomed,
            15..17 if alone => Kind::Exhausting,
            17..37 if alone => Kind::Cancelled,
            37..400 if alone => Kind::Delayed(Duration::from_millis(100 + rest % 1_500)),
            400..415 => Kind::RefusedOnce,
            415..700 => Kind::Busy(u8::try_from(1 + rest % 3).unwrap_or(1)),
            _ => Kind::Plain,
        }
    }

    /// The message itself, with a dedupe key or without.
    pub(crate) fn message(self, number: Number, with_key: bool) -> Message {
        let kind = self.kind(number);
        let topic = if kind == Kind::Cancelled { CANCELLED } else { "t" };
        let message = Message::json(topic, &number).expect("two numbers are JSON");
        let message = match kind {
            Kind::Delayed(delay) => message.delay(delay),
            Kind::Cancelled => message.delay(NEVER),
            _ => message,
        };
        let message = match self.lane(number) {
            Some(lane) => message.lane(lane),
            None => message,
        };
        if with_key { message.dedupe_key(format!("{}-{}", number.producer, number.position)) } else { message }
    }
}

/// Splitmix64: the same number gives the same dice.
fn mixed(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
