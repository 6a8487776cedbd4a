//! Where messages may go when a message has a say in it. A producer that chooses a topic chooses a stream, a queue or a
//! path by it, unless the sink's template or this list says otherwise. Asked by every sink with a template, after the
//! template was filled in and before anything is sent.

use serde::Deserialize;

use super::pattern::matches;
use super::template::Template;
use super::{Finding, SinkFailure};
use crate::error::Error;

/// Patterns of the addresses that a sink's template may make; `*` stands for any characters, none included. Without a
/// pattern, every address that is not the server's own.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Destinations(Vec<String>);

impl<T: Into<String>> FromIterator<T> for Destinations {
    fn from_iter<I: IntoIterator<Item = T>>(patterns: I) -> Self {
        Self(patterns.into_iter().map(Into::into).collect())
    }
}

impl Destinations {
    /// Refuses a list that can decide nothing: called when the sink is made.
    pub fn check(&self, template: &Template) -> Result<(), Error> {
        let reason = if self.0.iter().any(String::is_empty) {
            "`destinations` has an empty pattern: write what it should match, or take it out".to_owned()
        } else if !self.0.is_empty() && template.fixed().is_some() {
            "`destinations` limits what messages choose, and this sink has one destination: take it out".to_owned()
        } else {
            return Ok(());
        };
        Err(Error::options(reason))
    }

    /// Whether a message may go there. `own` are beginnings of the server's own names: only the template may choose those.
    pub fn admit(&self, template: &Template, address: &str, own: &[&str]) -> Result<(), SinkFailure> {
        if own.iter().any(|start| address.starts_with(start) && !template.begins_with(start)) {
            return Err(forbidden(&format!(
                "the message would go to {address:?}, which is one of the server's own names"
            )));
        }
        if self.allow(address) {
            return Ok(());
        }
        Err(forbidden(&format!("the message would go to {address:?}, which the sink's `destinations` do not allow")))
    }

    pub(crate) fn allow(&self, address: &str) -> bool {
        self.0.is_empty() || self.0.iter().any(|pattern| matches(pattern, address))
    }

    /// What is weak about a sink whose producers choose any address. `what` is the option that makes the address.
    #[must_use]
    pub fn finding(&self, template: &Template, what: &str) -> Option<Finding> {
        (self.0.is_empty() && template.begins_with_a_choice()).then(|| {
            Finding::weak(
                format!("{what} = \"{template}\" lets a producer choose any destination that this login may write to"),
                "list what is meant, as in destinations = [\"orders.*\"], or begin the template with text of its own",
            )
        })
    }
}

/// Refused for good: neither another try nor the destination can change it.
pub(crate) fn forbidden(words: &str) -> SinkFailure {
    let words = format!("{words}; change the message's topic, the sink's template or its `destinations`");
    SinkFailure::terminal(SinkFailure::FORBIDDEN_DESTINATION, words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_servers_own_names_are_the_templates_to_choose() {
        let admitted = |template: &str, address: &str, list: &[&str]| {
            let template: Template = template.parse().expect("a template");
            let list: Destinations = list.iter().copied().collect();
            list.admit(&template, address, &["$", "amq."]).map_err(|failure| failure.code)
        };
        let refused = Err(SinkFailure::FORBIDDEN_DESTINATION.to_owned());
        assert_eq!(admitted("{topic}", "$CONTROL/dynamic-security/v1", &[]), refused);
        assert_eq!(admitted("{topic}", "$CONTROL/x", &["$*"]), refused, "a pattern does not open them");
        assert_eq!(admitted("$SYS/{topic}", "$SYS/x", &[]), Ok(()));
        assert_eq!(admitted("{topic}", "amq.direct", &[]), refused);
        assert_eq!(admitted("{topic}", "orders/1", &[]), Ok(()));
        assert_eq!(admitted("{topic}", "orders/1", &["orders/*"]), Ok(()));
        assert_eq!(admitted("{topic}", "users/1", &["orders/*", "bills"]), refused);
    }

    #[test]
    fn a_list_that_decides_nothing_is_refused_and_a_missing_one_is_told() {
        let template = |source: &str| source.parse::<Template>().expect("a template");
        let list: Destinations = ["orders.*"].into_iter().collect();
        assert!(list.check(&template("{topic}")).is_ok() && list.check(&template("orders")).is_err());
        assert!([""].into_iter().collect::<Destinations>().check(&template("{topic}")).is_err());
        let none = Destinations::default();
        for (source, told) in [
            ("{topic}", true),
            ("{lane}.x", true),
            ("{namespace}", true),
            ("shop.{topic}", false),
            ("{tenant_id}.{topic}", false),
            ("{message_id}", false),
            ("fixed", false),
        ] {
            assert_eq!(none.finding(&template(source), "topic").is_some(), told, "{source}");
            assert_eq!(list.finding(&template(source), "topic"), None);
        }
    }
}
