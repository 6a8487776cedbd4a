//! Checks payloads against a JSON Schema before they are sent, by topic. What does not fit fails for good, with the place
//! of the offending value and without the value itself: payloads do not belong into an error. Schemas are read when the
//! relay starts and refer to nothing outside themselves; their patterns take time in proportion to the text.

use std::error::Error as StdError;
use std::sync::Arc;

use boon::{CompileError, Compiler, ErrorKind, SchemaIndex, UrlLoader, ValidationError};
use postrider::lifecycle::Claimed;
use serde_json::Value;

use super::Sink;
use super::checked::{Checked, checked};
use super::pattern::matches;
use crate::error::Error;

/// Faults of one payload that are named; more help nobody.
const MAX_FAULTS: usize = 5;
/// A name for the schema itself, of no meaning outside.
const HERE: &str = "schema:///";

/// Schemas by topic.
#[derive(Clone, Default)]
pub struct Schemas(Arc<Vec<Schema>>);

struct Schema {
    topic: String,
    compiled: boon::Schemas,
    index: SchemaIndex,
}

/// Nothing is fetched.
struct Nowhere;

impl UrlLoader for Nowhere {
    fn load(&self, url: &str) -> Result<Value, Box<dyn StdError>> {
        Err(format!("it refers to {url}, and only itself can be referred to").into())
    }
}

impl Schemas {
    /// Adds a schema for topics like this, where `*` stands for any characters. All that match must hold.
    pub fn with(self, topic: impl Into<String>, schema: &Value) -> Result<Self, Error> {
        let topic = topic.into();
        let mut compiled = boon::Schemas::new();
        let index = compile(schema, &mut compiled)
            .map_err(|reason| Error::options(format!("the schema for topic {topic:?} cannot be used: {reason}")))?;
        let mut schemas = Arc::into_inner(self.0).unwrap_or_default();
        schemas.push(Schema { topic, compiled, index });
        Ok(Self(Arc::new(schemas)))
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
        let mut schemas = self.0.iter().filter(|schema| matches(&schema.topic, &message.topic)).peekable();
        if schemas.peek().is_none() {
            return Ok(());
        }
        let payload: Value = message.json().map_err(|error| format!("the payload is not JSON: {error}"))?;
        let mut faults = Vec::new();
        for schema in schemas {
            if let Err(error) = schema.compiled.validate(&payload, schema.index) {
                collect(&error, &mut faults);
            }
        }
        faults.truncate(MAX_FAULTS);
        if faults.is_empty() { Ok(()) } else { Err(faults.join("; ")) }
    }
}

/// Reads a schema, or says why it is none, and where.
fn compile(schema: &Value, into: &mut boon::Schemas) -> Result<SchemaIndex, String> {
    let mut compiler = Compiler::new();
    compiler.use_loader(Box::new(Nowhere));
    let told = |error: CompileError| {
        format!("{error:#}").lines().map(str::trim).collect::<Vec<_>>().join(" ").replace(HERE, "")
    };
    compiler.add_resource(HERE, schema.clone()).map_err(told)?;
    compiler.compile(HERE, into).map_err(told)
}

/// The faults themselves: what stands above them only says that there are some below.
fn collect(error: &ValidationError<'_, '_>, faults: &mut Vec<String>) {
    if faults.len() >= MAX_FAULTS {
        return;
    }
    if let (ErrorKind::Group | ErrorKind::Schema { .. } | ErrorKind::Reference { .. } | ErrorKind::AllOf, false) =
        (&error.kind, error.causes.is_empty())
    {
        for cause in &error.causes {
            collect(cause, faults);
        }
        return;
    }
    let place = error.instance_location.to_string();
    let place = if place.is_empty() { "the payload" } else { &place };
    faults.push(format!("{place}: {}", words(&error.kind)));
}

/// What was wanted. What came instead is the payload's, and stays there.
fn words(kind: &ErrorKind<'_, '_>) -> String {
    match kind {
        ErrorKind::Type { got, want } => {
            let want = want.iter().map(|kind| kind.to_string()).collect::<Vec<_>>().join(" or ");
            format!("must be {want}, is {got}")
        }
        ErrorKind::Enum { want } => {
            format!("must be one of {}", want.iter().map(Value::to_string).collect::<Vec<_>>().join(", "))
        }
        ErrorKind::Const { want } => format!("must be {want}"),
        ErrorKind::Format { want, .. } => format!("must be in the format {want}"),
        ErrorKind::Pattern { want, .. } => format!("must be like {want}"),
        ErrorKind::Required { want } => format!("lacks {}", want.join(", ")),
        ErrorKind::Dependency { prop, missing } | ErrorKind::DependentRequired { prop, missing } => {
            format!("has {prop}, and so needs {}", missing.join(", "))
        }
        ErrorKind::AdditionalProperties { got } => format!("has what is not allowed there: {}", got.join(", ")),
        ErrorKind::Minimum { want, .. } => format!("must be at least {want}"),
        ErrorKind::Maximum { want, .. } => format!("must be at most {want}"),
        ErrorKind::ExclusiveMinimum { want, .. } => format!("must be more than {want}"),
        ErrorKind::ExclusiveMaximum { want, .. } => format!("must be less than {want}"),
        ErrorKind::MultipleOf { want, .. } => format!("must be a multiple of {want}"),
        ErrorKind::MinLength { got, want } => format!("must have at least {want} characters, has {got}"),
        ErrorKind::MaxLength { got, want } => format!("must have at most {want} characters, has {got}"),
        ErrorKind::MinItems { got, want } => format!("must have at least {want} items, has {got}"),
        ErrorKind::MaxItems { got, want } => format!("must have at most {want} items, has {got}"),
        ErrorKind::AdditionalItems { got } => format!("has {got} items too many"),
        ErrorKind::UniqueItems { got: [one, other] } => format!("items {one} and {other} are the same"),
        ErrorKind::MinProperties { got, want } => format!("must have at least {want} properties, has {got}"),
        ErrorKind::MaxProperties { got, want } => format!("must have at most {want} properties, has {got}"),
        ErrorKind::Contains | ErrorKind::MinContains { .. } => "has too few items of the kind asked for".to_owned(),
        ErrorKind::MaxContains { .. } => "has too many items of the kind asked for".to_owned(),
        ErrorKind::PropertyName { .. } => "has a property whose name is not allowed".to_owned(),
        ErrorKind::FalseSchema => "is not allowed".to_owned(),
        ErrorKind::Not => "is of the kind that is not allowed".to_owned(),
        ErrorKind::AnyOf | ErrorKind::OneOf(None) => "fits none of the alternatives".to_owned(),
        ErrorKind::OneOf(Some(_)) => "fits more than one of the alternatives".to_owned(),
        _ => "does not fit the schema".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_that_is_none_is_refused_at_the_start() {
        let error = Schemas::default().with("t", &serde_json::json!({"type": "nonsense"})).err().expect("refused");
        assert!(error.to_string().contains("/type"), "{error}");
        let elsewhere = serde_json::json!({"$ref": "https://example.com/schema.json"});
        assert!(Schemas::default().with("t", &elsewhere).is_err(), "nothing is fetched");
    }

    #[test]
    fn every_fault_is_told_with_its_place_and_without_the_value() {
        let schema = serde_json::json!({
            "required": ["b"],
            "additionalProperties": false,
            "properties": {
                "a": {"minimum": 3}, "b": {"enum": ["x", "y"]}, "c": {"allOf": [{"type": "string"}, {"maxLength": 2}]},
                "d": {"items": {"anyOf": [{"const": 1}, {"const": 2}]}}, "e": {"$ref": "#/$defs/e"}
            },
            "$defs": {"e": {"format": "uuid", "pattern": "^s", "not": {"type": "string"}}}
        });
        let mut compiled = boon::Schemas::new();
        let index = compile(&schema, &mut compiled).expect("a schema");
        let payload = serde_json::json!({"a": 1, "c": "4711", "d": [1, 4711], "e": "4711", "f": 4711});
        let mut faults = Vec::new();
        collect(&compiled.validate(&payload, index).expect_err("wrong"), &mut faults);
        faults.sort();
        let expected = [
            "/a: must be at least 3",
            "/c: must have at most 2 characters, has 4",
            "/d/1: fits none of the alternatives",
            "/e: must be like ^s",
            "the payload: lacks b",
        ];
        assert_eq!(faults, expected);
    }
}
