//! What Redis says, and what it means for a message: the table, and the words for people. Decided by the first word of an
//! error, which is Redis's code, never by its text. Nothing that a server answers is for good: whatever it refuses, its
//! operator can change without touching the message.

use std::time::Duration;

use redis::{ErrorKind, RedisError, ServerError};

use crate::sink::SinkFailure;

/// The longest first word that is taken for a code.
const MAX_CODE_BYTES: usize = 24;

/// For an answer that is neither an id nor an error.
const PROTOCOL: &str = "REDIS_PROTOCOL";

/// What became of the connection, or of the attempt to make one.
pub(super) fn of(error: &RedisError, address: &str) -> SinkFailure {
    let said =
        |code: &str, advice: &str| SinkFailure::retryable(code, format!("Redis at {address}: {error}; {advice}"));
    match error.kind() {
        ErrorKind::Io => said(SinkFailure::UNREACHABLE, "is it running, and is the URL right?"),
        ErrorKind::AuthenticationFailed => said(SinkFailure::UNAUTHORIZED, "look at the user and the password"),
        ErrorKind::Server(_) | ErrorKind::Extension => {
            by_code(error.code().unwrap_or_default(), error.detail().unwrap_or_default(), address)
        }
        _ => said(PROTOCOL, "is that a Redis?"),
    }
}

/// What a server said to one command.
pub(super) fn refused(error: &ServerError, address: &str) -> SinkFailure {
    by_code(error.code(), error.details().unwrap_or_default(), address)
}

/// The table.
fn by_code(word: &str, details: &str, address: &str) -> SinkFailure {
    let (code, advice) = match word {
        "NOAUTH" => (SinkFailure::UNAUTHORIZED, "it asks for a password: set one"),
        "WRONGPASS" => (SinkFailure::UNAUTHORIZED, "look at the user and the password"),
        "NOPERM" => (SinkFailure::UNAUTHORIZED, "its user needs `+xadd +eval` on these streams"),
        "OOM" => ("REDIS_OOM", "its memory is full: trim streams (max_len), or raise maxmemory"),
        "READONLY" => ("REDIS_READONLY", "it is a replica: wait for the failover to end, or name the master"),
        "WRONGTYPE" => {
            ("REDIS_WRONGTYPE", "the stream's key holds something else: rename that key, or change `stream`")
        }
        "MISCONF" => ("REDIS_MISCONF", "it cannot write to its disk: look at its log"),
        "NOREPLICAS" => ("REDIS_NOREPLICAS", "fewer replicas are in step than min-replicas-to-write asks for"),
        "LOADING" => ("REDIS_LOADING", "it is still reading its data"),
        "MASTERDOWN" => ("REDIS_MASTERDOWN", "it is a replica without its master: wait, or name the master"),
        "BUSY" => ("REDIS_BUSY", "a script runs there too long: SCRIPT KILL ends it"),
        "CLUSTERDOWN" => ("REDIS_CLUSTERDOWN", "its cluster is incomplete"),
        "TRYAGAIN" => ("REDIS_TRYAGAIN", "its cluster is moving keys"),
        "MOVED" | "ASK" | "CROSSSLOT" => {
            ("REDIS_CLUSTER", "it is part of a cluster, which this sink does not speak to")
        }
        "ERR" => ("REDIS_ERR", "its log may say more"),
        _ => return other(word, details, address),
    };
    worded(code, word, details, address, advice)
}

/// A word that the table does not have.
fn other(word: &str, details: &str, address: &str) -> SinkFailure {
    let is_code =
        !word.is_empty() && word.len() <= MAX_CODE_BYTES && word.bytes().all(|byte| byte.is_ascii_uppercase());
    let code = if is_code { format!("REDIS_{word}") } else { "REDIS_ERR".to_owned() };
    worded(&code, if is_code { word } else { "ERR" }, details, address, "its documentation may say more")
}

fn worded(code: &str, word: &str, details: &str, address: &str, advice: &str) -> SinkFailure {
    // A server that does not know a command quotes its arguments, which are the message.
    let details = details.split(", with args").next().unwrap_or_default().trim_end_matches(['.', ' ']);
    SinkFailure::retryable(code, format!("Redis at {address} says {word} {details}; {advice}")).reply_code(word)
}

/// No answer in time.
pub(super) fn unreachable_after(timeout: Duration, address: &str) -> SinkFailure {
    let words = format!("Redis at {address} did not answer within {timeout:?}; is it running, and is it overloaded?");
    SinkFailure::retryable(SinkFailure::UNREACHABLE, words)
}

/// An answer that makes no sense.
pub(super) fn unreadable(address: &str) -> SinkFailure {
    SinkFailure::retryable(PROTOCOL, format!("Redis at {address} answered an XADD with something that is no id"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::FailureClass;

    #[test]
    fn every_word_has_its_code_and_can_be_tried_again() {
        for (word, code) in [
            ("NOAUTH", "UNAUTHORIZED"),
            ("WRONGPASS", "UNAUTHORIZED"),
            ("NOPERM", "UNAUTHORIZED"),
            ("OOM", "REDIS_OOM"),
            ("READONLY", "REDIS_READONLY"),
            ("WRONGTYPE", "REDIS_WRONGTYPE"),
            ("MISCONF", "REDIS_MISCONF"),
            ("NOREPLICAS", "REDIS_NOREPLICAS"),
            ("LOADING", "REDIS_LOADING"),
            ("MASTERDOWN", "REDIS_MASTERDOWN"),
            ("BUSY", "REDIS_BUSY"),
            ("CLUSTERDOWN", "REDIS_CLUSTERDOWN"),
            ("TRYAGAIN", "REDIS_TRYAGAIN"),
            ("MOVED", "REDIS_CLUSTER"),
            ("ERR", "REDIS_ERR"),
            ("UNKILLABLE", "REDIS_UNKILLABLE"),
            ("@user_script:", "REDIS_ERR"),
            ("", "REDIS_ERR"),
        ] {
            let failure = by_code(word, "some words", "host:1");
            assert_eq!((failure.code.as_str(), failure.class), (code, FailureClass::Retryable), "{word}");
            assert!(failure.message.contains("host:1") && failure.message.contains("some words"), "{failure:?}");
        }
    }

    #[test]
    fn a_quoted_command_does_not_reach_the_error() {
        let details = "unknown command 'XADD', with args beginning with: 'orders' '*' 'body' 'secret'";
        assert!(!by_code("ERR", details, "host:1").message.contains("secret"));
    }

    #[test]
    fn a_connection_that_fails_is_unreachable() {
        let refused = RedisError::from(std::io::Error::from(std::io::ErrorKind::ConnectionRefused));
        assert_eq!(of(&refused, "host:1").code, SinkFailure::UNREACHABLE);
        let login = RedisError::from((ErrorKind::AuthenticationFailed, "no"));
        assert_eq!(of(&login, "host:1").code, SinkFailure::UNAUTHORIZED);
        let strange = RedisError::from((ErrorKind::Parse, "no"));
        assert_eq!(of(&strange, "host:1").code, PROTOCOL);
    }
}
