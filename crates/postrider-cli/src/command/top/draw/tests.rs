//! Pictures of `top`, drawn into memory.

use std::time::Instant;

use postrider::inspect::{AttemptCounts, DeadReason, RelayReport, SinkOverview, SinkReport, SinkState, SinkStatus};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{Event, KeyCode, KeyEvent, KeyModifiers};
use uuid::Uuid;

use super::*;

fn ago(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000 - seconds)
}

fn sink(name: &str, paused: bool, numbers: [i64; 5], oldest: f64, per_second: Option<f64>) -> Sink {
    let [pending, due, leased, dead, parked_lanes] = numbers;
    let mut status = SinkStatus::default();
    (status.sink, status.paused) = (name.to_owned(), paused);
    (status.pending, status.due, status.leased) = (pending, due, leased);
    (status.dead, status.parked_lanes, status.oldest_pending_age_seconds) = (dead, parked_lanes, oldest);
    (status.recent_seconds, status.last_success_at) = (300.0, Some(ago(3)));
    status.recent = AttemptCounts { dispatched: 120, retryable: 3, failed: 1, zombie_requeue: 0 };
    let report = |breaker: &str| SinkReport {
        sink: name.to_owned(),
        kind: "http".to_owned(),
        breaker: breaker.to_owned(),
        held: 3,
        last_error: (dead > 0).then(|| "HTTP_503: Service Unavailable".to_owned()),
        ..SinkReport::default()
    };
    let mut relays = [relay("one", false, 7), relay("two", false, 5)];
    relays[0].report.sinks = vec![report(if dead > 0 { "open" } else { "closed" })];
    relays[1].report.sinks = vec![SinkReport { held: 4, ..report("closed") }];
    Sink { seen: SinkOverview::new(status, Some(&relays)), per_second }
}

fn relay(name: &str, silent: bool, reported: u64) -> RelayRecord {
    let report = SinkReport {
        sink: "orders".to_owned(),
        kind: "http".to_owned(),
        breaker: "open".to_owned(),
        open_for: Some(Duration::from_secs(12)),
        held: 7,
        rate: None,
        last_error: None,
    };
    RelayRecord {
        report: RelayReport {
            worker_id: name.to_owned(),
            version: "0.1.0".to_owned(),
            every: Duration::from_secs(5),
            sinks: vec![report],
        },
        started_at: ago(90_000),
        reported_at: ago(reported),
        silent,
    }
}

/// An outbox in trouble: the second sink is the one that hurts.
pub(in crate::command::top) fn picture() -> Picture {
    let group = |count, topic: &str, code: &str, error: &str| DeadGroup {
        sink: "orders".to_owned(),
        topic: topic.to_owned(),
        reason: DeadReason::Failed,
        error_code: Some(code.to_owned()),
        count,
        first_died_at: ago(8_000),
        last_died_at: ago(40),
        error_message: Some(error.to_owned()),
    };
    let lane = |name: &str, state, depth| LaneStatus {
        sink: "orders".to_owned(),
        lane: name.to_owned(),
        state,
        depth,
        head_sequence_id: 7,
        head_message_id: Uuid::from_u128(0x019a_8f3c_6b1e_7c02_9d55_0f2b_6a3e_8d41),
        head_due_at: (state == LaneState::Waiting).then(|| ago(0) + Duration::from_secs(95)),
        head_attempt_count: 3,
        head_failed: true,
        head_error_code: Some("HTTP_503".to_owned()),
        head_error_message: Some("Service Unavailable".to_owned()),
    };
    Picture {
        now: ago(0),
        sinks: vec![
            sink("audit", true, [1_200_345, 1_200_345, 0, 0, 0], 8_000.0, Some(0.0)),
            sink("orders", false, [4_321, 310, 64, 15, 1], 312.0, Some(1_234.4)),
            sink("webhook", false, [0, 0, 0, 0, 0], 0.0, None),
        ],
        groups: vec![
            group(12, "order.placed", "HTTP_503", "Service Unavailable: the upstream of upstreams is down"),
            group(3, "order.cancelled", "HTTP_422", "no such customer\u{1b}[2J"),
        ],
        lanes: vec![lane("customer-7", LaneState::Parked, 31), lane("customer-1234567", LaneState::Waiting, 2)],
        relays: vec![relay("web-1-4711-a0b1c2d3", false, 2), relay("web-2-9-ffffffff", true, 75)],
        seen: Some(Instant::now()),
        ..Picture::new("postgres://db.example:5432/shop".to_owned())
    }
}

fn drawn(width: u16, height: u16, keys: &[KeyCode]) -> Terminal<TestBackend> {
    let (picture, mut view) = (picture(), View::new(true));
    for code in keys {
        view.press(&Event::Key(KeyEvent::new(*code, KeyModifiers::NONE)), &picture);
    }
    drawn_as(width, height, &picture, &mut view)
}

fn drawn_as(width: u16, height: u16, picture: &Picture, view: &mut View) -> Terminal<TestBackend> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, picture, view)).unwrap();
    terminal
}

#[test]
fn it_fits_into_eighty_columns_and_twenty_four_rows() {
    insta::assert_snapshot!(drawn(80, 24, &[]).backend());
}

/// An outbox with a hundred thousand messages, one sink that nobody serves and one that refuses everything.
fn burdened() -> Picture {
    let mut picture = picture();
    let mut unserved = sink("billing", false, [70, 70, 0, 0, 0], 95.0, None);
    unserved.seen = SinkOverview::new(unserved.seen.status, Some(&[]));
    let mut open = sink("orders", false, [100_001, 100_001, 12_345, 100_001, 1], 312.0, Some(12_345.6));
    open.seen.state = Some(SinkState::BreakerOpen);
    (open.seen.service.open, open.seen.service.closed) = (2, 0);
    picture.sinks = vec![sink("audit", true, [1_200_345, 1_200_345, 0, 0, 0], 8_000.0, Some(0.0)), unserved, open];
    picture.groups[0].count = 100_001;
    picture
}

/// Columns are left out, headings and numbers are never cut.
#[test]
fn it_fits_into_every_width() {
    for width in [40, 50, 64, 80, 120] {
        let screen = drawn_as(width, 24, &burdened(), &mut View::new(true)).backend().to_string();
        insta::assert_snapshot!(format!("at_{width}_columns"), screen);
        assert!(screen.contains("100,001") || screen.contains("100k"), "{screen}");
        for (index, _) in screen.match_indices(",001") {
            assert!(screen[..index].ends_with("100"), "a number is cut:\n{screen}");
        }
    }
}

#[test]
fn help_and_details_lie_over_the_boxes() {
    insta::assert_snapshot!(drawn(80, 24, &[KeyCode::Char('?')]).backend());
    insta::assert_snapshot!(drawn(80, 24, &[KeyCode::Down, KeyCode::Enter]).backend());
    insta::assert_snapshot!(drawn(80, 24, &[KeyCode::Tab, KeyCode::Tab, KeyCode::Enter]).backend());
    insta::assert_snapshot!(drawn(80, 24, &[KeyCode::BackTab, KeyCode::Enter]).backend());
}

#[test]
fn a_redrive_is_asked_about_in_the_last_line() {
    let (picture, mut view) = (picture(), View::new(true));
    let which =
        postrider::inspect::DeadFilter { sink: Some("orders".to_owned()), ..postrider::inspect::DeadFilter::default() };
    view.ask(Box::new(which), 1_200);
    let screen = drawn_as(80, 24, &picture, &mut view).backend().to_string();
    assert!(screen.contains(" redrive 1,200 dead letters of sink orders?  y  yes   n  no"), "{screen}");
}

#[test]
fn trouble_is_told_and_the_last_numbers_stay() {
    let mut picture = picture();
    picture.trouble = Some("cannot connect to db.example:5432: connection refused".to_owned());
    let screen = drawn_as(80, 24, &picture, &mut View::new(false)).backend().to_string();
    assert!(screen.contains("connection refused") && screen.contains("4,321"), "{screen}");
}

#[test]
fn nothing_that_moves_the_cursor_is_drawn_and_no_size_is_too_small() {
    for (width, height) in [(1, 1), (3, 2), (20, 5), (40, 12), (80, 10), (300, 100)] {
        for keys in [&[][..], &[KeyCode::Char('?')], &[KeyCode::Tab, KeyCode::Down, KeyCode::Enter]] {
            let terminal = drawn(width, height, keys);
            assert!(terminal.backend().buffer().content().iter().all(|cell| !cell.symbol().contains('\u{1b}')));
        }
    }
}
