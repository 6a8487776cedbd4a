//! What a run has shown, added up over its rounds, as text and as JSON. Called by `main` after each round; it decides
//! nothing.

use std::time::Duration;

use serde_json::{Value, json};

use crate::checker::Figures;
use crate::faults::{Fault, Injected, RELAY_KILLS};
use crate::storm::LEASE;

/// What one round has shown.
#[derive(Debug, Default)]
pub(crate) struct RoundFigures {
    pub(crate) history: Figures,
    pub(crate) samples: u64,
    pub(crate) memory_bytes: u64,
    pub(crate) connections: i64,
    pub(crate) stale_refused: u64,
    pub(crate) lost_answers: u64,
    pub(crate) outage: Duration,
    pub(crate) drained: Option<Duration>,
    pub(crate) violations: Vec<String>,
    pub(crate) more_violations: u64,
}

/// What all rounds together have shown.
#[derive(Debug, Default)]
pub(crate) struct RunFigures {
    rounds: u64,
    messages: u64,
    delivered: u64,
    dead: u64,
    given_up: u64,
    attempts: u64,
    expired: u64,
    duplicates: u64,
    samples: u64,
    memory_bytes: u64,
    connections: i64,
    stale_refused: u64,
    lost_answers: u64,
    slowest_drain: Duration,
    outage: Duration,
    /// Redeliveries by hundredths of a second; what is longer is in the last one.
    redeliveries: Vec<u64>,
    pub(crate) violations: u64,
}

const REDELIVERY_STEPS: usize = 6_000;
const STEP_MS: u128 = 10;

impl RunFigures {
    pub(crate) fn add(&mut self, round: &RoundFigures) {
        let history = &round.history;
        self.rounds += 1;
        self.messages += history.messages;
        self.delivered += history.delivered;
        self.dead += history.dead;
        self.given_up += history.given_up;
        self.attempts += history.attempts;
        self.expired += history.expired;
        self.duplicates += history.duplicates;
        self.samples += round.samples;
        self.memory_bytes = self.memory_bytes.max(round.memory_bytes);
        self.connections = self.connections.max(round.connections);
        self.stale_refused += round.stale_refused;
        self.lost_answers += round.lost_answers;
        self.outage += round.outage;
        self.slowest_drain = self.slowest_drain.max(round.drained.unwrap_or(Duration::MAX));
        self.redeliveries.resize(REDELIVERY_STEPS, 0);
        for redelivery in &history.redeliveries {
            let step = usize::try_from(redelivery.as_millis() / STEP_MS).unwrap_or(usize::MAX);
            self.redeliveries[step.min(REDELIVERY_STEPS - 1)] += 1;
        }
        self.violations += round.violations.len() as u64 + round.more_violations;
    }

    pub(crate) fn messages(&self) -> u64 {
        self.messages
    }

    /// The shortest time within which this part of a thousand was redelivered.
    fn redelivered_within(&self, per_mille: u64) -> Duration {
        let all: u64 = self.redeliveries.iter().sum();
        let mut seen = 0;
        for (step, count) in self.redeliveries.iter().enumerate() {
            seen += count;
            if seen * 1_000 >= all * per_mille {
                return Duration::from_millis((step as u64 + 1) * 10);
            }
        }
        Duration::ZERO
    }

    /// False: redelivery took longer than a lease and a second.
    pub(crate) fn redelivers_in_time(&self) -> bool {
        self.redelivered_within(990) <= LEASE + Duration::from_secs(1)
    }

    pub(crate) fn json(&self, seed: u64, injected: &Injected) -> Value {
        let faults: serde_json::Map<String, Value> =
            injected.counts().into_iter().map(|(fault, count)| (fault.name(), count.into())).collect();
        json!({
            "seed": seed, "rounds": self.rounds, "violations": self.violations, "messages": self.messages,
            "delivered": self.delivered, "dead": self.dead, "given_up": self.given_up, "attempts": self.attempts,
            "expired": self.expired, "duplicates": self.duplicates, "snapshots": self.samples,
            "memory_bytes": self.memory_bytes, "connections": self.connections,
            "stale_writes_refused": self.stale_refused, "lost_answers": self.lost_answers,
            "slowest_drain_ms": millis(self.slowest_drain), "server_away_ms": millis(self.outage),
            "redeliveries": self.redeliveries.iter().sum::<u64>(),
            "redelivery_ms": { "p50": millis(self.redelivered_within(500)), "p99": millis(self.redelivered_within(990)),
                               "p999": millis(self.redelivered_within(999)), "max": millis(self.redelivered_within(1_000)) },
            "relay_kills": injected.number(&RELAY_KILLS), "server_kills": injected.number(&[Fault::ServerKilled]),
            "faults": faults,
        })
    }

    /// The same for people, several lines.
    pub(crate) fn text(&self, injected: &Injected) -> String {
        let faults: Vec<String> =
            injected.counts().into_iter().map(|(fault, count)| format!("{} {count}", fault.name())).collect();
        format!(
            "{} rounds, {} messages: {} delivered, {} dead, {} given up; {} attempts, {} leases expired, {} duplicates\n\
             redelivery after a kill or stop: {} of them, p50 {:?}, p99 {:?}, p99.9 {:?}, longest {:?} (lease {LEASE:?})\n\
             {} stale writes refused, {} answers lost, {} snapshots added up, at most {} MiB and {} connections of a relay\n\
             the longest drain took {:?}; the faults stopped the whole database for {:?}\n\
             injected: {}\n\
             {} relay kills, {} server kills, {} violations",
            self.rounds,
            self.messages,
            self.delivered,
            self.dead,
            self.given_up,
            self.attempts,
            self.expired,
            self.duplicates,
            self.redeliveries.iter().sum::<u64>(),
            self.redelivered_within(500),
            self.redelivered_within(990),
            self.redelivered_within(999),
            self.redelivered_within(1_000),
            self.stale_refused,
            self.lost_answers,
            self.samples,
            self.memory_bytes / (1024 * 1024),
            self.connections,
            self.slowest_drain,
            self.outage,
            faults.join(", "),
            injected.number(&RELAY_KILLS),
            injected.number(&[Fault::ServerKilled]),
            self.violations,
        )
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
