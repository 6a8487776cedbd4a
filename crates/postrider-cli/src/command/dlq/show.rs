//! Dead letters as a list, newest first, and as groups of one kind. Nothing is changed.

use postrider::Store;
use postrider::inspect::{DeadGroup, DeadLetter, DeadReason, Page};

use crate::exit_code::ExitCode;
use crate::failure::Result;
use crate::filter::{DeadOptions, PageOptions};
use crate::format;
use crate::output::{Column, Columns, Listing, Output, Paint, Text};

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
    #[command(flatten)]
    page: PageOptions,
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
    let page = store.dead_letters(&args.which.filter(now), &args.page.request()).await?;
    let columns: Columns<'_, DeadLetter> = &[
        (Column::Whole("MESSAGE"), &|letter| Text::from(letter.message_id.to_string())),
        (Column::Right("DIED"), &|letter| Text::from(format::age(now, letter.died_at))),
        (Column::Left("SINK"), &|letter| Text::from(&letter.sink)),
        (Column::Left("TOPIC"), &|letter| Text::from(topic(letter))),
        (Column::Left("CODE"), &|letter| Text::new(code(letter.reason, letter.error_code.as_deref()), Paint::Bad)),
        (Column::Optional("LANE"), &|letter| Text::from(lane(letter))),
        (Column::Optional("ERROR"), &|letter| error(letter.error_message.as_deref())),
    ];
    // Where it was going and why it died stand under the topic.
    let narrow: Columns<'_, DeadLetter> =
        &[columns[0], columns[1], (Column::Left("TOPIC"), &|letter| Text::from(topic(letter)).below(&rest(letter)))];
    output.listing(&page, &Listing { narrow: Some(narrow), ..Listing::new(NONE, columns) })
}

fn rest(letter: &DeadLetter) -> String {
    let code = code(letter.reason, letter.error_code.as_deref()).to_owned();
    let error = letter.error_message.clone().unwrap_or_default();
    let rest = [letter.sink.clone(), lane(letter), code, error].into_iter().filter(|text| !text.is_empty());
    rest.collect::<Vec<_>>().join(", ")
}

fn error(message: Option<&str>) -> Text {
    Text::new(message.unwrap_or_default(), Paint::Quiet)
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
    let columns: Columns<'_, DeadGroup> = &[
        (Column::Right("DEAD"), &|group| Text::count(group.count, Paint::Bad)),
        (Column::Left("SINK"), &|group| Text::from(&group.sink)),
        (Column::Left("TOPIC"), &|group| Text::from(&group.topic)),
        (Column::Left("CODE"), &|group| Text::from(code(group.reason, group.error_code.as_deref()))),
        (Column::Right("LAST"), &|group| Text::from(format::age(now, group.last_died_at))),
        (Column::Optional("ERROR"), &|group| error(group.error_message.as_deref())),
    ];
    output.listing(&page, &Listing::new(NONE, columns))
}
