//! SIGINT and SIGTERM, heard by the commands that run for long. The first asks to stop in good order; the second ends
//! the process at once, which is safe: what is held returns to the queue when its lease ends.

use std::io;
use std::sync::{Arc, OnceLock};

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::exit_code::ExitCode;
use crate::failure::{Failure, Result};

/// Says when to stop, and why.
#[derive(Clone)]
pub(crate) struct Stop {
    pub(crate) token: CancellationToken,
    heard: Arc<OnceLock<ExitCode>>,
}

impl Stop {
    /// Listens from now on; `last_words` are for the moment before the process ends at once.
    pub(crate) fn on_signals(last_words: impl Fn() + Send + 'static) -> Result<Self> {
        let mut signals = Signals::new()
            .map_err(|error| Failure::new(ExitCode::Failure, format!("cannot listen for signals: {error}")))?;
        let stop = Self { token: CancellationToken::new(), heard: Arc::default() };
        let (token, heard) = (stop.token.clone(), Arc::clone(&stop.heard));
        tokio::spawn(async move {
            let first = signals.next().await;
            let _ = heard.set(first);
            tracing::info!(signal = first.word(), "stopping in good order; a second signal ends at once");
            token.cancel();
            let second = signals.next().await;
            last_words();
            std::process::exit(i32::from(second as u8));
        });
        Ok(stop)
    }

    /// The exit code of the signal that was heard, if one was.
    pub(crate) fn heard(&self) -> Option<ExitCode> {
        self.heard.get().copied()
    }
}

struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    async fn next(&mut self) -> ExitCode {
        tokio::select! {
            _ = self.interrupt.recv() => ExitCode::Interrupted,
            _ = self.terminate.recv() => ExitCode::Terminated,
        }
    }
}
