//! Imports messages from another outbox's table of the same database. Each batch is one statement that reads the old table with
//! the caller's rights and writes through `import_rows`, so that a row is imported once or not at all. Called by
//! the command line. It deletes nothing and changes no old table.

mod mapping;

use serde::Serialize;
use tokio_postgres::types::Type;

pub use self::mapping::{Fields, Forward, Mapping};
use crate::error::{Cause, Error, ErrorKind};
use crate::store::postgres::PostgresStore;
use crate::store::postgres::statement::{Answer, Parameter, matching, sql};
use crate::store::row::Row as _;

/// Rows of one batch, at most.
pub const MAX_IMPORT_ROWS: u32 = 5_000;
/// Payloads and bodies of one batch, as text, at most; one row is always taken. PostgreSQL's arrays end at a gigabyte.
const MAX_IMPORT_BYTES: i64 = 32 * 1024 * 1024;
/// The name that new rows have in the trigger.
const NEW_ROWS: &str = "postrider_new_rows";
/// A name in PostgreSQL, at most.
const MAX_NAME_BYTES: usize = 63;

/// What an import takes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ImportOptions {
    /// The old workers are stopped: what they held is pending. Otherwise it is refused.
    pub workers_stopped: bool,
    /// What is delivered is left out. Otherwise it is recorded, so that its dedupe key is known and it can be replayed.
    pub skip_delivered: bool,
}

/// A table of another outbox, and how its rows become messages.
pub struct Import {
    store: PostgresStore,
    mapping: Mapping,
    options: ImportOptions,
    /// The table's full name.
    source: String,
    source_id: Option<i32>,
    /// The types of what rows are sorted by.
    types: Vec<String>,
}

/// Where a batch ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark(Vec<String>);

/// Rows of one state, and what became of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Standing {
    /// What the mapping says of them.
    pub state: String,
    /// `pending`, `dead`, `delivered`, `duplicate` or `refused`; `None` if nothing yet.
    pub outcome: Option<String>,
    /// How many.
    pub rows: u64,
}

/// Rows that cannot be imported one by one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keys {
    /// Rows without a key or without a place in the order.
    pub missing: u64,
    /// Rows whose key another row has.
    pub repeated: u64,
}

/// What a batch did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Imported {
    /// Messages to be delivered.
    pub pending: u64,
    /// Dead letters.
    pub dead: u64,
    /// Messages that were delivered.
    pub delivered: u64,
    /// Rows whose dedupe key a message has already.
    pub duplicates: u64,
    /// Rows that cannot be carried.
    pub refused: u64,
    /// Rows that the next pass has.
    #[serde(skip)]
    pub left_over: u64,
}

/// What an import would do with some rows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Checked {
    /// `pending`, `dead`, `delivered`, `duplicate` or `refused`.
    pub outcome: String,
    /// Why it is refused.
    pub reason: Option<String>,
    /// How many.
    pub rows: u64,
    /// Keys of the first of them.
    pub examples: Vec<String>,
}

/// What the outbox has of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Arrived {
    /// Rows that became messages.
    pub imported: u64,
    /// Messages of them that the outbox has; less after they are pruned.
    pub messages: u64,
    /// Those that are still to be delivered.
    pub open: u64,
    /// Those that are dead letters.
    pub dead: u64,
}

impl Imported {
    /// Adds what another batch did.
    pub fn add(&mut self, other: Self) {
        self.pending += other.pending;
        self.dead += other.dead;
        self.delivered += other.delivered;
        self.duplicates += other.duplicates;
        self.refused += other.refused;
        self.left_over += other.left_over;
    }

    /// Rows that need no other look.
    #[must_use]
    pub fn settled(&self) -> u64 {
        self.pending + self.dead + self.delivered + self.duplicates
    }
}

impl Import {
    /// Finds the table, and whether the mapping fits it. `table`: another one than the mapping's.
    pub async fn open(
        store: &PostgresStore,
        mut mapping: Mapping,
        table: Option<String>,
        options: ImportOptions,
    ) -> Result<Self, Error> {
        mapping.check()?;
        mapping.table = table.unwrap_or(mapping.table);
        let rows = store.query(sql!("import", "source"), &[(&mapping.table, Type::TEXT)]).await?;
        let Some(row) = rows.first() else {
            let reason = format!("there is no table {} in this database", mapping.table);
            return Err(Error::new(ErrorKind::Refused, reason));
        };
        let (source, source_id) = (row.read("name")?, row.read("id")?);
        let mut import = Self { store: store.clone(), mapping, options, source, source_id, types: Vec::new() };
        let row = import.run(sql!("import", "types"), &[], None).await?;
        let row = row.first().ok_or_else(|| Error::new(ErrorKind::Unreadable, "the table's types are not known"))?;
        import.types = (0..row.len()).map(|place| row.at(place).map(readable)).collect::<Result<_, _>>()?;
        Ok(import)
    }

    /// The table's full name.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Whether the rows can be told apart and sorted. Reads the whole table.
    pub async fn keys(&self) -> Result<Keys, Error> {
        let answer = self.run(sql!("import", "keys"), &[], None).await?;
        let row = answer.first().ok_or_else(nothing)?;
        Ok(Keys { missing: row.at(0)?, repeated: row.at(1)? })
    }

    /// Rows by state and outcome. Reads the whole table.
    pub async fn standing(&self) -> Result<Vec<Standing>, Error> {
        let answer = self.run(sql!("import", "standing"), &[(&self.source_id, Type::INT4)], None).await?;
        answer.iter().map(|row| Ok(Standing { state: row.at(0)?, outcome: row.at(1)?, rows: row.at(2)? })).collect()
    }

    /// What the outbox has of it.
    pub async fn arrived(&self) -> Result<Arrived, Error> {
        let answer = self.store.change(sql!("import", "arrived"), &[(&self.source_id, Type::INT4)]).await?;
        let row = answer.first().ok_or_else(nothing)?;
        Ok(Arrived { imported: row.at(0)?, messages: row.at(1)?, open: row.at(2)?, dead: row.at(3)? })
    }

    /// Why rows were refused, the most frequent reasons first, with up to `examples` keys for each.
    pub async fn refusals(&self, examples: u16, reasons: u16) -> Result<Vec<Checked>, Error> {
        let (examples, reasons) = (i32::from(examples), i64::from(reasons));
        let parameters: &[Parameter<'_>] =
            &[(&self.source_id, Type::INT4), (&examples, Type::INT4), (&reasons, Type::INT8)];
        let answer = self.store.change(sql!("import", "refusals"), parameters).await?;
        let refused = answer.iter().map(|row| {
            Ok(Checked {
                outcome: "refused".to_owned(),
                reason: row.read("reason")?,
                rows: row.read("rows")?,
                examples: row.try_get("examples")?,
            })
        });
        refused.collect()
    }

    /// Notes the source and keeps the numbers of its lanes, once before the first batch.
    pub async fn begin(&mut self) -> Result<(), Error> {
        let parameters: &[Parameter<'_>] = &[(&self.source, Type::TEXT), (&self.mapping.key, Type::TEXT)];
        let answer = self.run(sql!("import", "begin"), parameters, None).await?;
        self.source_id = answer.value()?;
        Ok(())
    }

    /// The next batch after `mark`; `None`: there is no more.
    pub async fn batch(&self, actor: &str, mark: Option<&Mark>) -> Result<Option<(Mark, Imported)>, Error> {
        let answer = self.run_batch(matching!("import", "batch"), &[(&actor, Type::TEXT)], mark).await?;
        let Some(row) = answer.first() else { return Ok(None) };
        let mark = Mark(row.try_get("mark")?);
        let done = Imported {
            pending: row.read("pending")?,
            dead: row.read("dead")?,
            delivered: row.read("delivered")?,
            duplicates: row.read("duplicates")?,
            refused: row.read("refused")?,
            left_over: row.read("left_over")?,
        };
        Ok(Some((mark, done)))
    }

    /// What the next batch after `mark` would do, with up to `examples` keys for each reason; changes nothing.
    pub async fn check(&self, examples: u16, mark: Option<&Mark>) -> Result<Option<(Mark, Vec<Checked>)>, Error> {
        let examples = i32::from(examples);
        let answer = self.run_batch(matching!("import", "check"), &[(&examples, Type::INT4)], mark).await?;
        let Some(row) = answer.first() else { return Ok(None) };
        let mark = Mark(row.try_get("mark")?);
        let checked = answer.iter().map(|row| {
            Ok(Checked {
                outcome: row.read("outcome")?,
                reason: row.read("reason")?,
                rows: row.read("count")?,
                examples: row.try_get("source_keys")?,
            })
        });
        Ok(Some((mark, checked.collect::<Result<_, Error>>()?)))
    }

    /// A script that makes a trigger on the old table: new rows become messages in the transaction that writes them.
    #[must_use]
    pub fn forward_sql(&self) -> String {
        let rows = self.named(self.mapping.forward.rows.as_ref().unwrap_or(&self.mapping.rows), NEW_ROWS);
        let (schema, table) = self.place();
        let mut name = format!("postrider_forward_{}", table.trim_matches('"').replace("\"\"", "_"));
        name.truncate((0..=MAX_NAME_BYTES).rev().find(|end| name.is_char_boundary(*end)).unwrap_or(0));
        let function = format!("{schema}.\"{name}\"");
        let literal = |text: &str| format!("'{}'", text.replace('\'', "''"));
        let filled = fill(
            sql!("import", "forward"),
            &[
                ("forward_rows", &rows),
                ("function", &function),
                ("source_text", &literal(&self.source)),
                ("key_text", &literal(&self.mapping.key)),
                ("source", &self.source),
                ("order", &self.mapping.sort().join(", ")),
                ("row", &self.mapping.message.row(&self.mapping.key, &self.store.schema().quoted())),
            ],
        );
        // The first line is about the statement, not about the script.
        let script = filled.split_once('\n').map_or("", |(_, script)| script);
        self.store.schema().fill(&self.named(script, NEW_ROWS))
    }

    /// The table's schema and its bare name. A dot in a quoted name is part of it.
    fn place(&self) -> (&str, &str) {
        let quoted = self.source.ends_with('"').then(|| self.source.rfind(".\"")).flatten();
        let dot = quoted.or_else(|| self.source.rfind('.')).unwrap_or(0);
        (self.source.get(..dot).unwrap_or_default(), self.source.get(dot + 1..).unwrap_or_default())
    }

    /// A mapping's SQL with the names that it leaves open: its table, the table's schema, and the outbox's schema.
    fn named(&self, sql: &str, table: &str) -> String {
        let outbox = self.store.schema().quoted();
        sql.replace("{table}", table).replace("{schema}", self.place().0).replace("{outbox}", &outbox)
    }

    async fn run_batch(&self, template: &str, last: &[Parameter<'_>], mark: Option<&Mark>) -> Result<Answer, Error> {
        let rows = i64::from(MAX_IMPORT_ROWS);
        let mut parameters: Vec<Parameter<'_>> = vec![
            (&self.source_id, Type::INT4),
            (&rows, Type::INT8),
            (&MAX_IMPORT_BYTES, Type::INT8),
            (&self.source, Type::TEXT),
            (&self.options.workers_stopped, Type::BOOL),
            (&self.options.skip_delivered, Type::BOOL),
        ];
        parameters.extend(last.iter().map(|(value, kind)| (*value, kind.clone())));
        if let Some(Mark(mark)) = mark {
            parameters.push((mark, Type::TEXT_ARRAY));
        }
        self.run(template, &parameters, mark).await
    }

    /// Runs a statement with the mapping's SQL in it.
    async fn run(&self, template: &str, parameters: &[Parameter<'_>], mark: Option<&Mark>) -> Result<Answer, Error> {
        let statement = self.statement(template, mark.is_some());
        let answer = self.store.change(&statement, parameters).await;
        answer.map_err(|error| self.explain(error))
    }

    fn statement(&self, template: &str, goes_on: bool) -> String {
        let sort = self.mapping.sort();
        let numbered = |make: &dyn Fn(usize, &String) -> String, between: &str| {
            sort.iter().enumerate().map(|(place, expression)| make(place, expression)).collect::<Vec<_>>().join(between)
        };
        let marks = numbered(&|_, expression| format!("{expression}::text"), ", ");
        let after = if goes_on {
            let types = self.types.iter().enumerate();
            let values: Vec<String> = types.map(|(place, kind)| format!("($8[{}])::{kind}", place + 1)).collect();
            format!("({}) > ({})", sort.join(", "), values.join(", "))
        } else {
            "true".to_owned()
        };
        let null = |expression: &Option<String>| expression.clone().unwrap_or_else(|| "null".to_owned());
        let fields = &self.mapping.message;
        let filled = fill(
            template,
            &[
                ("rows", &self.mapping.rows),
                ("key", &format!("({})", self.mapping.key)),
                ("order", &sort.join(", ")),
                ("order_is_null", &numbered(&|_, expression| format!("{expression} is null"), " or ")),
                ("order_named", &numbered(&|place, expression| format!("{expression} as mark_{place}"), ", ")),
                ("types", &numbered(&|place, _| format!("pg_typeof(t.mark_{place})::text"), ", ")),
                ("marks", &marks),
                ("after", &after),
                ("state", &fields.state),
                ("lane", &null(&fields.lane)),
                ("sequence", &null(&fields.sequence)),
                ("row", &fields.row(&self.mapping.key, &self.store.schema().quoted())),
            ],
        );
        self.store.schema().fill(&self.named(&filled, &self.source))
    }

    /// What the database says about the mapping's SQL is the mapping's fault.
    fn explain(&self, error: Error) -> Error {
        let said = match error.cause() {
            Cause::Postgres(driver) => driver.as_db_error().filter(|db| db.code().code().starts_with("42")),
            _ => None,
        };
        match (said.map(tokio_postgres::error::DbError::message), error.kind(), error.reason()) {
            (Some(message), ..) | (None, ErrorKind::Refused, Some(message)) => {
                let words = format!("the mapping {:?} does not fit {}: {message}", self.mapping.name, self.source);
                Error::new(ErrorKind::Refused, words)
            }
            _ => error,
        }
    }
}

/// A type under the name that takes a value of any length: `character` alone means one character.
fn readable(name: String) -> String {
    match name.as_str() {
        "character" => "bpchar".to_owned(),
        "bit" => "varbit".to_owned(),
        _ => name,
    }
}

fn nothing() -> Error {
    Error::new(ErrorKind::Unreadable, "the database answered without a row")
}

/// Puts values in place of their names in braces, once: a value may have braces of its own.
fn fill(template: &str, values: &[(&str, &str)]) -> String {
    let mut filled = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('{') {
        filled.push_str(before);
        let value = after.split_once('}').and_then(|(name, end)| {
            let (_, value) = values.iter().find(|(known, _)| *known == name)?;
            Some((value, end))
        });
        if let Some((value, end)) = value {
            filled.push_str(value);
            rest = end;
        } else {
            filled.push('{');
            rest = after;
        }
    }
    filled.push_str(rest);
    filled
}

#[cfg(test)]
mod tests {
    use super::fill;

    #[test]
    fn a_value_is_put_in_once() {
        let values = [("key", "'{row}'"), ("row", "r")];
        assert_eq!(fill("select {key}, {row}, {other} { }", &values), "select '{row}', r, {other} { }");
    }
}
