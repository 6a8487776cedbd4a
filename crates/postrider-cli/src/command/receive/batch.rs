//! Takes a request's JSON apart, event by event, and stops at the first that is too many: what is kept while it reads grows
//! with the limit and not with the request. Called off the async workers, for a request may take a second of work. What an
//! event says is read in `event.rs`.

use std::fmt;

use postrider::{Event, MAX_BATCH_MESSAGES, Message};
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::answer::{Rejection, cut};
use super::event;
use super::sender::Rules;

/// An event that keeps every rule, or what is wrong with it.
pub(super) struct Arrival {
    /// As it was given, for the answer.
    pub(super) event_id: Option<String>,
    pub(super) content: Result<(Event, Message), Rejection>,
}

/// Why a request as a whole is refused.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unreadable {
    TooManyEvents,
    NoBatch(String),
}

/// Reads `{"events": [...]}`. Other fields of the batch are ignored.
pub(super) fn read(body: &[u8], rules: &Rules) -> Result<Vec<Arrival>, Unreadable> {
    let mut batch = Batch { rules, arrivals: None, too_many: false };
    let mut json = serde_json::Deserializer::from_slice(body);
    let read = json.deserialize_map(&mut batch).and_then(|()| json.end());
    match (read, batch.arrivals) {
        (Err(_), _) if batch.too_many => Err(Unreadable::TooManyEvents),
        (Ok(()), Some(arrivals)) => Ok(arrivals),
        (Ok(()), None) => Err(no_batch("there are no events in it")),
        (Err(error), _) => Err(no_batch(&error.to_string())),
    }
}

fn no_batch(why: &str) -> Unreadable {
    Unreadable::NoBatch(cut(&format!("the body must be {{\"events\": [...]}}: {why}")))
}

struct Batch<'r> {
    rules: &'r Rules,
    arrivals: Option<Vec<Arrival>>,
    too_many: bool,
}

impl<'de> Visitor<'de> for &mut Batch<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(name) = map.next_key::<String>()? {
            if name != "events" {
                map.next_value::<IgnoredAny>()?;
            } else if self.arrivals.is_some() {
                return Err(A::Error::duplicate_field("events"));
            } else {
                map.next_value_seed(Events(self))?;
            }
        }
        Ok(())
    }
}

struct Events<'b, 'r>(&'b mut Batch<'r>);

impl<'de> DeserializeSeed<'de> for Events<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Events<'_, '_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list of events")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut events: A) -> Result<(), A::Error> {
        let arrivals = self.0.arrivals.insert(Vec::new());
        while let Some(event) = events.next_element::<&RawValue>()? {
            if arrivals.len() == MAX_BATCH_MESSAGES {
                self.0.too_many = true;
                return Err(A::Error::custom("too many events"));
            }
            arrivals.push(event::read(event, self.0.rules));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &[u8]) -> Result<Vec<Arrival>, Unreadable> {
        super::read(body, &Rules::none())
    }

    #[test]
    fn what_is_no_batch_is_refused_as_a_whole() {
        for body in [
            "",
            "[]",
            "{}",
            "{\"events\": 1}",
            "{\"events\": [}",
            "{\"events\": []} x",
            "{\"events\": [], \"events\": []}",
        ] {
            assert!(matches!(read(body.as_bytes()), Err(Unreadable::NoBatch(_))), "{body}");
        }
        assert!(read(b"{\"events\": [], \"site\": 7}").unwrap().is_empty());
    }

    /// The rest is not looked at: it need not even be JSON.
    #[test]
    fn reading_ends_at_the_first_event_too_many() {
        let batch = |count: usize| format!("{{\"events\": [{}", vec!["1"; count].join(","));
        let full = read(format!("{}]}}", batch(MAX_BATCH_MESSAGES)).as_bytes());
        assert_eq!(full.map(|arrivals| arrivals.len()), Ok(MAX_BATCH_MESSAGES));
        let more = read(format!("{}, what is this", batch(MAX_BATCH_MESSAGES + 1)).as_bytes());
        assert_eq!(more.err(), Some(Unreadable::TooManyEvents));
    }
}
