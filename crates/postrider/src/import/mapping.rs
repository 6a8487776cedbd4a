//! How rows of another outbox become messages: a small declarative file, which names for each field of a message a column or an
//! SQL expression over a row. `postrider import` embeds one for each table that many have; users write their own. This file
//! checks that nothing is missing; whether the SQL fits the table, only the database can tell.

use serde::Deserialize;

use crate::error::{Error, ErrorKind};

/// A mapping, as its file says it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mapping {
    /// Its name, in lower case.
    pub name: String,
    /// What it is for, in a line.
    pub about: String,
    /// The table, as SQL names it; the name under which the import is known, and where new rows are forwarded from.
    pub table: String,
    /// A query whose rows are the messages; `{table}` stands for the table. All rows of the table, if not given.
    #[serde(default = "all_rows")]
    pub rows: String,
    /// What tells rows apart: unique, and never null.
    pub key: String,
    /// Which rows come first; rows of a lane without numbers of its own are numbered so. By the key, if not given.
    #[serde(default)]
    pub order: Vec<String>,
    /// Each field of the message.
    pub message: Fields,
    /// How new rows are forwarded, if not like any others.
    #[serde(default)]
    pub forward: Forward,
}

/// What the trigger of `--forward-sql` does.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Forward {
    /// A query over the new rows of the table, for which `{table}` stands; the mapping's own, if not given.
    pub rows: Option<String>,
}

/// The fields of a message: each an SQL expression over a row, which is called `o`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fields {
    /// `pending`, `claimed` (an old worker holds it), `delivered` or `dead`.
    #[serde(default = "pending")]
    pub state: String,
    /// What happened.
    pub topic: String,
    /// The id that receivers know; kept if it is a recent UUIDv7.
    pub id: Option<String>,
    /// The namespace.
    pub namespace: Option<String>,
    /// The tenant.
    pub tenant_id: Option<String>,
    /// The lane.
    pub lane: Option<String>,
    /// The number in the lane, if the old outbox gave one.
    pub sequence: Option<String>,
    /// The dedupe key.
    pub dedupe_key: Option<String>,
    /// Headers, a JSON object.
    pub headers: Option<String>,
    /// The payload, JSON; this or the body.
    pub payload: Option<String>,
    /// The body, bytes.
    pub body: Option<String>,
    /// The content type.
    pub content_type: Option<String>,
    /// When it happened.
    pub occurred_at: Option<String>,
    /// The priority.
    pub priority: Option<String>,
    /// When it is due.
    pub due_at: Option<String>,
    /// Attempts that were made.
    pub attempts: Option<String>,
    /// When the last attempt ended.
    pub ended_at: Option<String>,
    /// Of a dead one: `ATTEMPTS_EXHAUSTED`, or `FAILED`.
    pub dead_reason: Option<String>,
    /// The code of the last error.
    pub error_code: Option<String>,
    /// The text of the last error.
    pub error_message: Option<String>,
}

fn all_rows() -> String {
    "select t.* from {table} t".to_owned()
}

fn pending() -> String {
    "'pending'".to_owned()
}

impl Mapping {
    pub(super) fn check(&self) -> Result<(), Error> {
        let wrong = |what: &str| Err(Error::new(ErrorKind::Refused, format!("the mapping {:?} {what}", self.name)));
        if self.message.payload.is_none() && self.message.body.is_none() {
            return wrong("gives neither payload nor body");
        }
        if self.message.sequence.is_some() && self.message.lane.is_none() {
            return wrong("gives a sequence and no lane");
        }
        if self.key.trim().is_empty() || self.table.trim().is_empty() {
            return wrong("gives no table or no key");
        }
        Ok(())
    }

    /// The expressions that the rows are sorted by, the key last.
    pub(super) fn sort(&self) -> Vec<String> {
        self.order.iter().chain([&self.key]).map(|expression| format!("({expression})")).collect()
    }
}

impl Fields {
    /// A row in the words of the outbox: the fields of the type `import_row`, in its order.
    pub(super) fn row(&self, key: &str, schema: &str) -> String {
        let some = |expression: &str, kind: &str| format!("({expression})::{kind}");
        let maybe = |expression: &Option<String>, kind: &str| some(expression.as_deref().unwrap_or("null"), kind);
        let columns = [
            some(key, "text"),
            some(&self.state, "text"),
            maybe(&self.id, "text"),
            maybe(&self.namespace, "text"),
            some(&self.topic, "text"),
            maybe(&self.tenant_id, "text"),
            maybe(&self.lane, "text"),
            maybe(&self.sequence, "bigint"),
            maybe(&self.dedupe_key, "text"),
            maybe(&self.priority, "bigint"),
            maybe(&self.headers, "text"),
            maybe(&self.payload, "text"),
            maybe(&self.body, "bytea"),
            maybe(&self.content_type, "text"),
            maybe(&self.occurred_at, "timestamptz"),
            maybe(&self.due_at, "timestamptz"),
            maybe(&self.attempts, "bigint"),
            maybe(&self.ended_at, "timestamptz"),
            maybe(&self.dead_reason, "text"),
            maybe(&self.error_code, "text"),
            maybe(&self.error_message, "text"),
        ];
        format!("row({})::{schema}.import_row", columns.join(", "))
    }
}
