//! What an adapter runs in its driver's transaction: a statement and its parameters, for PostgreSQL or for SQLite. The
//! adapters of this crate and a user's own get the same.

use std::borrow::Cow;

use uuid::Uuid;

use super::Enqueued;
use super::columns::{PostgresCall, SQLITE_INSERT, sqlite_values};
use crate::error::Error;
use crate::message::Message;
use crate::schema::Schema;
use crate::statement::named;

/// A statement and what to bind to it: `$1`, `$2`, … in PostgreSQL, `?1`, `?2`, … in SQLite, in the order of `parameters`.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Statement<P> {
    /// Its text. It holds nothing from outside but the schema's name, which is checked and quoted.
    pub sql: Cow<'static, str>,
    /// What to bind.
    pub parameters: Vec<P>,
}

impl<P> Statement<P> {
    pub(crate) fn new(sql: impl Into<Cow<'static, str>>, parameters: Vec<P>) -> Self {
        Self { sql: sql.into(), parameters }
    }
}

/// An array parameter of a PostgreSQL statement, one element for each message or event. `None` is NULL in place of the
/// array: nobody has this column.
#[derive(Debug, Clone, PartialEq)]
pub enum PostgresArray<'a> {
    /// `text[]`
    Text(Option<Vec<Option<Cow<'a, str>>>>),
    /// `uuid[]`
    Uuid(Option<Vec<Option<Uuid>>>),
    /// `int4[]`
    Integer(Option<Vec<Option<i32>>>),
    /// `int8[]`
    BigInteger(Option<Vec<Option<i64>>>),
    /// `bytea[]`
    Bytes(Option<Vec<Option<&'a [u8]>>>),
}

impl PostgresArray<'_> {
    pub(crate) fn is_null(&self) -> bool {
        matches!(
            self,
            Self::Text(None) | Self::Uuid(None) | Self::Integer(None) | Self::BigInteger(None) | Self::Bytes(None)
        )
    }

    /// The array as PostgreSQL writes it, for a driver that binds no arrays, or none with a NULL inside: bind this text. The
    /// statement casts it.
    #[must_use]
    pub fn literal(&self) -> Option<String> {
        match self {
            Self::Text(texts) => literal(texts.as_deref(), |into, text| push_quoted(into, text)),
            Self::Uuid(ids) => literal(ids.as_deref(), |into, id| into.push_str(&id.to_string())),
            Self::Integer(numbers) => literal(numbers.as_deref(), |into, number| into.push_str(&number.to_string())),
            Self::BigInteger(numbers) => literal(numbers.as_deref(), |into, number| into.push_str(&number.to_string())),
            Self::Bytes(bytes) => literal(bytes.as_deref(), |into, bytes| push_hex(into, bytes)),
        }
    }
}

fn literal<T>(elements: Option<&[Option<T>]>, push: impl Fn(&mut String, &T)) -> Option<String> {
    let mut text = String::new();
    for element in elements? {
        text.push(if text.is_empty() { '{' } else { ',' });
        match element {
            Some(element) => push(&mut text, element),
            None => text.push_str("NULL"),
        }
    }
    text.push('}');
    Some(text)
}

fn push_quoted(into: &mut String, text: &str) {
    into.push('"');
    for character in text.chars() {
        if matches!(character, '"' | '\\') {
            into.push('\\');
        }
        into.push(character);
    }
    into.push('"');
}

/// A bytea's `\x…`, quoted.
fn push_hex(into: &mut String, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    into.push_str(r#""\\x"#);
    for byte in bytes {
        into.extend([byte >> 4, byte & 15].map(|digit| char::from(DIGITS[usize::from(digit)])));
    }
    into.push('"');
}

/// A parameter of a SQLite statement. A UUID is a blob of 16 bytes.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "the storage classes of SQLite")]
pub enum SqliteValue<'a> {
    Null,
    Integer(i64),
    Text(Cow<'a, str>),
    Blob(Cow<'a, [u8]>),
}

impl From<Uuid> for SqliteValue<'_> {
    fn from(id: Uuid) -> Self {
        Self::Blob(id.as_bytes().to_vec().into())
    }
}

impl<'a, T: Into<SqliteValue<'a>>> From<Option<T>> for SqliteValue<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

impl<'a> From<&'a str> for SqliteValue<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(text.into())
    }
}

impl From<i64> for SqliteValue<'_> {
    fn from(number: i64) -> Self {
        Self::Integer(number)
    }
}

/// Messages that were checked and are to be written, together or not at all: what [`super::Enqueue`] is given.
#[derive(Debug, Clone, Copy)]
pub struct Batch<'a> {
    schema: &'a Schema,
    messages: &'a [Message],
}

/// What became of a message that a SQLite driver just wrote, or found written.
const SQLITE_LOOKUP: &str = named!("sqlite", "enqueue", "enqueued");

impl<'a> Batch<'a> {
    pub(crate) fn new(schema: &'a Schema, messages: &'a [Message]) -> Self {
        Self { schema, messages }
    }

    /// For PostgreSQL: one statement for all messages. It answers with one row for each, in their order: `message_id`
    /// (uuid), `sequence_id` (int8, may be NULL) and `created` (bool), which make an [`Enqueued`].
    pub fn postgres(&self) -> Result<Statement<PostgresArray<'a>>, Error> {
        const ANSWER: &str = "select message_id, sequence_id, created from";
        let schema = self.schema.quoted();
        // One message goes by a function of its own, whose plans are made for one.
        let (sql, arrays) = match self.messages {
            [message] => {
                let PostgresCall { arguments, arrays } = PostgresCall::of_one(message)?;
                (format!("{ANSWER} {schema}.enqueue({arguments})"), arrays)
            }
            messages => {
                let PostgresCall { arguments, arrays } = PostgresCall::of_many(messages)?;
                (format!("{ANSWER} {schema}.enqueue_many({arguments}) order by ordinal"), arrays)
            }
        };
        Ok(Statement::new(sql, arrays))
    }

    /// For SQLite: what to run for each message, in their order. Run [`Self::SQLITE_BEGIN`] first and
    /// [`Self::SQLITE_KEEP`] last, or [`Self::SQLITE_UNDO`] if a statement fails.
    pub fn sqlite(&self) -> impl Iterator<Item = Result<SqliteInsert<'a>, Error>> + use<'a> {
        self.messages.iter().map(SqliteInsert::new)
    }

    /// A batch is written as a whole or not at all, whatever the caller does with the rest of its transaction. (Without a
    /// transaction, this is one.)
    pub const SQLITE_BEGIN: &'static str = "savepoint outbox_enqueue";
    /// Ends what [`Self::SQLITE_BEGIN`] began.
    pub const SQLITE_KEEP: &'static str = "release outbox_enqueue";
    /// Takes back what was written since [`Self::SQLITE_BEGIN`]: two statements. It may fail itself, and that means nothing:
    /// some errors (a full disk) have rolled back the whole transaction, and the savepoint with it.
    pub const SQLITE_UNDO: &'static str = "rollback to outbox_enqueue; release outbox_enqueue";
}

/// One message for a SQLite driver.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct SqliteInsert<'a> {
    /// Writes it; answers with no row.
    pub insert: Statement<SqliteValue<'a>>,
    /// Run after `insert`.
    pub answer: SqliteAnswer<'a>,
}

/// Where a SQLite driver learns what became of a message.
#[derive(Debug, Clone, PartialEq)]
pub enum SqliteAnswer<'a> {
    /// It has neither a lane nor a dedupe key, so there is nothing to ask.
    Known(Enqueued),
    /// This answers with one row: `message_id` (a blob), `sequence_id` (may be NULL) and `created` (0 or 1).
    Ask(Statement<SqliteValue<'a>>),
}

impl<'a> SqliteInsert<'a> {
    pub(crate) fn new(message: &'a Message) -> Result<Self, Error> {
        // In the order they are made, within this process: ties of the clock are kept in order by it.
        let id = Uuid::now_v7();
        let insert = Statement::new(SQLITE_INSERT.as_str(), sqlite_values(id, message)?);
        let answer = if message.lane.is_none() && message.dedupe_key.is_none() {
            SqliteAnswer::Known(Enqueued::new(id, None, true))
        } else {
            let key = [
                id.into(),
                message.namespace.as_deref().into(),
                message.topic.as_str().into(),
                message.tenant_id.as_deref().into(),
                message.dedupe_key.as_deref().into(),
            ];
            SqliteAnswer::Ask(Statement::new(SQLITE_LOOKUP, key.into()))
        };
        Ok(Self { insert, answer })
    }
}
