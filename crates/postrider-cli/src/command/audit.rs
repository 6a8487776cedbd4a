//! `postrider audit`: what operators did, newest first, a page at a time. The audit is append-only; nothing is changed.

use std::time::SystemTime;

use postrider::AuditRecord;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::exit_code::ExitCode;
use crate::failure::Result;
use crate::humane;
use crate::options::Global;
use crate::output::{Column, Output, Paint, Text};
use crate::store::{Address, Missing, Opened};

/// Most lines of one page: more belongs into a query of one's own.
const MAX_ROWS: i64 = 10_000;

const AFTER_HELP: &str = "\
Every redrive, discard, cancel, retry-now, skip, replay, pause, resume,
unclaim-stuck, prune and route change is recorded in its own transaction, also
by SQL, and so is a message that is enqueued over the admin API. WHO is what the
caller says: user@host here, the token's name in the admin API, else the login.
LOGIN is the database login.

Examples:
  postrider audit
  postrider audit --limit 10 --json | jq '.items[] | {at, actor, action}'";

/// Show what operators did, newest first
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// At most this many
    #[arg(long, value_name = "N", default_value_t = 50)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=MAX_ROWS))]
    limit: u32,
    /// Only entries before this one (the next page)
    #[arg(long, value_name = "NUMBER")]
    before: Option<i64>,
}

pub(crate) struct Prepared {
    address: Address,
    limit: u32,
    before: Option<i64>,
}

impl Args {
    pub(crate) fn prepare(self, global: &Global) -> Result<Prepared> {
        Ok(Prepared { address: global.address()?, limit: self.limit, before: self.before })
    }
}

impl Prepared {
    pub(crate) async fn run(self, output: &mut Output) -> Result<ExitCode> {
        let Opened { store, .. } = self.address.open(Missing::Refuse).await?;
        let entries = store.audit(self.before, self.limit).await?;
        let full = entries.len() >= usize::try_from(self.limit).unwrap_or(usize::MAX);
        let next_before = entries.last().filter(|_| full).map(|last| last.id);
        if output.json {
            output.json(&Document { items: entries.iter().map(EntryDocument::from).collect(), next_before })?;
        } else if entries.is_empty() {
            output.line("no operator has changed anything")?;
        } else {
            let now = store.now().await?;
            output.table("", &COLUMNS, entries.iter().map(|entry| row(entry, now)).collect())?;
            if let Some(id) = next_before {
                let more = output.paint(Paint::Quiet, &format!("perhaps more: --before {id}"));
                output.line(more)?;
            }
        }
        Ok(ExitCode::Ok)
    }
}

const COLUMNS: [Column; 7] = [
    Column::Right("NO"),
    Column::Right("AGE"),
    Column::Left("WHO"),
    Column::Optional("LOGIN"),
    Column::Left("ACTION"),
    Column::Right("CHANGED"),
    Column::Left("DETAIL"),
];

fn row(entry: &AuditRecord, now: SystemTime) -> Vec<Text> {
    vec![
        Text::from(entry.id.to_string()),
        Text::from(humane::age(now, entry.at)),
        Text::from(&entry.actor),
        Text::from(entry.db_user.as_deref().unwrap_or_default()),
        Text::from(&entry.action),
        Text::count(entry.affected, Paint::Plain),
        Text::new(detail(&entry.detail), Paint::Quiet),
    ]
}

/// `sink=orders topic=order.placed`: what was asked for, without what was not given.
fn detail(detail: &RawValue) -> String {
    let mut words = Vec::new();
    if let Ok(value) = serde_json::from_str(detail.get()) {
        flatten("", &value, &mut words);
    }
    words.join(" ")
}

fn flatten(name: &str, value: &serde_json::Value, words: &mut Vec<String>) {
    match value {
        serde_json::Value::Object(members) => {
            for (name, value) in members {
                flatten(name, value, words);
            }
        }
        serde_json::Value::Null => {}
        serde_json::Value::String(text) => words.push(format!("{name}={text}")),
        serde_json::Value::Array(items) if items.len() > 1 => words.push(format!("{name}={} of them", items.len())),
        serde_json::Value::Array(items) => items.iter().for_each(|item| flatten(name, item, words)),
        other => words.push(format!("{name}={other}")),
    }
}

#[derive(Serialize)]
struct Document<'a> {
    items: Vec<EntryDocument<'a>>,
    next_before: Option<i64>,
}

#[derive(Serialize)]
struct EntryDocument<'a> {
    id: i64,
    at: String,
    actor: &'a str,
    db_user: Option<&'a str>,
    action: &'a str,
    detail: &'a RawValue,
    affected: i64,
}

impl<'a> From<&'a AuditRecord> for EntryDocument<'a> {
    fn from(entry: &'a AuditRecord) -> Self {
        Self {
            id: entry.id,
            at: humane::rfc3339(entry.at),
            actor: &entry.actor,
            db_user: entry.db_user.as_deref(),
            action: &entry.action,
            detail: &entry.detail,
            affected: entry.affected,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_action_is_told_in_a_few_words() {
        let told = |json: &str| detail(&RawValue::from_string(json.to_owned()).unwrap());
        assert_eq!(told(r#"{"sink":"orders"}"#), "sink=orders");
        assert_eq!(
            told(r#"{"sink":"a","message_ids":["x","y"],"at_most":10,"to":null}"#),
            "at_most=10 message_ids=2 of them sink=a"
        );
    }
}
