//! What the tests of the Kafka sink share.

use postrider_relay::sink::kafka::KafkaOptions;
use postrider_relay::{Receipt, Verdict};

/// Options as a user would write them, for a topic, which may be a template.
pub(super) fn options(brokers: &str, topic: &str) -> KafkaOptions {
    let mut options = KafkaOptions::new(brokers);
    options.topic = topic.parse().expect("a template");
    options
}

pub(super) fn reference(receipt: &Receipt) -> &str {
    receipt.reference.as_deref().expect("a reference")
}

pub(super) fn all_delivered(verdicts: &[Verdict]) -> bool {
    verdicts.iter().all(|verdict| matches!(verdict, Verdict::Delivered(_)))
}
