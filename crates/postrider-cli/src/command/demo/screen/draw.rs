//! The picture itself: five boxes that fit into 80 columns and 24 rows and grow with the terminal. Pure: it is given the
//! numbers and asks nobody.

use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, BorderType, Paragraph, Sparkline};

use crate::command::demo::view::{Snapshot, Viewer, stopwatch};
use crate::command::demo::world::{Event, Lane, LaneState, Tone};
use crate::format::count;
use crate::output::printable;

/// Width of the left boxes.
const LEFT: u16 = 33;
/// Width of a lane's name.
const LANE_CHARS: usize = 10;
/// Shapes of a lane's messages: arrived, on the way.
const ARRIVED: &str = "●";
const WAITS: &str = "○";
/// Events older than this are quiet.
const FRESH: Duration = Duration::from_secs(4);

/// Everything on the screen.
pub(super) fn draw(frame: &mut Frame<'_>, viewer: &Viewer, now: &Snapshot, down: bool, colour: bool) {
    let paint = Paint { colour };
    let [title, top, middle, bottom, keys] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(8),
        Constraint::Min(8),
        Constraint::Min(5),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    let [outbox, flow] = Layout::horizontal([Constraint::Length(LEFT), Constraint::Min(20)]).areas(top);
    let [receiver, lanes] = Layout::horizontal([Constraint::Length(LEFT), Constraint::Min(20)]).areas(middle);
    draw_title(frame, title, viewer, now, paint);
    draw_outbox(frame, outbox, now, paint);
    draw_flow(frame, flow, viewer, paint);
    draw_receiver(frame, receiver, now, down, paint);
    draw_lanes(frame, lanes, &viewer.world.lanes(inner_rows(lanes)), paint);
    draw_events(frame, bottom, &viewer.world.events_from(0), now.elapsed, paint);
    draw_keys(frame, keys, now, down, paint);
}

/// Colours by meaning; none where somebody asked for none.
#[derive(Clone, Copy)]
struct Paint {
    colour: bool,
}

impl Paint {
    fn fg(self, colour: Color) -> Style {
        if self.colour { Style::new().fg(colour) } else { Style::new() }
    }

    fn good(self) -> Style {
        self.fg(Color::Green)
    }

    fn warning(self) -> Style {
        self.fg(Color::Yellow)
    }

    fn bad(self) -> Style {
        self.fg(Color::Red)
    }

    fn new_ones(self) -> Style {
        self.fg(Color::Cyan)
    }

    fn quiet() -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    fn strong() -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }
}

fn inner_rows(area: Rect) -> usize {
    usize::from(area.height.saturating_sub(2))
}

fn boxed(title: &str) -> Block<'static> {
    Block::bordered()
        .border_type(BorderType::Rounded)
        .border_style(Paint::quiet())
        .title(Span::styled(format!(" {title} "), Paint::strong()))
}

fn draw_title(frame: &mut Frame<'_>, area: Rect, viewer: &Viewer, now: &Snapshot, _: Paint) {
    let time = stopwatch(now.elapsed);
    let left = Line::from(vec![
        Span::styled(" postrider demo", Paint::strong()),
        Span::styled("  an outbox in ", Paint::quiet()),
        Span::styled(printable(&viewer.file.display().to_string()), Paint::quiet()),
    ]);
    frame.render_widget(left, area);
    let width = u16::try_from(time.len() + 2).unwrap_or(area.width).min(area.width);
    let right = Rect { x: area.right() - width, width, ..area };
    frame.render_widget(Line::from(Span::styled(format!(" {time} "), Paint::strong())), right);
}

fn draw_outbox(frame: &mut Frame<'_>, area: Rect, now: &Snapshot, paint: Paint) {
    let row = |name: &str, number: u64, style: Style, words: String| {
        let style = if number == 0 { Paint::quiet() } else { style.add_modifier(Modifier::BOLD) };
        Line::from(vec![
            Span::raw(format!(" {name:<10}")),
            Span::styled(format!("{:>8}", count(number)), style),
            Span::styled(words, Paint::quiet()),
        ])
    };
    let parked = match now.parked_lanes {
        0 => String::new(),
        lanes => format!("  {lanes} parked"),
    };
    let rows = vec![
        row("enqueued", now.enqueued, paint.new_ones(), String::new()),
        row("delivered", now.delivered, paint.good(), String::new()),
        row("pending", now.pending, Style::new(), String::new()),
        row("in flight", now.in_flight, Style::new(), String::new()),
        row("retried", now.retried, paint.warning(), String::new()),
        row("dead", now.dead, paint.bad(), parked),
    ];
    frame.render_widget(Paragraph::new(rows).block(boxed("outbox")), area);
}

fn draw_flow(frame: &mut Frame<'_>, area: Rect, viewer: &Viewer, paint: Paint) {
    let block = boxed("messages a second");
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let halves: [Rect; 2] = Layout::vertical([Constraint::Fill(1), Constraint::Fill(1)]).areas(inner);
    let width = usize::from(inner.width.saturating_sub(2));
    let flows =
        [("enqueued", viewer.enqueued(width), paint.new_ones()), ("delivered", viewer.delivered(width), paint.good())];
    for (half, (name, (samples, rate), style)) in halves.into_iter().zip(flows) {
        let [label, bars] = Layout::vertical([Constraint::Length(1), Constraint::Min(1)]).areas(half);
        let words = Line::from(vec![
            Span::raw(format!(" {name:<10}")),
            Span::styled(format!("{:>5}/s", count(rate)), style.add_modifier(Modifier::BOLD)),
        ]);
        frame.render_widget(words, label);
        let bars = Rect { x: bars.x + 1, width: bars.width.saturating_sub(2), ..bars };
        // The newest on the right: the room for what is yet to come is on the left.
        let padded: Vec<u64> = std::iter::repeat_n(0, width - samples.len().min(width)).chain(samples).collect();
        frame.render_widget(Sparkline::default().data(padded).style(style), bars);
    }
}

fn draw_receiver(frame: &mut Frame<'_>, area: Rect, now: &Snapshot, down: bool, paint: Paint) {
    let row = |name: &str, words: Span<'static>| Line::from(vec![Span::raw(format!(" {name:<10}")), words]);
    let strong = |style: Style| style.add_modifier(Modifier::BOLD);
    let receiver = if down { ("● down", strong(paint.bad())) } else { ("● up", strong(paint.good())) };
    let breaker =
        if now.breaker_open { ("● open: left alone", strong(paint.warning())) } else { ("● closed", paint.good()) };
    let sink = if now.paused { ("● paused", strong(paint.warning())) } else { ("● running", paint.good()) };
    let order = match now.out_of_order {
        0 => Span::styled("every lane", paint.good()),
        some => Span::styled(format!("{some} OUT OF ORDER"), strong(paint.bad())),
    };
    let rows = vec![
        row("receiver", Span::styled(receiver.0, receiver.1)),
        row("breaker", Span::styled(breaker.0, breaker.1)),
        row("sink", Span::styled(sink.0, sink.1)),
        row("has", Span::raw(count(now.taken))),
        row("twice", Span::raw(count(now.duplicates))),
        row("in order", order),
    ];
    frame.render_widget(Paragraph::new(rows).block(boxed("receiver")), area);
}

fn draw_lanes(frame: &mut Frame<'_>, area: Rect, lanes: &[Lane], paint: Paint) {
    let rows: Vec<Line<'_>> = lanes.iter().map(|lane| lane_line(lane, paint)).collect();
    frame.render_widget(Paragraph::new(rows).block(boxed("lanes: one order each, in sequence")), area);
}

fn lane_line(lane: &Lane, paint: Paint) -> Line<'static> {
    let arrived = usize::try_from(lane.arrived.min(lane.enqueued)).unwrap_or(0);
    let waits = usize::try_from(lane.enqueued.saturating_sub(lane.arrived)).unwrap_or(0);
    let done = waits == 0;
    let (words, style) = match lane.state {
        LaneState::Parked => ("parked", paint.bad().add_modifier(Modifier::BOLD)),
        LaneState::Retrying => ("retries", paint.warning()),
        LaneState::Moving if done => ("", Style::new()),
        LaneState::Moving => ("waits", Style::new()),
    };
    let name = format!(" {:<LANE_CHARS$} ", format!("order-{}", lane.number));
    Line::from(vec![
        Span::styled(name, if done { Paint::quiet() } else { Style::new() }),
        Span::styled(ARRIVED.repeat(arrived), paint.good()),
        Span::styled(WAITS.repeat(waits), style),
        Span::raw(" ".repeat(7_usize.saturating_sub(arrived + waits))),
        Span::styled(format!("{:<15}", lane.topic), Paint::quiet()),
        Span::styled(words, style),
    ])
}

fn draw_events(frame: &mut Frame<'_>, area: Rect, events: &[Event], elapsed: Duration, paint: Paint) {
    let rows = inner_rows(area);
    let lines: Vec<Line<'_>> = events
        .iter()
        .skip(events.len().saturating_sub(rows))
        .map(|event| {
            let style = match event.tone {
                Tone::Good => paint.good(),
                Tone::Warning => paint.warning(),
                Tone::Bad => paint.bad(),
                Tone::Plain => Style::new(),
            };
            let fresh = elapsed.saturating_sub(event.at) < FRESH;
            let style = if fresh { style.add_modifier(Modifier::BOLD) } else { style };
            Line::from(vec![
                Span::styled(format!(" {:>5}  ", stopwatch(event.at)), Paint::quiet()),
                Span::styled(printable(&event.words), style),
                Span::styled(
                    if event.times > 1 { format!(" ×{}", event.times) } else { String::new() },
                    Paint::quiet(),
                ),
            ])
        })
        .collect();
    frame.render_widget(Paragraph::new(lines).block(boxed("last events")), area);
}

fn draw_keys(frame: &mut Frame<'_>, area: Rect, now: &Snapshot, down: bool, _: Paint) {
    let keys = [
        ("q", "quit"),
        ("p", if now.paused { "resume the sink" } else { "pause the sink" }),
        ("d", if down { "receiver up" } else { "receiver down" }),
        ("r", "redrive the dead"),
    ];
    let mut spans = Vec::new();
    for (key, words) in keys {
        spans.push(Span::styled(format!(" {key} "), Style::new().add_modifier(Modifier::REVERSED)));
        spans.push(Span::raw(format!(" {words}   ")));
    }
    frame.render_widget(Line::from(spans), area);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::Ordering;

    use postrider::SqliteStore;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;
    use crate::command::demo::world::World;

    fn picture(width: u16, height: u16) -> Terminal<TestBackend> {
        let directory = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(directory.path().join("demo.db")).unwrap();
        let world = Arc::new(World::new(1));
        world.enqueued.store(1_234, Ordering::Relaxed);
        for (number, enqueued, arrived) in [(7, 3, 3), (8, 6, 2), (9, 2, 1), (1_234_567, 6, 6)] {
            for _ in 0..enqueued {
                world.lane_enqueued(number, "order.received");
            }
            world.lane_delivered(&format!("order-{number}"), arrived, LaneState::Moving);
        }
        world.lane_delivered("order-8", 3, LaneState::Parked);
        world.lane_delivered("order-9", 2, LaneState::Retrying);
        world.say(Tone::Bad, "the receiver is down for 4.1 seconds");
        world.say(Tone::Warning, "breaker opened");
        world.say(Tone::Warning, "breaker opened");
        let viewer = Viewer::new(world, Arc::new(store), Arc::default(), "/tmp/demo.db".into());
        let now = Snapshot {
            elapsed: Duration::from_secs(42),
            enqueued: 1_234,
            delivered: 1_200,
            pending: 30,
            dead: 4,
            parked_lanes: 3,
            breaker_open: true,
            taken: 1_201,
            duplicates: 1,
            ..Snapshot::default()
        };
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, &viewer, &now, true, true)).unwrap();
        terminal
    }

    #[test]
    fn it_fits_into_eighty_columns_and_twenty_four_rows() {
        insta::assert_snapshot!(picture(80, 24).backend());
    }

    #[test]
    fn no_size_is_too_small() {
        for (width, height) in [(1, 1), (3, 2), (20, 5), (40, 12), (80, 10), (300, 100)] {
            picture(width, height);
        }
    }
}
