//! How the columns of a message (`COLUMNS` in `message.rs`) become what a statement binds: arrays for PostgreSQL, values for SQLite.
//! Nothing here knows a driver, or a column by its name.

use std::borrow::Cow;
use std::sync::LazyLock;
use std::time::{Duration, SystemTime};

use uuid::Uuid;

use super::statement::{PostgresArray, SqliteValue};
use crate::error::InvalidMessage;
use crate::message::{COLUMNS, Message};

/// One column: its name in SQL, what it holds, and where a message has it.
pub(crate) struct Column {
    name: &'static str,
    kind: Kind,
    of: for<'a> fn(&'a Message) -> Option<Field<'a>>,
}

pub(crate) const fn column(name: &'static str, kind: Kind, of: for<'a> fn(&'a Message) -> Option<Field<'a>>) -> Column {
    Column { name, kind, of }
}

/// What a column holds.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Text,
    Json,
    Integer,
    Bytes,
    Time,
    Span,
}

/// What one message has in one column.
pub(crate) enum Field<'a> {
    Text(Cow<'a, str>),
    Integer(i32),
    Bytes(&'a [u8]),
    Time(SystemTime),
    Span(Duration),
}

pub(crate) fn text(text: Option<&str>) -> Option<Field<'_>> {
    text.map(|text| Field::Text(text.into()))
}

impl Kind {
    /// The type of an element as it is bound in PostgreSQL, and what it is cast to there. What a driver may have no type for
    /// goes as text.
    fn in_postgres(self) -> (&'static str, Option<&'static str>) {
        match self {
            Self::Text => ("text", None),
            Self::Json => ("text", Some("jsonb")),
            Self::Integer => ("int4", None),
            Self::Bytes => ("bytea", None),
            Self::Time => ("text", Some("timestamptz")),
            Self::Span => ("text", Some("numeric")),
        }
    }
}

impl Column {
    /// A span of time has its unit in its name.
    fn name_with_unit(&self, unit: &str) -> String {
        if matches!(self.kind, Kind::Span) { format!("{}_{unit}", self.name) } else { self.name.to_owned() }
    }

    fn array<'a>(&self, messages: &'a [Message]) -> Result<PostgresArray<'a>, InvalidMessage> {
        let fields = messages.iter().map(self.of);
        Ok(match self.kind {
            Kind::Text | Kind::Json | Kind::Time | Kind::Span => {
                let texts = fields.map(|field| field.map(|field| field.into_text(self.name)).transpose());
                PostgresArray::Text(unless_empty(texts.collect::<Result<_, _>>()?))
            }
            Kind::Integer => PostgresArray::Integer(unless_empty(
                fields
                    .map(|field| if let Some(Field::Integer(number)) = field { Some(number) } else { None })
                    .collect(),
            )),
            Kind::Bytes => PostgresArray::Bytes(unless_empty(
                fields.map(|field| if let Some(Field::Bytes(bytes)) = field { Some(bytes) } else { None }).collect(),
            )),
        })
    }

    fn value<'a>(&self, message: &'a Message) -> Result<SqliteValue<'a>, InvalidMessage> {
        let out_of_range = InvalidMessage::TimeOutOfRange { field: self.name };
        Ok(match (self.of)(message) {
            None => SqliteValue::Null,
            Some(Field::Text(text)) => SqliteValue::Text(text),
            Some(Field::Integer(number)) => SqliteValue::Integer(number.into()),
            Some(Field::Bytes(bytes)) => SqliteValue::Blob(bytes.into()),
            Some(Field::Time(time)) => {
                SqliteValue::Integer(jiff::Timestamp::try_from(time).map_err(|_| out_of_range)?.as_microsecond())
            }
            Some(Field::Span(span)) => SqliteValue::Integer(i64::try_from(span.as_micros()).map_err(|_| out_of_range)?),
        })
    }
}

impl<'a> Field<'a> {
    fn into_text(self, field: &'static str) -> Result<Cow<'a, str>, InvalidMessage> {
        Ok(match self {
            Self::Text(text) => text,
            Self::Time(time) => jiff::Timestamp::try_from(time)
                .map_err(|_| InvalidMessage::TimeOutOfRange { field })?
                .to_string()
                .into(),
            Self::Span(span) => format!("{}.{:06}", span.as_secs(), span.subsec_micros()).into(),
            Self::Integer(_) | Self::Bytes(_) => unreachable!("the column's kind says what it holds"),
        })
    }
}

/// An array of nothing is absent as a whole.
fn unless_empty<T>(elements: Vec<Option<T>>) -> Option<Vec<Option<T>>> {
    elements.iter().any(Option::is_some).then_some(elements)
}

/// Messages turned by ninety degrees: named arguments, and the arrays to bind to them. A column that no message has is left
/// out of both: the server reads the text of each call, and an argument costs it as much as an index.
pub(crate) struct PostgresCall<'a> {
    pub(crate) arguments: String,
    pub(crate) arrays: Vec<PostgresArray<'a>>,
}

impl<'a> PostgresCall<'a> {
    /// For a function that takes many messages: whole arrays.
    pub(crate) fn of_many(messages: &'a [Message]) -> Result<Self, InvalidMessage> {
        Self::new(messages, |n, bound, cast| {
            let cast = cast.map(|cast| format!("::{cast}[]")).unwrap_or_default();
            format!("${n}::{bound}[]{cast}")
        })
    }

    /// For a function that takes one message: the first element of each array.
    pub(crate) fn of_one(message: &'a Message) -> Result<Self, InvalidMessage> {
        Self::new(std::slice::from_ref(message), |n, bound, cast| {
            let cast = cast.map(|cast| format!("::{cast}")).unwrap_or_default();
            format!("(${n}::{bound}[])[1]{cast}")
        })
    }

    fn new(
        messages: &'a [Message],
        argument: impl Fn(usize, &str, Option<&str>) -> String,
    ) -> Result<Self, InvalidMessage> {
        let (mut arguments, mut arrays) = (Vec::new(), Vec::new());
        for column in &COLUMNS {
            let array = column.array(messages)?;
            if !array.is_null() {
                arrays.push(array);
                let (bound, cast) = column.kind.in_postgres();
                let argument = argument(arrays.len(), bound, cast);
                arguments.push(format!("{} => {argument}", column.name_with_unit("seconds")));
            }
        }
        Ok(Self { arguments: arguments.join(", "), arrays })
    }
}

/// One message, in the caller's transaction: the rules are those of the view `outbox_enqueue`.
pub(super) static SQLITE_INSERT: LazyLock<String> = LazyLock::new(|| {
    let names: Vec<String> = COLUMNS.iter().map(|column| column.name_with_unit("us")).collect();
    let marks: Vec<String> = (1..=COLUMNS.len() + 1).map(|n| format!("?{n}")).collect();
    format!("insert into outbox_enqueue (message_id, {}) values ({})", names.join(", "), marks.join(", "))
});

pub(super) fn sqlite_values(message_id: Uuid, message: &Message) -> Result<Vec<SqliteValue<'_>>, InvalidMessage> {
    std::iter::once(Ok(message_id.into())).chain(COLUMNS.iter().map(|column| column.value(message))).collect()
}
