//! What is wrong with a configuration, in words: where it stands, which key, what is expected there. A value is never
//! repeated, for it may be a secret, or one that was put under the wrong key.

use figment::error::{Actual, Kind};
use figment::value::Dict;

use super::redact;
use crate::failure::Failure;

/// As much alike as `tiemout` and `timeout`, and more than `url` and `file`.
const ALIKE: f64 = 0.75;

/// A configuration that cannot be used.
pub(super) fn wrong(reason: &str) -> Failure {
    Failure::usage(format!("the configuration cannot be used: {reason}"))
        .hint("`postrider config print --defaults` shows every key; see docs/configuration.md")
}

/// A text that is not TOML. Its own words have the line in them, which may hold a secret: where and why are enough.
pub(super) fn syntax(error: &figment::Error, source: &str) -> Failure {
    let words = error.kind.to_string();
    let told = match (words.lines().next(), words.trim_end().lines().last()) {
        (Some(place), Some(reason)) if words.starts_with("TOML parse error") => format!("{place}: {reason}"),
        _ => "it is not TOML".to_owned(),
    };
    wrong(&format!("{source}: {told}"))
}

/// Each fault with its place and its key.
pub(super) fn explain(error: &figment::Error, values: &Dict, section: Option<&str>) -> Failure {
    let told = error.clone().into_iter().map(|fault| {
        let mut path: Vec<&str> = section.into_iter().chain(fault.path.iter().map(String::as_str)).collect();
        if let Kind::MissingField(name) = &fault.kind {
            path.push(name);
        }
        let source = fault.metadata.as_ref().map_or_else(String::new, |metadata| format!("{}: ", metadata.name));
        let words = redact::scrub(&words(&fault.kind), values);
        if path.is_empty() { format!("{source}{words}") } else { format!("{source}{}: {words}", path.join(".")) }
    });
    wrong(&told.collect::<Vec<_>>().join("; "))
}

fn words(kind: &Kind) -> String {
    match kind {
        Kind::UnknownField(name, known) => match nearest(name, known) {
            Some(meant) => format!("unknown key; did you mean `{meant}`?"),
            None if known.is_empty() => "unknown key; there is none here".to_owned(),
            None => format!("unknown key; there are {}", known.join(", ")),
        },
        Kind::UnknownVariant(_, known) => format!("expected one of {}", known.join(", ")),
        Kind::MissingField(_) => "is missing".to_owned(),
        Kind::InvalidType(actual, expected) | Kind::InvalidValue(actual, expected) => {
            format!("expected {}, found {}", plain(expected), sort(actual))
        }
        Kind::Message(text) if text.contains("duration") || text.contains("friendly") => {
            "expected a duration such as 500ms, 30s, 5m or 1h 30m".to_owned()
        }
        Kind::Message(text) if text.contains("untagged enum") => {
            "expected a text, { env = \"NAME\" } or { file = \"/path\" }".to_owned()
        }
        other => other.to_string(),
    }
}

/// The known key that was meant, if one is near.
pub(crate) fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let alike =
        |known: &str| strsim::jaro_winkler(name, known).max(strsim::normalized_damerau_levenshtein(name, known));
    let near = known.iter().map(|known| (alike(known), *known)).filter(|(alike, _)| *alike >= ALIKE);
    near.max_by(|(one, _), (other, _)| one.total_cmp(other)).map(|(_, known)| known)
}

/// Rust's words for types are not everybody's.
fn plain(expected: &str) -> &str {
    match expected {
        "u8" | "u16" | "u32" | "u64" | "usize" | "i64" => "a whole number",
        "a nonzero u32" => "a whole number from 1",
        "a boolean" | "bool" => "true or false",
        "a string" => "a text",
        "a sequence" => "a list",
        "a map" => "a table",
        other => other.strip_prefix("struct ").map_or(other, |_| "a table"),
    }
}

/// What sort of value it is, and not which.
fn sort(actual: &Actual) -> &'static str {
    match actual {
        Actual::Bool(_) => "true or false",
        Actual::Unsigned(_) | Actual::Signed(_) | Actual::Float(_) => "a number that does not fit",
        Actual::Str(_) | Actual::Char(_) | Actual::Bytes(_) => "a text",
        Actual::Seq => "a list",
        Actual::Map => "a table",
        _ => "something else",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_key_is_meant() {
        let known = ["url", "timeout", "connect_timeout", "headers", "max_attempts"];
        for (written, meant) in [
            ("tiemout", Some("timeout")),
            ("header", Some("headers")),
            ("maxattempts", Some("max_attempts")),
            ("connect-timeout", Some("connect_timeout")),
            ("colour", None),
        ] {
            assert_eq!(nearest(written, &known), meant, "{written}");
        }
    }
}
