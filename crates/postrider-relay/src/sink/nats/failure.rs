//! What NATS says, and what it means for a message: the table, and the words for people. Decided by the library's kinds of
//! error and the numbers of JetStream's, never by text.

use std::time::Duration;

use async_nats::jetstream::{self, ErrorCode};
use async_nats::{ConnectError, ConnectErrorKind, RequestError, RequestErrorKind};

use crate::sink::SinkFailure;

/// No stream listens on the subject.
const NO_RESPONDERS: &str = "NATS_NO_RESPONDERS";
/// An answer that no stream gives.
const PROTOCOL: &str = "NATS_PROTOCOL";

/// Why there is no connection.
pub(super) fn of_connecting(error: &ConnectError, address: &str) -> SinkFailure {
    let (code, advice) = match error.kind() {
        ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication => {
            (SinkFailure::UNAUTHORIZED, "look at user, password, token, nkey or credentials")
        }
        ConnectErrorKind::Tls => (SinkFailure::UNREACHABLE, "look at the server's certificate, `ca`, `cert` and `key`"),
        ConnectErrorKind::Dns
        | ConnectErrorKind::Io
        | ConnectErrorKind::TimedOut
        | ConnectErrorKind::MaxReconnects
        | ConnectErrorKind::ServerParse => (SinkFailure::UNREACHABLE, "is it running, and are the servers right?"),
    };
    SinkFailure::retryable(code, format!("NATS at {address}: {error}; {advice}"))
}

/// No connection in time.
pub(super) fn no_connection_after(timeout: Duration, address: &str) -> SinkFailure {
    let words = format!("NATS at {address} did not let us in within {timeout:?}; is it running, and is it overloaded?");
    SinkFailure::retryable(SinkFailure::UNREACHABLE, words)
}

/// The connection broke before the answer.
pub(super) fn lost(said: Option<&str>, address: &str) -> SinkFailure {
    let words = format!("the connection to NATS at {address} was lost before the message was confirmed{}", last(said));
    SinkFailure::retryable(SinkFailure::UNREACHABLE, words)
}

/// No answer in time.
pub(super) fn unconfirmed_after(timeout: Duration, said: Option<&str>, address: &str) -> SinkFailure {
    let words = format!(
        "no stream at {address} confirmed the message within {timeout:?}{}; is the server overloaded, may we publish to that \
         subject, and does the stream acknowledge?",
        last(said)
    );
    SinkFailure::retryable(SinkFailure::UNREACHABLE, words)
}

fn last(said: Option<&str>) -> String {
    said.map(|said| format!(" (the server said: {said})")).unwrap_or_default()
}

/// The message did not get an answer from a stream.
pub(super) fn of_request(error: &RequestError, subject: &str, address: &str) -> SinkFailure {
    match error.kind() {
        RequestErrorKind::NoResponders => SinkFailure::retryable(
            NO_RESPONDERS,
            format!(
                "no stream at {address} takes the subject {subject}; make one: nats stream add NAME --subjects '{subject}'"
            ),
        ),
        RequestErrorKind::MaxPayloadExceeded => SinkFailure::terminal(
            SinkFailure::TOO_LARGE,
            format!("the message with its headers is larger than max_payload of NATS at {address}: {error}"),
        ),
        RequestErrorKind::InvalidSubject => {
            SinkFailure::terminal(SinkFailure::NO_ADDRESS, format!("{subject:?} is no subject to publish to"))
        }
        RequestErrorKind::TimedOut | RequestErrorKind::Other => lost(None, address),
    }
}

/// A stream refused the message: the table.
pub(super) fn of_stream(error: &jetstream::Error, subject: &str, address: &str) -> SinkFailure {
    let number = error.error_code();
    let advice = match number {
        ErrorCode::STREAM_MESSAGE_EXCEEDS_MAXIMUM | ErrorCode::STREAM_HEADER_EXCEEDS_MAXIMUM => {
            let words = format!("the stream at {address} does not take a message as large as this: {error}");
            return SinkFailure::terminal(SinkFailure::TOO_LARGE, words).reply_code(number.0.to_string());
        }
        ErrorCode::STREAM_STORE_FAILED => "the stream is full or its disk is: remove messages, or raise its limits",
        ErrorCode::ACCOUNT_RESOURCES_EXCEEDED
        | ErrorCode::INSUFFICIENT_RESOURCES
        | ErrorCode::MEMORY_RESOURCES_EXCEEDED
        | ErrorCode::STORAGE_RESOURCES_EXCEEDED => "JetStream has no room left: remove messages, or raise its limits",
        ErrorCode::STREAM_NOT_MATCH => "another stream takes this subject: change the sink's `stream` or `subject`",
        ErrorCode::STREAM_SEALED => "the stream is sealed: make another for this subject",
        ErrorCode::JETSTREAM_NOT_ENABLED | ErrorCode::JETSTREAM_NOT_ENABLED_FOR_ACCOUNT => "turn JetStream on",
        ErrorCode::STREAM_DUPLICATE_MESSAGE_CONFLICT => "the same message is being stored: its answer comes next time",
        ErrorCode::CLUSTER_NOT_AVAILABLE
        | ErrorCode::CLUSTER_NOT_LEADER
        | ErrorCode::CLUSTER_NOT_ACTIVE
        | ErrorCode::CLUSTER_INCOMPLETE
        | ErrorCode::STREAM_OFFLINE => "the stream has no leader for now",
        _ => "its documentation may say more",
    };
    let words = format!("the stream at {address} for {subject} says: {error}; {advice}");
    SinkFailure::retryable(format!("NATS_{}", number.0), words).reply_code(number.0.to_string())
}

/// An answer that makes no sense.
pub(super) fn unreadable(subject: &str, address: &str) -> SinkFailure {
    let words = format!("something at {address} that is no stream answered on {subject}; does a service listen there?");
    SinkFailure::retryable(PROTOCOL, words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::FailureClass::{self, Retryable, Terminal};

    fn of_number(number: u64) -> (String, FailureClass) {
        let error = format!("{{\"code\":503,\"err_code\":{number},\"description\":\"words\"}}");
        let error: jetstream::Error = serde_json::from_str(&error).expect("an error");
        let failure = of_stream(&error, "orders", "host:1");
        assert!(failure.message.contains("words") && failure.message.contains("host:1"), "{failure:?}");
        (failure.code, failure.class)
    }

    #[test]
    fn what_a_stream_refuses_is_too_large_or_can_be_tried_again() {
        for number in [10_054, 10_097] {
            assert_eq!(of_number(number), (SinkFailure::TOO_LARGE.to_owned(), Terminal));
        }
        for number in [10_002, 10_008, 10_023, 10_039, 10_047, 10_060, 10_077, 10_109, 10_158, 19_999, 0] {
            assert_eq!(of_number(number), (format!("NATS_{number}"), Retryable));
        }
    }

    #[test]
    fn what_gets_no_answer_is_told_apart() {
        for (kind, code, class) in [
            (RequestErrorKind::NoResponders, NO_RESPONDERS, Retryable),
            (RequestErrorKind::MaxPayloadExceeded, SinkFailure::TOO_LARGE, Terminal),
            (RequestErrorKind::InvalidSubject, SinkFailure::NO_ADDRESS, Terminal),
            (RequestErrorKind::TimedOut, SinkFailure::UNREACHABLE, Retryable),
            (RequestErrorKind::Other, SinkFailure::UNREACHABLE, Retryable),
        ] {
            let failure = of_request(&RequestError::new(kind), "orders", "host:1");
            assert_eq!((failure.code.as_str(), failure.class), (code, class));
        }
        for (kind, code) in [
            (ConnectErrorKind::AuthorizationViolation, SinkFailure::UNAUTHORIZED),
            (ConnectErrorKind::Authentication, SinkFailure::UNAUTHORIZED),
            (ConnectErrorKind::Tls, SinkFailure::UNREACHABLE),
            (ConnectErrorKind::Io, SinkFailure::UNREACHABLE),
        ] {
            let failure = of_connecting(&ConnectError::new(kind), "host:1");
            assert_eq!((failure.code.as_str(), failure.class), (code, Retryable));
        }
    }
}
