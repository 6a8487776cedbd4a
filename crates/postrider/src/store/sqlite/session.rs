//! A connection with what is remembered beside it, and the thread it lives on. SQLite calls block, so none is made on a
//! caller's runtime: work goes through a bounded channel to the thread and its answer comes back. Work that nobody waits
//! for any more is interrupted. The thread ends when the last handle is dropped. No work is done on a file that was deleted
//! or replaced, and a log that has become long is cut back. Nothing here knows what the work is.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rusqlite::{Connection, Transaction, TransactionBehavior};
use tokio::sync::{mpsc, oneshot};

use super::file::OpenFile;
use super::{open, statement};
use crate::error::{Cause, Error, ErrorKind};
use crate::lifecycle::Claim;

/// Work that waits for the thread; further callers wait in turn. One claim and one completion are much work already.
const WAITING_JOBS: usize = 64;

/// Steps of SQLite's machine between two looks at whether somebody still waits: less than a millisecond.
const STEPS_BETWEEN_LOOKS: i32 = 10_000;

/// A write-ahead log longer than this is cut back: four times what SQLite lets it grow to while nobody reads for long.
const LONG_LOG_BYTES: u64 = 16 * 1024 * 1024;

/// Between two looks at how long the log is.
const LOOK_AT_LOG_EVERY: Duration = Duration::from_secs(1);

/// Which sink's round, of which tenant.
type Round = (String, Option<String>);

fn round(claim: &Claim) -> Round {
    (claim.sink.clone(), claim.tenant_id.clone())
}

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
    /// None: it is in memory.
    file: Option<OpenFile>,
    looked_at_log: Option<Instant>,
    /// Set when whoever asked for the work no longer waits for it.
    unwanted: Arc<AtomicBool>,
}

impl Session {
    fn new(connection: Connection, file: Option<OpenFile>) -> Self {
        Self { connection, cursors: HashMap::new(), file, looked_at_log: None, unwanted: Arc::default() }
    }

    /// From here on the work is for whoever has this mark.
    fn wait_for(&mut self, unwanted: Arc<AtomicBool>) -> Result<(), Error> {
        self.file.as_ref().map_or(Ok(()), OpenFile::check)?;
        self.unwanted = Arc::clone(&unwanted);
        let look = move || unwanted.load(Ordering::Acquire);
        Ok(self.connection.progress_handler(STEPS_BETWEEN_LOOKS, Some(look))?)
    }

    pub(super) fn cursor(&self, claim: &Claim) -> Cursor {
        self.cursors.get(&round(claim)).cloned().unwrap_or_default()
    }

    pub(super) fn remember(&mut self, claim: &Claim, cursor: Cursor) {
        if self.cursors.len() >= REMEMBERED_ROUNDS {
            self.cursors.clear();
        }
        self.cursors.insert(round(claim), cursor);
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
            return Err(Error::new(ErrorKind::Stopped, "rolled back: nobody waits for the answer any more"));
        }
        tx.commit()?;
        self.cut_log_back();
        Ok(done)
    }

    /// A log that grew while somebody read for long would stay so long: SQLite begins it anew, and does not shorten it. If
    /// somebody still reads, the next commit tries again, a moment later. What is committed stands in any case.
    fn cut_log_back(&mut self) {
        let Some(file) = &self.file else { return };
        if self.looked_at_log.is_some_and(|at| at.elapsed() < LOOK_AT_LOG_EVERY) {
            return;
        }
        self.looked_at_log = Some(Instant::now());
        if file.log_bytes() > LONG_LOG_BYTES {
            // Nobody is waited for.
            let cut = self.connection.busy_timeout(Duration::ZERO).and_then(|()| {
                self.connection.query_row("pragma wal_checkpoint(truncate)", [], |row| row.get::<_, i64>(0))
            });
            drop(cut);
            drop(self.connection.busy_timeout(open::BUSY_TIMEOUT));
        }
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
    pub(super) fn start(name: &str, connection: Connection, file: Option<OpenFile>) -> std::io::Result<Self> {
        let (jobs, mut waiting) = mpsc::channel::<Job>(WAITING_JOBS);
        std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            let mut session = Session::new(connection, file);
            while let Some(job) = waiting.blocking_recv() {
                job(&mut session);
            }
        })?;
        Ok(Self { jobs })
    }

    /// Waits for its turn, and for the answer. Work whose caller has gone before its turn came is not done, and work whose
    /// caller goes meanwhile is interrupted.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Session) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let (reply, answer) = oneshot::channel();
        let wanted = Wanted(Arc::default());
        let unwanted = Arc::clone(&wanted.0);
        let job: Job = Box::new(move |session| {
            if !reply.is_closed() {
                let done = session.wait_for(unwanted).and_then(|()| work(session));
                // The caller may have gone meanwhile: what was committed stands.
                drop(reply.send(done));
            }
        });
        self.jobs.send(job).await.map_err(|_| Error::from(Cause::StoreStopped))?;
        let answer = answer.await.map_err(|_| Error::from(Cause::StoreStopped))?;
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn work_that_nobody_waits_for_is_interrupted() {
        const ENDLESS: &str = "with recursive n (i) as (select 1 union all select i + 1 from n) select count(*) from n";
        let thread =
            Thread::start("test", Connection::open_in_memory().expect("a connection"), None).expect("a thread");
        let number = |sql: &'static str| {
            thread.run(move |session| Ok(session.connection.query_row(sql, [], |row| row.get::<_, i64>(0))?))
        };
        let soon = Duration::from_millis(100);
        assert!(tokio::time::timeout(soon, number(ENDLESS)).await.is_err(), "it has no end");
        let next = tokio::time::timeout(Duration::from_secs(10), number("select 7")).await;
        assert_eq!(next.expect("the thread is still busy").expect("an answer"), 7);
    }
}
