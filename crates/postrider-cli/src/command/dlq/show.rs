//! Dead letters as a list, newest first, and as groups of one kind. Nothing is changed.

use std::time::SystemTime;

use postrider::Store;
use postrider::inspect::{Cursor, DeadGroup, DeadLetter, DeadReason, Page, PageRequest};

use crate::exit_code::ExitCode;
use crate::failure::Result;
use crate::filter::DeadOptions;
use crate::format;
use crate::output::{Column, Listing, Output, Paint, Text};

/// Most lines of one page: more belongs into a query of one's own.
const MAX_ROWS: i64 = 10_000;

/// What is said if there is nothing.
const NONE: &str = "no dead letters";

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
    which: DeadOptions,
    /// At most this many
    #[arg(long, value_name = "N", default_value_t = 50)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=MAX_ROWS))]
    limit: u32,
    /// The next page: the cursor that the previous page printed
    #[arg(long, value_name = "CURSOR")]
    after: Option<Cursor>,
}

/// Count dead letters by sink, topic, reason and code
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_GROUPS)]
pub(super) struct GroupsArgs {
    #[command(flatten)]
    pub(super) which: DeadOptions,
}

pub(super) async fn list(store: &dyn Store, args: ListArgs, output: &mut Output) -> Result<ExitCode> {
    let now = store.now().await?;
    let page = PageRequest { after: args.after, limit: args.limit };
    let page = store.dead_letters(&args.which.filter(now), &page).await?;
    let listing = Listing {
        empty: NONE,
        columns: &COLUMNS,
        row: &|letter| row(letter, now),
        narrow: Some((&NARROW, &|letter| narrow_row(letter, now))),
        below: None,
    };
    output.listing(&page, &listing)
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
        Text::from(format::age(now, letter.died_at)),
        Text::from(&letter.sink),
        Text::from(topic(letter)),
        Text::new(code(letter.reason, letter.error_code.as_deref()), Paint::Bad),
        Text::from(lane(letter)),
        Text::new(letter.error_message.as_deref().unwrap_or_default(), Paint::Quiet),
    ]
}

/// For a terminal that is too narrow: where it was going and why it died stand under the topic.
const NARROW: [Column; 3] = [COLUMNS[0], COLUMNS[1], COLUMNS[3]];

fn narrow_row(letter: &DeadLetter, now: SystemTime) -> Vec<Text> {
    let code = code(letter.reason, letter.error_code.as_deref()).to_owned();
    let error = letter.error_message.clone().unwrap_or_default();
    let more: Vec<String> =
        [letter.sink.clone(), lane(letter), code, error].into_iter().filter(|text| !text.is_empty()).collect();
    vec![
        Text::from(letter.message_id.to_string()),
        Text::from(format::age(now, letter.died_at)),
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
fn code(reason: DeadReason, error_code: Option<&str>) -> &str {
    error_code.filter(|code| !code.is_empty()).unwrap_or(reason.as_str())
}

fn lane(letter: &DeadLetter) -> String {
    let parked = if letter.parked { " parked" } else { "" };
    match (&letter.lane, letter.sequence_id) {
        (Some(lane), Some(number)) => format!("{lane} #{number}{parked}"),
        _ => String::new(),
    }
}

/// The groups, the largest first.
pub(super) async fn groups(store: &dyn Store, args: GroupsArgs, output: &mut Output) -> Result<ExitCode> {
    let now = store.now().await?;
    let page = Page::whole(store.dead_groups(&args.which.filter(now)).await?);
    let row = |group: &DeadGroup| group_row(group, now);
    output.listing(&page, &Listing { empty: NONE, columns: &GROUPS, row: &row, narrow: None, below: None })
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
        Text::from(code(group.reason, group.error_code.as_deref())),
        Text::from(format::age(now, group.last_died_at)),
        Text::new(group.error_message.as_deref().unwrap_or_default(), Paint::Quiet),
    ]
}
