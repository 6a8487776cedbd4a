//! The picture of `top`: four boxes that fit into 80 columns and 24 rows, grow with the terminal and leave columns out
//! where it is narrower, and what lies over them. Pure: it is given the numbers and asks nobody. Colours are the terminal's
//! own, so that light and dark both work.

mod details;
mod table;
#[cfg(test)]
pub(super) mod tests;

use std::time::{Duration, SystemTime};

use postrider::inspect::{DeadGroup, LaneState, LaneStatus, RelayRecord};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, BorderType, Paragraph, TableState};

use self::table::{Column, Value, number, text};
use super::snapshot::{Picture, Sink};
use super::state::{Over, Pane, View};
use crate::command::{lanes, sinks};
use crate::format::{self, counted};
use crate::output::{Paint, printable};

/// Rows of the sinks' box: it grows with the sinks, but leaves room for the others.
const SINK_ROWS: u16 = 5;
/// Border and heading of a box.
const FRAME_ROWS: u16 = 3;
/// From this width on lanes and relays stand side by side.
const SIDE_BY_SIDE_COLUMNS: u16 = 72;
/// From this width on the breaker is shown, and how old it is.
const WIDE_COLUMNS: u16 = 78;
/// The program's name, which the right end of the title never covers.
const NAME_CHARS: u16 = 15;
/// Answers older than this are told to be old.
const STALE: Duration = Duration::from_secs(5);

/// Everything on the screen.
pub(super) fn draw(frame: &mut Frame<'_>, picture: &Picture, view: &mut View) {
    let area = frame.area();
    let sinks = u16::try_from(picture.sinks.len()).unwrap_or(u16::MAX).clamp(1, SINK_ROWS.max(area.height / 4));
    let [title, sinks, dead, rest, keys] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(sinks + FRAME_ROWS),
        Constraint::Fill(1),
        Constraint::Fill(if area.width >= SIDE_BY_SIDE_COLUMNS { 1 } else { 2 }),
        Constraint::Length(1),
    ])
    .areas(area);
    let halves = [Constraint::Percentage(50), Constraint::Percentage(50)];
    let side_by_side = area.width >= SIDE_BY_SIDE_COLUMNS;
    let [lanes, relays] = if side_by_side { Layout::horizontal(halves) } else { Layout::vertical(halves) }.areas(rest);
    draw_title(frame, title, picture, view.colour);
    draw_sinks(frame, sinks, picture, view);
    draw_dead(frame, dead, picture, view);
    draw_lanes(frame, lanes, picture, view);
    draw_relays(frame, relays, picture, view);
    draw_footer(frame, keys, view);
    match view.over {
        Over::Help => details::help(frame),
        Over::Details => details::details(frame, picture, view),
        Over::Nothing | Over::Confirm(..) => {}
    }
}

/// The style of a meaning; without colour only what is strong or quiet is left.
fn style(colour: bool, paint: Paint) -> Style {
    match paint {
        Paint::Plain => Style::new(),
        Paint::Strong => Style::new().add_modifier(Modifier::BOLD),
        Paint::Quiet => Style::new().add_modifier(Modifier::DIM),
        Paint::Good | Paint::Warning | Paint::Bad if !colour => Style::new(),
        Paint::Good => Style::new().fg(Color::Green),
        Paint::Warning => Style::new().fg(Color::Yellow),
        Paint::Bad => Style::new().fg(Color::Red),
    }
}

fn boxed(title: &str, chosen: bool) -> Block<'static> {
    let border = if chosen { Style::new() } else { style(false, Paint::Quiet) };
    Block::bordered()
        .border_type(BorderType::Rounded)
        .border_style(border)
        .title(Span::styled(format!(" {title} "), style(false, Paint::Strong)))
}

fn draw_title(frame: &mut Frame<'_>, area: Rect, picture: &Picture, colour: bool) {
    let left = Line::from(vec![
        Span::styled(" postrider top", style(colour, Paint::Strong)),
        Span::styled(format!("  {}", printable(&picture.place)), style(colour, Paint::Quiet)),
    ]);
    frame.render_widget(left, area);
    let age = picture.seen.map(|seen| seen.elapsed());
    let (words, paint) = match (&picture.trouble, age) {
        (Some(trouble), _) => (printable(trouble), Paint::Bad),
        (None, None) => ("looking …".to_owned(), Paint::Quiet),
        (None, Some(age)) if age > STALE => (format!("{} old", format::span(age)), Paint::Warning),
        (None, Some(_)) => (
            format::clock(picture.now).replace('T', " ").split('.').next().unwrap_or_default().to_owned(),
            Paint::Quiet,
        ),
    };
    let width = u16::try_from(words.chars().count() + 2).unwrap_or(u16::MAX).min(area.width.saturating_sub(NAME_CHARS));
    let right = Rect { x: area.right() - width, width, ..area };
    frame.render_widget(Line::from(Span::styled(format!(" {words} "), style(colour, paint))), right);
}

/// A table with a heading; the selected line is marked in the chosen box.
fn draw_table(
    frame: &mut Frame<'_>,
    area: Rect,
    (pane, title): (Pane, &str),
    columns: &[Column],
    rows: Vec<Vec<Value>>,
    (picture, view): (&Picture, &View),
) {
    let chosen = view.pane == pane;
    if rows.is_empty() {
        let words = Span::styled(format!(" {}", pane.empty_words(picture)), style(view.colour, Paint::Quiet));
        frame.render_widget(Paragraph::new(words).block(boxed(title, chosen)), area);
        return;
    }
    let mark = if chosen { Style::new().add_modifier(Modifier::REVERSED) } else { Style::new() };
    let block = boxed(title, chosen);
    let table = table::table(columns, rows, block.inner(area).width).row_highlight_style(mark).block(block);
    let mut state = TableState::new().with_selected(view.selected(pane, picture));
    frame.render_stateful_widget(table, area, &mut state);
}

fn words(text: impl AsRef<str>, style: Style) -> Value {
    Value::Text(text.as_ref().to_owned(), style)
}

/// A count that is quiet at zero and has the given meaning above.
fn amount(value: i64, colour: bool, above_zero: Paint) -> Value {
    let value = u64::try_from(value).unwrap_or(0);
    Value::Count(value, style(colour, if value == 0 { Paint::Quiet } else { above_zero }))
}

/// How a sink is doing and what waits come first; the breaker is in the state already.
const SINK_COLUMNS: [Column; 9] = [
    text("SINK", 0, 8, u16::MAX),
    number("PENDING", 2, 7),
    number("DUE", 4, 7),
    number("LEASED", 6, 6),
    number("DEAD", 3, 6),
    number("OLDEST", 5, 6),
    number("RATE", 7, 7),
    text("BREAKER", 8, 9, 9),
    text("STATE", 1, 12, 12),
];

fn draw_sinks(frame: &mut Frame<'_>, area: Rect, picture: &Picture, view: &View) {
    let rows = picture.sinks.iter().map(|sink| sink_row(sink, view.colour)).collect();
    let parked = match picture.sinks.iter().map(|sink| sink.seen.status.parked_lanes).sum::<i64>() {
        0 => String::new(),
        parked => format!(": {} parked", counted(u64::try_from(parked).unwrap_or(0), "lane")),
    };
    // What relays say is a few seconds older than what the store says.
    let reported = picture.sinks.iter().filter_map(|sink| sink.seen.service.reported_at).min();
    let reported = reported.map(|at| format!(" (breaker as of {})", format::ago(picture.now, at)));
    let title = format!("sinks{parked}{}", reported.filter(|_| area.width >= WIDE_COLUMNS).unwrap_or_default());
    draw_table(frame, area, (Pane::Sinks, &title), &SINK_COLUMNS, rows, (picture, view));
}

fn sink_row(sink: &Sink, colour: bool) -> Vec<Value> {
    let (status, service) = (&sink.seen.status, &sink.seen.service);
    let quiet = style(colour, Paint::Quiet);
    let (state, state_paint) = sinks::state_words(&sink.seen);
    let moves = sink.per_second.is_some_and(|rate| rate > 0.0);
    vec![
        words(&status.sink, Style::new()),
        amount(status.pending, colour, Paint::Plain),
        amount(status.due, colour, Paint::Plain),
        amount(status.leased, colour, if status.expired > 0 { Paint::Warning } else { Paint::Plain }),
        amount(status.dead, colour, Paint::Bad),
        words(oldest(sink), if status.pending + status.leased == 0 { quiet } else { Style::new() }),
        Value::Rate(sink.per_second, if moves { style(colour, Paint::Good) } else { quiet }),
        words(sinks::breaker_words(service), style(colour, sinks::breaker_paint(service))),
        words(state, style(colour, state_paint)),
    ]
}

/// How long ago the oldest that is not delivered occurred, in one unit.
fn oldest(sink: &Sink) -> String {
    let status = &sink.seen.status;
    if status.pending + status.leased == 0 {
        return "-".to_owned();
    }
    let age = format::seconds(status.oldest_pending_age_seconds);
    format::age(SystemTime::UNIX_EPOCH + age, SystemTime::UNIX_EPOCH)
}

const DEAD_COLUMNS: [Column; 6] = [
    number("DEAD", 0, 6),
    text("SINK", 1, 8, 12),
    text("TOPIC", 2, 12, 20),
    text("CODE", 3, 8, 14),
    number("LAST", 4, 4),
    text("ERROR", 5, 12, u16::MAX),
];

fn draw_dead(frame: &mut Frame<'_>, area: Rect, picture: &Picture, view: &View) {
    let rows = picture.groups.iter().map(|group| group_row(group, picture.now, view.colour)).collect();
    draw_table(frame, area, (Pane::Dead, "dead letters"), &DEAD_COLUMNS, rows, (picture, view));
}

fn group_row(group: &DeadGroup, now: SystemTime, colour: bool) -> Vec<Value> {
    vec![
        amount(group.count, colour, Paint::Bad),
        words(&group.sink, Style::new()),
        words(&group.topic, Style::new()),
        words(group.error_code.as_deref().unwrap_or(group.reason.as_str()), Style::new()),
        words(format::age(now, group.last_died_at), Style::new()),
        words(group.error_message.as_deref().unwrap_or_default(), style(colour, Paint::Quiet)),
    ]
}

const LANE_COLUMNS: [Column; 4] =
    [text("SINK", 3, 6, 8), text("LANE", 0, 10, 18), number("DEPTH", 1, 6), text("NOTE", 2, 9, u16::MAX)];

fn draw_lanes(frame: &mut Frame<'_>, area: Rect, picture: &Picture, view: &View) {
    let rows = picture.lanes.iter().map(|lane| lane_row(lane, picture.now, view.colour)).collect();
    draw_table(frame, area, (Pane::Lanes, "stuck lanes"), &LANE_COLUMNS, rows, (picture, view));
}

fn lane_row(lane: &LaneStatus, now: SystemTime, colour: bool) -> Vec<Value> {
    let note = match lane.state {
        LaneState::Parked => "parked".to_owned(),
        // Half a screen is narrow.
        _ => lanes::note(lane, now).trim_start_matches("due ").to_owned(),
    };
    vec![
        words(&lane.sink, Style::new()),
        words(&lane.lane, Style::new()),
        amount(lane.depth, colour, Paint::Plain),
        words(note, style(colour, lanes::state_paint(lane.state))),
    ]
}

const RELAY_COLUMNS: [Column; 4] =
    [text("RELAY", 0, 10, u16::MAX), number("HELD", 3, 6), number("SEEN", 2, 5), text("STATE", 1, 6, 6)];

fn draw_relays(frame: &mut Frame<'_>, area: Rect, picture: &Picture, view: &View) {
    let rows = picture.relays.iter().map(|relay| relay_row(relay, picture.now, view.colour)).collect();
    draw_table(frame, area, (Pane::Relays, "relays"), &RELAY_COLUMNS, rows, (picture, view));
}

fn relay_row(relay: &RelayRecord, now: SystemTime, colour: bool) -> Vec<Value> {
    let held: u64 = relay.report.sinks.iter().map(|sink| sink.held).sum();
    let state = if relay.silent { ("silent", Paint::Bad) } else { ("alive", Paint::Good) };
    vec![
        words(&relay.report.worker_id, Style::new()),
        amount(i64::try_from(held).unwrap_or(i64::MAX), colour, Paint::Plain),
        words(format::age(now, relay.reported_at), Style::new()),
        words(state.0, style(colour, state.1)),
    ]
}

/// Those that do not fit are in the help.
const KEYS: [(&str, &str); 6] =
    [("q", "quit"), ("?", "help"), ("Tab", "box"), ("Enter", "details"), ("p", "pause"), ("r", "redrive")];

fn draw_footer(frame: &mut Frame<'_>, area: Rect, view: &View) {
    let key = |key: &str| Span::styled(format!(" {key} "), Style::new().add_modifier(Modifier::REVERSED));
    if let Over::Confirm(which, letters) = &view.over {
        let letters = counted(*letters, "dead letter");
        let topic = which.topic.as_ref().map(|topic| format!(", topic {topic}")).unwrap_or_default();
        let sink = which.sink.as_deref().unwrap_or_default();
        let asked = printable(&format!(" redrive {letters} of sink {sink}{topic}? "));
        let question = Span::styled(asked, style(view.colour, Paint::Warning).add_modifier(Modifier::BOLD));
        frame
            .render_widget(Line::from(vec![question, key("y"), Span::raw(" yes  "), key("n"), Span::raw(" no")]), area);
        return;
    }
    if let Some(words) = &view.words {
        frame.render_widget(
            Line::from(Span::styled(format!(" {}", printable(words)), style(view.colour, Paint::Strong))),
            area,
        );
        return;
    }
    let mut keys = Line::default();
    for (name, words) in KEYS {
        let more = [key(name), Span::raw(format!(" {words}  "))];
        if keys.width() + more.iter().map(Span::width).sum::<usize>() > usize::from(area.width) {
            break;
        }
        keys.extend(more);
    }
    frame.render_widget(keys, area);
}
