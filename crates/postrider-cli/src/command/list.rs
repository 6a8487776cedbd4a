//! `postrider list`: messages and where each stands, newest first, a page at a time. Nothing is changed.

use std::time::SystemTime;

use async_trait::async_trait;
use postrider::inspect::{DeliveryState, IdTail, ListFilter, MAX_IDS_LOOKED_AT, MAX_LOOKED_AT, MessageSummary, Page};

use super::OnOutbox;
use crate::exit_code::ExitCode;
use crate::failure::Result;
use crate::filter::PageOptions;
use crate::format::{self, Moment, parse_moment};
use crate::options::words;
use crate::output::{Column, Columns, Listing, Output, Paint, Text};
use crate::store::Opened;

const AFTER_HELP: &str = "\
A message has one line for each sink that it waits for. When nothing is left to
deliver it has one line: discarded if it was discarded or cancelled for a sink,
else delivered. Searches by the other states do not read the history.

A search examines a limited number of messages and says how far it got. The end
of an id is searched in everything undelivered or dead, and in the newest 100,000
messages. A dedupe key can be found during its dedupe window.

Examples:
  postrider list --state dead
  postrider list --topic 'order.*' --limit 10
  postrider list --id 8930f0599708
  postrider list --dedupe-key 'order-7/placed'
  postrider list --from '2h ago' --to '1h ago' --namespace billing";

/// List messages, newest first
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Only messages in this state
    #[arg(long, value_parser = words(DeliveryState::ALL, DeliveryState::as_str))]
    state: Option<DeliveryState>,
    /// Only messages of this namespace
    #[arg(long, value_name = "NAME")]
    namespace: Option<String>,
    /// Only messages of this topic; * matches any characters
    #[arg(long)]
    topic: Option<String>,
    /// Only the message with this id, or whose id ends with these digits
    #[arg(long, value_name = "ID")]
    id: Option<IdTail>,
    /// Only messages with this dedupe key
    #[arg(long, value_name = "KEY")]
    dedupe_key: Option<String>,
    /// Only messages of this tenant
    #[arg(long)]
    tenant: Option<String>,
    /// Only messages in this lane
    #[arg(long)]
    lane: Option<String>,
    /// Only messages for this sink
    #[arg(long)]
    sink: Option<String>,
    /// Only messages enqueued at this time or later: RFC 3339, or "2h ago"
    #[arg(long, value_name = "TIME", value_parser = parse_moment)]
    from: Option<Moment>,
    /// Only messages enqueued before this time
    #[arg(long, value_name = "TIME", value_parser = parse_moment)]
    to: Option<Moment>,
    #[command(flatten)]
    page: PageOptions,
}

#[async_trait(?Send)]
impl OnOutbox for Args {
    async fn run(self: Box<Self>, outbox: Opened, output: &mut Output) -> Result<ExitCode> {
        let now = outbox.store.now().await?;
        let filter = ListFilter {
            state: self.state,
            id: self.id,
            dedupe_key: self.dedupe_key,
            namespace: self.namespace,
            from: self.from.map(|from| from.resolve(now)),
            to: self.to.map(|to| to.resolve(now)),
            topic: self.topic,
            tenant_id: self.tenant,
            lane: self.lane,
            sink: self.sink,
        };
        let limit = self.page.limit;
        let page = outbox.store.list(&filter, &self.page.request()).await?;
        let columns: Columns<'_, MessageSummary> = &[
            (Column::Whole("MESSAGE"), &|message| Text::from(message.message_id.to_string())),
            (Column::Right("AGE"), &|message| Text::from(format::age(now, message.enqueued_at))),
            (Column::Whole("STATE"), &|message| Text::new(message.state.as_str(), state_paint(message.state))),
            (Column::Left("TOPIC"), &|message| Text::from(topic(message))),
            (Column::Optional("LANE"), &|message| Text::from(lane(message))),
            (Column::Optional("SINK"), &|message| Text::from(sink(message))),
            (Column::Optional("NOTE"), &|message| Text::new(notes(message, now), Paint::Quiet)),
        ];
        // The optional columns go under the topic.
        let narrow: Columns<'_, MessageSummary> = &[
            columns[0],
            columns[1],
            columns[2],
            (Column::Left("TOPIC"), &|message| Text::from(topic(message)).below(&rest(message, now))),
        ];
        let below = searched(&filter, &page, limit);
        let listing = Listing { narrow: Some(narrow), below, ..Listing::new("no messages", columns) };
        output.listing(&page, &listing)
    }
}

/// How far a bounded search has come, and where to go on.
fn searched(filter: &ListFilter, page: &Page<MessageSummary>, limit: u32) -> Option<String> {
    let (cursor, back_to) = (page.next.as_ref()?, page.searched_from?);
    if page.items.len() >= usize::try_from(limit).unwrap_or(usize::MAX) {
        return None;
    }
    let (looked_at, also) = match filter.id {
        Some(_) => (MAX_IDS_LOOKED_AT, "all that is undelivered or dead, and "),
        None => (MAX_LOOKED_AT, ""),
    };
    let (looked_at, back_to) = (format::count(looked_at), format::clock(back_to));
    Some(format!("searched {also}the newest {looked_at} messages, back to {back_to}; older ones: --after {cursor}"))
}

fn topic(message: &MessageSummary) -> String {
    match message.namespace.as_str() {
        "default" => message.topic.clone(),
        namespace => format!("{namespace}/{}", message.topic),
    }
}

fn rest(message: &MessageSummary, now: SystemTime) -> String {
    let rest = [lane(message), sink(message).to_owned(), notes(message, now)];
    rest.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join(", ")
}

fn lane(message: &MessageSummary) -> String {
    match (&message.lane, message.sequence_id) {
        (Some(lane), Some(number)) => format!("{lane} #{number}"),
        (Some(lane), None) => lane.clone(),
        (None, _) => String::new(),
    }
}

/// Where everything goes to the one default sink, the column would only repeat the word.
fn sink(message: &MessageSummary) -> &str {
    message.sink.as_deref().filter(|sink| *sink != "default").unwrap_or_default()
}

fn notes(message: &MessageSummary, now: SystemTime) -> String {
    let mut notes = Vec::new();
    if let Some(attempts) = message.attempt_no.filter(|attempts| *attempts > 0) {
        notes.push(format::counted(attempts, "attempt"));
    }
    if let Some(due_at) = message.due_at.filter(|due_at| *due_at > now && message.state == DeliveryState::Pending) {
        notes.push(format::due(now, due_at));
    }
    notes.join(", ")
}

/// The colour of a state, the same in a list and in a message's story.
pub(super) fn state_paint(state: DeliveryState) -> Paint {
    match state {
        DeliveryState::Delivered => Paint::Good,
        DeliveryState::Leased => Paint::Warning,
        DeliveryState::Dead => Paint::Bad,
        DeliveryState::Pending | DeliveryState::Discarded => Paint::Plain,
    }
}
