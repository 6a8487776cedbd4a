//! Checks payloads against a JSON Schema before they are sent, by topic. What does not fit fails for good, with the place
//! of the offending value and without the value itself: payloads do not belong into an error. Schemas are read when the
//! relay starts and refer to nothing outside themselves.

use postrider::Claimed;
use serde_json::Value;

use super::Sink;
use super::checked::{Checked, checked};
use crate::error::Error;

/// Faults of one payload that are named; more help nobody.
const MAX_FAULTS: usize = 5;

/// Schemas by topic.
#[derive(Clone, Default)]
pub struct Schemas(Vec<(String, jsonschema::Validator)>);

impl Schemas {
    /// Adds a schema for topics like this, where `*` stands for any characters. All that match must hold.
    pub fn with(mut self, topic: impl Into<String>, schema: &Value) -> Result<Self, Error> {
        let topic = topic.into();
        let validator = jsonschema::options().offline().build(schema).map_err(|error| Error::Options {
            reason: format!(
                "the schema for topic {topic:?} cannot be used: {error} (at {})",
                place(error.instance_path())
            ),
        })?;
        self.0.push((topic, validator));
        Ok(self)
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Puts these schemas in front of a sink: see [`checked`].
    pub fn guard<S: Sink>(
        self,
        sink: S,
    ) -> Checked<S, impl Fn(&Claimed) -> Result<(), String> + Send + Sync + 'static> {
        checked(sink, move |message| self.check(message))
    }

    /// What is wrong with a message's payload, if something is.
    pub fn check(&self, message: &Claimed) -> Result<(), String> {
        let mut schemas = self.0.iter().filter(|(topic, _)| matches(topic, &message.topic)).peekable();
        if schemas.peek().is_none() {
            return Ok(());
        }
        let payload: Value = message.json().map_err(|error| format!("the payload is not JSON: {error}"))?;
        let faults: Vec<String> = schemas
            .flat_map(|(_, schema)| schema.iter_errors(&payload))
            .take(MAX_FAULTS)
            .map(|error| format!("{}: {}", place(error.instance_path()), error.masked()))
            .collect();
        if faults.is_empty() { Ok(()) } else { Err(faults.join("; ")) }
    }
}

/// A JSON pointer; the payload itself has none.
fn place(path: &jsonschema::paths::Location) -> &str {
    if path.as_str().is_empty() { "the payload" } else { path.as_str() }
}

/// Whether a topic is like a pattern, in which `*` stands for any characters.
fn matches(pattern: &str, topic: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == topic };
    let Some(mut topic) = topic.strip_prefix(start) else { return false };
    let (middle, end) = rest.rsplit_once('*').unwrap_or(("", rest));
    for part in middle.split('*') {
        let Some(at) = topic.find(part) else { return false };
        topic = &topic[at + part.len()..];
    }
    topic.ends_with(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_characters() {
        for (pattern, topic, expected) in [
            ("*", "", true),
            ("*", "anything", true),
            ("order.created", "order.created", true),
            ("order.created", "order.created2", false),
            ("order.*", "order.created", true),
            ("order.*", "orders", false),
            ("*.created", "order.created", true),
            ("o*r.*d", "order.created", true),
            ("o*r.*d", "order.creates", false),
            ("a*a", "a", false),
            ("a*b*c", "a-c-b-c", true),
            ("a*b*c", "a-c-b", false),
        ] {
            assert_eq!(matches(pattern, topic), expected, "{pattern} {topic}");
        }
    }

    #[test]
    fn a_schema_that_is_none_is_refused_at_the_start() {
        let error = Schemas::default().with("t", &serde_json::json!({"type": "nonsense"})).err().expect("refused");
        assert!(error.to_string().contains("/type"), "{error}");
        let elsewhere = serde_json::json!({"$ref": "https://example.com/schema.json"});
        assert!(Schemas::default().with("t", &elsewhere).is_err(), "nothing is fetched");
    }
}
