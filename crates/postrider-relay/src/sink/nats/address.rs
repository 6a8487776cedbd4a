//! Makes the subject of a message. What a producer says must be a subject to publish to and nothing more: no wildcard, no
//! empty part, and not one of the server's own, by which streams are deleted.

use postrider::Claimed;

use crate::sink::SinkFailure;
use crate::sink::destinations::Destinations;
use crate::sink::template::Template;

/// Beginnings of the server's own subjects. Only the configuration may name them.
const OWN: [&str; 2] = ["$", "_INBOX"];

pub(super) fn subject(
    template: &Template,
    destinations: &Destinations,
    message: &Claimed,
) -> Result<String, SinkFailure> {
    let subject = template.render(message)?;
    match fault(&subject) {
        None => destinations.admit(template, &subject, &OWN).map(|()| subject),
        Some(fault) => {
            let words = format!(
                "the message's subject would be {subject:?}, which {fault}; change its topic or the sink's `subject`"
            );
            Err(SinkFailure::terminal(SinkFailure::NO_ADDRESS, words))
        }
    }
}

fn fault(subject: &str) -> Option<&'static str> {
    if subject.split('.').any(str::is_empty) {
        return Some("has an empty part between its dots");
    }
    if subject.contains(|letter: char| letter.is_whitespace() || letter.is_control()) {
        return Some("has a space or a control character");
    }
    subject.contains(['*', '>']).then_some("has a wildcard")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_subject_is_said() {
        for (subject, words) in [
            ("", "empty part"),
            ("orders.", "empty part"),
            (".orders", "empty part"),
            ("a..b", "empty part"),
            ("a b", "space"),
            ("a\r\nPUB", "space"),
            ("a\u{0}b", "control"),
            ("orders.*", "wildcard"),
            ("orders.>", "wildcard"),
        ] {
            assert!(fault(subject).is_some_and(|fault| fault.contains(words)), "{subject:?}");
        }
        for subject in ["orders", "orders.created", "käse.ü", "a-b_c/d", "a$b"] {
            assert_eq!(fault(subject), None, "{subject:?}");
        }
    }
}
