//! A password, a token, a key: read when a sink is made, never printed. It is best kept in an environment variable or a
//! file and only named in the configuration.

use std::fmt;
use std::path::PathBuf;

use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;

use crate::error::Error;

/// Where a secret is: `"in the open"`, `{ env = "NAME" }` or `{ file = "/path" }`.
#[derive(Clone, Deserialize)]
#[serde(untagged)]
pub enum Secret {
    /// It is here.
    Plain(SecretString),
    /// In an environment variable.
    Env(FromEnv),
    /// In a file, without the line's end.
    File(FromFile),
}

/// The name of an environment variable.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FromEnv {
    /// Its name.
    pub env: String,
}

/// The path of a file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FromFile {
    /// Its path.
    pub file: PathBuf,
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
            Self::Env(FromEnv { env }) => write!(formatter, "{{ env = {env:?} }}"),
            Self::File(FromFile { file }) => write!(formatter, "{{ file = {file:?} }}"),
        }
    }
}

impl Secret {
    /// The secret itself. `what` says whose it is, for the error.
    pub fn reveal(&self, what: &str) -> Result<String, Error> {
        let options = |reason: String| Error::Options { reason };
        match self {
            Self::Plain(secret) => Ok(secret.expose_secret().to_owned()),
            Self::Env(FromEnv { env }) => std::env::var(env).map_err(|error| {
                options(format!(
                    "{what} is to come from the environment variable {env}: {error}; set it, or name another"
                ))
            }),
            Self::File(FromFile { file }) => std::fs::read_to_string(file)
                .map(|text| text.trim_end_matches(['\r', '\n']).to_owned())
                .map_err(|error| options(format!("{what} is to be read from {}: {error}", file.display()))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_not_printed() {
        let secret = Secret::from("hunter2");
        assert_eq!(format!("{secret:?}"), "[REDACTED]");
    }
}
