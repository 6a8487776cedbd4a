//! `postrider audit`: what operators did, newest first, a page at a time. The audit is append-only; nothing is changed.

use std::time::SystemTime;

use async_trait::async_trait;
use postrider::inspect::{AuditRecord, Cursor, PageRequest};
use serde_json::value::RawValue;

use super::OnOutbox;
use crate::exit_code::ExitCode;
use crate::failure::Result;
use crate::format;
use crate::output::{Column, Listing, Output, Paint, Text};
use crate::store::Opened;

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
    /// The next page: the cursor that the previous page printed
    #[arg(long, value_name = "CURSOR")]
    after: Option<Cursor>,
}

#[async_trait(?Send)]
impl OnOutbox for Args {
    async fn run(self: Box<Self>, outbox: Opened, output: &mut Output) -> Result<ExitCode> {
        let page = outbox.store.audit(&PageRequest { after: self.after, limit: self.limit }).await?;
        let now = outbox.store.now().await?;
        let listing = Listing {
            empty: "no operator has changed anything",
            columns: &COLUMNS,
            row: &|entry| row(entry, now),
            narrow: None,
            below: None,
        };
        output.listing(&page, &listing)
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
        Text::from(format::age(now, entry.at)),
        Text::from(&entry.actor),
        Text::from(entry.db_user.as_deref().unwrap_or_default()),
        Text::from(entry.action.as_str()),
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
