//! Hands messages to a sink as the relay would, without a relay: for cases that look at a single call.

use std::sync::Arc;
use std::time::Duration;

use postrider::lifecycle::{Claimed, Content};
use postrider_relay::{Sink, Verdict};
use serde_json::value::RawValue;

/// Longer than any delivery of a test takes, even on a loaded machine.
const PATIENCE: Duration = Duration::from_mins(1);

/// A claimed message with this JSON, as a store would hand it out.
pub fn claimed(topic: &str, json: &str) -> Claimed {
    Claimed::new(topic, Content::Json(RawValue::from_string(json.to_owned()).expect("JSON")))
}

/// Delivers messages in batches as large as the sink wants them and, unless it keeps order, with one message of a lane at
/// a time. After a failure of a lane its later messages are not sent, as the relay does it.
pub async fn deliver(sink: &dyn Sink, messages: &[Claimed]) -> Vec<Verdict> {
    let batching = sink.batching();
    let most = if batching.ordered { batching.max_messages } else { 1 };
    let mut verdicts = Vec::with_capacity(messages.len());
    let mut failed_lanes: Vec<&str> = Vec::new();
    for batch in messages.chunks(most) {
        let held = |message: &Claimed| message.lane.as_deref().is_some_and(|lane| failed_lanes.contains(&lane));
        if !batching.ordered && held(&batch[0]) {
            verdicts.push(Verdict::NotSent);
            continue;
        }
        let shared: Vec<Arc<Claimed>> = batch.iter().cloned().map(Arc::new).collect();
        let answers = tokio::time::timeout(PATIENCE, sink.deliver(&shared)).await;
        let answers = answers.expect("the sink answers within a minute");
        assert_eq!(answers.len(), batch.len(), "one verdict for each message");
        for (message, answer) in batch.iter().zip(&answers) {
            if !matches!(answer, Verdict::Delivered(_)) {
                failed_lanes.extend(message.lane.as_deref());
            }
        }
        verdicts.extend(answers);
    }
    verdicts
}

/// A message of a lane.
pub(super) fn in_lane(lane: &str, sequence_id: i64) -> Claimed {
    let mut message = claimed("orders", &format!("{{\"number\":{sequence_id}}}"));
    message.lane = Some(lane.to_owned());
    message.sequence_id = Some(sequence_id);
    message
}
