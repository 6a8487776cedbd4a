//! The operator, and a worker that comes too late. The operator redrives what was refused once, discards half of what is
//! doomed, cancels what is due in hours, repairs, and pauses a sink for a moment. The late worker claims, sleeps past its
//! lease, and then completes, renews and releases with its old token: each must change nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use postrider::inspect::{DeadFilter, DeliveryFilter};
use postrider::lifecycle::{Claim, Completion, Outcome};
use postrider::operate::{Action, MAX_PER_ACTION};
use postrider::{Operate as _, PostgresStore, Queue as _};
use tokio_util::sync::CancellationToken;

use crate::books::Books;
use crate::faults::{Fault, Injected};
use crate::kinds::{CANCELLED, MAX_ATTEMPTS};
use crate::relay::{DOOMED, REFUSED};

const EVERY: Duration = Duration::from_millis(700);
const PAUSE: Duration = Duration::from_millis(150);
/// The late worker's lease.
const SHORT_LEASE: Duration = Duration::from_secs(1);
/// Arrivals between two claims of the late worker.
const LATE_EVERY: u64 = 300;
const LATE_BY: Duration = Duration::from_millis(150);

#[derive(Clone)]
pub(crate) struct Operator {
    pub(crate) store: PostgresStore,
    pub(crate) books: Arc<Books>,
    pub(crate) injected: Arc<Injected>,
    pub(crate) enough: CancellationToken,
    /// Writes with an old token that were refused.
    pub(crate) refused: Arc<AtomicU64>,
}

impl Operator {
    /// Until it is enough. Errors are what storms are made of: the next round tries again.
    pub(crate) async fn work(self) {
        let mut round = 0_u64;
        while !self.enough.is_cancelled() {
            tokio::time::sleep(EVERY).await;
            round += 1;
            drop(self.tidy(round.is_multiple_of(2)).await);
            if self.injected.is_chosen(Fault::Paused) && round.is_multiple_of(9) {
                self.pause().await;
            }
        }
    }

    /// What has to be done by a person. Returns what was changed.
    pub(crate) async fn tidy(&self, discard: bool) -> Result<u64, postrider::Error> {
        let mut changed = 0;
        let dead = |code: &str| DeadFilter { error_code: Some(code.to_owned()), ..DeadFilter::default() };
        let pending = DeliveryFilter { topic: Some(CANCELLED.to_owned()), ..DeliveryFilter::default() };
        let mut actions = vec![
            Action::Redrive { which: dead(REFUSED), at_most: MAX_PER_ACTION },
            Action::Cancel { which: pending, at_most: MAX_PER_ACTION },
        ];
        if discard {
            actions.push(Action::Discard { which: dead(DOOMED), at_most: 5 });
        }
        for action in actions {
            changed += self.store.operate("operator", &action).await?.affected;
        }
        Ok(changed)
    }

    async fn pause(&self) {
        if self.store.operate("operator", &Action::Pause { sink: "default".to_owned() }).await.is_ok() {
            self.injected.count(Fault::Paused);
        }
        tokio::time::sleep(PAUSE).await;
        self.resume().await;
    }

    /// Until it is so: a paused sink delivers nothing.
    pub(crate) async fn resume(&self) {
        while self.store.operate("operator", &Action::Resume { sink: "default".to_owned() }).await.is_err() {
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Until it is enough.
    pub(crate) async fn be_late(self) {
        let mut round = 0_u64;
        while !self.enough.is_cancelled() && self.injected.is_chosen(Fault::StaleWorker) {
            round += 1;
            // Each of its claims is an attempt of the messages' budgets.
            if self.enough.run_until_cancelled(self.books.arrivals(LATE_EVERY)).await.is_none() {
                return;
            }
            drop(self.claim_and_come_late(&format!("late-{round}")).await);
        }
    }

    async fn claim_and_come_late(&self, worker: &str) -> Result<(), postrider::Error> {
        let claim = Claim::new(worker).batch_size(4).lane_run(2).lease(SHORT_LEASE).max_attempts(MAX_ATTEMPTS);
        let held = match self.store.claim(&claim).await {
            Ok(held) if !held.is_empty() => held,
            other => {
                tokio::time::sleep(LATE_BY).await;
                return other.map(drop);
            }
        };
        tokio::time::sleep(SHORT_LEASE + LATE_BY).await;
        let ids: Vec<_> = held.iter().map(|claimed| claimed.message_id).collect();
        let token = held[0].lease_token;
        let outcomes: Vec<_> = held.iter().map(|claimed| Completion::new(claimed, Outcome::Dispatched)).collect();
        let accepted = self.store.complete(worker, &outcomes).await?.len()
            + self.store.renew(token, &ids, SHORT_LEASE).await?.len()
            + self.store.release(token, &ids).await?.len();
        if accepted > 0 {
            self.books.violation(format!("stale: {accepted} writes of {worker} were accepted after its lease"));
        }
        self.refused.fetch_add(3 * ids.len() as u64, Ordering::Relaxed);
        self.injected.count(Fault::StaleWorker);
        Ok(())
    }
}
