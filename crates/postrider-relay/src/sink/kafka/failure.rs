//! What an error of Kafka means for a message: one table, by code. Only what no retry of this very message can cure is
//! terminal; what an operator can mend at the cluster is waited for.

use rdkafka::types::RDKafkaErrorCode as Code;

use crate::policy::FailureClass::{self, Retryable, Terminal};
use crate::sink::SinkFailure;

/// The code and the class of an error, and what to do about it.
struct Meaning {
    class: FailureClass,
    code: &'static str,
    advice: &'static str,
}

const fn is(class: FailureClass, code: &'static str, advice: &'static str) -> Meaning {
    Meaning { class, code, advice }
}

fn meaning(code: Code) -> Option<Meaning> {
    Some(match code {
        Code::MessageSizeTooLarge | Code::MessageBatchTooLarge => is(
            Terminal,
            SinkFailure::TOO_LARGE,
            "raise message.max.bytes at the topic and in the sink's properties, or send a reference to the content",
        ),
        Code::InvalidRecord => is(Terminal, "KAFKA_INVALID_RECORD", "a compacted topic takes no record without a key"),
        Code::InvalidTopic => {
            is(Terminal, SinkFailure::NO_ADDRESS, "a topic is 1 to 249 letters, digits, dots, dashes and underscores")
        }
        Code::TopicAuthorizationFailed => {
            is(Retryable, SinkFailure::UNAUTHORIZED, "allow the sink's user to write and describe the topic")
        }
        Code::ClusterAuthorizationFailed => {
            is(Retryable, SinkFailure::UNAUTHORIZED, "allow the sink's user IDEMPOTENT_WRITE on the cluster")
        }
        Code::Authentication
        | Code::SaslAuthenticationFailed
        | Code::UnsupportedSASLMechanism
        | Code::IllegalSASLState
        | Code::SecurityDisabled => {
            is(Retryable, SinkFailure::UNAUTHORIZED, "check sasl.mechanism, sasl.username and sasl.password")
        }
        Code::BrokerTransportFailure
        | Code::AllBrokersDown
        | Code::Resolve
        | Code::SSL
        | Code::NetworkException
        | Code::BrokerNotAvailable => is(Retryable, SinkFailure::UNREACHABLE, "check brokers, and what they advertise"),
        Code::MessageTimedOut | Code::OperationTimedOut | Code::RequestTimedOut | Code::TimedOutQueue => is(
            Retryable,
            SinkFailure::TIMEOUT,
            "look for partitions without a leader, or with too few replicas in sync",
        ),
        Code::UnknownTopicOrPartition | Code::UnknownTopic | Code::UnknownPartition | Code::UnknownTopicId => {
            is(Retryable, "KAFKA_UNKNOWN_TOPIC_OR_PARTITION", "create the topic")
        }
        Code::NotEnoughReplicas | Code::NotEnoughReplicasAfterAppend => {
            is(Retryable, "KAFKA_NOT_ENOUGH_REPLICAS", "bring back the brokers that are down")
        }
        Code::LeaderNotAvailable | Code::NotLeaderForPartition | Code::ReplicaNotAvailable => {
            is(Retryable, "KAFKA_LEADER_NOT_AVAILABLE", "wait for an election, or bring back the brokers that are down")
        }
        Code::QueueFull => is(Retryable, "KAFKA_QUEUE_FULL", "the brokers confirm more slowly than messages come"),
        Code::KafkaStorageError => is(Retryable, "KAFKA_STORAGE_ERROR", "look at the disks of the brokers"),
        Code::ThrottlingQuotaExceeded => is(Retryable, "KAFKA_THROTTLING_QUOTA_EXCEEDED", "raise the quota"),
        Code::PolicyViolation => is(Retryable, "KAFKA_POLICY_VIOLATION", "ask whoever set the cluster's policy"),
        Code::InvalidTimestamp => {
            is(Retryable, "KAFKA_INVALID_TIMESTAMP", "allow the time of the event in message.timestamp.*.max.ms")
        }
        Code::InvalidMessage => {
            is(Retryable, "KAFKA_CORRUPT_MESSAGE", "look at the network between here and the broker")
        }
        Code::UnsupportedCompressionType => {
            is(Retryable, "KAFKA_UNSUPPORTED_COMPRESSION_TYPE", "choose another compression")
        }
        Code::UnsupportedVersion | Code::UnsupportedFeature => is(
            Retryable,
            "KAFKA_UNSUPPORTED_VERSION",
            "the broker is too old for what is asked: try idempotent = false",
        ),
        _ => return None,
    })
}

/// The failure of a message that Kafka, or the library, refused with this code.
pub(super) fn of(code: Code, topic: &str) -> SinkFailure {
    let number = code as i32;
    // Kafka's own codes are numbered from 0, the library's below.
    let words = format!("Kafka topic {topic}: {code}");
    let Some(Meaning { class, code: ours, advice }) = meaning(code) else {
        let code = if number < 0 { format!("KAFKA_LOCAL_{}", -number) } else { format!("KAFKA_{number}") };
        return SinkFailure::retryable(code, words);
    };
    let failure = SinkFailure::new(class, ours, format!("{words}; {advice}"));
    if number < 0 { failure } else { failure.reply_code(number.to_string()) }
}

/// Whether a broker that says this has refused a whole request for what may be wrong with one record of it.
pub(super) fn is_of_the_whole_request(code: Code) -> bool {
    matches!(
        code,
        Code::MessageSizeTooLarge
            | Code::MessageBatchTooLarge
            | Code::InvalidRecord
            | Code::InvalidTimestamp
            | Code::InvalidMessage
    )
}

/// Whether it says nothing about the message: the producer it was handed to came to an end.
pub(super) fn is_an_interruption(code: Code) -> bool {
    matches!(
        code,
        Code::PurgeQueue
            | Code::PurgeInflight
            | Code::Fatal
            | Code::GaplessGuarantee
            | Code::Retry
            | Code::BrokerDestroy
            | Code::DestroyBroker
            | Code::Inconsistent
            | Code::Fenced
            | Code::OutOfOrderSequenceNumber
            | Code::DuplicateSequenceNumber
            | Code::UnknownProducerId
            | Code::InvalidProducerEpoch
            | Code::InvalidProducerIdMapping
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_mean_what_the_page_says() {
        for (code, expected, class) in [
            (Code::MessageSizeTooLarge, "TOO_LARGE", Terminal),
            (Code::InvalidRecord, "KAFKA_INVALID_RECORD", Terminal),
            (Code::TopicAuthorizationFailed, "UNAUTHORIZED", Retryable),
            (Code::ClusterAuthorizationFailed, "UNAUTHORIZED", Retryable),
            (Code::Authentication, "UNAUTHORIZED", Retryable),
            (Code::AllBrokersDown, "UNREACHABLE", Retryable),
            (Code::BrokerTransportFailure, "UNREACHABLE", Retryable),
            (Code::MessageTimedOut, "TIMEOUT", Retryable),
            (Code::UnknownTopicOrPartition, "KAFKA_UNKNOWN_TOPIC_OR_PARTITION", Retryable),
            (Code::NotEnoughReplicas, "KAFKA_NOT_ENOUGH_REPLICAS", Retryable),
            (Code::QueueFull, "KAFKA_QUEUE_FULL", Retryable),
            (Code::InvalidTimestamp, "KAFKA_INVALID_TIMESTAMP", Retryable),
            // What nobody has thought of is tried again.
            (Code::InvalidRequiredAcks, "KAFKA_21", Retryable),
            (Code::BadCompression, "KAFKA_LOCAL_198", Retryable),
        ] {
            let failure = of(code, "orders");
            assert_eq!((failure.code.as_str(), failure.class), (expected, class), "{code:?}");
            assert!(failure.message.contains("orders"), "{failure:?}");
        }
    }
}
