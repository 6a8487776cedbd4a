//! Who may use the admin API, and where it listens: `[admin]` of the configuration, `INTERNAL_ADMIN_ENABLED`,
//! `POSTRIDER_ADMIN_TOKEN` and `--listen`. Read with everything else before anything is started; the server that is made of
//! it stands elsewhere. A token is never printed.

use std::fmt;
use std::net::SocketAddr;

use postrider_relay::secret::Secret;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _};

use super::{fault, token};
use crate::failure::{Failure, Result};
use crate::server::host::Hosts;

/// What stands in place of an address where nothing is to be served.
pub(crate) const NOWHERE: &str = "none";

/// What the one token of `[admin] token` or `POSTRIDER_ADMIN_TOKEN` is called in the audit.
const ONLY_TOKEN: &str = "admin";

/// `[admin]`, as it is written.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AdminSection {
    listen: Listen,
    enabled: Option<bool>,
    token: Option<Secret>,
    #[serde(default)]
    tokens: Vec<TokenSection>,
    loopback_reads_without_token: bool,
    #[serde(default)]
    hosts: Vec<String>,
}

/// Names in the `Host` header that a server answers to, beside addresses and localhost.
pub(super) fn hosts(section: &str, names: &[String]) -> Result<Hosts> {
    Hosts::parse(names).map_err(|wrong| {
        fault::wrong(&format!(
            "{section}.hosts: {wrong:?} is no name of a host: give it without a scheme, a port and a path"
        ))
    })
}

/// One of `[admin] tokens`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TokenSection {
    name: String,
    token: Secret,
    role: Role,
}

/// An address, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Listen(pub(crate) Option<SocketAddr>);

impl std::str::FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text.trim() {
            NOWHERE => Ok(Self(None)),
            address => address
                .parse()
                .map(|address| Self(Some(address)))
                .map_err(|_| format!("expected an address and a port such as 127.0.0.1:7433, or {NOWHERE}")),
        }
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(address) => write!(formatter, "{address}"),
            None => formatter.write_str(NOWHERE),
        }
    }
}

impl<'de> Deserialize<'de> for Listen {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

/// What a token's bearer may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Role {
    /// Look at everything.
    Read,
    /// And change it.
    Operate,
}

/// What the admin API is to be, with every secret read.
#[derive(Debug, Clone)]
pub(crate) struct AdminConfig {
    /// Where to listen; `None`: nowhere.
    pub(crate) listen: Option<SocketAddr>,
    /// Somebody asked for that address, so it is an error if it cannot be had.
    pub(crate) explicit: bool,
    /// Whether the endpoints that change something are there. `None`: if there is a token.
    pub(crate) enabled: Option<bool>,
    /// Whoever may come in.
    pub(crate) tokens: Vec<AdminToken>,
    /// Whether programs on this machine may look without a token where there is one.
    pub(crate) loopback_reads_without_token: bool,
    /// Names in the `Host` header that are answered to, beside addresses and localhost.
    pub(crate) hosts: Hosts,
}

/// A name, what it has to send, and what it may do.
#[derive(Clone)]
pub(crate) struct AdminToken {
    pub(crate) name: String,
    pub(crate) secret: String,
    pub(crate) role: Role,
}

impl fmt::Debug for AdminToken {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, secret: _, role } = self;
        formatter.debug_struct("AdminToken").field("name", name).field("role", role).finish_non_exhaustive()
    }
}

impl AdminSection {
    /// Reads the secrets. `explicit`: the address is not the default one.
    pub(crate) fn read(&self, explicit: bool) -> Result<AdminConfig> {
        let one = self.token.iter().map(|token| (ONLY_TOKEN, token, Role::Operate));
        let more = self.tokens.iter().map(|token| (token.name.as_str(), &token.token, token.role));
        let mut tokens: Vec<AdminToken> = Vec::new();
        for (name, token, role) in one.chain(more) {
            let wrong = |reason: &str| {
                Failure::usage(format!("the admin token {name:?} cannot be used: {reason}"))
                    .hint("see [admin] in the configuration, and POSTRIDER_ADMIN_TOKEN")
            };
            let before = tokens.iter().map(|other| (other.name.as_str(), other.secret.as_str()));
            let secret = token::secret((name, token), before, "the audit").map_err(|reason| wrong(&reason))?;
            tokens.push(AdminToken { name: name.to_owned(), secret, role });
        }
        Ok(AdminConfig {
            listen: self.listen.0,
            explicit,
            enabled: self.enabled,
            tokens,
            loopback_reads_without_token: self.loopback_reads_without_token,
            hosts: hosts("admin", &self.hosts)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use figment::Figment;
    use figment::providers::{Format as _, Toml};

    use super::*;
    use crate::server::host::Host;

    fn read(text: &str) -> std::result::Result<AdminConfig, String> {
        let text = format!("listen = \"127.0.0.1:7433\"\nloopback_reads_without_token = false\n{text}");
        let section: AdminSection =
            Figment::from(Toml::string(&text)).extract().map_err(|error: figment::Error| error.to_string())?;
        section.read(false).map_err(|failure| format!("{failure:?}"))
    }

    #[test]
    fn tokens_are_read_with_their_roles_and_never_shown() {
        let config = read(
            "token = \"hunter1\"\nenabled = true\nhosts = [\"Outbox.example\"]\n\
             tokens = [{ name = \"ops\", token = \"hunter2\", role = \"operate\" },\n\
             { name = \"grafana\", token = \"hunter3\", role = \"read\" }]\n",
        )
        .unwrap();
        let told = |token: &AdminToken| (token.name.clone(), token.secret.clone(), token.role);
        let expected = [("admin", "hunter1", Role::Operate), ("ops", "hunter2", Role::Operate)]
            .into_iter()
            .chain([("grafana", "hunter3", Role::Read)])
            .map(|(name, secret, role)| (name.to_owned(), secret.to_owned(), role));
        assert_eq!(config.tokens.iter().map(told).collect::<Vec<_>>(), expected.collect::<Vec<_>>());
        assert_eq!(config.enabled, Some(true));
        assert!(config.hosts.name(&Host::parse("outbox.example.").unwrap()));
        assert!(!format!("{config:?}").contains("hunter"), "{config:?}");
    }

    #[test]
    fn what_cannot_be_a_token_is_refused() {
        let two = |a: &str, b: &str| format!("token = \"{a}\"\ntokens = [{{ {b}, role = \"read\" }}]\n");
        for (text, said) in [
            ("token = \" \"\n".to_owned(), "it is empty"),
            (two("x", "name = \"admin\", token = \"y\""), "two of that name"),
            (two("x", "name = \"other\", token = \"x\""), "another one is the same"),
            (two("x", "name = \"\", token = \"y\""), "no name"),
            ("token = { env = \"POSTRIDER_NO_SUCH\" }\n".to_owned(), "POSTRIDER_NO_SUCH"),
            ("listne = \"none\"\n".to_owned(), "listne"),
            ("hosts = [\"outbox.example:443\"]\n".to_owned(), "admin.hosts"),
        ] {
            let wrong = read(&text).unwrap_err();
            assert!(wrong.contains(said), "{text}: {wrong}");
        }
    }

    #[test]
    fn an_address_may_be_none() {
        assert_eq!("none".parse(), Ok(Listen(None)));
        assert_eq!("[::1]:80".parse::<Listen>().unwrap().to_string(), "[::1]:80");
        assert!("localhost".parse::<Listen>().unwrap_err().contains("127.0.0.1:7433"));
    }
}
