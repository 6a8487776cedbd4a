//! The picture of `top`: four boxes that fit into 80 columns and 24 rows and grow with the terminal, and what lies over
//! them. Pure: it is given the numbers and asks nobody. Colours are the terminal's own, so that light and dark both work.

mod details;
#[cfg(test)]
pub(super) mod tests;

use std::time::{Duration, SystemTime};

use postrider::{DeadGroup, LaneState, LaneStatus, RelayRecord};
use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, BorderType, Cell, Paragraph, Row, Table, TableState};

use super::look::{Picture, Sink};
use super::state::{Over, Pane, View};
use crate::command::lanes;
use crate::humane::{self, count, counted};
use crate::output::{Paint, printable};

/// Rows of the sinks' box: it grows with the sinks, but leaves room for the others.
const SINK_ROWS: u16 = 5;
/// Border and heading of a box.
const FRAME_ROWS: u16 = 3;
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
        Constraint::Fill(1),
        Constraint::Length(1),
    ])
    .areas(area);
    let [lanes, relays] = Layout::horizontal([Constraint::Percentage(50), Constraint::Percentage(50)]).areas(rest);
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
        (None, Some(age)) if age > STALE => (format!("{} old", humane::span(age)), Paint::Warning),
        (None, Some(_)) => (
            humane::clock(picture.now).replace('T', " ").split('.').next().unwrap_or_default().to_owned(),
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
    (heading, widths): (&[&'static str], &[Constraint]),
    rows: Vec<Row<'static>>,
    (picture, view): (&Picture, &View),
) {
    let chosen = view.pane == pane;
    if rows.is_empty() {
        let words = Span::styled(format!(" {}", pane.empty_words(picture)), style(view.colour, Paint::Quiet));
        frame.render_widget(Paragraph::new(words).block(boxed(title, chosen)), area);
        return;
    }
    let mark = if chosen { Style::new().add_modifier(Modifier::REVERSED) } else { Style::new() };
    let heading = heading.iter().zip(widths).map(|(name, width)| match width {
        Constraint::Length(_) if name.starts_with('>') => {
            right(name.trim_start_matches('>').to_owned(), style(false, Paint::Quiet))
        }
        _ => Cell::from(Span::styled(*name, style(false, Paint::Quiet))),
    });
    let table = Table::new(rows, widths.iter().copied())
        .header(Row::new(heading.collect::<Vec<_>>()))
        .column_spacing(1)
        .row_highlight_style(mark)
        .block(boxed(title, chosen));
    let mut state = TableState::new().with_selected(view.selected(pane, picture));
    frame.render_stateful_widget(table, area, &mut state);
}

fn left(text: impl AsRef<str>, style: Style) -> Cell<'static> {
    Cell::from(Span::styled(printable(text.as_ref()), style))
}

fn right(text: String, style: Style) -> Cell<'static> {
    Cell::from(Line::from(Span::styled(text, style)).alignment(Alignment::Right))
}

/// A count that is quiet at zero and has the given meaning above.
fn number(value: i64, colour: bool, above_zero: Paint) -> Cell<'static> {
    let value = u64::try_from(value).unwrap_or(0);
    right(count(value), style(colour, if value == 0 { Paint::Quiet } else { above_zero }))
}

const SINK_HEADING: [&str; 9] =
    ["SINK", ">PENDING", ">DUE", ">LEASED", ">DEAD", ">OLDEST", ">RATE", "BREAKER", "STATE"];
const SINK_WIDTHS: [Constraint; 9] = [
    Constraint::Min(8),
    Constraint::Length(9),
    Constraint::Length(9),
    Constraint::Length(6),
    Constraint::Length(6),
    Constraint::Length(6),
    Constraint::Length(7),
    Constraint::Length(9),
    Constraint::Length(8),
];

fn draw_sinks(frame: &mut Frame<'_>, area: Rect, picture: &Picture, view: &View) {
    let rows = picture.sinks.iter().map(|sink| sink_row(sink, view.colour)).collect();
    let title = match picture.sinks.iter().map(|sink| sink.status.parked_lanes).sum::<i64>() {
        0 => "sinks".to_owned(),
        parked => format!("sinks: {} parked", counted(u64::try_from(parked).unwrap_or(0), "lane")),
    };
    draw_table(frame, area, (Pane::Sinks, &title), (&SINK_HEADING, &SINK_WIDTHS), rows, (picture, view));
}

fn sink_row(sink: &Sink, colour: bool) -> Row<'static> {
    let (status, served) = (&sink.status, &sink.served);
    let quiet = style(colour, Paint::Quiet);
    let state = match (status.paused, served.relays) {
        (true, _) => ("paused", Paint::Warning),
        (false, 0) => ("unserved", Paint::Quiet),
        (false, _) => ("running", Paint::Good),
    };
    Row::new(vec![
        left(&status.sink, Style::new()),
        number(status.pending, colour, Paint::Plain),
        number(status.due, colour, Paint::Plain),
        number(status.leased, colour, if status.expired > 0 { Paint::Warning } else { Paint::Plain }),
        number(status.dead, colour, Paint::Bad),
        right(oldest(sink), if status.due == 0 { quiet } else { Style::new() }),
        match sink.per_second {
            Some(rate) => right(per_second(rate), if rate > 0.0 { style(colour, Paint::Good) } else { quiet }),
            None => right("-".to_owned(), quiet),
        },
        left(served.breaker_words(), style(colour, served.breaker_paint())),
        left(state.0, style(colour, state.1)),
    ])
}

/// How long the oldest has been due, in one unit.
fn oldest(sink: &Sink) -> String {
    if sink.status.due == 0 {
        return "-".to_owned();
    }
    let age = Duration::try_from_secs_f64(sink.status.oldest_due_age_seconds).unwrap_or_default();
    humane::age(SystemTime::UNIX_EPOCH + age, SystemTime::UNIX_EPOCH)
}

/// `0/s`, `<0.1/s`, `0.4/s`, `12/s`, `1,234/s`.
fn per_second(rate: f64) -> String {
    if rate > 0.0 && rate < 0.1 {
        return "<0.1/s".to_owned();
    }
    if rate > 0.0 && rate < 10.0 {
        return format!("{rate:.1}/s");
    }
    let whole = Duration::try_from_secs_f64(rate).unwrap_or_default().as_secs();
    format!("{}/s", count(whole))
}

const DEAD_HEADING: [&str; 6] = [">DEAD", "SINK", "TOPIC", "CODE", ">LAST", "ERROR"];
const DEAD_WIDTHS: [Constraint; 6] = [
    Constraint::Length(7),
    Constraint::Max(12),
    Constraint::Max(20),
    Constraint::Max(14),
    Constraint::Length(4),
    Constraint::Fill(1),
];

fn draw_dead(frame: &mut Frame<'_>, area: Rect, picture: &Picture, view: &View) {
    let rows = picture.groups.iter().map(|group| group_row(group, picture.now, view.colour)).collect();
    draw_table(frame, area, (Pane::Dead, "dead letters"), (&DEAD_HEADING, &DEAD_WIDTHS), rows, (picture, view));
}

fn group_row(group: &DeadGroup, now: SystemTime, colour: bool) -> Row<'static> {
    Row::new(vec![
        number(group.count, colour, Paint::Bad),
        left(&group.sink, Style::new()),
        left(&group.topic, Style::new()),
        left(group.error_code.as_deref().unwrap_or(&group.reason), Style::new()),
        right(humane::age(now, group.last_died_at), Style::new()),
        left(group.error_message.as_deref().unwrap_or_default(), style(colour, Paint::Quiet)),
    ])
}

const LANE_HEADING: [&str; 4] = ["SINK", "LANE", ">DEPTH", "NOTE"];
const LANE_WIDTHS: [Constraint; 4] =
    [Constraint::Max(10), Constraint::Fill(1), Constraint::Length(6), Constraint::Fill(1)];

fn draw_lanes(frame: &mut Frame<'_>, area: Rect, picture: &Picture, view: &View) {
    let rows = picture.lanes.iter().map(|lane| lane_row(lane, picture.now, view.colour)).collect();
    draw_table(frame, area, (Pane::Lanes, "stuck lanes"), (&LANE_HEADING, &LANE_WIDTHS), rows, (picture, view));
}

fn lane_row(lane: &LaneStatus, now: SystemTime, colour: bool) -> Row<'static> {
    let note = match lane.state {
        LaneState::Parked => "parked".to_owned(),
        // Half a screen is narrow.
        _ => lanes::note(lane, now).trim_start_matches("due ").to_owned(),
    };
    Row::new(vec![
        left(&lane.sink, Style::new()),
        left(&lane.lane, Style::new()),
        number(lane.depth, colour, Paint::Plain),
        left(note, style(colour, lanes::state_paint(lane.state))),
    ])
}

const RELAY_HEADING: [&str; 4] = ["RELAY", ">HELD", ">SEEN", "STATE"];
const RELAY_WIDTHS: [Constraint; 4] =
    [Constraint::Fill(1), Constraint::Length(6), Constraint::Length(5), Constraint::Length(6)];

fn draw_relays(frame: &mut Frame<'_>, area: Rect, picture: &Picture, view: &View) {
    let rows = picture.relays.iter().map(|relay| relay_row(relay, picture.now, view.colour)).collect();
    draw_table(frame, area, (Pane::Relays, "relays"), (&RELAY_HEADING, &RELAY_WIDTHS), rows, (picture, view));
}

fn relay_row(relay: &RelayRecord, now: SystemTime, colour: bool) -> Row<'static> {
    let held: u64 = relay.report.sinks.iter().map(|sink| sink.held).sum();
    let state = if relay.silent { ("silent", Paint::Bad) } else { ("alive", Paint::Good) };
    Row::new(vec![
        left(&relay.report.worker_id, Style::new()),
        number(i64::try_from(held).unwrap_or(i64::MAX), colour, Paint::Plain),
        right(humane::age(now, relay.reported_at), Style::new()),
        left(state.0, style(colour, state.1)),
    ])
}

const KEYS: [(&str, &str); 6] =
    [("q", "quit"), ("Tab", "box"), ("p", "pause"), ("r", "redrive"), ("Enter", "details"), ("?", "help")];

fn draw_footer(frame: &mut Frame<'_>, area: Rect, view: &View) {
    let key = |key: &str| Span::styled(format!(" {key} "), Style::new().add_modifier(Modifier::REVERSED));
    if let Over::Confirm(which, letters) = &view.over {
        let letters = counted(*letters, "dead letter");
        let topic = which.topic.as_ref().map(|topic| format!(", topic {topic}")).unwrap_or_default();
        let sink = which.sink.as_deref().unwrap_or_default();
        let words = printable(&format!(" redrive {letters} of sink {sink}{topic}? "));
        let question = Span::styled(words, style(view.colour, Paint::Warning).add_modifier(Modifier::BOLD));
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
    let keys = KEYS.into_iter().flat_map(|(name, words)| [key(name), Span::raw(format!(" {words}  "))]);
    frame.render_widget(Line::from(keys.collect::<Vec<_>>()), area);
}
