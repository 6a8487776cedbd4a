//! Actions on many dead letters, deliveries or messages: which ones, how many there are, and the batches that change them.
//! Shared by the commands, `top` and the admin API, so that all of them count, act and report in the same way. Nothing here
//! asks a person or prints.

use std::collections::HashSet;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use postrider::inspect::{DeadFilter, DeliveryFilter, RouteChanges, rfc3339};
use postrider::operate::{Action, Done, MAX_PER_ACTION, Replay};
use postrider::{Error, ErrorKind, Store};
use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

/// Carries actions out in somebody's name.
#[async_trait]
pub(crate) trait Operator: Sync {
    type Error: Send;

    async fn operate(&self, action: &Action) -> Result<Done, Self::Error>;
}

/// What an action on many did, or would do: the answer of the admin API, and of the commands with `--json`.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct ActionReport {
    /// How many there were of this kind.
    pub(crate) matching: u64,
    /// How many were changed.
    pub(crate) affected: u64,
    /// How many are left because one request does not take more.
    pub(crate) remaining: u64,
    /// Of a cancel or an unclaim: held by workers, and left alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) leased: Option<u64>,
    /// Of a replay: messages that the sink never had. They are part of `matching` only with `include_never_delivered`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) never_delivered: Option<u64>,
    /// Of applied routes: deliveries to sinks that never had the message, as counted before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) added: Option<u64>,
    /// Of applied routes: deliveries to sinks that no route names, as counted before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) removed: Option<u64>,
    /// Messages that were named and not found.
    pub(crate) missing: Vec<Uuid>,
    /// Whether it only counted.
    pub(crate) dry_run: bool,
    /// Of a dry run on dead letters: those that died before this time were counted. As `died_to` of the filter it takes these.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub(crate) died_to: Option<String>,
    /// Of a replay: there are more, which one request does not take.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) more: bool,
    /// Of a replay: for `after`, to go on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<Uuid>,
    /// Of a replay: for `paced_from`, to go on.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub(crate) paced_until: Option<String>,
}

impl ActionReport {
    /// Nothing was changed.
    pub(crate) fn dry_run(matching: u64) -> Self {
        Self { matching, remaining: matching, dry_run: true, ..Self::default() }
    }

    /// It was carried out, and so many are left.
    pub(crate) fn acted(self, affected: u64, remaining: u64) -> Self {
        Self { affected, remaining, dry_run: false, died_to: None, ..self }
    }
}

/// What is to happen, and to which.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Bulk {
    Redrive(DeadFilter),
    Discard(DeadFilter),
    Cancel(DeliveryFilter),
    RetryNow(DeliveryFilter),
    /// Pending deliveries go to the sinks that today's routes name.
    ApplyRoutes,
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

    /// What it would take now, as the report of a dry run. Changes nothing.
    pub(crate) async fn count(&self, store: &dyn Store) -> Result<ActionReport, Error> {
        match self {
            Self::Redrive(which) | Self::Discard(which) => {
                check_ids(which.message_ids.as_deref())?;
                let matching = store.count_dead(which).await?;
                let missing = if which.message_ids.is_some() { store.not_dead(which).await? } else { Vec::new() };
                let died_to = which.died_to.map(rfc3339);
                Ok(ActionReport { missing, died_to, ..ActionReport::dry_run(matching) })
            }
            Self::Cancel(which) | Self::RetryNow(which) => {
                check_ids(which.message_ids.as_deref())?;
                let open = store.count_open(which).await?;
                let missing = if which.message_ids.is_some() { store.not_open(which).await? } else { Vec::new() };
                let cancel = matches!(self, Self::Cancel(_));
                let (matching, leased) = if cancel { (open.pending, Some(open.leased)) } else { (open.waiting, None) };
                Ok(ActionReport { leased, missing, ..ActionReport::dry_run(matching) })
            }
            Self::ApplyRoutes => {
                let RouteChanges { added, removed } = store.count_route_changes().await?;
                let counted = ActionReport::dry_run(added + removed);
                Ok(ActionReport { added: Some(added), removed: Some(removed), ..counted })
            }
        }
    }

    /// Acts batch by batch until `total` are done, nothing is left, or `go_on` says no; it hears after each batch how many
    /// it was. It never takes more than `total`: what fails again meanwhile is not taken twice. At least one batch is
    /// carried out: a request that finds nothing is in the audit, too. An error comes with what was done before it.
    pub(crate) async fn in_batches<O: Operator>(
        &self,
        total: u64,
        operator: &O,
        mut go_on: impl FnMut(u64) -> bool,
    ) -> Result<u64, (u64, O::Error)> {
        let mut done = 0;
        loop {
            let batch = operator.operate(&self.batch((total - done).max(1))).await;
            let affected = batch.map_err(|error| (done, error))?.affected;
            done += affected;
            if !go_on(done) || affected == 0 || done >= total {
                return Ok(done);
            }
        }
    }

    /// The next batch, if so many are left to be changed.
    fn batch(&self, left: u64) -> Action {
        let at_most = u32::try_from(left).unwrap_or(MAX_PER_ACTION).min(MAX_PER_ACTION);
        match self {
            Self::Redrive(which) => Action::Redrive { which: which.clone(), at_most },
            Self::Discard(which) => Action::Discard { which: which.clone(), at_most },
            Self::Cancel(which) => Action::Cancel { which: which.clone(), at_most },
            Self::RetryNow(which) => Action::RetryNow { which: which.clone(), at_most },
            Self::ApplyRoutes => Action::ApplyRoutes { at_most },
        }
    }

    /// `redriven`, `cancelled`.
    pub(crate) fn done(&self) -> &'static str {
        match self {
            Self::Redrive(_) => "redriven",
            Self::Discard(_) => "discarded",
            Self::Cancel(_) => "cancelled",
            Self::RetryNow(_) => "made due",
            Self::ApplyRoutes => "rerouted",
        }
    }

    /// What stands before the ids of messages that were named and not found.
    pub(crate) fn not_found(&self) -> &'static str {
        match self {
            Self::Redrive(_) | Self::Discard(_) => "no dead letter of",
            Self::Cancel(_) | Self::RetryNow(_) | Self::ApplyRoutes => "no open delivery of",
        }
    }
}

/// More ids than one action takes.
fn check_ids(message_ids: Option<&[Uuid]>) -> Result<(), Error> {
    match message_ids {
        Some(ids) if ids.len() > MAX_PER_ACTION as usize => {
            Err(Error::new(ErrorKind::Refused, format!("more than {MAX_PER_ACTION} message_ids in one request")))
        }
        _ => Ok(()),
    }
}

/// Which of the messages that a replay names are not in the store.
pub(crate) async fn not_in_store(store: &dyn Store, replay: &Replay) -> Result<Vec<Uuid>, Error> {
    let Some(ids) = replay.message_ids.as_deref().filter(|ids| !ids.is_empty()) else { return Ok(Vec::new()) };
    check_ids(Some(ids))?;
    let found: HashSet<Uuid> = store.entries(ids).await?.iter().map(|entry| entry.message_id).collect();
    Ok(ids.iter().copied().filter(|id| !found.contains(id)).collect())
}

/// What a replay would take, step by step as it would go itself, until `go_on` says no.
pub(crate) async fn count_replay(
    store: &dyn Store,
    replay: &Replay,
    mut go_on: impl FnMut() -> bool,
) -> Result<ActionReport, Error> {
    let mut step = replay.clone();
    let mut report = ActionReport::dry_run(0);
    let mut never_delivered = 0;
    loop {
        let counted = store.count_replay(&step).await?;
        never_delivered += counted.never_delivered;
        report.matching += counted.delivered;
        report.more = counted.next.is_some();
        if !report.more || !go_on() {
            break;
        }
        step.after = counted.next;
    }
    report.matching += if replay.include_never_delivered { never_delivered } else { 0 };
    report.remaining = report.matching;
    report.never_delivered = Some(never_delivered);
    Ok(report)
}

/// Replays step by step, each where the last one ended, until `go_on` says no; it hears after each step how many it was.
pub(crate) async fn replay<O: Operator>(
    mut replay: Replay,
    operator: &O,
    mut go_on: impl FnMut(u64) -> bool,
) -> Result<Done, (u64, O::Error)> {
    let mut affected = 0;
    loop {
        let done = operator.operate(&Action::Replay(replay.clone())).await.map_err(|error| (affected, error))?;
        affected += done.affected;
        if !go_on(affected) || done.next.is_none() {
            return Ok(Done { affected, ..done });
        }
        (replay.after, replay.paced_from) = (done.next, done.paced_until);
    }
}
