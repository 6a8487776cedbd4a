//! Dead letters as a list, newest first, and as groups of one kind. Nothing is changed.

use std::time::SystemTime;

use postrider::{DeadGroup, DeadLetter, DeadPage, Store};
use serde::Serialize;
use uuid::Uuid;

use super::filter::Which;
use crate::exit_code::ExitCode;
use crate::failure::Result;
use crate::humane::{self, Moment, parse_moment};
use crate::output::{Column, Output, Paint, Text};

/// Most lines of one page: more belongs into a query of one's own.
const MAX_ROWS: i64 = 10_000;

const AFTER_LIST: &str = "\
`postrider explain ID` says why a message is dead, `postrider show ID` shows it.

Examples:
  postrider dlq list
  postrider dlq list --sink orders --from '2h ago' --limit 10
  postrider dlq list --error-code HTTP_422 --json | jq -r '.items[].message_id'";

const AFTER_GROUPS: &str = "\
One line for each sink, topic, reason and code; the largest groups first.

Examples:
  postrider dlq groups
  postrider dlq groups --sink orders --json";

/// List dead letters, newest first
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_LIST)]
pub(super) struct ListArgs {
    #[command(flatten)]
    which: Which,
    /// At most this many
    #[arg(long, value_name = "N", default_value_t = 50)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=MAX_ROWS))]
    limit: u32,
    /// The next page: the cursor that the previous page printed
    #[arg(long, value_name = "CURSOR", value_parser = parse_cursor)]
    after: Option<Cursor>,
}

/// Count dead letters by sink, topic, reason and code
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_GROUPS)]
pub(super) struct GroupsArgs {
    #[command(flatten)]
    pub(super) which: Which,
}

/// The last dead letter of a page: `TIME,ID,SINK`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Cursor(SystemTime, Uuid, String);

fn parse_cursor(text: &str) -> std::result::Result<Cursor, String> {
    let wrong = || format!("{text:?} is not a cursor: give what the page before named");
    let mut parts = text.splitn(3, ',');
    let (Some(time), Some(id), Some(sink)) = (parts.next(), parts.next(), parts.next()) else { return Err(wrong()) };
    let (Ok(Moment::At(time)), Ok(id)) = (parse_moment(time), id.parse()) else { return Err(wrong()) };
    Ok(Cursor(time, id, sink.to_owned()))
}

fn cursor(letter: &DeadLetter) -> String {
    format!("{},{},{}", humane::rfc3339(letter.died_at), letter.message_id, letter.sink)
}

pub(super) struct List {
    which: Which,
    page: DeadPage,
}

impl ListArgs {
    #[expect(clippy::unnecessary_wraps, reason = "every command is prepared the same way")]
    pub(super) fn prepare(self) -> Result<List> {
        let after = self.after.map(|Cursor(time, id, sink)| (time, id, sink));
        Ok(List { which: self.which, page: DeadPage { after, limit: self.limit } })
    }
}

#[derive(Serialize)]
struct ListDocument<'a> {
    items: Vec<LetterDocument<'a>>,
    next: Option<String>,
}

impl List {
    pub(super) async fn run(self, store: &dyn Store, output: &mut Output) -> Result<ExitCode> {
        let now = store.now().await?;
        let letters = store.dead_letters(&self.which.filter(now), &self.page).await?;
        let full = letters.len() >= usize::try_from(self.page.limit).unwrap_or(usize::MAX);
        let next = letters.last().filter(|_| full).map(cursor);
        if output.json {
            output.json(&ListDocument { items: letters.iter().map(LetterDocument::from).collect(), next })?;
            return Ok(ExitCode::Ok);
        }
        if letters.is_empty() {
            output.line("no dead letters")?;
            return Ok(ExitCode::Ok);
        }
        let rows: Vec<_> = letters.iter().map(|letter| row(letter, now)).collect();
        if output.fits(&COLUMNS, &rows) {
            output.table("", &COLUMNS, rows)?;
        } else {
            output.table("", &NARROW, letters.iter().map(|letter| narrow_row(letter, now)).collect())?;
        }
        if let Some(cursor) = next {
            let more = output.paint(Paint::Quiet, &format!("perhaps more: --after '{cursor}'"));
            output.line(more)?;
        }
        Ok(ExitCode::Ok)
    }
}

const COLUMNS: [Column; 7] = [
    Column::Whole("MESSAGE"),
    Column::Right("DIED"),
    Column::Left("SINK"),
    Column::Left("TOPIC"),
    Column::Left("CODE"),
    Column::Optional("LANE"),
    Column::Optional("ERROR"),
];

fn row(letter: &DeadLetter, now: SystemTime) -> Vec<Text> {
    vec![
        Text::from(letter.message_id.to_string()),
        Text::from(humane::age(now, letter.died_at)),
        Text::from(&letter.sink),
        Text::from(topic(letter)),
        Text::new(code(&letter.reason, letter.error_code.as_deref()), Paint::Bad),
        Text::from(lane(letter)),
        Text::new(letter.error_message.as_deref().unwrap_or_default(), Paint::Quiet),
    ]
}

/// For a terminal that is too narrow: where it was going and why it died stand under the topic.
const NARROW: [Column; 3] = [COLUMNS[0], COLUMNS[1], COLUMNS[3]];

fn narrow_row(letter: &DeadLetter, now: SystemTime) -> Vec<Text> {
    let code = code(&letter.reason, letter.error_code.as_deref()).to_owned();
    let error = letter.error_message.clone().unwrap_or_default();
    let more: Vec<String> =
        [letter.sink.clone(), lane(letter), code, error].into_iter().filter(|text| !text.is_empty()).collect();
    vec![
        Text::from(letter.message_id.to_string()),
        Text::from(humane::age(now, letter.died_at)),
        Text::from(topic(letter)).below(&more.join(", ")),
    ]
}

fn topic(letter: &DeadLetter) -> String {
    match letter.namespace.as_str() {
        "default" => letter.topic.clone(),
        namespace => format!("{namespace}/{}", letter.topic),
    }
}

/// The code says more than the reason, where there is one.
fn code<'a>(reason: &'a str, error_code: Option<&'a str>) -> &'a str {
    error_code.filter(|code| !code.is_empty()).unwrap_or(reason)
}

fn lane(letter: &DeadLetter) -> String {
    let parked = if letter.parked { " parked" } else { "" };
    match (&letter.lane, letter.sequence_id) {
        (Some(lane), Some(number)) => format!("{lane} #{number}{parked}"),
        _ => String::new(),
    }
}

/// The groups, the largest first.
pub(super) async fn groups(store: &dyn Store, which: &Which, output: &mut Output) -> Result<ExitCode> {
    let now = store.now().await?;
    let groups = store.dead_groups(&which.filter(now)).await?;
    if output.json {
        output.json(&GroupsDocument { items: groups.iter().map(GroupDocument::from).collect() })?;
    } else if groups.is_empty() {
        output.line("no dead letters")?;
    } else {
        output.table("", &GROUPS, groups.iter().map(|group| group_row(group, now)).collect())?;
    }
    Ok(ExitCode::Ok)
}

const GROUPS: [Column; 6] = [
    Column::Right("DEAD"),
    Column::Left("SINK"),
    Column::Left("TOPIC"),
    Column::Left("CODE"),
    Column::Right("LAST"),
    Column::Optional("ERROR"),
];

fn group_row(group: &DeadGroup, now: SystemTime) -> Vec<Text> {
    vec![
        Text::count(group.count, Paint::Bad),
        Text::from(&group.sink),
        Text::from(&group.topic),
        Text::from(code(&group.reason, group.error_code.as_deref())),
        Text::from(humane::age(now, group.last_died_at)),
        Text::new(group.error_message.as_deref().unwrap_or_default(), Paint::Quiet),
    ]
}

#[derive(Serialize)]
struct LetterDocument<'a> {
    message_id: Uuid,
    sink: &'a str,
    died_at: String,
    reason: &'a str,
    error_code: Option<&'a str>,
    error_message: Option<&'a str>,
    attempt_no: i32,
    attempt_count: i32,
    parked: bool,
    namespace: &'a str,
    topic: &'a str,
    tenant_id: Option<Uuid>,
    lane: Option<&'a str>,
    sequence_id: Option<i64>,
    occurred_at: String,
    payload_size_bytes: i64,
}

impl<'a> From<&'a DeadLetter> for LetterDocument<'a> {
    fn from(letter: &'a DeadLetter) -> Self {
        Self {
            message_id: letter.message_id,
            sink: &letter.sink,
            died_at: humane::rfc3339(letter.died_at),
            reason: &letter.reason,
            error_code: letter.error_code.as_deref(),
            error_message: letter.error_message.as_deref(),
            attempt_no: letter.attempt_no,
            attempt_count: letter.attempt_count,
            parked: letter.parked,
            namespace: &letter.namespace,
            topic: &letter.topic,
            tenant_id: letter.tenant_id,
            lane: letter.lane.as_deref(),
            sequence_id: letter.sequence_id,
            occurred_at: humane::rfc3339(letter.occurred_at),
            payload_size_bytes: letter.payload_size_bytes,
        }
    }
}

#[derive(Serialize)]
struct GroupsDocument<'a> {
    items: Vec<GroupDocument<'a>>,
}

#[derive(Serialize)]
struct GroupDocument<'a> {
    sink: &'a str,
    topic: &'a str,
    reason: &'a str,
    error_code: Option<&'a str>,
    count: i64,
    first_died_at: String,
    last_died_at: String,
    error_message: Option<&'a str>,
}

impl<'a> From<&'a DeadGroup> for GroupDocument<'a> {
    fn from(group: &'a DeadGroup) -> Self {
        Self {
            sink: &group.sink,
            topic: &group.topic,
            reason: &group.reason,
            error_code: group.error_code.as_deref(),
            count: group.count,
            first_died_at: humane::rfc3339(group.first_died_at),
            last_died_at: humane::rfc3339(group.last_died_at),
            error_message: group.error_message.as_deref(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_as_it_was_written() {
        let text = "2026-11-14T12:00:00.123456Z,019a8f3c-6b1e-7c02-9d55-0f2b6a3e8d41,a, b";
        let Cursor(time, id, sink) = parse_cursor(text).unwrap();
        assert_eq!(format!("{},{id},{sink}", humane::rfc3339(time)), text);
        for wrong in ["", "2h ago,019a8f3c-6b1e-7c02-9d55-0f2b6a3e8d41,x", "2026-11-14T12:00:00Z,x,y"] {
            assert!(parse_cursor(wrong).is_err(), "{wrong:?} was accepted");
        }
    }
}
