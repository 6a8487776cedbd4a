//! The demo on a terminal: how the outbox stands, how fast it goes, how the receiver is, the lanes, the last events. In
//! the alternate screen, which is left again on every way out, a panic included. Colours are the terminal's own, so
//! that light and dark both work.

mod draw;

use std::io::{self, Write as _};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use postrider::inspect::DeadFilter;
use postrider::operate::{Action, MAX_PER_ACTION};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::SINK;
use super::receiver::Receiver;
use super::view::Viewer;
use super::world::Tone;
use crate::exit_code::ExitCode;
use crate::failure::{Failure, Result};
use crate::{operator, output};

/// Between two pictures.
const FRAME: Duration = Duration::from_millis(125);
/// How long the thread that reads keys takes to notice the end.
const KEY_WAIT: Duration = Duration::from_millis(100);
/// Keys that wait to be looked at.
const MAX_KEYS: usize = 16;

/// What a key asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
    Quit,
    Pause,
    Down,
    Redrive,
    /// The terminal has another size.
    Redraw,
}

/// Draws until the end, or until somebody quits.
pub(super) async fn show(mut viewer: Viewer, receiver: &Arc<Receiver>, end: &CancellationToken) -> Result<()> {
    let failed = |error: io::Error| {
        Failure::new(ExitCode::Failure, format!("cannot draw on this terminal: {error}"))
            .hint("without a terminal it prints lines: postrider demo | cat")
    };
    // Also sees to it that a panic leaves the alternate screen first.
    let mut terminal = ratatui::try_init().map_err(failed)?;
    let restore = Restore;
    let colour = output::colour(true);
    let (keys, mut wishes) = mpsc::channel(MAX_KEYS);
    let reading = CancellationToken::new();
    let _stop_reading = reading.clone().drop_guard();
    std::thread::spawn(move || read_keys(&keys, &reading));
    let mut frames = tokio::time::interval(FRAME);
    frames.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    loop {
        tokio::select! {
            () = end.cancelled() => break,
            _ = frames.tick() => {}
            wish = wishes.recv() => match wish {
                Some(Wish::Quit) | None => break,
                Some(Wish::Down) => receiver.toggle(),
                Some(Wish::Pause) => pause(&viewer).await?,
                Some(Wish::Redrive) => redrive(&viewer).await?,
                Some(Wish::Redraw) => {}
            },
        }
        let now = viewer.look().await;
        let down = receiver.is_down();
        terminal.draw(|frame| draw::draw(frame, &viewer, &now, down, colour)).map_err(failed)?;
    }
    drop(restore);
    drop(writeln!(io::stdout(), "stopping: the producers, then the relay …"));
    Ok(())
}

/// Leaves the alternate screen however the function is left.
struct Restore;

impl Drop for Restore {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// Reads keys until nobody wants them.
fn read_keys(wishes: &mpsc::Sender<Wish>, stop: &CancellationToken) {
    while !stop.is_cancelled() {
        let read = event::poll(KEY_WAIT).and_then(|ready| if ready { event::read().map(Some) } else { Ok(None) });
        match read {
            Ok(None) => {}
            Ok(Some(event)) => {
                if let Some(wish) = wish(&event)
                    && wishes.blocking_send(wish).is_err()
                {
                    return;
                }
            }
            // The terminal is gone.
            Err(_) => return,
        }
    }
}

fn wish(event: &Event) -> Option<Wish> {
    let key = match event {
        Event::Resize(..) => return Some(Wish::Redraw),
        Event::Key(key) if key.kind == KeyEventKind::Press => key,
        _ => return None,
    };
    match key.code {
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => Some(Wish::Quit),
        KeyCode::Char('q') | KeyCode::Esc => Some(Wish::Quit),
        KeyCode::Char('p') => Some(Wish::Pause),
        KeyCode::Char('d') => Some(Wish::Down),
        KeyCode::Char('r') => Some(Wish::Redrive),
        _ => None,
    }
}

/// Pauses the sink in the store, as an operator would, or resumes it.
async fn pause(viewer: &Viewer) -> Result<()> {
    let paused = !viewer.world.paused.fetch_not(Ordering::Relaxed);
    let sink = SINK.to_owned();
    let (action, words) = if paused {
        (Action::Pause { sink }, "you paused the sink: its messages wait")
    } else {
        (Action::Resume { sink }, "you resumed the sink")
    };
    viewer.store.operate(&operator::actor(), &action).await?;
    viewer.world.say(if paused { Tone::Warning } else { Tone::Good }, words);
    Ok(())
}

async fn redrive(viewer: &Viewer) -> Result<()> {
    let which = DeadFilter { sink: Some(SINK.to_owned()), ..DeadFilter::default() };
    let redrive = Action::Redrive { which, at_most: MAX_PER_ACTION };
    let redriven = viewer.store.operate(&operator::actor(), &redrive).await?.affected;
    viewer.world.unpark();
    let words = match redriven {
        0 => "nothing is dead: nothing to redrive".to_owned(),
        some => format!("you redrove {}: pending again", crate::format::counted(some, "dead message")),
    };
    viewer.world.say(Tone::Good, words);
    Ok(())
}

#[cfg(test)]
mod tests {
    use ratatui::crossterm::event::KeyEvent;

    use super::*;

    #[test]
    fn keys_are_wishes() {
        let key = |code, modifiers| wish(&Event::Key(KeyEvent::new(code, modifiers)));
        assert_eq!(key(KeyCode::Char('c'), KeyModifiers::CONTROL), Some(Wish::Quit));
        assert_eq!(key(KeyCode::Char('c'), KeyModifiers::NONE), None);
        assert_eq!(key(KeyCode::Char('q'), KeyModifiers::NONE), Some(Wish::Quit));
        assert_eq!(key(KeyCode::Char('d'), KeyModifiers::NONE), Some(Wish::Down));
        assert_eq!(wish(&Event::Resize(1, 1)), Some(Wish::Redraw));
        assert_eq!(wish(&Event::FocusGained), None);
    }
}
