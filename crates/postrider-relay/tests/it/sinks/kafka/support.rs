//! What the tests of the Kafka sink share.

use postrider::Claimed;
use postrider_relay::sink::kafka::KafkaOptions;
use postrider_relay::{Receipt, Verdict};
use postrider_testkit::sink_contract::claimed;

/// Options as a user would write them, for a topic, which may be a template.
pub(super) fn options(brokers: &str, topic: &str) -> KafkaOptions {
    let mut options = KafkaOptions::new(brokers);
    options.topic = topic.parse().expect("a template");
    options
}

pub(super) fn reference(receipt: &Receipt) -> &str {
    receipt.reference.as_deref().expect("a reference")
}

/// The messages of a lane, from number 1.
pub(super) fn lane(name: &str, messages: i64) -> Vec<Claimed> {
    (1..=messages).map(|number| in_lane(name, number)).collect()
}

pub(super) fn in_lane(name: &str, number: i64) -> Claimed {
    let mut message = claimed("orders", &number.to_string());
    message.lane = Some(name.to_owned());
    message.sequence_id = Some(number);
    message
}

pub(super) fn all_delivered(verdicts: &[Verdict]) -> bool {
    verdicts.iter().all(|verdict| matches!(verdict, Verdict::Delivered(_)))
}
