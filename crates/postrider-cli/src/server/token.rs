//! Tokens that callers send: found in a request, compared in constant time, and refused at the start where anybody could
//! guess them. Used by the admin API and by `postrider receive`. A token is never shown or logged.

use axum::http::{HeaderMap, header};
use subtle::ConstantTimeEq as _;

/// A token that other machines can try must be at least this long: 16 random bytes cannot be guessed.
const MIN_TOKEN_BYTES: usize = 16;
/// And have at least so many different characters.
const MIN_DIFFERENT: usize = 5;
/// What stands in examples, without punctuation. Whoever copies one has no secret.
const PLACEHOLDERS: [&str; 8] =
    ["changeme", "replaceme", "placeholder", "example", "password", "yourtoken", "secrettoken", "admintoken"];

/// How to make one.
pub(crate) const HOW_TO_MAKE_ONE: &str = "make one with: openssl rand -hex 32";

/// Why anybody could guess this token; `None`: nobody can.
pub(crate) fn weakness(token: &str) -> Option<String> {
    if token.len() < MIN_TOKEN_BYTES {
        return Some(format!("it is shorter than {MIN_TOKEN_BYTES} characters"));
    }
    let plain: String = token.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase();
    if let Some(word) = PLACEHOLDERS.iter().find(|word| plain.contains(**word)) {
        return Some(format!("it is a placeholder: it contains {word:?}"));
    }
    let mut different: Vec<char> = token.chars().collect();
    different.sort_unstable();
    different.dedup();
    (different.len() < MIN_DIFFERENT).then(|| "it is a few characters that are repeated".to_owned())
}

/// What a request gives as `Authorization: Bearer …`. `None`: it says nothing of the kind.
pub(crate) fn given(headers: &HeaderMap) -> Option<&str> {
    let given = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = given.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Takes as long for a wrong token as for one that is nearly right.
pub(crate) fn same(given: &str, token: &str) -> bool {
    given.as_bytes().ct_eq(token.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_long_and_no_placeholder() {
        for weak in [
            "",
            "x",
            "change-me",
            "change-me-too",
            "Change_Me-and-more-of-it",
            "fifteen-bytes-x",
            "0000000000000000",
            "abababababababababab",
            "my-password-is-long",
        ] {
            assert!(weakness(weak).is_some(), "{weak}");
        }
        for strong in [
            "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
            "hunter2-may-operate",
            "0123456789012345",
        ] {
            assert_eq!(weakness(strong), None, "{strong}");
        }
    }
}
