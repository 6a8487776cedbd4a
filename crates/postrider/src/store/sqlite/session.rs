//! A connection with what is remembered beside it, and the thread it lives on. SQLite calls block, so none is made on a
//! caller's runtime: work goes through a bounded channel to the thread and its answer comes back. The thread ends when
//! the last handle is dropped. Nothing here knows what the work is.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rusqlite::{Connection, Transaction, TransactionBehavior};
use tokio::sync::{mpsc, oneshot};
use uuid::Uuid;

use super::statement;
use crate::error::Error;

/// Work that waits for the thread; further callers wait in turn. One claim and one completion are much work already.
const WAITING_JOBS: usize = 64;

/// Which sink's round, of which tenant.
type Round = (String, Option<Uuid>);

/// Rounds that are remembered. It is a hint only, so when there are more all are forgotten.
const REMEMBERED_ROUNDS: usize = 1024;

/// Where the last claim stopped, so that no lane starves.
#[derive(Debug, Clone, Default)]
pub(super) struct Cursor {
    /// The lane after which the next round begins, as bytes: what another program wrote need not be UTF-8.
    pub(super) lane: Vec<u8>,
    /// Whose turn the odd one of a batch is.
    pub(super) lanes_turn: bool,
}

pub(super) struct Session {
    pub(super) connection: Connection,
    cursors: HashMap<Round, Cursor>,
    /// Set when whoever asked for the work no longer waits for it.
    unwanted: Arc<AtomicBool>,
}

impl Session {
    pub(super) fn new(connection: Connection) -> Self {
        Self { connection, cursors: HashMap::new(), unwanted: Arc::default() }
    }

    pub(super) fn cursor(&self, sink: &str, tenant_id: Option<Uuid>) -> Cursor {
        self.cursors.get(&(sink.to_owned(), tenant_id)).cloned().unwrap_or_default()
    }

    pub(super) fn remember(&mut self, sink: &str, tenant_id: Option<Uuid>, cursor: Cursor) {
        if self.cursors.len() >= REMEMBERED_ROUNDS {
            self.cursors.clear();
        }
        self.cursors.insert((sink.to_owned(), tenant_id), cursor);
    }

    /// Runs `work` in a transaction that holds the write lock from its beginning, with the transaction's time. An error
    /// rolls back, and so does a caller who has gone while the lock was waited for: a claim that nobody receives would
    /// cost its messages an attempt.
    pub(super) fn write<T>(
        &mut self,
        work: impl FnOnce(&Transaction<'_>, i64) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let tx = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let now = statement::now(&tx)?;
        let done = work(&tx, now)?;
        if self.unwanted.load(Ordering::Acquire) {
            return Err(Error::StoreStopped);
        }
        tx.commit()?;
        Ok(done)
    }

    /// Runs `work` on one snapshot, without the write lock.
    pub(super) fn read<T>(&mut self, work: impl FnOnce(&Transaction<'_>, i64) -> Result<T, Error>) -> Result<T, Error> {
        let tx = self.connection.transaction()?;
        let now = statement::now(&tx)?;
        work(&tx, now)
    }
}

type Job = Box<dyn FnOnce(&mut Session) + Send>;

/// A handle on the thread; the thread ends with the last clone.
#[derive(Clone)]
pub(super) struct Thread {
    jobs: mpsc::Sender<Job>,
}

impl Thread {
    pub(super) fn start(name: &str, connection: Connection) -> std::io::Result<Self> {
        let (jobs, mut waiting) = mpsc::channel::<Job>(WAITING_JOBS);
        std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            let mut session = Session::new(connection);
            while let Some(job) = waiting.blocking_recv() {
                job(&mut session);
            }
        })?;
        Ok(Self { jobs })
    }

    /// Waits for its turn, and for the answer. Work whose caller has gone before its turn came is not done.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Session) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let (reply, answer) = oneshot::channel();
        let wanted = Wanted(Arc::default());
        let unwanted = Arc::clone(&wanted.0);
        let job: Job = Box::new(move |session| {
            if !reply.is_closed() {
                session.unwanted = unwanted;
                // The caller may have gone meanwhile: what was committed stands.
                drop(reply.send(work(session)));
            }
        });
        self.jobs.send(job).await.map_err(|_| Error::StoreStopped)?;
        let answer = answer.await.map_err(|_| Error::StoreStopped)?;
        drop(wanted);
        answer
    }
}

/// Dropped with the future of whoever waits.
struct Wanted(Arc<AtomicBool>);

impl Drop for Wanted {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}
