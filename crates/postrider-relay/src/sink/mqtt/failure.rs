//! The one table from what an MQTT server, or its client library, says to a code and a class; docs/sinks/mqtt.md has it for
//! people. What a person can cure without touching the message is tried again, and so is whatever is not known here.

use std::time::Duration;

use rumqttc::mqttbytes::Error;
use rumqttc::{ConnectReturnCode, ConnectionError, DisconnectReasonCode, PubAckReason, PubRecReason, StateError};

use crate::sink::SinkFailure;

/// The server took it, and nobody is there to whom it would give it: it is gone.
pub(super) const NO_SUBSCRIBERS: &str = "MQTT_NO_SUBSCRIBERS";
const MALFORMED: &str = "MQTT_MALFORMED";

/// Why there is no connection, or no longer.
pub(super) fn of(error: &ConnectionError) -> SinkFailure {
    match error {
        ConnectionError::ConnectionRefused(reason) | ConnectionError::MqttState(StateError::ConnFail { reason }) => {
            not_let_in(*reason)
        }
        ConnectionError::MqttState(StateError::ServerDisconnect { reason_code, .. }) => hung_up(*reason_code),
        ConnectionError::MqttState(StateError::OutgoingPacketTooLarge { .. }) => {
            SinkFailure::terminal(SinkFailure::TOO_LARGE, said(error))
        }
        // A connection that breaks while something is read from it, or a certificate that the server does not take.
        ConnectionError::MqttState(StateError::Deserialization(Error::Io(_))) => {
            SinkFailure::retryable(SinkFailure::UNREACHABLE, said(error))
        }
        // An answer that MQTT 5 does not know, such as 0x95 to a publish, is one of these.
        ConnectionError::MqttState(StateError::Deserialization(_) | StateError::ProtocolViolation(_)) => {
            SinkFailure::retryable(MALFORMED, said(error))
        }
        _ => SinkFailure::retryable(SinkFailure::UNREACHABLE, said(error)),
    }
}

/// Whether one message can have ended the connection for all that were on it.
pub(super) fn may_be_of_one(error: &ConnectionError) -> bool {
    use DisconnectReasonCode as Reason;
    match error {
        // A server that hangs up says why, but a connection that is closed while we write may lose its last words.
        ConnectionError::Io(_)
        | ConnectionError::MqttState(
            StateError::Io(_)
            | StateError::ConnectionAborted
            | StateError::Deserialization(_)
            | StateError::ProtocolViolation(_),
        ) => true,
        ConnectionError::MqttState(StateError::ServerDisconnect { reason_code, .. }) => matches!(
            reason_code,
            Reason::UnspecifiedError
                | Reason::MalformedPacket
                | Reason::ProtocolError
                | Reason::ImplementationSpecificError
                | Reason::NotAuthorized
                | Reason::TopicNameInvalid
                | Reason::PacketTooLarge
                | Reason::PayloadFormatInvalid
        ),
        _ => false,
    }
}

fn said(error: &ConnectionError) -> String {
    format!("MQTT: {error}")
}

fn not_let_in(reason: ConnectReturnCode) -> SinkFailure {
    use ConnectReturnCode as Reason;
    let words = format!("the server does not let us in: {reason:?}");
    match reason {
        Reason::BadUserNamePassword | Reason::NotAuthorized | Reason::BadAuthenticationMethod | Reason::Banned => {
            SinkFailure::retryable(SinkFailure::UNAUTHORIZED, words)
        }
        Reason::ServiceUnavailable | Reason::ServerUnavailable | Reason::ServerBusy => {
            SinkFailure::retryable(SinkFailure::UNREACHABLE, words)
        }
        Reason::QuotaExceeded => SinkFailure::retryable("MQTT_QUOTA_EXCEEDED", words),
        _ => SinkFailure::retryable("MQTT_REFUSED", words),
    }
}

fn hung_up(reason: DisconnectReasonCode) -> SinkFailure {
    use DisconnectReasonCode as Reason;
    let words = format!("the server ended the connection: {reason:?}");
    let failure = match reason {
        Reason::PacketTooLarge => SinkFailure::terminal(SinkFailure::TOO_LARGE, words),
        Reason::TopicNameInvalid => SinkFailure::terminal("MQTT_TOPIC_NAME_INVALID", words),
        Reason::PayloadFormatInvalid => SinkFailure::terminal("MQTT_PAYLOAD_FORMAT_INVALID", words),
        Reason::NotAuthorized => SinkFailure::retryable(SinkFailure::UNAUTHORIZED, words),
        Reason::QuotaExceeded => SinkFailure::retryable("MQTT_QUOTA_EXCEEDED", words),
        Reason::SessionTakenOver => SinkFailure::retryable(
            "MQTT_SESSION_TAKEN_OVER",
            format!("{words}; another client has the same client_id, which must be of one process alone"),
        ),
        Reason::MalformedPacket | Reason::ProtocolError => SinkFailure::retryable(MALFORMED, words),
        Reason::RetainNotSupported => SinkFailure::retryable("MQTT_RETAIN_NOT_SUPPORTED", words),
        Reason::QoSNotSupported => SinkFailure::retryable("MQTT_QOS_NOT_SUPPORTED", words),
        _ => SinkFailure::retryable(SinkFailure::UNREACHABLE, words),
    };
    failure.reply_code(format!("0x{:02x}", reason as u8))
}

/// What the server said of a message that it did not take. Both answers have the same reasons.
pub(super) fn of_answer(reason: PubAckReason) -> SinkFailure {
    use PubAckReason as Reason;
    let words = format!("the server did not take it: {reason:?}");
    let failure = match reason {
        Reason::NoMatchingSubscribers => SinkFailure::retryable(
            NO_SUBSCRIBERS,
            "nobody subscribes to this topic, so the server has thrown it away; subscribe with a session that stays, or \
             set require_subscriber = false",
        ),
        Reason::NotAuthorized => SinkFailure::retryable(SinkFailure::UNAUTHORIZED, words),
        Reason::TopicNameInvalid => SinkFailure::terminal("MQTT_TOPIC_NAME_INVALID", words),
        Reason::PayloadFormatInvalid => SinkFailure::terminal("MQTT_PAYLOAD_FORMAT_INVALID", words),
        Reason::QuotaExceeded => SinkFailure::retryable("MQTT_QUOTA_EXCEEDED", words),
        Reason::PacketIdentifierInUse => SinkFailure::retryable("MQTT_PACKET_ID_IN_USE", words),
        Reason::ImplementationSpecificError => SinkFailure::retryable("MQTT_IMPLEMENTATION_SPECIFIC", words),
        Reason::Success | Reason::UnspecifiedError => SinkFailure::retryable("MQTT_UNSPECIFIED", words),
    };
    failure.reply_code(format!("0x{:02x}", reason as u8))
}

/// The reason of a first answer at quality 2 as that of the only answer at quality 1.
pub(super) fn as_puback(reason: PubRecReason) -> PubAckReason {
    match reason {
        PubRecReason::Success => PubAckReason::Success,
        PubRecReason::NoMatchingSubscribers => PubAckReason::NoMatchingSubscribers,
        PubRecReason::UnspecifiedError => PubAckReason::UnspecifiedError,
        PubRecReason::ImplementationSpecificError => PubAckReason::ImplementationSpecificError,
        PubRecReason::NotAuthorized => PubAckReason::NotAuthorized,
        PubRecReason::TopicNameInvalid => PubAckReason::TopicNameInvalid,
        PubRecReason::PacketIdentifierInUse => PubAckReason::PacketIdentifierInUse,
        PubRecReason::QuotaExceeded => PubAckReason::QuotaExceeded,
        PubRecReason::PayloadFormatInvalid => PubAckReason::PayloadFormatInvalid,
    }
}

pub(super) fn silent(timeout: Duration) -> SinkFailure {
    SinkFailure::retryable(SinkFailure::UNREACHABLE, format!("the MQTT server did not answer within {timeout:?}"))
}

/// The library let go of it without an answer.
pub(super) fn in_doubt() -> SinkFailure {
    SinkFailure::retryable(SinkFailure::UNREACHABLE, "the connection broke before the MQTT server answered")
}
