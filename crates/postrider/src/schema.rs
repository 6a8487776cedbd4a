//! The name of the database schema that holds the outbox. Checked once, here; every statement quotes it.

use std::fmt;
use std::str::FromStr;

use crate::error::{Cause, Error};

/// Longest schema name in bytes: PostgreSQL's limit for a channel name (63) less what is appended to it.
const MAX_SCHEMA_BYTES: usize = 48;

/// A checked schema name; `outbox` by default.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Schema(String);

impl Schema {
    /// Checks a name: 1 to 48 ASCII letters, digits and underscores, not beginning with a digit or `pg_`.
    pub fn new(name: impl Into<String>) -> Result<Self, Error> {
        let name = name.into();
        let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        let starts_well = name.bytes().next().is_some_and(|byte| !byte.is_ascii_digit());
        let reserved = name.to_ascii_lowercase().starts_with("pg_") || name == "public" || name == "information_schema";
        if plain && starts_well && !reserved && name.len() <= MAX_SCHEMA_BYTES {
            Ok(Self(name))
        } else {
            Err(Error::from(Cause::BadSchemaName { name }))
        }
    }

    /// The bare name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// A statement with the name in place of `:"schema"`, which is psql's notation for a quoted identifier: the files also run in
    /// psql.
    #[cfg(feature = "postgres")]
    pub(crate) fn fill(&self, sql: &str) -> String {
        sql.replace(":\"schema\"", &self.quoted())
    }

    /// The name as a quoted SQL identifier.
    #[must_use]
    pub fn quoted(&self) -> String {
        format!("\"{}\"", self.0)
    }
}

impl Default for Schema {
    fn default() -> Self {
        Self("outbox".to_owned())
    }
}

impl fmt::Display for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Schema {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        Self::new(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn only_plain_identifiers_are_accepted() {
        for good in ["outbox", "Outbox_2", "_x", &"a".repeat(48)] {
            assert_eq!(Schema::new(good).unwrap().as_str(), good);
        }
        for bad in ["", "1st", "pg_outbox", "PG_x", "public", "a b", "a\"b", "a;drop", "ö", "a-b", &"a".repeat(49)] {
            assert!(
                matches!(Schema::new(bad), Err(error) if error.kind() == ErrorKind::BadSchemaName),
                "{bad:?} was accepted"
            );
        }
    }
}
