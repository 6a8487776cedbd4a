//! The life of a message, top to bottom: enqueued, each attempt when its outcome was recorded, and where every
//! delivery stands now. Called by `show` alone.

use std::time::SystemTime;

use postrider::inspect::{AttemptRecord, DeliveryRecord, DeliveryState, MessageDetail};
use postrider::lifecycle::AttemptState;

use crate::command::list::state_paint;
use crate::failure::Result;
use crate::format;
use crate::output::{Output, Paint, printable, wrap};

/// Room for a time such as `+23h 59m`.
const TIME_CHARS: usize = 9;
/// Before the text of an event: indentation, time, dot and the spaces between.
const TEXT_COLUMN: usize = 2 + TIME_CHARS + 1 + 2;

pub(super) fn print(message: &MessageDetail, now: SystemTime, output: &mut Output) -> Result<()> {
    event(output, "0", Dot::Hollow, Paint::Plain, "enqueued", &[])?;
    for attempt in &message.attempts {
        print_attempt(attempt, message.enqueued_at, output)?;
    }
    for delivery in &message.deliveries {
        gap(output)?;
        let paint = state_paint(delivery.state);
        let state = output.paint(paint, delivery.state.as_str());
        let text = format!("{}  {state}{}", printable(&delivery.sink), standing(delivery, now));
        event(output, "now", Dot::Hollow, paint, &text, &[])?;
    }
    if message.deliveries.is_empty() {
        gap(output)?;
        let state = ended(&message.attempts);
        let text = output.paint(state_paint(state), state.as_str());
        event(output, "now", Dot::Hollow, state_paint(state), &text, &[])?;
    }
    Ok(())
}

/// How it ended, now that nothing is left to deliver: given up, if a sink that was tried never had it.
fn ended(attempts: &[AttemptRecord]) -> DeliveryState {
    let had =
        |sink: &str| attempts.iter().any(|attempt| attempt.sink == sink && attempt.state == AttemptState::Dispatched);
    let everywhere = attempts.iter().all(|attempt| had(&attempt.sink));
    if everywhere { DeliveryState::Delivered } else { DeliveryState::Discarded }
}

fn print_attempt(attempt: &AttemptRecord, enqueued_at: SystemTime, output: &mut Output) -> Result<()> {
    let paint = match attempt.state {
        AttemptState::Dispatched => Paint::Good,
        AttemptState::Failed => Paint::Bad,
        _ => Paint::Warning,
    };
    let state = output.paint(paint, attempt.state.as_str());
    let text = format!("{}  attempt {}  {state}", printable(&attempt.sink), attempt.attempt_no);
    let mut facts = vec![format!("by {}", attempt.worker_id)];
    match attempt.latency_ms {
        Some(latency_ms) => facts.push(format!("took {latency_ms} ms")),
        // A lease that ran out has no latency; how long it was held is what one wants to know.
        None => facts.push(format!("held {}", held(attempt))),
    }
    facts.extend(attempt.code.as_ref().map(|code| format!("code {code}")));
    facts.extend(attempt.reference.as_ref().map(|reference| format!("reference {reference}")));
    let mut details = vec![(Paint::Quiet, facts.join(", "))];
    let error: Vec<&str> =
        [&attempt.error_code, &attempt.error_message].into_iter().filter_map(Option::as_deref).collect();
    if !error.is_empty() {
        details.push((Paint::Plain, error.join(": ")));
    }
    if let Some(answer) = &attempt.answer {
        let labelled = format!("answer: {answer}");
        let lines = labelled.lines().filter(|line| !line.trim().is_empty());
        details.extend(lines.map(|line| (Paint::Quiet, line.replace('\t', "    "))));
    }
    gap(output)?;
    event(output, &format::offset(enqueued_at, attempt.completed_at), Dot::Full, paint, &text, &details)
}

fn held(attempt: &AttemptRecord) -> String {
    format::span(attempt.completed_at.duration_since(attempt.claimed_at).unwrap_or_default())
}

fn standing(delivery: &DeliveryRecord, now: SystemTime) -> String {
    match (delivery.state, &delivery.claimed_by, delivery.lease_expires_at, delivery.due_at) {
        (DeliveryState::Leased, Some(worker), Some(until), _) => match until.duration_since(now) {
            Ok(left) => {
                format!(", attempt {} by {}, {} left", delivery.attempt_no, printable(worker), format::span(left))
            }
            Err(late) => format!(
                ", attempt {} by {}, lease ran out {} ago",
                delivery.attempt_no,
                printable(worker),
                format::span(late.duration())
            ),
        },
        (DeliveryState::Pending, _, _, Some(due_at)) => format!(", {}", format::due(now, due_at)),
        (DeliveryState::Dead, ..) => {
            format!(" after {}, waits for a person", format::counted(delivery.attempt_no, "attempt"))
        }
        _ => String::new(),
    }
}

#[derive(Clone, Copy)]
enum Dot {
    Hollow,
    Full,
}

fn event(
    output: &mut Output,
    time: &str,
    dot: Dot,
    paint: Paint,
    text: &str,
    details: &[(Paint, String)],
) -> Result<()> {
    let dot = output.paint(
        paint,
        match dot {
            Dot::Hollow => "○",
            Dot::Full => "●",
        },
    );
    output.line(format!("  {time:>TIME_CHARS$} {dot} {text}"))?;
    for (paint, detail) in details {
        let detail = printable(detail);
        let lines = match output.width() {
            Some(width) => wrap(&detail, width.saturating_sub(TEXT_COLUMN).max(20)),
            None => vec![detail],
        };
        for line in lines {
            let rail = output.paint(Paint::Quiet, "│");
            let line = output.paint(*paint, &line);
            output.line(format!("  {:TIME_CHARS$} {rail} {line}", ""))?;
        }
    }
    Ok(())
}

fn gap(output: &mut Output) -> Result<()> {
    let rail = output.paint(Paint::Quiet, "│");
    output.line(format!("  {:TIME_CHARS$} {rail}", ""))
}
