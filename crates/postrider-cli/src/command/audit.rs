//! `postrider audit`: what operators did, newest first, a page at a time. The audit is append-only; nothing is changed.

use async_trait::async_trait;
use postrider::inspect::AuditRecord;
use serde_json::value::RawValue;

use super::OnOutbox;
use crate::exit_code::ExitCode;
use crate::failure::Result;
use crate::filter::PageOptions;
use crate::format;
use crate::output::{Column, Columns, Listing, Output, Paint, Text};
use crate::store::Opened;

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
    #[command(flatten)]
    page: PageOptions,
}

#[async_trait(?Send)]
impl OnOutbox for Args {
    async fn run(self: Box<Self>, outbox: Opened, output: &mut Output) -> Result<ExitCode> {
        let page = outbox.store.audit(&self.page.request()).await?;
        let now = outbox.store.now().await?;
        let columns: Columns<'_, AuditRecord> = &[
            (Column::Right("NO"), &|entry| Text::from(entry.id.to_string())),
            (Column::Right("AGE"), &|entry| Text::from(format::age(now, entry.at))),
            (Column::Left("WHO"), &|entry| Text::from(&entry.actor)),
            (Column::Optional("LOGIN"), &|entry| Text::from(entry.db_user.as_deref().unwrap_or_default())),
            (Column::Left("ACTION"), &|entry| Text::from(entry.action.as_str())),
            (Column::Right("CHANGED"), &|entry| Text::count(entry.affected, Paint::Plain)),
            (Column::Left("DETAIL"), &|entry| Text::new(detail(&entry.detail), Paint::Quiet)),
        ];
        output.listing(&page, &Listing::new("no operator has changed anything", columns))
    }
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
