//! What a relay does with an outbox in SQLite. Called through the trait; each method is one transaction on the thread that writes.
//! What takes several steps is in `claim.rs`, `complete.rs`, `prune.rs` and `watch.rs`. What the holder of a lease does is
//! fenced: only a row that still holds the token, and whose lease has not ended by SQLite's clock, is changed.

use std::time::Duration;

use async_trait::async_trait;
use rusqlite::{ToSql, Transaction};
use uuid::Uuid;

use super::statement::{execute, first, micros, sql, values};
use super::{SqliteStore, claim, complete, input, listen, open, operate, prune, watch};
use crate::enqueue::{self, Enqueued};
use crate::error::Error;
use crate::inbox::{self, Event};
use crate::inspect::{Inspect as _, RelayReport};
use crate::lifecycle::{Claim, Claimed, ClaimedContent, Completed, Completion, LeaseToken};
use crate::message::Message;
use crate::store::{Listener, Pruned, Queue};

/// Received events that go in one transaction of a prune.
const INBOX_BATCH: u32 = 1_000;

#[async_trait]
impl Queue for SqliteStore {
    async fn enqueue(&self, messages: &[Message]) -> Result<Vec<Enqueued>, Error> {
        enqueue::check_many(messages)?;
        if messages.is_empty() {
            return Ok(Vec::new());
        }
        let messages = messages.to_vec();
        self.write(move |tx, _| enqueue::rusqlite::enqueue_many(tx, &messages)).await
    }

    async fn claim(&self, claim: &Claim) -> Result<Vec<Claimed>, Error> {
        input::claim(claim)?;
        let claim = claim.clone();
        self.writer.run(move |session| claim::claim(session, &claim)).await
    }

    async fn complete(&self, worker_id: &str, completions: &[Completion]) -> Result<Vec<Completed>, Error> {
        input::completions(completions)?;
        if completions.is_empty() {
            return Ok(Vec::new());
        }
        let (worker_id, completions) = (worker_id.to_owned(), completions.to_vec());
        self.write(move |tx, now| complete::complete(tx, &worker_id, &completions, now)).await
    }

    async fn renew(&self, token: LeaseToken, message_ids: &[Uuid], lease: Duration) -> Result<Vec<Uuid>, Error> {
        input::lease(lease)?;
        let ids = message_ids.to_vec();
        self.write(move |tx, now| {
            changed(&ids, |id| {
                let terms: [(&str, &dyn ToSql); 4] =
                    [(":message_id", id), (":lease_token", &token.0), (":now", &now), (":lease_us", &micros(lease))];
                execute(tx, sql!("lease", "renew"), &terms)
            })
        })
        .await
    }

    /// A claim that is still in front of the writer is not carried out, since its caller has gone, and one that has just been
    /// committed stands before this.
    async fn abandon(&self, token: LeaseToken) -> Result<u64, Error> {
        self.writer
            .run(move |session| {
                let held: [(&str, &dyn ToSql); 1] = [(":lease_token", &token.0)];
                let ids: Vec<Uuid> = session.read(|tx, _| values(tx, sql!("lease", "held_under"), &held))?;
                if ids.is_empty() {
                    return Ok(0);
                }
                Ok(session.write(|tx, now| release(tx, token, &ids, now))?.len() as u64)
            })
            .await
    }

    async fn has_due(&self, sink: &str, tenant_id: Option<&str>) -> Result<bool, Error> {
        input::sink(sink)?;
        let (sink, tenant_id) = (sink.to_owned(), tenant_id.map(str::to_owned));
        self.reader.run(move |session| claim::has_due(session, &sink, tenant_id.as_deref())).await
    }

    async fn content(&self, token: LeaseToken, message_id: Uuid) -> Result<Option<ClaimedContent>, Error> {
        self.read(move |tx, now| {
            let held: [(&str, &dyn ToSql); 3] =
                [(":message_id", &message_id), (":lease_token", &token.0), (":now", &now)];
            first(tx, sql!("lease", "content"), &held)
        })
        .await
    }

    async fn release(&self, token: LeaseToken, message_ids: &[Uuid]) -> Result<Vec<Uuid>, Error> {
        let ids = message_ids.to_vec();
        self.write(move |tx, now| release(tx, token, &ids, now)).await
    }

    async fn repair_expired_leases(&self, batch_size: u32) -> Result<u64, Error> {
        input::batch_size(batch_size)?;
        self.write(move |tx, now| complete::end_stale(tx, now, Some(batch_size), (Duration::ZERO, false))).await
    }

    async fn prune(&self) -> Result<Pruned, Error> {
        let mut pruned = Pruned::default();
        // Batch by batch, each in its turn with whatever else the writer has to do.
        let mut next = Some(Uuid::nil());
        while let Some(after) = next {
            let (deleted, last) =
                self.write(move |tx, now| prune::prune_messages(tx, now, None, after, prune::PRUNE_BATCH)).await?;
            pruned.rest_deleted += deleted;
            next = last;
        }
        loop {
            let deleted = self.write(|tx, now| prune::prune_dedupe(tx, now, prune::PRUNE_BATCH)).await?;
            pruned.dedupe_deleted += deleted;
            if deleted < prune::PRUNE_BATCH as u64 {
                break;
            }
        }
        self.writer.run(move |session| operate::pruned(session, pruned)).await?;
        Ok(pruned)
    }

    async fn forward(&self, arrivals: &[(Event, Message)]) -> Result<Vec<bool>, Error> {
        let (events, messages): (Vec<Event>, Vec<Message>) = arrivals.iter().cloned().unzip();
        enqueue::check_many(&messages)?;
        self.write(move |tx, _| {
            let first = inbox::rusqlite::receive_many(tx, &events)?;
            let new: Vec<Message> =
                messages.into_iter().zip(&first).filter(|(_, first)| **first).map(|(message, _)| message).collect();
            enqueue::rusqlite::enqueue_many(tx, &new)?;
            Ok(first)
        })
        .await
    }

    async fn prune_inbox(&self, older_than: Option<Duration>) -> Result<u64, Error> {
        older_than.map_or(Ok(()), input::age)?;
        let mut pruned = 0;
        loop {
            let deleted = self.write(move |tx, _| inbox::rusqlite::prune_inbox(tx, older_than, INBOX_BATCH)).await?;
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
        // Names, numbers and durations: nothing in it can fail to be JSON.
        let sinks = serde_json::to_string(&report.sinks).unwrap_or_else(|_| "[]".to_owned());
        self.write(move |tx, now| {
            execute(tx, sql!("watch", "forget_relays"), &[(":now", &now), (":worker_id", &report.worker_id)])?;
            let said: [(&str, &dyn ToSql); 5] = [
                (":worker_id", &report.worker_id),
                (":now", &now),
                (":every_us", &micros(report.every)),
                (":version", &report.version),
                (":sinks", &sinks),
            ];
            execute(tx, sql!("watch", "report"), &said).map(drop)
        })
        .await
    }

    async fn sign_off(&self, worker_id: &str) -> Result<(), Error> {
        let worker_id = worker_id.to_owned();
        self.write(move |tx, _| execute(tx, sql!("watch", "sign_off"), &[(":worker_id", &worker_id)]).map(drop)).await
    }

    async fn measure(&self) -> Result<bool, Error> {
        watch::measure(self).await
    }
}

fn release(tx: &Transaction<'_>, token: LeaseToken, message_ids: &[Uuid], now: i64) -> Result<Vec<Uuid>, Error> {
    changed(message_ids, |id| {
        let terms: [(&str, &dyn ToSql); 3] = [(":message_id", id), (":lease_token", &token.0), (":now", &now)];
        execute(tx, sql!("lease", "release"), &terms)
    })
}

/// The ids for which something changed, each once.
fn changed(message_ids: &[Uuid], mut change: impl FnMut(&Uuid) -> Result<usize, Error>) -> Result<Vec<Uuid>, Error> {
    let mut named = message_ids.to_vec();
    named.sort_unstable();
    named.dedup();
    let mut changed = Vec::new();
    for id in named {
        if change(&id)? > 0 {
            changed.push(id);
        }
    }
    Ok(changed)
}
