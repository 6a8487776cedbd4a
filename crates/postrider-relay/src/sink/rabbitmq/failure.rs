//! The one table from what RabbitMQ, or its client library, says to a code and a class; docs/sinks/rabbitmq.md has it for
//! people. What a person can cure without touching the message is tried again, and so is whatever is not known here.

use std::time::Duration;

use lapin::ErrorKind;

use crate::sink::SinkFailure;

/// No queue is bound that would take it.
pub(super) const NO_ROUTE: &str = "AMQP_NO_ROUTE";
/// The server took it and then could not keep it, or a queue is full and refuses.
pub(super) const NACK: &str = "AMQP_NACK";
/// The server has no memory or disk left and reads nothing from publishers.
pub(super) const BLOCKED: &str = "AMQP_BLOCKED";

/// Why a connection, or a message on it, failed.
pub(super) fn of(error: &lapin::Error) -> SinkFailure {
    match error.kind() {
        ErrorKind::ProtocolError(said) => refused(said.get_id(), said.get_message().as_str()),
        ErrorKind::IOError(_)
        | ErrorKind::RuntimeShutdownError(_)
        | ErrorKind::MissingHeartbeatError
        | ErrorKind::InvalidChannel(_)
        | ErrorKind::InvalidChannelState(..)
        | ErrorKind::InvalidConnectionState(_) => {
            SinkFailure::retryable(SinkFailure::UNREACHABLE, format!("RabbitMQ: {error}"))
        }
        ErrorKind::AuthProviderError(_) => {
            SinkFailure::retryable(SinkFailure::UNAUTHORIZED, format!("RabbitMQ: {error}"))
        }
        _ => SinkFailure::retryable(SinkFailure::ERROR, format!("RabbitMQ: {error}")),
    }
}

/// What the server said with a reply code of AMQP 0-9-1. The number itself is the reply code of the failure.
pub(super) fn refused(code: u16, words: &str) -> SinkFailure {
    let said = format!("RabbitMQ says {code}: {words}");
    let failure = match code {
        311 => SinkFailure::terminal(SinkFailure::TOO_LARGE, said),
        312 => SinkFailure::retryable(NO_ROUTE, format!("{said}; bind a queue for this routing key")),
        313 => SinkFailure::retryable("AMQP_NO_CONSUMERS", said),
        // The server goes down, or an operator closed the connection.
        320 => SinkFailure::retryable(SinkFailure::UNREACHABLE, said),
        403 => SinkFailure::retryable(SinkFailure::UNAUTHORIZED, said),
        404 => SinkFailure::retryable("AMQP_NOT_FOUND", format!("{said}; it is never declared from here")),
        // To a publisher it is said about the message: larger than max_message_size, or a property that is no good.
        406 => SinkFailure::terminal("AMQP_PRECONDITION_FAILED", said),
        530 => SinkFailure::retryable("AMQP_NOT_ALLOWED", said),
        other => SinkFailure::retryable(format!("AMQP_{other}"), said),
    };
    failure.reply_code(code.to_string())
}

pub(super) fn nack() -> SinkFailure {
    SinkFailure::retryable(NACK, "RabbitMQ did not keep it: a queue is full and refuses more, or could not store it")
}

pub(super) fn blocked(reason: &str) -> SinkFailure {
    SinkFailure::retryable(BLOCKED, format!("RabbitMQ has blocked its publishers: {reason}"))
}

pub(super) fn silent(timeout: Duration) -> SinkFailure {
    SinkFailure::retryable(SinkFailure::UNREACHABLE, format!("RabbitMQ did not answer within {timeout:?}"))
}

/// The connection ended when it was not certain any more whether this one had been returned.
pub(super) fn in_doubt() -> SinkFailure {
    SinkFailure::retryable(SinkFailure::UNREACHABLE, "the connection to RabbitMQ broke before it was certain")
}
