//! What the tests of several sinks ask of verdicts and findings.

use postrider::lifecycle::Claimed;
use postrider_relay::sink::template::Template;
use postrider_relay::sink::{Finding, Level};
use postrider_relay::{FailureClass, Sink, SinkFailure, Verdict};
use postrider_testkit::sink_contract::{claimed, deliver};

/// The failure of the one message there is.
pub(super) fn failure(verdicts: &[Verdict]) -> &SinkFailure {
    match verdicts {
        [Verdict::Failed(failure)] => failure,
        other => panic!("one failure was expected: {other:?}"),
    }
}

pub(super) fn assert_delivered(verdicts: &[Verdict]) {
    assert!(verdicts.iter().all(delivered), "{verdicts:?}");
}

/// Code and class of a failure.
pub(super) fn failed(verdict: &Verdict) -> (&str, FailureClass) {
    let Verdict::Failed(failure) = verdict else { panic!("{verdict:?}") };
    (&failure.code, failure.class)
}

pub(super) fn delivered(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Delivered(_))
}

pub(super) async fn deliver_one(sink: &dyn Sink, message: &Claimed) -> Verdict {
    deliver(sink, std::slice::from_ref(message)).await.remove(0)
}

pub(super) fn template(text: &str) -> Template {
    text.parse().expect("a template")
}

/// The messages of a lane, from number 1.
pub(super) fn lane(name: &str, messages: i64) -> Vec<Claimed> {
    (1..=messages).map(|number| in_lane(name, number)).collect()
}

/// A message of a lane.
pub(super) fn in_lane(lane: &str, sequence_id: i64) -> Claimed {
    let mut message = claimed("orders", &sequence_id.to_string());
    message.lane = Some(lane.to_owned());
    message.sequence_id = Some(sequence_id);
    message
}

/// Whether a look found this.
pub(super) fn has(findings: &[Finding], level: Level, words: &str) -> bool {
    findings.iter().any(|finding| finding.level == level && finding.what.contains(words))
}

/// Delivers a lane of a thousand with a sink that has too little time for it: what is not sent in time is handed back, and
/// what was sent before is a prefix. On a slow machine even one answer may take longer than there is time.
#[cfg(any(feature = "mqtt", feature = "nats", feature = "rabbitmq"))]
pub(super) async fn deliver_a_long_lane_in_parts(sink: &dyn Sink) {
    let messages = lane("a", 1_000);
    let mut waiting = messages.as_slice();
    while !waiting.is_empty() {
        let verdicts = deliver(sink, waiting).await;
        let done = verdicts.iter().take_while(|verdict| delivered(verdict)).count();
        let rest = &verdicts[done..];
        let slow =
            |verdict: &Verdict| matches!(verdict, Verdict::Failed(failure) if failure.code == SinkFailure::UNREACHABLE);
        let first_is_well = rest.first().is_none_or(|verdict| *verdict == Verdict::NotSent || slow(verdict));
        assert!(first_is_well && rest.iter().skip(1).all(|verdict| *verdict == Verdict::NotSent), "{rest:?}");
        waiting = &waiting[done..];
    }
}
