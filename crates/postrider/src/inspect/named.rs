//! How people name a message: by its id, by the end of its id, by its dedupe key. And how they name topics: `*` stands for
//! any characters, as in a route. Checked and turned into patterns here; the searching is each store's.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Hexadecimal digits that the end of an id needs: with fewer, too many ids end alike.
pub const MIN_ID_TAIL_DIGITS: usize = 4;

/// Ids of history that a search by the end of an id looks at, beside all that is undelivered or dead.
pub const MAX_IDS_LOOKED_AT: u32 = 100_000;

/// Messages that a search by the end of an id or by a dedupe key finds at most.
pub const MAX_NAMED: u32 = 20;

/// Pairs of namespace and topic that a search by a dedupe key looks into, if none is given.
pub const MAX_KEY_TOPICS: u32 = 1_000;

/// An id, or the end of one: listings and logs show the last digits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct IdTail(String);

impl IdTail {
    /// The digits, in lower case and without hyphens.
    #[must_use]
    pub fn digits(&self) -> &str {
        &self.0
    }

    /// The id, if it is a whole one.
    #[must_use]
    pub fn whole(&self) -> Option<Uuid> {
        Uuid::try_parse(&self.0).ok()
    }

    /// Whether this id ends so.
    #[must_use]
    pub fn ends(&self, id: Uuid) -> bool {
        let mut buffer = Uuid::encode_buffer();
        id.simple().encode_lower(&mut buffer).ends_with(&self.0)
    }
}

impl TryFrom<String> for IdTail {
    type Error = NotAnIdTail;

    fn try_from(text: String) -> Result<Self, NotAnIdTail> {
        text.parse()
    }
}

impl From<Uuid> for IdTail {
    fn from(id: Uuid) -> Self {
        Self(id.simple().to_string())
    }
}

impl fmt::Display for IdTail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.whole() {
            Some(id) => id.fmt(f),
            None => write!(f, "…{}", self.0),
        }
    }
}

/// A text that is no end of an id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotAnIdTail;

impl fmt::Display for NotAnIdTail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected a message's id, or its last {MIN_ID_TAIL_DIGITS} or more hexadecimal digits")
    }
}

impl std::error::Error for NotAnIdTail {}

impl FromStr for IdTail {
    type Err = NotAnIdTail;

    /// Takes an id in any of its spellings, and `8930f0599708`, `…8930f0599708` and `...8930f0599708`.
    fn from_str(text: &str) -> Result<Self, NotAnIdTail> {
        let text = text.trim();
        if let Ok(id) = Uuid::try_parse(text) {
            return Ok(id.into());
        }
        let digits = text.trim_start_matches(['…', '.', '-']).replace('-', "").to_ascii_lowercase();
        let most = Uuid::nil().simple().to_string().len();
        let fits = (MIN_ID_TAIL_DIGITS..=most).contains(&digits.len());
        if fits && digits.bytes().all(|digit| digit.is_ascii_hexdigit()) { Ok(Self(digits)) } else { Err(NotAnIdTail) }
    }
}

/// Messages that were named by the end of their id or by a dedupe key, newest first, and where the looking ended.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) struct Named {
    pub(crate) ids: Vec<Uuid>,
    pub(crate) look_on: Option<Uuid>,
}

/// When a message was enqueued: the first 48 bits of its id are the time in milliseconds.
#[must_use]
pub fn enqueued_at(id: Uuid) -> SystemTime {
    const REST_BITS: u32 = 80;
    SystemTime::UNIX_EPOCH + Duration::from_millis(u64::try_from(id.as_u128() >> REST_BITS).unwrap_or(0))
}

/// The id after this one: with it as the end of a range, the range holds this one alone.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) fn just_after(id: Uuid) -> Uuid {
    Uuid::from_u128(id.as_u128().saturating_add(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_an_id_is_read_as_it_is_shown() {
        let id: Uuid = "019a8f3c-6b1e-7c02-9d55-8930f0599708".parse().expect("an id");
        for text in ["8930f0599708", "…8930f0599708", "...8930F0599708", "9d55-8930f0599708", " 9708 "] {
            let tail: IdTail = text.parse().expect(text);
            assert!(tail.ends(id) && tail.whole().is_none(), "{text}");
        }
        let whole: IdTail = id.to_string().parse().expect("an id");
        assert_eq!((whole.whole(), whole.to_string()), (Some(id), id.to_string()));
        assert!(!"8930f0599709".parse::<IdTail>().expect("digits").ends(id));
        for wrong in ["", "708", "customer-7", "…", "0123456789abcdef0123456789abcdef0"] {
            assert_eq!(wrong.parse::<IdTail>(), Err(NotAnIdTail), "{wrong:?}");
        }
    }
}
