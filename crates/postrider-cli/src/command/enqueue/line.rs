//! One line of NDJSON into one message. Field names are the parameters of `outbox.enqueue`; every complaint names the
//! field and what it should be. Values are taken out of the text as they stand: a payload is never parsed into numbers.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use postrider::Message;
use serde::de::{DeserializeOwned, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::maybe::Maybe as _;

/// The parameters of `outbox.enqueue`.
const FIELDS: [&str; 13] = [
    "topic",
    "payload",
    "namespace",
    "tenant_id",
    "lane",
    "dedupe_key",
    "priority",
    "headers",
    "due_at",
    "occurred_at",
    "body",
    "content_type",
    "delay_seconds",
];

/// What a body is if nobody says.
const BODY_CONTENT_TYPE: &str = "application/octet-stream";

/// The fields of one line, each still text.
struct Fields<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

/// Turns a line into a checked message, or says what is wrong with it.
pub(super) fn parse(line: &[u8]) -> Result<Message, String> {
    let mut deserializer = serde_json::Deserializer::from_slice(line);
    let fields = deserializer
        .deserialize_map(FieldsVisitor)
        .and_then(|fields| deserializer.end().map(|()| fields))
        .map_err(|error| match error.classify() {
            serde_json::error::Category::Data => "not a JSON object".to_owned(),
            _ => format!("not JSON: {}", json_reason(&error)),
        })?;
    let message = build(&fields)?;
    message.check().map_err(|error| error.to_string())?;
    Ok(message)
}

/// What is wrong with a JSON text, in words, with the column alone: the line is known better here. Columns count from 1.
pub(super) fn json_reason(error: &serde_json::Error) -> String {
    let said = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    let reason = said.strip_suffix(&place).unwrap_or(&said);
    let words = match reason {
        "expected ident" => "only true, false and null may stand without quotation marks",
        "expected value" => "a value is missing, or a text stands without quotation marks",
        "expected `:`" => "a colon is missing after the name of a field",
        "expected `,` or `}`" => "a comma or a closing brace is missing after a value",
        "expected `,` or `]`" => "a comma or a closing bracket is missing after a value",
        "key must be a string" => "the name of a field must stand in quotation marks",
        "trailing comma" => "there is a comma before a closing brace or bracket",
        "trailing characters" => "something stands behind the end of the JSON",
        "EOF while parsing an object" => "it ends inside an object: a closing brace is missing",
        "EOF while parsing a list" => "it ends inside a list: a closing bracket is missing",
        "EOF while parsing a string" => "it ends inside a text: a quotation mark is missing",
        "EOF while parsing a value" => "it ends where a value is expected",
        "invalid number" => "this is not a number",
        "invalid escape" => "a backslash in a text must be followed by one of \"\\/bfnrtu",
        "control character (\\u0000-\\u001F) found while parsing a string" => {
            "a text holds a control character: write a tab as \\t, a new line as \\n"
        }
        "recursion limit exceeded" => "it is nested too deeply",
        other => other,
    };
    if error.column() == 0 { words.to_owned() } else { format!("column {}: {words}", error.column()) }
}

struct FieldsVisitor;

impl<'de> Visitor<'de> for FieldsVisitor {
    type Value = Fields<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut fields = Vec::with_capacity(FIELDS.len());
        while let Some((name, value)) = map.next_entry::<String, &'de RawValue>()? {
            fields.push((Cow::Owned(name), value));
        }
        Ok(Fields(fields))
    }
}

impl Fields<'_> {
    /// The field's text. `null` stands for "not given".
    fn raw(&self, name: &str) -> Option<&str> {
        self.any(name).filter(|text| *text != "null")
    }

    fn any(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(field, _)| field == name).map(|(_, value)| value.get())
    }

    fn get<T: DeserializeOwned>(&self, name: &str, what: &str) -> Result<Option<T>, String> {
        self.raw(name)
            .map(|text| serde_json::from_str(text).map_err(|_| format!("{name} must be {what}, not {}", shown(text))))
            .transpose()
    }

    fn text(&self, name: &str) -> Result<Option<String>, String> {
        self.get(name, "text")
    }

    fn time(&self, name: &str) -> Result<Option<Timestamp>, String> {
        let what = "an RFC 3339 time such as \"2027-01-31T08:00:00Z\"";
        let Some(text) = self.get::<String>(name, what)? else { return Ok(None) };
        text.parse().map(Some).map_err(|_| format!("{name} must be {what}, not {}", shown(&format!("{text:?}"))))
    }

    fn refuse_unknown(&self) -> Result<(), String> {
        for (index, (name, _)) in self.0.iter().enumerate() {
            if !FIELDS.contains(&name.as_ref()) {
                return Err(unknown(name));
            }
            if self.0.iter().take(index).any(|(earlier, _)| earlier == name) {
                return Err(format!("{name} is given twice"));
            }
        }
        Ok(())
    }
}

fn build(fields: &Fields<'_>) -> Result<Message, String> {
    fields.refuse_unknown()?;
    let topic = fields.text("topic")?.ok_or("topic is missing")?;
    let content_type = fields.text("content_type")?;
    let body = fields.text("body")?;
    let mut message = match (fields.any("payload"), body) {
        // Beside a body a null payload is "not given"; alone it is the payload null.
        (None | Some("null"), Some(body)) => {
            let body = STANDARD.decode(&body).map_err(|error| format!("body must be base64: {error}"))?;
            Message::bytes(topic, body, BODY_CONTENT_TYPE)
        }
        (Some(payload), None) => {
            let payload: &RawValue = serde_json::from_str(payload).map_err(|error| json_reason(&error))?;
            Message::json(topic, payload).map_err(|error| error.to_string())?
        }
        (Some(_), Some(_)) => return Err("give a payload or a body, not both".to_owned()),
        (None, None) => return Err("payload is missing (or a body)".to_owned()),
    };
    message = message
        .maybe(content_type, Message::content_type)
        .maybe(fields.text("namespace")?, Message::namespace)
        .maybe(fields.text("tenant_id")?, Message::tenant)
        .maybe(fields.text("lane")?, Message::lane)
        .maybe(fields.text("dedupe_key")?, Message::dedupe_key)
        .maybe(fields.get("priority", "a whole number from -100 to 100")?, Message::priority)
        .maybe(fields.time("occurred_at")?.map(SystemTime::from), Message::occurred_at);
    let headers: Option<BTreeMap<String, String>> = fields.get("headers", "an object whose values are text")?;
    message = headers.into_iter().flatten().fold(message, |message, (name, value)| message.header(name, value));
    match (fields.time("due_at")?, delay(fields)?) {
        (Some(_), Some(_)) => Err("give due_at or delay_seconds, not both".to_owned()),
        (Some(due_at), None) => Ok(message.due_at(due_at.into())),
        (None, Some(delay)) => Ok(message.delay(delay)),
        (None, None) => Ok(message),
    }
}

fn delay(fields: &Fields<'_>) -> Result<Option<Duration>, String> {
    let what = "a number of seconds, 0 or more";
    let Some(seconds) = fields.get::<f64>("delay_seconds", what)? else { return Ok(None) };
    Duration::try_from_secs_f64(seconds).map(Some).map_err(|_| format!("delay_seconds must be {what}, not {seconds}"))
}

/// The beginning of a value, for an error message.
fn shown(text: &str) -> String {
    const MOST_CHARS: usize = 40;
    match text.char_indices().nth(MOST_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

fn unknown(name: &str) -> String {
    let nearest = FIELDS.iter().min_by_key(|field| edits(name, field)).filter(|field| edits(name, field) <= 3);
    match nearest {
        Some(nearest) => format!("unknown field {}: did you mean {nearest}?", shown(&format!("{name:?}"))),
        None => format!("unknown field {}: known are {}", shown(&format!("{name:?}")), FIELDS.join(", ")),
    }
}

/// How many characters must be put in, taken out or changed to make one word of the other (Levenshtein).
fn edits(one: &str, other: &str) -> usize {
    // A name longer than any field plus what is near is far from all of them; a line may hold megabytes of name.
    const FAR: usize = 32;
    if one.len() > FAR {
        return FAR;
    }
    let mut row: Vec<usize> = (0..=other.chars().count()).collect();
    for (i, a) in one.chars().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        for (b, cell) in other.chars().zip(row.iter_mut().skip(1)) {
            let changed = diagonal + usize::from(a != b);
            diagonal = *cell;
            *cell = changed.min(left + 1).min(*cell + 1);
            left = *cell;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or(FAR)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_reaches_the_message() {
        let tenant = "6f1c8b0e-0000-4000-8000-000000000001";
        let line = format!(
            r#" {{"topic": "t", "payload": {{"n": 12345678901234567890, "x": 1.10}}, "namespace": "n",
                "tenant_id": "{tenant}", "lane": "l", "dedupe_key": "{tenant}/1", "priority": -5,
                "headers": {{"a": "b"}}, "due_at": "2027-01-31T08:00:00+01:00", "occurred_at": null,
                "content_type": "application/json", "body": null, "delay_seconds": null}} "#
        );
        let payload: &RawValue = serde_json::from_str(r#"{"n": 12345678901234567890, "x": 1.10}"#).unwrap();
        let due_at: Timestamp = "2027-01-31T07:00:00Z".parse().unwrap();
        let expected = Message::json("t", payload)
            .unwrap()
            .namespace("n")
            .tenant(tenant)
            .lane("l")
            .dedupe_key(format!("{tenant}/1"))
            .priority(-5)
            .header("a", "b")
            .due_at(due_at.into())
            .content_type("application/json");
        assert_eq!(parse(line.as_bytes()), Ok(expected));
    }

    #[test]
    fn a_null_payload_is_a_payload_unless_there_is_a_body() {
        assert_eq!(parse(br#"{"topic": "t", "payload": null}"#), Ok(Message::json("t", &()).unwrap()));
        let bytes = Message::bytes("t", vec![0, 255], BODY_CONTENT_TYPE);
        assert_eq!(parse(br#"{"topic": "t", "payload": null, "body": "AP8="}"#), Ok(bytes));
    }

    #[test]
    fn every_complaint_names_the_field() {
        let cases = [
            ("{\"topic\"", "not JSON: column 8: it ends inside an object: a closing brace is missing"),
            ("[1]", "not a JSON object"),
            ("7", "not a JSON object"),
            ("{} {}", "not JSON: column 4: something stands behind the end of the JSON"),
            ("{\"topic\": no}", "not JSON: column 12: only true, false and null may stand without quotation marks"),
            ("{\"topic\": x}", "not JSON: column 11: a value is missing, or a text stands without quotation marks"),
            ("{\"topic\" 7}", "not JSON: column 10: a colon is missing after the name of a field"),
            ("{\"topic\": 7 8}", "not JSON: column 13: a comma or a closing brace is missing after a value"),
            ("{topic: 7}", "not JSON: column 2: the name of a field must stand in quotation marks"),
            ("{\"topic\": 7,}", "not JSON: column 13: there is a comma before a closing brace or bracket"),
            ("{\"topic\": [7,]}", "not JSON: column 14: a value is missing, or a text stands without quotation marks"),
            ("{\"topic\": \"a", "not JSON: column 12: it ends inside a text: a quotation mark is missing"),
            ("{}", "topic is missing"),
            (r#"{"topic": 7, "payload": 1}"#, "topic must be text, not 7"),
            (r#"{"topic": "t"}"#, "payload is missing (or a body)"),
            (r#"{"topic": "t", "payload": 1, "body": ""}"#, "give a payload or a body, not both"),
            (r#"{"topic": "t", "body": "?"}"#, "body must be base64"),
            (r#"{"topic": "t", "payload": 1, "topic": "u"}"#, "topic is given twice"),
            (r#"{"topic": "t", "payload": 1, "priority": "high"}"#, "priority must be a whole number"),
            (r#"{"topic": "t", "payload": 1, "priority": 101}"#, "priority 101 is not between"),
            (r#"{"topic": "t", "payload": 1, "headers": {"a": 1}}"#, "headers must be an object whose values are text"),
            (r#"{"topic": "t", "payload": 1, "due_at": "tomorrow"}"#, "due_at must be an RFC 3339 time"),
            (r#"{"topic": "t", "payload": 1, "due_at": "2027-01-31T08:00:00"}"#, "due_at must be an RFC 3339 time"),
            (r#"{"topic": "t", "payload": 1, "tenant_id": 7}"#, "tenant_id must be text, not 7"),
            (r#"{"topic": "t", "payload": 1, "delay_seconds": -1}"#, "delay_seconds must be a number of seconds"),
            (r#"{"topic": "t", "payload": 1, "tenant": null}"#, "unknown field \"tenant\": did you mean tenant_id?"),
            (r#"{"topic": "t", "paylod": 1}"#, "unknown field \"paylod\": did you mean payload?"),
            (r#"{"topic": "t", "correlation": 1}"#, "unknown field \"correlation\": known are topic, payload"),
        ];
        for (line, complaint) in cases {
            let said = parse(line.as_bytes()).unwrap_err();
            assert!(said.starts_with(complaint), "{line} was answered with: {said}");
        }
        assert!(parse(b"{\"topic\": \"\xff\", \"payload\": 1}").unwrap_err().starts_with("not JSON"));
    }

    #[test]
    fn edits_are_counted() {
        for (one, other, count) in [("lane", "lane", 0), ("lnae", "lane", 2), ("", "lane", 4), ("kitten", "sitting", 3)]
        {
            assert_eq!(edits(one, other), count, "{one} {other}");
        }
    }
}
