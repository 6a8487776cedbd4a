//! What is wrong with a configuration, in words: where it stands, which key, what is expected there. A value is never
//! repeated, for it may be a secret, or one that was put under the wrong key.

use figment::Figment;
use figment::error::{Actual, Kind};
use figment::value::{Dict, Value};
use postrider_relay::sink::registry::SinkKind;

use super::layers::{DEFAULTS, Layer, Layers, find, names, read_toml};
use super::{Config, redact};
use crate::failure::Failure;

/// More faults than this are not told at once.
const MAX_FAULTS: usize = 20;

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
        let source = fault.metadata.as_ref().map_or_else(String::new, |metadata| metadata.name.to_string());
        one(&fault, &source, section, values)
    });
    wrong(&told.collect::<Vec<_>>().join("; "))
}

fn one(fault: &figment::Error, source: &str, section: Option<&str>, values: &Dict) -> String {
    let path: Vec<&str> = section.into_iter().chain(fault.path.iter().map(String::as_str)).collect();
    let path = [path, missing(&fault.kind).into_iter().collect()].concat();
    let words = redact::scrub(&words(&fault.kind, is_of_a_sink(&path)), values);
    [source, &path.join("."), &words].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(": ")
}

/// Whether it is a key of a sink, which may be what it is.
fn is_of_a_sink(path: &[&str]) -> bool {
    matches!(path, ["sinks", _, _])
}

fn missing(kind: &Kind) -> Option<&str> {
    match kind {
        Kind::MissingField(name) => Some(name.as_ref()),
        _ => None,
    }
}

/// Every fault of a configuration, not only the first: each is told, put right, and the rest is read again.
pub(super) fn every(layers: &Layers) -> Vec<String> {
    let Ok(original) = layers.values() else { return Vec::new() };
    let defaults = read_toml(DEFAULTS, "the defaults").unwrap_or_default();
    let mut values = original.clone();
    let mut told = Vec::new();
    while told.len() < MAX_FAULTS {
        let fault = match Figment::from(Layer::new("", values.clone())).extract_lossy::<Config>() {
            Ok(config) => {
                told.extend(config.faults(&names(&original, "sinks")));
                break;
            }
            Err(error) => error.into_iter().next(),
        };
        let Some(fault) = fault else { break };
        let path: Vec<&str> = fault.path.iter().map(String::as_str).collect();
        let source = nearest_value(&original, &path).map_or_else(String::new, |value| layers.source_of(value.tag()));
        told.push(one(&fault, &source, None, &original));
        let default = find(&defaults, &path).filter(|_| missing(&fault.kind).is_none());
        if !put_right(&mut values, &path, default) {
            break;
        }
    }
    told
}

/// The value under a path, or what stands nearest above it.
fn nearest_value<'a>(values: &'a Dict, path: &[&str]) -> Option<&'a Value> {
    (1..=path.len()).rev().find_map(|length| find(values, &path[..length]))
}

/// Puts the default in the place of a faulty value, or takes it away, with all that is in it. If there is nothing under the
/// path, as for an entry of a list, the whole list goes.
fn put_right(values: &mut Dict, path: &[&str], default: Option<&Value>) -> bool {
    let Some((first, rest)) = path.split_first() else { return false };
    if rest.is_empty() {
        return match default {
            Some(default) => values.insert((*first).to_owned(), default.clone()).is_some_and(|old| old != *default),
            None => values.remove(*first).is_some(),
        };
    }
    let deeper = match values.get_mut(*first) {
        Some(Value::Dict(_, inner)) => put_right(inner, rest, default),
        _ => false,
    };
    deeper || values.remove(*first).is_some()
}

fn words(kind: &Kind, is_of_a_sink: bool) -> String {
    match kind {
        Kind::UnknownField(name, known) => {
            let kinds = SinkKind::ALL.iter().filter(|_| is_of_a_sink).map(|kind| kind.name);
            let known: Vec<&str> = known.iter().copied().chain(kinds).collect();
            match nearest(name, &known) {
                Some(meant) => format!("unknown key; did you mean `{meant}`?"),
                None if known.is_empty() => "unknown key; there is none here".to_owned(),
                None => format!("unknown key; there are {}", known.join(", ")),
            }
        }
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
