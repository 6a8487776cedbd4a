//! A picture on a terminal, and the keys that are pressed: the alternate screen is left again on every way out, a panic included.
//! Called by `top` and by the demo; what is drawn, and what a key means, is theirs.

use std::io;
use std::time::Duration;

use ratatui::crossterm::event::{self, Event};
use ratatui::{DefaultTerminal, Frame};
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::exit_code::ExitCode;
use crate::failure::{Failure, Result};

/// How long the thread that reads keys takes to notice the end.
const KEY_WAIT: Duration = Duration::from_millis(100);
/// Keys that wait to be looked at.
const MAX_KEYS: usize = 16;

pub(crate) struct Screen {
    terminal: DefaultTerminal,
    /// What to do where nothing can be drawn.
    instead: &'static str,
    /// Keys, and that the terminal has another size.
    pub(crate) events: mpsc::Receiver<Event>,
    _reading: DropGuard,
    _restore: Restore,
}

impl Screen {
    pub(crate) fn enter(instead: &'static str) -> Result<Self> {
        // Also sees to it that a panic leaves the alternate screen first.
        let terminal = ratatui::try_init().map_err(|error| failed(&error, instead))?;
        let (pressed, events) = mpsc::channel(MAX_KEYS);
        let stop = CancellationToken::new();
        let reading = stop.clone().drop_guard();
        std::thread::spawn(move || read_keys(&pressed, &stop));
        Ok(Self { terminal, instead, events, _reading: reading, _restore: Restore })
    }

    pub(crate) fn draw(&mut self, picture: impl FnOnce(&mut Frame<'_>)) -> Result<()> {
        self.terminal.draw(picture).map(drop).map_err(|error| failed(&error, self.instead))
    }
}

fn failed(error: &io::Error, instead: &str) -> Failure {
    Failure::new(ExitCode::Failure, format!("cannot draw on this terminal: {error}")).hint(instead)
}

/// Leaves the alternate screen however the function is left.
struct Restore;

impl Drop for Restore {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// Reads keys until nobody wants them.
fn read_keys(pressed: &mpsc::Sender<Event>, stop: &CancellationToken) {
    while !stop.is_cancelled() {
        let read = event::poll(KEY_WAIT).and_then(|ready| if ready { event::read().map(Some) } else { Ok(None) });
        match read {
            Ok(None) => {}
            Ok(Some(event)) => {
                if pressed.blocking_send(event).is_err() {
                    return;
                }
            }
            // The terminal is gone.
            Err(_) => return,
        }
    }
}
