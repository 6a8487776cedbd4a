//! Decides why a delivery is where it is from facts that a store has gathered; asks nothing and changes nothing. Called by
//! each store's `explain`. Times and errors are written in `explain/words.rs`.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use uuid::Uuid;

use crate::record::records;

use super::words::{attempts_left, moment, number, number_of, said};
use super::{Explanation, Reason, ReasonCode, Remedy};
use crate::inspect::{AttemptRecord, DeliveryRecord, DeliveryState, LATE, MessageDetail, RelayRecord, SinkReport};
use crate::lifecycle::AttemptState;
use crate::text::span;

/// A report may be late by this much without a word about it: it takes a moment to write.
const REPORT_SLACK: Duration = Duration::from_secs(2);

/// What has to be known about a message to explain it.
pub(crate) struct Facts {
    /// The store's clock.
    pub(crate) now: SystemTime,
    /// The message, its deliveries and its attempts.
    pub(crate) detail: MessageDetail,
    /// Sinks that are paused.
    pub(crate) paused: Vec<String>,
    /// The head of the message's lane, for each sink that has something in it.
    pub(crate) heads: Vec<LaneHead>,
    /// Relays that reported lately.
    pub(crate) relays: Vec<RelayRecord>,
}

/// What stands first in a lane.
pub(crate) struct LaneHead {
    pub(crate) sink: String,
    pub(crate) message_id: Uuid,
    pub(crate) sequence_id: i64,
    /// `None`: it is dead, and the lane waits for a person.
    pub(crate) due_at: Option<SystemTime>,
    pub(crate) claimed_by: Option<String>,
    pub(crate) lease_expires_at: Option<SystemTime>,
    pub(crate) error_code: Option<String>,
    pub(crate) error_message: Option<String>,
}

records! {
    LaneHead(row) {
        sink, message_id, sequence_id, due_at, claimed_by, lease_expires_at, error_code, error_message,
    }
}

/// One reason for each sink that has or had to do with the message, by name.
pub(crate) fn explain(facts: &Facts) -> Explanation {
    let open = facts.detail.deliveries.iter().map(|delivery| delivery.sink.as_str());
    let sinks: BTreeSet<&str> = open.chain(facts.detail.attempts.iter().map(|attempt| attempt.sink.as_str())).collect();
    let deliveries = sinks.into_iter().filter_map(|sink| Case::new(facts, sink).reason()).collect();
    Explanation { message_id: facts.detail.message_id, deliveries }
}

/// A message and one sink.
struct Case<'a> {
    facts: &'a Facts,
    sink: &'a str,
    delivery: Option<&'a DeliveryRecord>,
    last_attempt: Option<&'a AttemptRecord>,
    head: Option<&'a LaneHead>,
}

impl<'a> Case<'a> {
    fn new(facts: &'a Facts, sink: &'a str) -> Self {
        Self {
            facts,
            sink,
            delivery: facts.detail.deliveries.iter().find(|delivery| delivery.sink == sink),
            last_attempt: facts
                .detail
                .attempts
                .iter()
                .filter(|attempt| attempt.sink == sink)
                .max_by_key(|attempt| attempt.attempt_no),
            head: facts.heads.iter().find(|head| head.sink == sink),
        }
    }

    fn reason(&self) -> Option<Reason> {
        match self.delivery {
            None => self.last_attempt.map(|last| self.ended(last)),
            Some(delivery) if delivery.state == DeliveryState::Dead => Some(self.dead()),
            Some(delivery) if delivery.state == DeliveryState::Leased => Some(self.leased(delivery)),
            Some(delivery) => Some(self.pending(delivery)),
        }
    }

    fn because(&self, code: ReasonCode, why: String, remedy: Remedy) -> Reason {
        let behind = self.ahead().map(|head| head.message_id);
        Reason { sink: self.sink.to_owned(), code, why, behind, lane: self.facts.detail.lane.clone(), remedy }
    }

    /// Nothing is left to do for this sink: it has it, or somebody gave up.
    fn ended(&self, last: &AttemptRecord) -> Reason {
        let when = moment(last.completed_at);
        if last.state == AttemptState::Dispatched {
            let receipt = last.reference.as_deref().map(|said| format!("; the sink said {said:?}")).unwrap_or_default();
            let why = format!("delivered at {when} by {}, {}{receipt}", last.worker_id, number(last.attempt_no));
            return self.because(ReasonCode::Delivered, why, Remedy::Nothing);
        }
        if last.state == AttemptState::Cancelled {
            let why = format!("{} cancelled it at {when}", last.worker_id);
            return self.because(ReasonCode::Cancelled, why, Remedy::Nothing);
        }
        let why = format!(
            "an operator gave it up: the last attempt, {}, failed at {when} with {}",
            number(last.attempt_no),
            said(last.error_code.as_deref(), last.error_message.as_deref())
        );
        self.because(ReasonCode::Discarded, why, Remedy::Nothing)
    }

    fn dead(&self) -> Reason {
        let id = self.facts.detail.message_id;
        let failed = self.last_attempt.map_or_else(String::new, |last| {
            let error = said(last.error_code.as_deref(), last.error_message.as_deref());
            format!(": {} failed at {} with {error}", number(last.attempt_no), moment(last.completed_at))
        });
        let parked = self.head.filter(|head| head.message_id == id).and(self.facts.detail.lane.as_deref());
        let (waits, remedy) = match parked {
            None => (String::new(), Remedy::Redrive),
            Some(lane) => (format!(", and its lane {lane:?} waits for it"), Remedy::RedriveOrSkip),
        };
        self.because(ReasonCode::Dead, format!("nobody tries it again by itself{waits}{failed}"), remedy)
    }

    fn leased(&self, delivery: &DeliveryRecord) -> Reason {
        let holder = delivery.claimed_by.as_deref().unwrap_or("somebody");
        let attempt = number(delivery.attempt_no);
        let end = delivery.lease_expires_at.unwrap_or(self.facts.now);
        if let Ok(left) = end.duration_since(self.facts.now).map(span)
            && end > self.facts.now
        {
            let why = format!("{holder} holds it for {attempt}; its lease ends in {left}, at {}", moment(end));
            return match self.late_holder(holder) {
                None => self.because(ReasonCode::Leased, why, Remedy::Nothing),
                Some(late) => self.because(ReasonCode::Leased, format!("{why}; {late}"), Remedy::LookAtHolder),
            };
        }
        let why = format!(
            "{holder} held it for {attempt} and has not said how that ended; the lease ended {} ago, at {}",
            span(self.facts.now.duration_since(end).unwrap_or_default()),
            moment(end)
        );
        let living = matches!(self.served(), Served::Living(_));
        let remedy = if living { Remedy::TakenOver } else { Remedy::StartToTakeOver };
        self.because(ReasonCode::LeaseExpired, why, remedy)
    }

    /// What is said about a holder whose report is overdue. One that never reports, such as a worker in SQL, is not late.
    fn late_holder(&self, holder: &str) -> Option<String> {
        let relay = self.facts.relays.iter().find(|relay| relay.report.worker_id == holder)?;
        let silence = self.facts.now.duration_since(relay.reported_at).unwrap_or_default();
        let every = relay.report.every;
        (silence > every + REPORT_SLACK).then(|| {
            let (silence, since) = (span(silence), moment(relay.reported_at));
            format!(
                "it reports every {} and has not reported for {silence}, since {since}: it hangs, was killed, or cannot \
                 reach the database",
                span(every)
            )
        })
    }

    /// In the order in which a person can do something about it: what somebody decided, what waits for a person, what
    /// waits for a time, who should be working, and then there is only patience.
    fn pending(&self, delivery: &DeliveryRecord) -> Reason {
        if self.facts.paused.iter().any(|paused| paused == self.sink) {
            return self.because(ReasonCode::SinkPaused, format!("sink {:?} is paused", self.sink), Remedy::Resume);
        }
        self.parked_lane()
            .or_else(|| self.not_yet_due(delivery))
            .or_else(|| self.held_up_by_head())
            .or_else(|| self.nobody_works())
            .or_else(|| self.ahead().map(|head| self.behind(head, "which is due and goes first")))
            .unwrap_or_else(|| self.due(delivery))
    }

    /// The lane's head, if this message stands behind it.
    fn ahead(&self) -> Option<&'a LaneHead> {
        let pending = self.delivery.is_some_and(|delivery| delivery.state == DeliveryState::Pending);
        self.head.filter(|head| pending && self.facts.detail.sequence_id.is_some_and(|own| head.sequence_id < own))
    }

    fn lane(&self) -> &str {
        self.facts.detail.lane.as_deref().unwrap_or_default()
    }

    fn parked_lane(&self) -> Option<Reason> {
        let head = self.ahead().filter(|head| head.due_at.is_none())?;
        let why = format!(
            "lane {:?} waits for a person: its number {} ({}) is dead, with {}",
            self.lane(),
            head.sequence_id,
            head.message_id,
            said(head.error_code.as_deref(), head.error_message.as_deref())
        );
        Some(self.because(ReasonCode::LaneParked, why, Remedy::RedriveHead))
    }

    fn not_yet_due(&self, delivery: &DeliveryRecord) -> Option<Reason> {
        let due_at = delivery.due_at.filter(|due_at| *due_at > self.facts.now)?;
        let left = span(due_at.duration_since(self.facts.now).unwrap_or_default());
        let when = format!("due in {left}, at {}", moment(due_at));
        match self.last_attempt.filter(|_| delivery.attempt_count > 0) {
            None => Some(self.because(ReasonCode::NotDue, format!("not yet: {when}"), Remedy::Nothing)),
            Some(last) => {
                let error = said(last.error_code.as_deref(), last.error_message.as_deref());
                let why = format!(
                    "{} failed at {} with {error}; {when}{}",
                    number_of(delivery),
                    moment(last.completed_at),
                    attempts_left(delivery)
                );
                Some(self.because(ReasonCode::RetryLater, why, Remedy::RetryNow))
            }
        }
    }

    /// A head that a worker holds, or that is not due yet.
    fn held_up_by_head(&self) -> Option<Reason> {
        let head = self.ahead()?;
        if let Some(end) = head.lease_expires_at.filter(|end| *end > self.facts.now) {
            let holder = head.claimed_by.as_deref().unwrap_or("somebody");
            return Some(self.behind(head, &format!("which {holder} holds until {}", moment(end))));
        }
        let due_at = head.due_at.filter(|due_at| *due_at > self.facts.now)?;
        let error = match &head.error_code {
            Some(_) => format!("failed with {} and ", said(head.error_code.as_deref(), head.error_message.as_deref())),
            None => String::new(),
        };
        let left = span(due_at.duration_since(self.facts.now).unwrap_or_default());
        Some(self.behind(head, &format!("which {error}is due in {left}, at {}", moment(due_at))))
    }

    fn behind(&self, head: &LaneHead, doing: &str) -> Reason {
        let own = self.facts.detail.sequence_id.unwrap_or_default();
        let why = format!(
            "number {own} of lane {:?} waits for number {} ({}), {doing}",
            self.lane(),
            head.sequence_id,
            head.message_id
        );
        self.because(ReasonCode::BehindLaneHead, why, Remedy::ExplainHead)
    }

    fn nobody_works(&self) -> Option<Reason> {
        match self.served() {
            Served::Nobody => {
                let why = format!("no relay has reported that it delivers to sink {:?}", self.sink);
                Some(self.because(ReasonCode::NoRelay, why, Remedy::StartRelay))
            }
            Served::Silent(relay) => {
                let silence = span(self.facts.now.duration_since(relay.reported_at).unwrap_or_default());
                let why = format!(
                    "relay {} delivered to sink {:?} and has been silent for {silence}, since {}",
                    relay.report.worker_id,
                    self.sink,
                    moment(relay.reported_at)
                );
                Some(self.because(ReasonCode::RelaySilent, why, Remedy::RestartRelay))
            }
            Served::Living(serving) => self.every_breaker_open(&serving),
        }
    }

    fn every_breaker_open(&self, serving: &[(&RelayRecord, &SinkReport)]) -> Option<Reason> {
        if serving.iter().any(|(_, sink)| sink.breaker != "open") {
            return None;
        }
        let names: Vec<&str> = serving.iter().map(|(relay, _)| relay.report.worker_id.as_str()).collect();
        let until = serving.iter().filter_map(|(relay, sink)| Some(relay.reported_at + sink.open_for?)).min();
        let next = until
            .and_then(|until| until.duration_since(self.facts.now).ok())
            .map_or_else(|| "they try again now".to_owned(), |left| format!("they try again in {}", span(left)));
        let own = self.last_attempt.map(|last| said(last.error_code.as_deref(), last.error_message.as_deref()));
        let reported = serving.iter().find_map(|(_, sink)| sink.last_error.clone());
        let error = reported.or(own).map(|error| format!("; the last error was {error}")).unwrap_or_default();
        let left = self.delivery.map(attempts_left).unwrap_or_default();
        let why = format!(
            "sink {:?} failed many times in a row, so every relay that delivers to it ({}) waits before it tries again; \
             {next}{error}{left}",
            self.sink,
            names.join(", ")
        );
        Some(self.because(ReasonCode::BreakerOpen, why, Remedy::RepairDestination))
    }

    fn due(&self, delivery: &DeliveryRecord) -> Reason {
        let since = delivery.due_at.unwrap_or(self.facts.now);
        let waited = self.facts.now.duration_since(since).unwrap_or_default();
        let relays = match self.served() {
            Served::Living(serving) => serving.len(),
            _ => 0,
        };
        let why = format!(
            "due for {}, since {}; relays that deliver to sink {:?}: {relays}",
            span(waited),
            moment(since),
            self.sink
        );
        let remedy = if waited < LATE { Remedy::Nothing } else { Remedy::LookAtRelays };
        self.because(ReasonCode::Due, why, remedy)
    }

    /// Who says that it delivers to this sink.
    fn served(&self) -> Served<'a> {
        let all = self.facts.relays.iter().filter_map(|relay| {
            relay.report.sinks.iter().find(|sink| sink.sink == self.sink).map(|sink| (relay, sink))
        });
        let (silent, living): (Vec<_>, Vec<_>) = all.partition(|(relay, _)| relay.silent);
        if !living.is_empty() {
            return Served::Living(living);
        }
        let last = silent.into_iter().map(|(relay, _)| relay).max_by_key(|relay| relay.reported_at);
        last.map_or(Served::Nobody, Served::Silent)
    }
}

enum Served<'a> {
    /// By these, each with what it says about the sink.
    Living(Vec<(&'a RelayRecord, &'a SinkReport)>),
    /// Only by relays that are late; the last one to report.
    Silent(&'a RelayRecord),
    Nobody,
}

#[cfg(test)]
mod tests;
