//! Makes an address out of a message: `orders.{namespace}.{topic}` for a subject, a stream, a routing key, a URL. Read once,
//! when the sink is made, so that a wrong field is an error at the start and not of the first message.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use postrider::lifecycle::Claimed;
use serde::Deserialize;

use super::SinkFailure;

/// Text with fields in braces: `{topic}`, `{namespace}`, `{tenant_id}`, `{lane}`, `{message_id}`. A brace itself is written
/// twice: `{{`.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Template {
    source: String,
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    Field(Field),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Field {
    Topic,
    Namespace,
    TenantId,
    Lane,
    MessageId,
}

const FIELDS: [(&str, Field); 5] = [
    ("topic", Field::Topic),
    ("namespace", Field::Namespace),
    ("tenant_id", Field::TenantId),
    ("lane", Field::Lane),
    ("message_id", Field::MessageId),
];

impl Field {
    fn name(self) -> &'static str {
        FIELDS.iter().find(|(_, field)| *field == self).map_or("", |(name, _)| name)
    }

    fn of(self, message: &Claimed) -> Option<Cow<'_, str>> {
        match self {
            Self::Topic => Some(Cow::from(&message.topic)),
            Self::Namespace => Some(Cow::from(&message.namespace)),
            Self::TenantId => message.tenant_id.as_ref().map(Cow::from),
            Self::Lane => message.lane.as_ref().map(Cow::from),
            Self::MessageId => Some(Cow::from(message.message_id.to_string())),
        }
    }
}

/// Why a text is no template.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the template cannot be read: {reason}; fields are {{topic}}, {{namespace}}, {{tenant_id}}, {{lane}} and {{message_id}}, and a brace itself is written twice"
)]
pub struct TemplateError {
    reason: String,
}

impl FromStr for Template {
    type Err = TemplateError;

    fn from_str(source: &str) -> Result<Self, TemplateError> {
        let error = |reason: String| TemplateError { reason };
        let mut parts: Vec<Part> = Vec::new();
        let mut text = String::new();
        let mut rest = source.chars().peekable();
        while let Some(next) = rest.next() {
            match next {
                '{' | '}' if rest.next_if_eq(&next).is_some() => text.push(next),
                '{' => {
                    let mut name = String::new();
                    loop {
                        match rest.next() {
                            Some('}') => break,
                            Some(letter) => name.push(letter),
                            None => return Err(error(format!("{{{name} is never closed"))),
                        }
                    }
                    let field = FIELDS.iter().find(|(known, _)| *known == name).map(|(_, field)| *field);
                    let field = field.ok_or_else(|| error(format!("there is no field {{{name}}}")))?;
                    if !text.is_empty() {
                        parts.push(Part::Text(std::mem::take(&mut text)));
                    }
                    parts.push(Part::Field(field));
                }
                '}' => return Err(error("a } closes nothing".to_owned())),
                letter => text.push(letter),
            }
        }
        if !text.is_empty() {
            parts.push(Part::Text(text));
        }
        if parts.is_empty() {
            return Err(error("it is empty".to_owned()));
        }
        Ok(Self { source: source.to_owned(), parts })
    }
}

impl TryFrom<String> for Template {
    type Error = TemplateError;

    fn try_from(source: String) -> Result<Self, TemplateError> {
        source.parse()
    }
}

impl fmt::Display for Template {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.source)
    }
}

impl fmt::Debug for Template {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:?}", self.source)
    }
}

impl Template {
    /// `{topic}`.
    #[must_use]
    pub fn topic() -> Self {
        Self { source: "{topic}".to_owned(), parts: vec![Part::Field(Field::Topic)] }
    }

    /// Whether it is the same text for every message, and which.
    #[must_use]
    pub fn fixed(&self) -> Option<&str> {
        match self.parts.as_slice() {
            [Part::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// Whether it begins with this text, whatever the message.
    pub(crate) fn begins_with(&self, start: &str) -> bool {
        matches!(self.parts.first(), Some(Part::Text(text)) if text.starts_with(start))
    }

    /// Whether it begins with a value that a producer chooses freely.
    pub(crate) fn begins_with_a_choice(&self) -> bool {
        matches!(self.parts.first(), Some(Part::Field(Field::Topic | Field::Namespace | Field::Lane)))
    }

    /// The text for a message, each of its values passed through `escape`. A message without what is asked for fails for
    /// good: [`SinkFailure::NO_ADDRESS`].
    pub fn render_with(&self, message: &Claimed, escape: impl Fn(&str) -> String) -> Result<String, SinkFailure> {
        let mut rendered = String::with_capacity(self.source.len() + message.topic.len());
        for part in &self.parts {
            match part {
                Part::Text(text) => rendered.push_str(text),
                Part::Field(field) => {
                    let value = field.of(message).ok_or_else(|| {
                        let words =
                            format!("the sink's template {self} needs {{{}}}, and the message has none", field.name());
                        SinkFailure::terminal(SinkFailure::NO_ADDRESS, words)
                    })?;
                    rendered.push_str(&escape(&value));
                }
            }
        }
        Ok(rendered)
    }

    /// The text for a message, its values as they are. Not for URLs.
    pub fn render(&self, message: &Claimed) -> Result<String, SinkFailure> {
        self.render_with(message, str::to_owned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_is_read_and_written() {
        for source in ["{topic}", "a.{namespace}.{topic}", "fixed", "{{x}}{lane}", "{tenant_id}/{message_id}"] {
            let template: Template = source.parse().expect("a template");
            assert_eq!(template.to_string(), source);
        }
        assert_eq!("{{a}}".parse::<Template>().expect("a template").fixed(), Some("{a}"));
        assert_eq!("{topic}".parse(), Ok(Template::topic()));
        assert_eq!(Template::topic().fixed(), None);
    }

    #[test]
    fn what_cannot_be_read_is_explained() {
        for (source, reason) in [
            ("{tpoic}", "there is no field {tpoic}"),
            ("a{topic", "{topic is never closed"),
            ("a}b", "a } closes nothing"),
            ("", "it is empty"),
        ] {
            let error = source.parse::<Template>().expect_err("no template").to_string();
            assert!(error.contains(reason) && error.contains("{message_id}"), "{error}");
        }
    }
}
