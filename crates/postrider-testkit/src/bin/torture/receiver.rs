//! The receiver of everything that is delivered: one socket that all relays write to, so that there is one order of
//! arrival. It answers after a random while, as destinations do, and can be told to keep the answer to one relay: what
//! it was sent has arrived and the relay does not know. It decides nothing itself: the books say what is answered.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;

use crate::books::{Answer, Arrival, Books};
use crate::kinds::Number;

/// What a relay sends of one message.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Sent {
    pub(crate) number: Number,
    pub(crate) attempt_no: i32,
    pub(crate) lane: Option<String>,
    pub(crate) sequence_id: Option<i64>,
}

/// One call of a relay.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Batch {
    pub(crate) worker: String,
    pub(crate) messages: Vec<Sent>,
}

/// Which relays' next answer is kept back, and whether that has happened.
type KeptBack = Arc<Mutex<HashMap<String, bool>>>;

pub(crate) struct Receiver {
    path: PathBuf,
    kept_back: KeptBack,
    _accepting: AbortOnDropHandle<()>,
}

impl Receiver {
    /// Listens at this path. Each answer takes up to `slowest`.
    pub(crate) fn start(path: PathBuf, books: Arc<Books>, slowest: Duration) -> Self {
        let listener = UnixListener::bind(&path).expect("a socket in a directory of our own");
        let kept_back = KeptBack::default();
        let accepting = tokio::spawn(accept(listener, books, Arc::clone(&kept_back), slowest));
        Self { path, kept_back, _accepting: AbortOnDropHandle::new(accepting) }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Keeps the answer to this relay's next call.
    pub(crate) fn keep_answer(&self, worker: &str) {
        lock(&self.kept_back).insert(worker.to_owned(), false);
    }

    /// Whether that has happened.
    pub(crate) fn has_kept_answer(&self, worker: &str) -> bool {
        lock(&self.kept_back).get(worker).copied().unwrap_or(false)
    }

    /// The relay is gone, or is to be answered again.
    pub(crate) fn answer_again(&self, worker: &str) {
        lock(&self.kept_back).remove(worker);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn accept(listener: UnixListener, books: Arc<Books>, kept_back: KeptBack, slowest: Duration) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        connections.spawn(serve(stream, Arc::clone(&books), Arc::clone(&kept_back), slowest));
    }
}

async fn serve(stream: UnixStream, books: Arc<Books>, kept_back: KeptBack, slowest: Duration) {
    let mut stream = BufReader::new(stream);
    let mut line = Vec::new();
    loop {
        line.clear();
        // Half a line is a relay that died while it wrote: nothing arrived.
        if !stream.read_until(b'\n', &mut line).await.is_ok_and(|_| line.ends_with(b"\n")) {
            return;
        }
        let batch: Batch = serde_json::from_slice(&line).expect("a relay of ours writes batches");
        let answers = answers(&books, &batch);
        let keep = lock(&kept_back).get_mut(&batch.worker).map(|kept| *kept = true).is_some();
        if keep {
            std::future::pending::<()>().await;
        }
        let slowest = u64::try_from(slowest.as_micros()).unwrap_or(u64::MAX).max(1);
        tokio::time::sleep(Duration::from_micros(rand::random_range(0..slowest))).await;
        let mut answer = serde_json::to_vec(&answers).expect("words are JSON");
        answer.push(b'\n');
        if stream.write_all(&answer).await.is_err() {
            return;
        }
    }
}

/// In a lane nothing is read behind what was not accepted.
fn answers(books: &Books, batch: &Batch) -> Vec<Answer> {
    let mut stopped: Vec<&str> = Vec::new();
    let mut answers = Vec::with_capacity(batch.messages.len());
    for sent in &batch.messages {
        let lane = sent.lane.as_deref();
        if lane.is_some_and(|lane| stopped.contains(&lane)) {
            answers.push(Answer::NotRead);
            continue;
        }
        let Sent { number, attempt_no, sequence_id, .. } = *sent;
        let answer = books.arrive(Arrival { number, attempt_no, lane, sequence_id });
        if answer != Answer::Accepted {
            stopped.extend(lane);
        }
        answers.push(answer);
    }
    answers
}
