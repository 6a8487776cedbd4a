//! Writes each message as one line of JSON to stdout, or to any other open file. What a relay of the command line does when no other
//! sink is given, and how a message is handed to a script.

use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::sync::{Arc, Mutex as StdMutex, PoisonError};

use async_trait::async_trait;
use postrider::lifecycle::Claimed;
use serde::Deserialize;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use super::ndjson::{lines, write};
use super::registry::BuildSink;
use super::{Batching, Finding, Receipt, Sink, SinkFailure, Verdict};
use crate::error::Error;

/// Messages of one call.
const MAX_MESSAGES: usize = 500;

/// The sink on this process's stdout, once there is one.
static STDOUT: StdMutex<Option<Arc<NdjsonSink>>> = StdMutex::new(None);

/// A sink on stdout has no options.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct StdoutOptions {}

impl StdoutOptions {
    pub(crate) const PUBLIC_KEYS: &'static [&'static str] = &[];
}

impl BuildSink for StdoutOptions {
    fn build(&self) -> Result<Arc<dyn Sink>, Error> {
        let stdout = NdjsonSink::stdout();
        Ok(stdout.map_err(|error| Error::options(format!("stdout cannot be written to: {error}")))?)
    }
}

/// A sink that writes lines.
pub struct NdjsonSink {
    file: Arc<Mutex<File>>,
    closed: CancellationToken,
}

impl NdjsonSink {
    /// To this process's stdout. There is one such sink, so that the lines of several relays do not mix.
    pub fn stdout() -> io::Result<Arc<Self>> {
        let mut stdout = STDOUT.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(stdout) = &*stdout {
            return Ok(Arc::clone(stdout));
        }
        let file = io::stdout().as_fd().try_clone_to_owned()?.into();
        Ok(Arc::clone(stdout.insert(Arc::new(Self::new(file)))))
    }

    /// To a file, a pipe, or whatever else it is.
    #[must_use]
    pub fn new(file: File) -> Self {
        Self { file: Arc::new(Mutex::new(file)), closed: CancellationToken::new() }
    }

    /// Fires when nobody reads any more (a closed pipe): what comes after is handed back unsent.
    #[must_use]
    pub fn closed(&self) -> CancellationToken {
        self.closed.clone()
    }
}

#[async_trait]
impl Sink for NdjsonSink {
    fn kind(&self) -> &'static str {
        "stdout"
    }

    fn batching(&self) -> Batching {
        Batching::ordered(MAX_MESSAGES)
    }

    async fn deliver(&self, batch: &[Arc<Claimed>]) -> Vec<Verdict> {
        if self.closed.is_cancelled() {
            return vec![Verdict::NotSent; batch.len()];
        }
        let lines = match lines(batch) {
            Ok(lines) => lines,
            Err(error) => return vec![Verdict::Failed(error.into()); batch.len()],
        };
        // Waited for here, so that at most one thread hangs when nobody reads.
        let mut file = Arc::clone(&self.file).lock_owned().await;
        // A write that hangs cannot be called back, but what is still to be written can.
        let given_up = CancellationToken::new();
        let _when_dropped = given_up.clone().drop_guard();
        match tokio::task::spawn_blocking(move || write(&mut file, &lines, &given_up)).await {
            Ok(Ok(())) => vec![Verdict::Delivered(Receipt::default()); batch.len()],
            Ok(Err(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.closed.cancel();
                vec![Verdict::NotSent; batch.len()]
            }
            Ok(Err(error)) => vec![Verdict::Failed(SinkFailure::retryable("WRITE", error.to_string())); batch.len()],
            Err(error) => vec![Verdict::Failed(error.into()); batch.len()],
        }
    }

    async fn check(&self) -> Vec<Finding> {
        vec![Finding::works("each message becomes a line; whoever reads them must keep them")]
    }
}
