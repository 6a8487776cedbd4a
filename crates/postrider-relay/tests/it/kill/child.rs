//! A relay in a process of its own: this same program, started again for the one ignored test, with its orders in the
//! environment. It ends when its input does, so none outlives the test. The test may kill it, stop it and let it go on;
//! what it logs is in a file.

use std::env;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use postrider::lifecycle::Claimed;
use postrider::{PostgresStore, Schema};
use postrider_relay::sink::stdout::NdjsonSink;
use postrider_relay::{Backoff, Batching, Relay, RelayOptions, RetryOptions, Sink, SinkOptions, Verdict};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use super::{log, until};

/// The file that all relays of a test append to.
pub(super) const RECEIVER: &str = "received.ndjson";
/// Several calls for one claim, so that they go side by side; a lane's run is two of them, one after the other.
const SLOW_BATCH: usize = 20;
const LANE_RUN: u32 = 30;
const ORDERS: &str = "POSTRIDER_KILL_ORDERS";

/// What a relay process is told.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Orders {
    url: String,
    worker_id: String,
    directory: PathBuf,
    mood: Mood,
    pub(super) lease: Duration,
    pub(super) max_attempts: u32,
    pub(super) max_messages: u32,
    pub(super) batch_size: u32,
}

/// What the sink does after it has written a batch.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum Mood {
    /// Answers at once.
    Prompt,
    /// Answers after this long for each message: what has arrived is not yet recorded.
    Slow(Duration),
    /// Answers when this file exists.
    Gate(PathBuf),
    /// Ends the process instead if this is the payload.
    AbortOn(String),
}

impl Orders {
    pub(super) fn new(url: &str, worker_id: &str, directory: &Path, mood: Mood) -> Self {
        Self {
            url: url.to_owned(),
            worker_id: worker_id.to_owned(),
            directory: directory.to_owned(),
            mood,
            lease: Duration::from_secs(3),
            max_attempts: 10,
            max_messages: 1_000,
            batch_size: 100,
        }
    }

    fn log(&self) -> PathBuf {
        self.directory.join(format!("{}.log", self.worker_id))
    }

    fn relay(self) -> Relay {
        let receiver = append(&self.directory.join(RECEIVER));
        let sink = MoodySink { lines: NdjsonSink::new(receiver), mood: self.mood };
        let store = PostgresStore::open(&self.url, Schema::default()).expect("a URL");
        let options = RelayOptions::default()
            .worker_id(self.worker_id)
            .lease(self.lease)
            .poll(self.lease / 10)
            .max_messages(self.max_messages);
        let backoff = Backoff::new(Duration::from_millis(50), Duration::from_millis(500));
        let retry = RetryOptions::default().max_attempts(self.max_attempts).backoff(backoff);
        let sink_options = SinkOptions::default()
            .batch_size(self.batch_size)
            .lane_run(LANE_RUN)
            .deadline(self.lease * 9 / 10)
            .retry(retry);
        Relay::builder(Arc::new(store))
            .options(options)
            .sink_with("default", sink, sink_options)
            .build()
            .expect("a relay")
    }
}

fn append(path: &Path) -> File {
    File::options().create(true).append(true).open(path).expect("a file to append to")
}

/// Writes lines; slow or deadly as it is told.
struct MoodySink {
    lines: NdjsonSink,
    mood: Mood,
}

#[async_trait]
impl Sink for MoodySink {
    fn batching(&self) -> Batching {
        if matches!(self.mood, Mood::Slow(_)) { Batching::ordered(SLOW_BATCH) } else { Batching::one_by_one() }
    }

    async fn deliver(&self, batch: &[Arc<Claimed>]) -> Vec<Verdict> {
        if let Mood::AbortOn(payload) = &self.mood
            && batch.iter().any(|message| message.json::<String>().is_ok_and(|said| said == *payload))
        {
            std::process::abort();
        }
        let verdicts = self.lines.deliver(batch).await;
        match &self.mood {
            Mood::Slow(each) => tokio::time::sleep(*each * u32::try_from(batch.len()).unwrap_or(u32::MAX)).await,
            Mood::Gate(gate) => until("the gate opens", || gate.exists()).await,
            Mood::Prompt | Mood::AbortOn(_) => {}
        }
        verdicts
    }
}

/// The relay itself. Ends in order when its input does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "only a part of the other tests"]
async fn child_process() {
    let Ok(orders) = env::var(ORDERS) else { return };
    let orders: Orders = serde_json::from_str(&orders).expect("orders");
    log::to_file(append(&orders.log()));
    let shutdown = CancellationToken::new();
    let relay = orders.relay();
    std::thread::spawn({
        let shutdown = shutdown.clone();
        move || {
            drop(io::stdin().read_to_end(&mut Vec::new()));
            shutdown.cancel();
        }
    });
    relay.run(shutdown).await.expect("the relay ends in order");
}

/// A running relay process; killed when dropped.
pub(super) struct RelayProcess {
    child: Mutex<Child>,
    input: Option<ChildStdin>,
    log: PathBuf,
}

impl RelayProcess {
    pub(super) fn start(orders: &Orders) -> Self {
        let mut child = Command::new(env::current_exe().expect("this program"))
            .args(["--exact", "kill::child::child_process", "--ignored", "--nocapture"])
            .env(ORDERS, serde_json::to_string(orders).expect("json"))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(append(&orders.log()))
            .spawn()
            .expect("start a relay");
        let input = child.stdin.take();
        Self { child: Mutex::new(child), input, log: orders.log() }
    }

    pub(super) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// SIGKILL. Returns when it is gone.
    pub(super) fn kill(&self) {
        let mut child = self.child.lock().expect("no panic");
        child.kill().expect("kill");
        child.wait().expect("wait");
    }

    /// SIGSTOP. Returns when it stands still.
    pub(super) fn stop(&self) {
        self.signal("STOP");
        let stat = format!("/proc/{}/stat", self.child.lock().expect("no panic").id());
        while !fs::read_to_string(&stat).expect("it is there").contains(") T ") {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// SIGCONT.
    pub(super) fn go_on(&self) {
        self.signal("CONT");
    }

    fn signal(&self, name: &str) {
        let pid = self.child.lock().expect("no panic").id().to_string();
        let sent = Command::new("sh").args(["-c", "kill -s \"$1\" \"$2\"", "sh", name, &pid]).status();
        assert!(sent.expect("sh").success(), "SIG{name} to {pid}");
    }

    pub(super) fn has_ended(&self) -> bool {
        self.child.lock().expect("no panic").try_wait().expect("wait").is_some()
    }

    /// Asks it to end, and waits until it has. Returns what it logged.
    pub(super) async fn end(mut self) -> String {
        drop(self.input.take());
        until("the relay ends", || self.has_ended()).await;
        let status = self.child.lock().expect("no panic").wait().expect("wait");
        let log = self.log();
        assert!(status.success(), "{status}: {log}");
        log
    }
}

impl Drop for RelayProcess {
    fn drop(&mut self) {
        if !self.has_ended() {
            self.kill();
        }
    }
}
