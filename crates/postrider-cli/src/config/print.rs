//! The configuration that holds, as TOML with the source of each value behind it, or as JSON. Called by `postrider config
//! print`; what is secret was taken out by `redact.rs` before a line is made.

use figment::value::{Dict, Num, Value};
use serde_json::{Map as JsonMap, Value as Json};

use super::layers::{Layers, leaves};
use super::redact;
use crate::failure::Result;

/// Sources stand at this column, or behind a longer line.
const SOURCE_COLUMN: usize = 44;

/// A file that could be read again, were it not for the secrets.
pub(crate) fn toml(layers: &Layers) -> Result<String> {
    let values = redact::shown(&layers.values()?);
    let mut lines = Vec::new();
    table(layers, &values, &mut Vec::new(), "[]", &mut lines);
    let text = lines.join("\n");
    Ok(text.trim_start().to_owned())
}

/// The values as they nest, and the source of each under its path.
pub(crate) fn json(layers: &Layers) -> Result<Json> {
    let values = redact::shown(&layers.values()?);
    let mut found = Vec::new();
    leaves(&values, &mut Vec::new(), &mut found);
    let source = |(path, value): &(Vec<String>, Value)| (path.join("."), Json::from(layers.source_of(value.tag())));
    let sources: JsonMap<String, Json> = found.iter().map(source).collect();
    let config: JsonMap<String, Json> = values.iter().map(|(key, value)| (key.clone(), as_json(value))).collect();
    Ok(serde_json::json!({ "config": config, "sources": sources }))
}

/// A table's own values, then the tables in it, then the lists of tables.
fn table(layers: &Layers, dict: &Dict, path: &mut Vec<String>, brackets: &str, lines: &mut Vec<String>) {
    let is_table = |value: &Value| value.as_dict().is_some_and(|inner| !is_inline(inner));
    let has_own = dict.values().any(|value| !is_table(value) && tables(value).is_none());
    if !path.is_empty() && (has_own || dict.is_empty() || brackets == "[[]]") {
        let (open, close) = brackets.split_at(brackets.len() / 2);
        let name = path.iter().map(|key| bare(key)).collect::<Vec<_>>().join(".");
        lines.push(format!("\n{open}{name}{close}"));
    }
    for (key, value) in dict.iter().filter(|(_, value)| !is_table(value) && tables(value).is_none()) {
        let line = format!("{} = {}", bare(key), as_toml(value));
        lines.push(format!("{line:<SOURCE_COLUMN$} # {}", layers.source_of(value.tag())));
    }
    for (key, value) in dict {
        path.push(key.clone());
        if let Some(inner) = value.as_dict().filter(|_| is_table(value)) {
            table(layers, inner, path, "[]", lines);
        }
        for inner in tables(value).into_iter().flatten() {
            table(layers, inner, path, "[[]]", lines);
        }
        path.pop();
    }
}

/// The place of a secret stands on one line.
fn is_inline(dict: &Dict) -> bool {
    dict.len() == 1 && (dict.contains_key("env") || dict.contains_key("file")) && dict.values().all(is_text)
}

fn is_text(value: &Value) -> bool {
    value.as_str().is_some()
}

/// A list of tables, unless it is a list of secrets' places.
fn tables(value: &Value) -> Option<Vec<&Dict>> {
    let Value::Array(_, items) = value else { return None };
    let tables: Option<Vec<&Dict>> = items.iter().map(Value::as_dict).collect();
    tables.filter(|tables| !tables.is_empty() && !tables.iter().all(|table| is_inline(table)))
}

fn bare(key: &str) -> String {
    let plain = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    if plain { key.to_owned() } else { quoted(key) }
}

/// JSON's way to write a text is one of TOML's, but for DEL, which TOML wants escaped too.
fn quoted(text: &str) -> String {
    Json::from(text).to_string().replace('\u{7f}', "\\u007f")
}

fn as_toml(value: &Value) -> String {
    match value {
        Value::Dict(_, dict) => {
            let pairs = dict.iter().map(|(key, value)| format!("{} = {}", bare(key), as_toml(value)));
            format!("{{ {} }}", pairs.collect::<Vec<_>>().join(", "))
        }
        Value::Array(_, items) => format!("[{}]", items.iter().map(as_toml).collect::<Vec<_>>().join(", ")),
        other => as_json(other).to_string().replace('\u{7f}', "\\u007f"),
    }
}

fn as_json(value: &Value) -> Json {
    match value {
        Value::String(_, text) => Json::from(text.as_str()),
        Value::Char(_, c) => Json::from(c.to_string()),
        Value::Bool(_, truth) => Json::from(*truth),
        Value::Num(_, number) => number_as_json(*number),
        Value::Empty(..) => Json::Null,
        Value::Dict(_, dict) => dict.iter().map(|(key, value)| (key.clone(), as_json(value))).collect(),
        Value::Array(_, items) => items.iter().map(as_json).collect(),
    }
}

fn number_as_json(number: Num) -> Json {
    let whole = number.to_i128().and_then(|whole| i64::try_from(whole).ok()).map(Json::from);
    whole
        .or_else(|| number.to_u128().and_then(|whole| u64::try_from(whole).ok()).map(Json::from))
        .or_else(|| number.to_f64().map(Json::from))
        .unwrap_or(Json::Null)
}
