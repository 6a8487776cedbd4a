//! A table of facts and the code that each is explained with, and what the words and the advice say.

use std::time::{Duration, SystemTime};

use uuid::Uuid;

use super::{Facts, LaneHead, explain};
use crate::explain::{Reason, Remedy};
use crate::inspect::{
    AttemptRecord, DeliveryRecord, DeliveryState, MessageDetail, RelayRecord, RelayReport, SinkReport,
};
use crate::lifecycle::AttemptState;

const OWN: Uuid = Uuid::from_u128(5);
const HEAD: Uuid = Uuid::from_u128(3);

/// 2026-11-16T07:00:00Z.
fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_hours(498_559)
}

fn ahead(seconds: u64) -> SystemTime {
    now() + Duration::from_secs(seconds)
}

fn ago(seconds: u64) -> SystemTime {
    now() - Duration::from_secs(seconds)
}

/// A message that one living relay should deliver: due for a second, never tried.
fn ordinary() -> Facts {
    let delivery = DeliveryRecord {
        sink: "web".to_owned(),
        state: DeliveryState::Pending,
        due_at: Some(ago(1)),
        attempt_no: 0,
        attempt_count: 0,
        max_attempts: None,
        claimed_by: None,
        lease_expires_at: None,
    };
    let detail = MessageDetail {
        message_id: OWN,
        enqueued_at: ago(1),
        occurred_at: ago(1),
        namespace: "default".to_owned(),
        topic: "t".to_owned(),
        tenant_id: None,
        lane: None,
        sequence_id: None,
        dedupe_key: None,
        priority: 0,
        content_type: None,
        headers: None,
        payload: None,
        body: None,
        deliveries: vec![delivery],
        attempts: Vec::new(),
    };
    Facts { now: now(), detail, paused: Vec::new(), heads: Vec::new(), relays: vec![relay("one", false, "closed")] }
}

fn relay(worker_id: &str, silent: bool, breaker: &str) -> RelayRecord {
    let sink = SinkReport { sink: "web".to_owned(), breaker: breaker.to_owned(), ..SinkReport::default() };
    let open_for = (breaker == "open").then_some(Duration::from_secs(30));
    RelayRecord {
        report: RelayReport {
            worker_id: worker_id.to_owned(),
            version: "1".to_owned(),
            every: Duration::from_secs(10),
            sinks: vec![SinkReport { open_for, last_error: open_for.map(|_| "TIMEOUT: no answer".to_owned()), ..sink }],
        },
        started_at: ago(3600),
        reported_at: if silent { ago(600) } else { ago(5) },
        silent,
    }
}

fn attempt(attempt_no: i32, state: AttemptState) -> AttemptRecord {
    let failed = state != AttemptState::Dispatched;
    AttemptRecord {
        sink: "web".to_owned(),
        attempt_no,
        state,
        worker_id: "one".to_owned(),
        claimed_at: ago(3),
        completed_at: ago(2),
        latency_ms: None,
        code: None,
        reference: (!failed).then(|| "p0@77".to_owned()),
        error_code: failed.then(|| "HTTP_503".to_owned()),
        error_message: failed.then(|| "later".to_owned()),
        answer: None,
    }
}

/// A lane in which this message is number 5 and number 3 stands first.
fn behind(change: impl FnOnce(&mut LaneHead)) -> Facts {
    let mut head = LaneHead {
        sink: "web".to_owned(),
        message_id: HEAD,
        sequence_id: 3,
        due_at: Some(ago(9)),
        claimed_by: None,
        lease_expires_at: None,
        error_code: None,
        error_message: None,
    };
    change(&mut head);
    let mut facts = ordinary();
    facts.detail.lane = Some("a b".to_owned());
    facts.detail.sequence_id = Some(5);
    facts.heads = vec![head];
    facts
}

fn with(change: impl FnOnce(&mut Facts)) -> Facts {
    let mut facts = ordinary();
    change(&mut facts);
    facts
}

fn delivery(change: impl FnOnce(&mut DeliveryRecord)) -> Facts {
    with(|facts| change(&mut facts.detail.deliveries[0]))
}

fn leased_until(end: SystemTime) -> Facts {
    delivery(|delivery| {
        delivery.state = DeliveryState::Leased;
        delivery.attempt_no = 2;
        delivery.claimed_by = Some("one".to_owned());
        delivery.lease_expires_at = Some(end);
    })
}

fn dead(lane: bool) -> Facts {
    let mut facts = if lane {
        behind(|head| (head.message_id, head.sequence_id, head.due_at) = (OWN, 5, None))
    } else {
        ordinary()
    };
    facts.detail.deliveries[0].state = DeliveryState::Dead;
    facts.detail.deliveries[0].due_at = None;
    facts.detail.attempts = vec![attempt(1, AttemptState::Retryable), attempt(2, AttemptState::Failed)];
    facts
}

fn retried(due_at: SystemTime) -> Facts {
    with(|facts| {
        facts.detail.deliveries[0].due_at = Some(due_at);
        (facts.detail.deliveries[0].attempt_no, facts.detail.deliveries[0].attempt_count) = (9, 9);
        facts.detail.deliveries[0].max_attempts = Some(10);
        facts.detail.attempts = vec![attempt(9, AttemptState::Retryable)];
    })
}

/// Three attempts before an operator redrove it, one since.
fn redriven(due_at: SystemTime) -> Facts {
    let mut facts = retried(due_at);
    (facts.detail.deliveries[0].attempt_no, facts.detail.deliveries[0].attempt_count) = (4, 1);
    facts.detail.attempts = vec![attempt(4, AttemptState::Retryable)];
    facts
}

/// Held by a relay that last reported so long ago; it reports every ten seconds.
fn held_by_one_last_heard(seconds: u64) -> Facts {
    let mut facts = leased_until(ahead(40));
    facts.relays[0].reported_at = ago(seconds);
    facts
}

fn ended(state: AttemptState) -> Facts {
    with(|facts| {
        facts.detail.deliveries.clear();
        facts.detail.attempts = vec![attempt(1, AttemptState::Retryable), attempt(2, state)];
    })
}

fn paused(mut facts: Facts) -> Facts {
    facts.paused = vec!["other".to_owned(), "web".to_owned()];
    facts
}

fn served_by(relays: Vec<RelayRecord>) -> Facts {
    with(|facts| facts.relays = relays)
}

fn elsewhere() -> RelayRecord {
    let mut relay = relay("one", false, "closed");
    "other".clone_into(&mut relay.report.sinks[0].sink);
    relay
}

/// Its ninth attempt failed, and the breaker's time is up. The relay is of a build that does not report errors.
fn open_after_nine() -> Facts {
    let mut facts = retried(ago(9));
    facts.relays = vec![relay("one", false, "open")];
    facts.relays[0].report.sinks[0].last_error = None;
    facts.relays[0].report.sinks[0].open_for = Some(Duration::from_secs(1));
    facts
}

fn parked() -> Facts {
    behind(|head| {
        head.due_at = None;
        head.error_code = Some("HTTP_422".to_owned());
        head.error_message = Some("no".to_owned());
    })
}

fn reason(facts: &Facts) -> Reason {
    let mut explained = explain(facts);
    assert_eq!((explained.message_id, explained.deliveries.len()), (OWN, 1));
    explained.deliveries.remove(0)
}

/// What each set of facts is called, what is said about it, and what is advised.
fn explained() -> Vec<(Facts, &'static str, &'static str, Remedy)> {
    vec![
        (
            ended(AttemptState::Dispatched),
            "DELIVERED",
            "delivered at 2026-11-16T06:59:58Z by one, attempt 2; the sink said \"p0@77\"",
            Remedy::Nothing,
        ),
        (ended(AttemptState::Cancelled), "CANCELLED", "one cancelled it at 2026-11-16T06:59:58Z", Remedy::Nothing),
        (
            ended(AttemptState::Failed),
            "DISCARDED",
            "attempt 2, failed at 2026-11-16T06:59:58Z with HTTP_503: later",
            Remedy::Nothing,
        ),
        (dead(false), "DEAD", "attempt 2 failed at 2026-11-16T06:59:58Z with HTTP_503: later", Remedy::Redrive),
        (dead(true), "DEAD", "its lane \"a b\" waits for it", Remedy::RedriveOrSkip),
        (
            leased_until(ahead(40)),
            "LEASED",
            "one holds it for attempt 2; its lease ends in 40s, at 2026-11-16T07:00:40Z",
            Remedy::Nothing,
        ),
        (held_by_one_last_heard(11), "LEASED", "its lease ends in 40s, at 2026-11-16T07:00:40Z", Remedy::Nothing),
        (
            held_by_one_last_heard(14),
            "LEASED",
            "it reports every 10s and has not reported for 14s, since 2026-11-16T06:59:46Z",
            Remedy::LookAtHolder,
        ),
        (leased_until(ago(120)), "LEASE_EXPIRED", "ended 2m 00s ago, at 2026-11-16T06:58:00Z", Remedy::TakenOver),
        (
            delivery(|own| own.due_at = Some(ahead(250))),
            "NOT_DUE",
            "due in 4m 10s, at 2026-11-16T07:04:10Z",
            Remedy::Nothing,
        ),
        (
            retried(ahead(250)),
            "RETRY_LATER",
            "attempt 9 of 10 failed at 2026-11-16T06:59:58Z with HTTP_503: later; due in 4m 10s, at \
             2026-11-16T07:04:10Z; 1 attempt is left",
            Remedy::RetryNow,
        ),
        (
            redriven(ahead(250)),
            "RETRY_LATER",
            "attempt 1 of 10 (number 4) failed at 2026-11-16T06:59:58Z with HTTP_503: later",
            Remedy::RetryNow,
        ),
        (behind(|_| ()), "BEHIND_LANE_HEAD", "number 5 of lane \"a b\" waits for number 3", Remedy::ExplainHead),
        (
            behind(|head| head.due_at = Some(ahead(60))),
            "BEHIND_LANE_HEAD",
            "which is due in 1m 00s",
            Remedy::ExplainHead,
        ),
        (
            behind(|head| (head.claimed_by, head.lease_expires_at) = (Some("two".to_owned()), Some(ahead(9)))),
            "BEHIND_LANE_HEAD",
            "which two holds until 2026-11-16T07:00:09Z",
            Remedy::ExplainHead,
        ),
        (parked(), "LANE_PARKED", "is dead, with HTTP_422: no", Remedy::RedriveHead),
        (paused(ordinary()), "SINK_PAUSED", "sink \"web\" is paused", Remedy::Resume),
        (
            served_by(vec![relay("one", false, "open"), relay("two", false, "open"), relay("three", true, "closed")]),
            "BREAKER_OPEN",
            "(one, two) waits before it tries again; they try again in 25s; the last error was TIMEOUT: no answer",
            Remedy::RepairDestination,
        ),
        (
            open_after_nine(),
            "BREAKER_OPEN",
            "they try again now; the last error was HTTP_503: later; 1 attempt is left",
            Remedy::RepairDestination,
        ),
        (
            served_by(vec![elsewhere()]),
            "NO_RELAY",
            "no relay has reported that it delivers to sink \"web\"",
            Remedy::StartRelay,
        ),
        (
            served_by(vec![relay("one", true, "closed"), elsewhere()]),
            "RELAY_SILENT",
            "relay one delivered to sink \"web\" and has been silent for 10m 00s, since 2026-11-16T06:50:00Z",
            Remedy::RestartRelay,
        ),
        (
            ordinary(),
            "DUE",
            "due for 1s, since 2026-11-16T06:59:59Z; relays that deliver to sink \"web\": 1",
            Remedy::Nothing,
        ),
        (retried(ago(310)), "DUE", "due for 5m 10s", Remedy::LookAtRelays),
    ]
}

#[test]
fn facts_have_their_code_and_words() {
    for (facts, code, words, remedy) in explained() {
        let reason = reason(&facts);
        assert_eq!(reason.code, code, "{reason:?}");
        assert!(reason.why.contains(words), "{words:?} is not in {:?}", reason.why);
        assert_eq!(reason.remedy, remedy, "{code}");
    }
}

/// Of several things that are the case at once, the one that a person has to see to comes first.
#[test]
fn what_needs_a_person_comes_first() {
    let nobody = |mut facts: Facts| {
        facts.relays.clear();
        facts
    };
    assert_eq!(reason(&paused(nobody(parked()))).code, "SINK_PAUSED");
    assert_eq!(reason(&nobody(parked())).code, "LANE_PARKED");
    assert_eq!(reason(&nobody(retried(ahead(9)))).code, "RETRY_LATER");
    assert_eq!(reason(&nobody(behind(|head| head.due_at = Some(ahead(9))))).code, "BEHIND_LANE_HEAD");
    let due_head = reason(&nobody(behind(|_| ())));
    assert_eq!((due_head.code.as_str(), due_head.behind), ("NO_RELAY", Some(HEAD)), "the head waits for the same");
    assert_eq!(reason(&served_by(vec![relay("one", false, "open"), relay("two", false, "half_open")])).code, "DUE");
    assert_eq!(reason(&paused(leased_until(ahead(9)))).code, "LEASED", "a pause does not take it out of a hand");
}

/// Every sink that has or had to do with it is told, by name, and each for itself.
#[test]
fn each_sink_has_its_reason() {
    let mut facts = paused(ordinary());
    facts.detail.attempts = vec![AttemptRecord { sink: "audit".to_owned(), ..attempt(1, AttemptState::Dispatched) }];
    let mut waiting = facts.detail.deliveries[0].clone();
    "zoo".clone_into(&mut waiting.sink);
    facts.detail.deliveries.push(waiting);
    let told: Vec<(String, &str)> =
        explain(&facts).deliveries.into_iter().map(|reason| (reason.sink, reason.code.as_str())).collect();
    let told: Vec<(&str, &str)> = told.iter().map(|(sink, code)| (sink.as_str(), *code)).collect();
    assert_eq!(told, [("audit", "DELIVERED"), ("web", "SINK_PAUSED"), ("zoo", "NO_RELAY")]);
}
