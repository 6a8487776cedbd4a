//! A relay in a process of its own: this same program, started again with its orders in the environment. It delivers to
//! the receiver's socket, and ends when its input does, so none outlives the storm. What it logs goes to its stderr.

use std::env;
use std::io::{self, Read as _};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use postrider::lifecycle::Claimed;
use postrider::{PostgresStore, Schema};
use postrider_relay::{
    Backoff, Batching, BreakerOptions, Receipt, Relay, RelayOptions, RetryOptions, Sink, SinkFailure, SinkOptions,
    Verdict,
};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio_util::sync::CancellationToken;

use crate::books::Answer;
use crate::kinds::MAX_ATTEMPTS;
use crate::log;
use crate::receiver::{Batch, Sent};

/// Set for a relay process, and only there.
pub(crate) const ORDERS: &str = "POSTRIDER_TORTURE_RELAY";
/// The code of a failure that an operator redrives, and of one that he discards.
pub(crate) const REFUSED: &str = "REFUSED";
pub(crate) const DOOMED: &str = "DOOMED";
/// Messages of one call.
const BATCH: usize = 25;
/// Calls at once.
const CONCURRENCY: usize = 8;
/// Nothing here is the destination's fault.
const NEVER_OPENS: u32 = 1_000_000;

/// What a relay process is told.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Orders {
    pub(crate) url: String,
    pub(crate) worker_id: String,
    pub(crate) receiver: PathBuf,
    pub(crate) lease: Duration,
    pub(crate) max_messages: u32,
}

/// Is this process to be a relay? Then it is, and ends.
pub(crate) fn run_if_asked() -> bool {
    let Ok(orders) = env::var(ORDERS) else { return false };
    let orders: Orders = serde_json::from_str(&orders).expect("orders are JSON");
    log::to_stderr();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("threads");
    runtime.block_on(async {
        let shutdown = CancellationToken::new();
        std::thread::spawn({
            let shutdown = shutdown.clone();
            move || {
                drop(io::stdin().read_to_end(&mut Vec::new()));
                shutdown.cancel();
            }
        });
        let relay = orders.relay();
        relay.run(shutdown).await.expect("a relay ends in order");
    });
    true
}

impl Orders {
    fn relay(self) -> Relay {
        let sink = SocketSink { path: self.receiver, worker: self.worker_id.clone(), idle: Mutex::default() };
        let store = PostgresStore::open(&self.url, Schema::default()).expect("a URL");
        let options = RelayOptions::default()
            .worker_id(self.worker_id)
            .lease(self.lease)
            .poll(self.lease / 10)
            .max_messages(self.max_messages)
            .report_every(Duration::from_secs(2))
            .keep_every(Duration::from_secs(5));
        let backoff = Backoff::new(Duration::from_millis(20), Duration::from_millis(100));
        let sink_options = SinkOptions::default()
            .batch_size(self.max_messages / 2)
            .lane_run(50)
            .concurrency(CONCURRENCY)
            .deadline(self.lease * 9 / 10)
            .retry(RetryOptions::default().max_attempts(MAX_ATTEMPTS).backoff(backoff))
            .breaker(BreakerOptions::default().failures(NEVER_OPENS));
        Relay::builder(Arc::new(store))
            .options(options)
            .sink_with("default", sink, sink_options)
            .build()
            .expect("the options of a storm are valid")
    }
}

/// Sends each batch as one line and reads the answer as one.
struct SocketSink {
    path: PathBuf,
    worker: String,
    idle: Mutex<Vec<BufReader<UnixStream>>>,
}

impl SocketSink {
    async fn exchange(&self, batch: &[Arc<Claimed>]) -> io::Result<Vec<Answer>> {
        let messages = batch.iter().map(|claimed| sent(claimed)).collect();
        let mut line = serde_json::to_vec(&Batch { worker: self.worker.clone(), messages })?;
        line.push(b'\n');
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut stream = match idle {
            Some(stream) => stream,
            None => BufReader::new(UnixStream::connect(&self.path).await?),
        };
        stream.write_all(&line).await?;
        line.clear();
        stream.read_until(b'\n', &mut line).await?;
        let answers = serde_json::from_slice(&line)?;
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(stream);
        Ok(answers)
    }
}

fn sent(claimed: &Claimed) -> Sent {
    Sent {
        number: claimed.json().expect("a payload of ours"),
        attempt_no: claimed.attempt_no,
        lane: claimed.lane.clone(),
        sequence_id: claimed.sequence_id,
    }
}

#[async_trait]
impl Sink for SocketSink {
    fn batching(&self) -> Batching {
        Batching::ordered(BATCH)
    }

    async fn deliver(&self, batch: &[Arc<Claimed>]) -> Vec<Verdict> {
        match self.exchange(batch).await {
            Ok(answers) => answers.into_iter().map(verdict).collect(),
            Err(error) => {
                batch.iter().map(|_| Verdict::Failed(SinkFailure::retryable("SOCKET", error.to_string()))).collect()
            }
        }
    }
}

fn verdict(answer: Answer) -> Verdict {
    match answer {
        Answer::Accepted => Verdict::Delivered(Receipt::default()),
        Answer::Busy => Verdict::Failed(SinkFailure::retryable("BUSY", "later")),
        Answer::Refused => Verdict::Failed(SinkFailure::terminal(REFUSED, "not this time")),
        Answer::Doomed => Verdict::Failed(SinkFailure::terminal(DOOMED, "never")),
        Answer::NotRead => Verdict::NotSent,
    }
}
