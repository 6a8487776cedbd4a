//! Actions on many dead letters or deliveries: which ones, how many there are, and the actions that change them
//! batch by batch. Shared by the commands, `top` and the admin API, so that all of them count and act in the same way.
//! Nothing here asks a person or prints.

use std::time::{Duration, SystemTime};

use postrider::{Action, DeadFilter, DeliveryFilter, Error, MAX_PER_ACTION, Store};
use uuid::Uuid;

/// What is to happen, and to which.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Bulk {
    Redrive(DeadFilter),
    Discard(DeadFilter),
    Cancel(DeliveryFilter),
    RetryNow(DeliveryFilter),
}

/// What it would take.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Counted {
    pub(crate) matching: u64,
    /// Deliveries of the kind that workers hold, for a cancel: they are left alone.
    pub(crate) leased: u64,
    /// Messages that were named and not found.
    pub(crate) missing: Vec<Uuid>,
}

impl Bulk {
    /// Only what is dead by this time of the store: what dies again while the batches go on is not taken a second time.
    pub(crate) fn dead_by(mut self, now: SystemTime) -> Self {
        if let Self::Redrive(which) | Self::Discard(which) = &mut self {
            // One step past the store's clock, for what died in this very moment.
            let now = now + Duration::from_micros(1);
            which.died_to = Some(which.died_to.map_or(now, |to| to.min(now)));
        }
        self
    }

    /// What it would take now. Changes nothing.
    pub(crate) async fn count(&self, store: &dyn Store) -> Result<Counted, Error> {
        match self {
            Self::Redrive(which) | Self::Discard(which) => {
                let matching = store.count_dead(which).await?;
                let missing = if which.message_ids.is_some() { store.not_dead(which).await? } else { Vec::new() };
                Ok(Counted { matching, leased: 0, missing })
            }
            Self::Cancel(which) | Self::RetryNow(which) => {
                let open = store.count_open(which).await?;
                let missing = if which.message_ids.is_some() { store.not_open(which).await? } else { Vec::new() };
                let (matching, leased) =
                    if matches!(self, Self::Cancel(_)) { (open.pending, open.leased) } else { (open.waiting, 0) };
                Ok(Counted { matching, leased, missing })
            }
        }
    }

    /// The next batch, if so many are left to be changed.
    pub(crate) fn batch(&self, left: u64) -> Action {
        let at_most = u32::try_from(left).unwrap_or(MAX_PER_ACTION).min(MAX_PER_ACTION);
        match self {
            Self::Redrive(which) => Action::Redrive { which: which.clone(), at_most },
            Self::Discard(which) => Action::Discard { which: which.clone(), at_most },
            Self::Cancel(which) => Action::Cancel { which: which.clone(), at_most },
            Self::RetryNow(which) => Action::RetryNow { which: which.clone(), at_most },
        }
    }

    /// `redriven`, `cancelled`.
    pub(crate) fn done(&self) -> &'static str {
        match self {
            Self::Redrive(_) => "redriven",
            Self::Discard(_) => "discarded",
            Self::Cancel(_) => "cancelled",
            Self::RetryNow(_) => "made due",
        }
    }

    /// What stands before the ids of messages that were named and not found.
    pub(crate) fn not_found(&self) -> &'static str {
        match self {
            Self::Redrive(_) | Self::Discard(_) => "no dead letter of",
            Self::Cancel(_) | Self::RetryNow(_) => "no open delivery of",
        }
    }
}
