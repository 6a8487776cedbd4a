//! The SQLite store: an outbox in an application's own database file, for a site without a database server. Each
//! transition is one transaction of the statements in `sql/sqlite/statements`, run by one writer thread; several
//! processes may share a file. No row is written any other way.

mod claim;
mod complete;
mod dead;
mod file;
pub(crate) mod input;
mod inspect;
mod lease;
mod list;
mod listen;
mod migrate;
mod open;
mod operate;
mod pending;
mod prune;
mod routes;
mod session;
pub(crate) mod statement;
#[cfg(feature = "testing")]
mod testing;
mod watch;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use uuid::Uuid;

use self::file::OpenFile;
use self::session::{Session, Thread};
use crate::enqueue::{self, Enqueued};
use crate::error::{Cause, Error};
use crate::inbox::{self, Event};
use crate::inspect::{Inspect as _, RelayReport};
use crate::lifecycle::{Claim, Claimed, ClaimedContent, Completed, Completion, LeaseToken};
use crate::message::Message;
use crate::operate::{Action, Done};
use crate::store::{Listener, Operate, Pruned, Queue};

pub use self::migrate::migrate;
pub use self::open::{holds_outbox, try_enqueue};

/// Received events that go in one transaction of a prune.
const INBOX_BATCH: u32 = 1_000;

/// An outbox in a SQLite file. Cheap to clone; its threads end with the last clone.
#[derive(Clone)]
pub struct SqliteStore {
    path: Arc<Path>,
    writer: Thread,
    reader: Thread,
    file: OpenFile,
}

impl SqliteStore {
    /// Opens a file, making it if it is not there, and brings its tables to what this build needs. The file gets a
    /// write-ahead log (two more files beside it) and keeps it.
    ///
    /// Blocks for a moment: until the file is open and, the first time, its tables are made.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let mut connection = open::open(path)?;
        migrate(&mut connection)?;
        let file = OpenFile::new(path);
        let reader = open::open(path)?;
        reader.pragma_update(None, "query_only", true)?;
        let start = |name: &str, connection| {
            Thread::start(name, connection, Some(file.clone())).map_err(|error| {
                Error::from(Cause::SqliteOpen {
                    path: path.display().to_string(),
                    reason: format!("the system gave no thread for it: {error}"),
                })
            })
        };
        Ok(Self {
            path: path.into(),
            writer: start("postrider-writer", connection)?,
            reader: start("postrider-reader", reader)?,
            file: file.clone(),
        })
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.path.to_path_buf()
    }

    async fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Session) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        self.writer.run(work).await
    }
}

#[async_trait]
impl Queue for SqliteStore {
    async fn enqueue(&self, messages: &[Message]) -> Result<Vec<Enqueued>, Error> {
        enqueue::check_many(messages)?;
        if messages.is_empty() {
            return Ok(Vec::new());
        }
        let messages = messages.to_vec();
        self.write(move |session| session.write(|tx, _| enqueue::rusqlite::enqueue_many(tx, &messages))).await
    }

    async fn claim(&self, claim: &Claim) -> Result<Vec<Claimed>, Error> {
        input::claim(claim)?;
        let claim = claim.clone();
        self.write(move |session| claim::claim(session, &claim)).await
    }

    async fn complete(&self, worker_id: &str, completions: &[Completion]) -> Result<Vec<Completed>, Error> {
        input::completions(completions)?;
        if completions.is_empty() {
            return Ok(Vec::new());
        }
        let (worker_id, completions) = (worker_id.to_owned(), completions.to_vec());
        self.write(move |session| complete::complete(session, &worker_id, &completions)).await
    }

    async fn renew(&self, token: LeaseToken, message_ids: &[Uuid], lease: Duration) -> Result<Vec<Uuid>, Error> {
        input::lease(lease)?;
        let ids = message_ids.to_vec();
        self.write(move |session| lease::renew(session, token, &ids, lease)).await
    }

    async fn abandon(&self, token: LeaseToken) -> Result<u64, Error> {
        self.write(move |session| lease::abandon(session, token)).await
    }

    async fn has_due(&self, sink: &str, tenant_id: Option<&str>) -> Result<bool, Error> {
        input::sink(sink)?;
        let (sink, tenant_id) = (sink.to_owned(), tenant_id.map(str::to_owned));
        self.reader.run(move |session| claim::has_due(session, &sink, tenant_id.as_deref())).await
    }

    async fn content(&self, token: LeaseToken, message_id: Uuid) -> Result<Option<ClaimedContent>, Error> {
        self.reader.run(move |session| lease::content(session, token, message_id)).await
    }

    async fn release(&self, token: LeaseToken, message_ids: &[Uuid]) -> Result<Vec<Uuid>, Error> {
        let ids = message_ids.to_vec();
        self.write(move |session| lease::release(session, token, &ids)).await
    }

    async fn repair_expired_leases(&self, batch_size: u32) -> Result<u64, Error> {
        input::batch_size(batch_size)?;
        self.write(move |session| {
            session.write(|tx, now| lease::end_stale(tx, now, Some(batch_size), (Duration::ZERO, false)))
        })
        .await
    }

    async fn prune(&self) -> Result<Pruned, Error> {
        let mut pruned = Pruned::default();
        // Batch by batch, each in its turn with whatever else the writer has to do.
        let mut next = Some(Uuid::nil());
        while let Some(after) = next {
            let (deleted, last) = self
                .write(move |session| {
                    session.write(|tx, now| prune::prune_messages(tx, now, None, after, prune::PRUNE_BATCH))
                })
                .await?;
            pruned.rest_deleted += deleted;
            next = last;
        }
        loop {
            let deleted =
                self.write(|session| session.write(|tx, now| prune::prune_dedupe(tx, now, prune::PRUNE_BATCH))).await?;
            pruned.dedupe_deleted += deleted;
            if deleted < prune::PRUNE_BATCH as u64 {
                break;
            }
        }
        self.write(move |session| operate::pruned(session, pruned)).await?;
        Ok(pruned)
    }

    async fn forward(&self, arrivals: &[(Event, Message)]) -> Result<Vec<bool>, Error> {
        let (events, messages): (Vec<Event>, Vec<Message>) = arrivals.iter().cloned().unzip();
        enqueue::check_many(&messages)?;
        self.write(move |session| {
            session.write(|tx, _| {
                let first = inbox::rusqlite::receive_many(tx, &events)?;
                let new: Vec<Message> =
                    messages.into_iter().zip(&first).filter(|(_, first)| **first).map(|(message, _)| message).collect();
                enqueue::rusqlite::enqueue_many(tx, &new)?;
                Ok(first)
            })
        })
        .await
    }

    async fn prune_inbox(&self, older_than: Option<Duration>) -> Result<u64, Error> {
        older_than.map_or(Ok(()), input::age)?;
        let mut pruned = 0;
        loop {
            let deleted = self
                .write(move |session| session.write(|tx, _| inbox::rusqlite::prune_inbox(tx, older_than, INBOX_BATCH)))
                .await?;
            pruned += deleted;
            if deleted < u64::from(INBOX_BATCH) {
                return Ok(pruned);
            }
        }
    }

    /// Nothing to do: a SQLite file grows by itself.
    async fn make_partitions(&self) -> Result<u64, Error> {
        Ok(0)
    }

    /// Nobody needs to know who sleeps: a listener sees every commit.
    async fn sleep(&self, worker_id: &str, at_most: Duration) -> Result<(), Error> {
        input::worker(worker_id)?;
        input::sleep(at_most)
    }

    async fn woke(&self, _worker_id: &str) -> Result<(), Error> {
        Ok(())
    }

    async fn listen(&self) -> Result<Box<dyn Listener>, Error> {
        let (path, file) = (self.path.clone(), self.file.clone());
        let listener = self.reader.run(move |_| listen::SqliteListener::new(open::open(&path)?, file)).await?;
        Ok(Box::new(listener))
    }

    async fn can_write(&self) -> Result<(), Error> {
        // A file that may not be written is refused when it is opened.
        self.now().await.map(drop)
    }

    async fn report(&self, report: &RelayReport) -> Result<(), Error> {
        input::report(report)?;
        let report = report.clone();
        self.write(move |session| watch::report(session, &report)).await
    }

    async fn sign_off(&self, worker_id: &str) -> Result<(), Error> {
        let worker_id = worker_id.to_owned();
        self.write(move |session| watch::sign_off(session, &worker_id)).await
    }

    async fn measure(&self) -> Result<bool, Error> {
        watch::measure(self).await
    }
}

#[async_trait]
impl Operate for SqliteStore {
    async fn operate(&self, actor: &str, action: &Action) -> Result<Done, Error> {
        let (actor, action) = (actor.to_owned(), action.clone());
        self.write(move |session| operate::operate(session, &actor, &action)).await
    }

    async fn enqueue_as(&self, actor: &str, message: &Message) -> Result<Enqueued, Error> {
        let (actor, message) = (actor.to_owned(), message.clone());
        self.write(move |session| operate::enqueue(session, &actor, &message)).await
    }
}
