//! Every fault by its name, with one line of what it does; which of them a run injects, and how often each was injected.
//! `scripts/torture --list` prints this. A fault that is not here cannot be injected.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use clap::ValueEnum;

macro_rules! faults {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// What can be injected into the storm.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, ValueEnum)]
        pub(crate) enum Fault {$($(#[doc = $doc])+ $name,)+}

        impl Fault {
            pub(crate) fn explained(self) -> &'static str {
                match self {$(Self::$name => concat!($($doc,)+).trim_ascii(),)+}
            }
        }
    };
}

faults! {
    /// SIGKILL to a relay, at whatever it is doing.
    RelayKilled,
    /// SIGKILL to a relay whose claim has committed and that has not heard of it.
    RelayKilledAfterClaim,
    /// SIGKILL to a relay whose batch has arrived and that has not heard of it.
    RelayKilledAfterSend,
    /// SIGKILL to a relay that has all answers and has not recorded them.
    RelayKilledBeforeComplete,
    /// SIGSTOP to a relay until after its lease, then SIGCONT.
    RelayStopped,
    /// SIGKILL to every process of the server, and crash recovery.
    ServerKilled,
    /// Every connection of a relay or of the producers cut, and some refused after it.
    ConnectionsCut,
    /// The commit of an enqueue goes through and its answer is lost.
    AnswerLostEnqueue,
    /// The commit of a claim goes through and its answer is lost.
    AnswerLostClaim,
    /// The commit of a completion goes through and its answer is lost.
    AnswerLostComplete,
    /// The commit of a renewal goes through and its answer is lost.
    AnswerLostRenew,
    /// Connections of a relay stay open and nothing answers, until after its lease.
    BlackHole,
    /// Answers to a relay come at 64 kB a second.
    SlowNetwork,
    /// The table of deliveries is locked for longer than a claim waits.
    TableLocked,
    /// Every session of the outbox is ended, every 200 ms, ten times.
    BackendsTerminated,
    /// Every statement of the outbox is cancelled (57014), every 50 ms, twenty times.
    StatementsCancelled,
    /// New sessions have a `statement_timeout` of 20 ms, and the old ones are ended.
    StatementTimeout,
    /// The server has no connection left (53300).
    ConnectionsExhausted,
    /// Writes of attempts and leases fail with 40001.
    SerializationFailures,
    /// Writes of attempts and leases fail with 40P01.
    Deadlocks,
    /// A producer drops its future in the middle of a transaction.
    FutureCancelled,
    /// A producer rolls back.
    RolledBack,
    /// A listener that hears nothing, in an open transaction, while others notify a thousand times.
    ListenerStuck,
    /// A relay's clock is an hour ahead or behind (libfaketime).
    RelayClock,
    /// A snapshot of the outbox stays open for five seconds: no vacuum removes a row.
    PinnedSnapshot,
    /// Autovacuum is off for five seconds.
    AutovacuumOff,
    /// What the planner knows of the tables is wrong: empty, or a hundred million rows.
    StaleStatistics,
    /// VACUUM FULL of the hot tables.
    VacuumFull,
    /// REINDEX CONCURRENTLY of the hot table.
    Reindex,
    /// `migrate up` while everything goes on.
    MigrateUp,
    /// `prune`, and a dedupe window of seconds while keys are in flight.
    Prune,
    /// A sink is paused and resumed.
    Paused,
    /// A worker that sleeps past its lease and then completes, renews and releases; each must be refused.
    StaleWorker,
    /// A server that is restarted in order, as for an upgrade.
    ServerRestarted,
    /// A database that accepts no writes for a second.
    ReadOnly,
}

impl Fault {
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    pub(crate) fn all() -> &'static [Self] {
        Self::value_variants()
    }
}

/// Which faults a run injects, and how often each was.
#[derive(Debug, Default)]
pub(crate) struct Injected {
    chosen: BTreeSet<Fault>,
    counts: Mutex<BTreeMap<Fault, u64>>,
}

impl Injected {
    pub(crate) fn new(chosen: impl IntoIterator<Item = Fault>) -> Self {
        Self { chosen: chosen.into_iter().collect(), counts: Mutex::default() }
    }

    pub(crate) fn is_chosen(&self, fault: Fault) -> bool {
        self.chosen.contains(&fault)
    }

    /// Of these, those that are to be injected.
    pub(crate) fn of(&self, faults: &[Fault]) -> Vec<Fault> {
        faults.iter().copied().filter(|&fault| self.is_chosen(fault)).collect()
    }

    pub(crate) fn count(&self, fault: Fault) {
        *self.counts.lock().unwrap_or_else(PoisonError::into_inner).entry(fault).or_default() += 1;
    }

    pub(crate) fn counts(&self) -> BTreeMap<Fault, u64> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn number(&self, faults: &[Fault]) -> u64 {
        let counts = self.counts();
        faults.iter().filter_map(|fault| counts.get(fault)).sum()
    }
}

/// The faults that end a relay process.
pub(crate) const RELAY_KILLS: [Fault; 4] =
    [Fault::RelayKilled, Fault::RelayKilledAfterClaim, Fault::RelayKilledAfterSend, Fault::RelayKilledBeforeComplete];
