//! A password, a token, a key: read when a sink is made, never printed. It is best kept in an environment variable or a
//! file and only named in the configuration.

use std::fmt;
use std::path::PathBuf;

use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use serde::de::{self, Deserializer, MapAccess, Visitor};

use crate::error::Error;

/// Where a secret is: `"in the open"`, `{ env = "NAME" }` or `{ file = "/path" }`.
#[derive(Clone)]
#[non_exhaustive]
pub enum Secret {
    /// It is here.
    Plain(SecretString),
    /// In an environment variable.
    Env(String),
    /// In a file, without the line's end.
    File(PathBuf),
}

impl From<&str> for Secret {
    fn from(secret: &str) -> Self {
        Self::Plain(SecretString::from(secret))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain(_) => formatter.write_str("[REDACTED]"),
            Self::Env(env) => write!(formatter, "{{ env = {env:?} }}"),
            Self::File(file) => write!(formatter, "{{ file = {file:?} }}"),
        }
    }
}

/// Read by hand: a derived reader would also take a list, and then show what stands in it as the name of a variable.
impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Place;
        impl<'de> Visitor<'de> for Place {
            type Value = Secret;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a text, { env = \"NAME\" } or { file = \"/path\" }")
            }

            fn visit_str<E: de::Error>(self, secret: &str) -> Result<Secret, E> {
                Ok(Secret::from(secret))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Secret, A::Error> {
                let secret = match map.next_key::<String>()?.as_deref() {
                    Some("env") => Secret::Env(map.next_value()?),
                    Some("file") => Secret::File(map.next_value()?),
                    Some(other) => return Err(de::Error::unknown_field(other, &["env", "file"])),
                    None => return Err(de::Error::invalid_length(0, &self)),
                };
                match map.next_key::<String>()? {
                    None => Ok(secret),
                    Some(_) => Err(de::Error::custom("a secret has one place: give either `env` or `file`")),
                }
            }
        }
        deserializer.deserialize_any(Place)
    }
}

impl Secret {
    /// The secret itself. `what` says whose it is, for the error.
    pub fn reveal(&self, what: &str) -> Result<String, Error> {
        match self {
            Self::Plain(secret) => Ok(secret.expose_secret().to_owned()),
            Self::Env(env) => std::env::var(env).map_err(|error| {
                Error::options(format!(
                    "{what} is to come from the environment variable {env}: {error}; set it, or name another"
                ))
            }),
            Self::File(file) => std::fs::read_to_string(file)
                .map(|text| text.trim_end_matches(['\r', '\n']).to_owned())
                .map_err(|error| Error::options(format!("{what} is to be read from {}: {error}", file.display()))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_has_one_place() {
        let read = |text: &str| serde_json::from_str::<Secret>(text).map(|secret| format!("{secret:?}"));
        assert_eq!(read(r#""hunter2""#).unwrap(), "[REDACTED]");
        assert_eq!(read(r#"{"env": "NAME"}"#).unwrap(), "{ env = \"NAME\" }");
        assert_eq!(read(r#"{"file": "/path"}"#).unwrap(), "{ file = \"/path\" }");
        for wrong in [r#"["hunter2"]"#, r#"{"env": "hunter2", "file": "hunter2"}"#, r#"{"evn": "hunter2"}"#, "{}"] {
            let error = read(wrong).unwrap_err().to_string();
            assert!(!error.contains("hunter2"), "{wrong}: {error}");
        }
    }

    #[test]
    fn a_secret_is_not_printed() {
        let secret = Secret::from("hunter2");
        assert_eq!(format!("{secret:?}"), "[REDACTED]");
    }
}
