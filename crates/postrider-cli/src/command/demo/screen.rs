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
use ratatui::crossterm::event::{Event, KeyCode, KeyModifiers};
use tokio_util::sync::CancellationToken;

use super::SINK;
use super::receiver::Receiver;
use super::view::Viewer;
use super::world::Tone;
use crate::failure::Result;
use crate::terminal::Screen;
use crate::{operator, output};

/// Between two pictures.
const FRAME: Duration = Duration::from_millis(125);

/// What a key asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
    Quit,
    Pause,
    Down,
    Redrive,
    /// Nothing, or the terminal has another size.
    Redraw,
}

/// Draws until the end, or until somebody quits.
pub(super) async fn show(mut viewer: Viewer, receiver: &Arc<Receiver>, end: &CancellationToken) -> Result<()> {
    let mut screen = Screen::enter("without a terminal it prints lines: postrider demo | cat")?;
    let colour = output::colour(true);
    let mut frames = tokio::time::interval(FRAME);
    frames.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    loop {
        tokio::select! {
            () = end.cancelled() => break,
            _ = frames.tick() => {}
            event = screen.events.recv() => match event.as_ref().map_or(Wish::Quit, wish) {
                Wish::Quit => break,
                Wish::Down => receiver.toggle(),
                Wish::Pause => pause(&viewer).await?,
                Wish::Redrive => redrive(&viewer).await?,
                Wish::Redraw => {}
            },
        }
        let now = viewer.look().await;
        let down = receiver.is_down();
        screen.draw(|frame| draw::draw(frame, &viewer, &now, down, colour))?;
    }
    drop(screen);
    drop(writeln!(io::stdout(), "stopping: the producers, then the relay …"));
    Ok(())
}

fn wish(event: &Event) -> Wish {
    let Some(key) = event.as_key_press_event() else { return Wish::Redraw };
    match key.code {
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => Wish::Quit,
        KeyCode::Char('q') | KeyCode::Esc => Wish::Quit,
        KeyCode::Char('p') => Wish::Pause,
        KeyCode::Char('d') => Wish::Down,
        KeyCode::Char('r') => Wish::Redrive,
        _ => Wish::Redraw,
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
        assert_eq!(key(KeyCode::Char('c'), KeyModifiers::CONTROL), Wish::Quit);
        assert_eq!(key(KeyCode::Char('c'), KeyModifiers::NONE), Wish::Redraw);
        assert_eq!(key(KeyCode::Char('q'), KeyModifiers::NONE), Wish::Quit);
        assert_eq!(key(KeyCode::Char('d'), KeyModifiers::NONE), Wish::Down);
        assert_eq!(wish(&Event::Resize(1, 1)), Wish::Redraw);
        assert_eq!(wish(&Event::FocusGained), Wish::Redraw);
    }
}
