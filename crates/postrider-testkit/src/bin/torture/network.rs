//! What happens between the relays, the producers and the database: connections are cut, refused, slowed down, and left
//! open without an answer, and answers to commits are lost. One proxy stands in front of each relay and one in front of
//! the producers. Called by the storm; it touches no process and no table.

use std::sync::Arc;
use std::time::{Duration, Instant};

use postrider_testkit::FaultProxy;
use rand::Rng as _;
use rand::rngs::StdRng;

use crate::faults::{Fault, Injected};
use crate::fleet::{CLAIM, COMPLETE};

pub(crate) const NETWORK: [Fault; 7] = [
    Fault::ConnectionsCut,
    Fault::AnswerLostEnqueue,
    Fault::AnswerLostClaim,
    Fault::AnswerLostComplete,
    Fault::AnswerLostRenew,
    Fault::BlackHole,
    Fault::SlowNetwork,
];
const ENQUEUE: &str = "enqueue_many";
const RENEW: &str = "outbox\".renew";
const SLOW_BYTES_PER_SECOND: u32 = 64_000;

pub(crate) struct Network {
    pub(crate) relays: Vec<Arc<FaultProxy>>,
    pub(crate) producers: Arc<FaultProxy>,
    pub(crate) injected: Arc<Injected>,
    pub(crate) lease: Duration,
    pub(crate) rng: StdRng,
    /// What is to be taken back, and when.
    pub(crate) later: Vec<(Instant, usize, Fault)>,
}

impl Network {
    /// Injects a fault in front of one of the relays, or of the producers. False: there is one already.
    pub(crate) fn strike(&mut self, fault: Fault) -> bool {
        let place = self.rng.random_range(0..=self.relays.len());
        let now = Instant::now();
        if self.later.iter().any(|(_, busy, _)| *busy == place) {
            return false;
        }
        let of_relay = place.min(self.relays.len() - 1);
        match fault {
            Fault::ConnectionsCut => {
                let refuse = self.rng.random();
                let proxy = self.proxy(place);
                proxy.refuse(refuse);
                proxy.cut_all();
                self.later.push((now + Duration::from_millis(self.rng.random_range(0..400)), place, fault));
                self.injected.count(fault);
            }
            Fault::BlackHole => {
                self.proxy(of_relay).stall(true);
                let over_at = now + self.lease + Duration::from_millis(self.rng.random_range(0..1_000));
                self.later.push((over_at, of_relay, fault));
                self.injected.count(fault);
            }
            Fault::SlowNetwork => {
                self.proxy(of_relay).slow_down(SLOW_BYTES_PER_SECOND);
                self.later.push((now + Duration::from_secs(1), of_relay, fault));
                self.injected.count(fault);
            }
            Fault::AnswerLostEnqueue => self.producers.cut_after_commit(ENQUEUE, 1),
            Fault::AnswerLostClaim => self.lose(of_relay, CLAIM),
            Fault::AnswerLostComplete => self.lose(of_relay, COMPLETE),
            _ => self.lose(of_relay, RENEW),
        }
        if matches!(
            fault,
            Fault::AnswerLostClaim | Fault::AnswerLostComplete | Fault::AnswerLostRenew | Fault::AnswerLostEnqueue
        ) {
            // Counted when it is taken back, if it struck.
            let place = if fault == Fault::AnswerLostEnqueue { self.relays.len() } else { of_relay };
            self.later.push((now + Duration::from_millis(700), place, fault));
        }
        true
    }

    fn lose(&self, place: usize, statement: &str) {
        self.relays[place].cut_after_commit(statement, 1);
    }

    fn proxy(&self, place: usize) -> &FaultProxy {
        self.relays.get(place).unwrap_or(&self.producers)
    }

    /// Takes back what is over.
    pub(crate) fn tick(&mut self) {
        self.take_back(|over_at| over_at <= Instant::now());
    }

    pub(crate) fn mend(&mut self) {
        self.take_back(|_| true);
    }

    fn take_back(&mut self, over: impl Fn(Instant) -> bool) {
        let (done, later) = self.later.drain(..).partition(|(over_at, _, _)| over(*over_at));
        self.later = later;
        for (_, place, fault) in done {
            let proxy = self.proxy(place);
            match fault {
                Fault::ConnectionsCut => proxy.refuse(false),
                Fault::BlackHole => proxy.stall(false),
                Fault::SlowNetwork => proxy.slow_down(0),
                _ => {
                    if proxy.cuts_to_come() == 0 {
                        self.injected.count(fault);
                    }
                }
            }
        }
    }
}
