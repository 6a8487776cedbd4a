//! What the tests of several sinks ask of verdicts and findings.

use postrider::Claimed;
use postrider_relay::{Finding, Level, SinkFailure, Verdict};
use postrider_testkit::sink_contract::claimed;

/// The failure of the one message there is.
pub(super) fn failure(verdicts: &[Verdict]) -> &SinkFailure {
    match verdicts {
        [Verdict::Failed(failure)] => failure,
        other => panic!("one failure was expected: {other:?}"),
    }
}

pub(super) fn assert_delivered(verdicts: &[Verdict]) {
    assert!(verdicts.iter().all(|verdict| matches!(verdict, Verdict::Delivered(_))), "{verdicts:?}");
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
