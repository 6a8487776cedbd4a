//! What lies over the boxes of `top`: the help, and everything about the selected line, with the commands that go on from
//! there.

use std::time::SystemTime;

use postrider::inspect::{AttemptCounts, DeadGroup, LaneState, LaneStatus, RelayRecord};
use ratatui::Frame;
use ratatui::layout::{Constraint, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Clear, Paragraph, Wrap};

use super::table::per_second;
use super::{boxed, style};
use crate::command::sinks::{breaker_words, state_words};
use crate::command::top::snapshot::{Picture, Sink};
use crate::command::top::state::{Pane, View};
use crate::format;
use crate::output::{Paint, printable};

/// Width of what lies over the boxes.
const WIDTH: u16 = 72;

const HELP: [(&str, &str); 12] = [
    ("↑ ↓  k j", "select a line; g and G the first and the last"),
    ("Tab  ← →", "the next box, the one before"),
    ("Enter", "everything about the selected line"),
    ("p", "pause the selected sink, or resume it"),
    ("r", "redrive the dead letters of the selected sink or group"),
    ("?", "this help"),
    ("q  Esc", "quit"),
    ("", ""),
    ("RATE", "what was delivered, over the last minute"),
    ("silent", "a relay that is late with its report"),
    ("unserved", "no relay that is alive delivers to this sink"),
    ("100k", "100,000 or a little more: a number that does not fit"),
];

pub(super) fn help(frame: &mut Frame<'_>) {
    let lines = HELP.iter().map(|(key, words)| {
        Line::from(vec![Span::styled(format!(" {key:<10}"), style(false, Paint::Strong)), Span::raw(*words)])
    });
    show(frame, "keys", lines.collect());
}

pub(super) fn details(frame: &mut Frame<'_>, picture: &Picture, view: &View) {
    let Some(line) = view.selected(view.pane, picture) else { return };
    let (title, facts) = match view.pane {
        Pane::Sinks => picture.sinks.get(line).map(|sink| sink_facts(sink, picture.now)),
        Pane::Dead => picture.groups.get(line).map(|group| group_facts(group, picture.now)),
        Pane::Lanes => picture.lanes.get(line).map(|lane| lane_facts(lane, picture.now)),
        Pane::Relays => picture.relays.get(line).map(|relay| relay_facts(relay, picture.now)),
    }
    .unwrap_or_default();
    let lines = facts.into_iter().filter(|(_, words)| !words.is_empty()).map(|(name, words)| {
        Line::from(vec![
            Span::styled(format!(" {name:<14}"), style(view.colour, Paint::Quiet)),
            Span::raw(printable(&words)),
        ])
    });
    show(frame, &printable(&title), lines.collect());
}

/// Over the middle of the screen, as high as it needs to be.
fn show(frame: &mut Frame<'_>, title: &str, lines: Vec<Line<'_>>) {
    let width = WIDTH.min(frame.area().width);
    let inner = usize::from(width.saturating_sub(2)).max(1);
    let rows: usize = lines.iter().map(|line| line.width().div_ceil(inner).max(1)).sum();
    // Words are wrapped whole, which may take a row more than the letters need.
    let height = u16::try_from(rows + 3).unwrap_or(u16::MAX);
    let area: Rect = frame.area().centered(Constraint::Length(width), Constraint::Length(height));
    frame.render_widget(Clear, area);
    frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: false }).block(boxed(title, true)), area);
}

type Facts = (String, Vec<(&'static str, String)>);

fn sink_facts(sink: &Sink, now: SystemTime) -> Facts {
    let (status, service) = (&sink.seen.status, &sink.seen.service);
    let window = format::window(format::seconds(status.recent_seconds));
    let last = |time: Option<SystemTime>| time.map_or_else(|| "none".to_owned(), |time| format::ago(now, time));
    let AttemptCounts { dispatched, retryable, failed, zombie_requeue } = status.recent;
    let facts = vec![
        ("state", state_words(&sink.seen).0),
        ("kind", service.kind.clone().unwrap_or_default()),
        (
            "relays",
            match service.reported_at {
                Some(at) => format!("{}, reported {}", service.relays, format::ago(now, at)),
                None => service.relays.to_string(),
            },
        ),
        ("breaker", breaker_words(service)),
        ("held", service.held.to_string()),
        ("rate limit", service.rate.map(|rate| format!("{rate}/s")).unwrap_or_default()),
        ("rate", sink.per_second.map(|rate| per_second(rate, usize::from(WIDTH))).unwrap_or_default()),
        ("pending", format!("{}, {} of them due now", status.pending, status.due)),
        ("leased", format!("{}, {} of them past the end of the lease", status.leased, status.expired)),
        ("dead", format!("{}; {} parked", status.dead, format::counted(status.parked_lanes, "lane"))),
        (
            "attempts",
            format!(
                "last {window}: {dispatched} delivered, {retryable} to retry, {failed} failed, {zombie_requeue} lost their lease"
            ),
        ),
        ("last success", last(status.last_success_at)),
        ("last error", last(status.last_error_at)),
        ("error", service.last_error.clone().unwrap_or_default()),
        ("go on with", format!("postrider dlq list --sink {}", status.sink)),
    ];
    (format!("sink {}", status.sink), facts)
}

fn group_facts(group: &DeadGroup, now: SystemTime) -> Facts {
    let facts = vec![
        ("dead", group.count.to_string()),
        ("topic", group.topic.clone()),
        ("reason", group.reason.to_string()),
        ("code", group.error_code.clone().unwrap_or_default()),
        ("first died", format::ago(now, group.first_died_at)),
        ("last died", format::ago(now, group.last_died_at)),
        ("last error", group.error_message.clone().unwrap_or_default()),
        ("go on with", format!("postrider dlq list --sink {} --topic {}", group.sink, group.topic)),
    ];
    (format!("dead letters of {}", group.sink), facts)
}

fn lane_facts(lane: &LaneStatus, now: SystemTime) -> Facts {
    let head = format!("#{}, {}", lane.head_sequence_id, lane.head_message_id);
    let parked = lane.state == LaneState::Parked;
    let facts = vec![
        ("sink", lane.sink.clone()),
        ("state", lane.state.as_str().to_owned()),
        ("depth", lane.depth.to_string()),
        ("head", head),
        ("attempts", lane.head_attempt_count.to_string()),
        ("due", lane.head_due_at.filter(|_| !parked).map(|due_at| format::due(now, due_at)).unwrap_or_default()),
        ("code", lane.head_error_code.clone().unwrap_or_default()),
        ("error", lane.head_error_message.clone().unwrap_or_default()),
        ("go on with", format!("postrider explain {}", lane.head_message_id)),
    ];
    (format!("lane {}", lane.lane), facts)
}

fn relay_facts(relay: &RelayRecord, now: SystemTime) -> Facts {
    let report = &relay.report;
    let mut facts = vec![
        ("state", if relay.silent { "silent: it is late with its report" } else { "alive" }.to_owned()),
        ("version", report.version.clone()),
        ("started", format::ago(now, relay.started_at)),
        ("reported", format::ago(now, relay.reported_at)),
    ];
    for sink in &report.sinks {
        let open = sink.open_for.map(|left| format!(" for {}", format::span(left))).unwrap_or_default();
        let breaker = sink.breaker.replace('_', " ");
        facts.push(("sink", format!("{} ({}): breaker {breaker}{open}, holds {}", sink.sink, sink.kind, sink.held)));
    }
    (format!("relay {}", report.worker_id), facts)
}
