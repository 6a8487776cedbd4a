//! Who may send to `postrider receive`, for whom, and which of their headers pass: `[receive]` of the configuration and
//! `POSTRIDER_RECEIVE_TOKEN`. Read with everything else before anything is started; the server that is made of it stands
//! elsewhere. A token is never printed.

use std::fmt;

use postrider_relay::secret::Secret;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _};

use super::admin::hosts;
use super::token;
use crate::failure::{Failure, Result};
use crate::server::host::Hosts;

/// What the one token of `[receive] token` or `POSTRIDER_RECEIVE_TOKEN` is called.
const ONLY_TOKEN: &str = "sender";

/// `[receive]`, as it is written.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReceiveSection {
    token: Option<Secret>,
    #[serde(default)]
    tokens: Vec<SenderSection>,
    headers: Vec<Pattern>,
    #[serde(default)]
    hosts: Vec<String>,
}

/// One of `[receive] tokens`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SenderSection {
    name: String,
    token: Secret,
    sources: Vec<Pattern>,
    tenants: Vec<Pattern>,
}

/// A name, or with `*` at its end all names that begin so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pattern(String);

impl Pattern {
    /// Matches every name.
    pub(crate) fn any() -> Self {
        Self("*".to_owned())
    }

    pub(crate) fn matches(&self, name: &str) -> bool {
        match self.0.strip_suffix('*') {
            Some(beginning) => name.starts_with(beginning),
            None => name == self.0,
        }
    }
}

impl<'de> Deserialize<'de> for Pattern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        match text.find('*') {
            Some(at) if at + 1 < text.len() => Err(D::Error::custom("a * may only stand at the end of a name")),
            _ => Ok(Self(text)),
        }
    }
}

/// Who may send, with every secret read.
#[derive(Debug, Clone)]
pub(crate) struct ReceiveConfig {
    /// Whoever may send. Nobody is asked for a token if there is none.
    pub(crate) senders: Vec<Sender>,
    /// Names of headers that pass, in small letters.
    pub(crate) headers: Vec<Pattern>,
    /// Names in the `Host` header that are answered to, beside addresses and localhost.
    pub(crate) hosts: Hosts,
}

/// A name, what it has to send, and what it may speak for.
#[derive(Clone)]
pub(crate) struct Sender {
    pub(crate) name: String,
    pub(crate) secret: String,
    /// What its events may give as their source. Any may leave it out.
    pub(crate) sources: Vec<Pattern>,
    /// The tenants of its events; an empty text is matched by those without.
    pub(crate) tenants: Vec<Pattern>,
}

impl fmt::Debug for Sender {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, secret: _, sources, tenants } = self;
        let mut shown = formatter.debug_struct("Sender");
        shown.field("name", name).field("sources", sources).field("tenants", tenants).finish_non_exhaustive()
    }
}

impl Sender {
    /// One that is trusted with every name.
    pub(crate) fn trusted(name: &str, secret: String) -> Self {
        Self { name: name.to_owned(), secret, sources: vec![Pattern::any()], tenants: vec![Pattern::any()] }
    }
}

impl ReceiveSection {
    /// Reads the secrets.
    pub(crate) fn read(&self) -> Result<ReceiveConfig> {
        let one = self.token.iter().map(|token| (ONLY_TOKEN, token, None));
        let more = self.tokens.iter().map(|section| (section.name.as_str(), &section.token, Some(section)));
        let mut senders: Vec<Sender> = Vec::new();
        for (name, token, section) in one.chain(more) {
            let wrong = |reason: &str| {
                Failure::usage(format!("the token {name:?} of senders cannot be used: {reason}"))
                    .hint("see [receive] in the configuration, and POSTRIDER_RECEIVE_TOKEN")
            };
            let before = senders.iter().map(|other| (other.name.as_str(), other.secret.as_str()));
            let secret =
                token::secret((name, token), before, "a sender that is refused").map_err(|reason| wrong(&reason))?;
            if !secret.bytes().all(|byte| byte.is_ascii_graphic()) {
                return Err(wrong("it holds what no HTTP header can: use letters, digits and punctuation"));
            }
            if section.is_some_and(|section| section.tenants.is_empty()) {
                return Err(wrong(
                    "it has no tenants, so it could send nothing; \"\" stands for events without a tenant",
                ));
            }
            let trusted = Sender::trusted(name, secret);
            senders.push(match section {
                Some(SenderSection { sources, tenants, .. }) => {
                    Sender { sources: sources.clone(), tenants: tenants.clone(), ..trusted }
                }
                None => trusted,
            });
        }
        let headers = self.headers.iter().map(|Pattern(name)| Pattern(name.to_ascii_lowercase())).collect();
        Ok(ReceiveConfig { senders, headers, hosts: hosts("receive", &self.hosts)? })
    }
}

#[cfg(test)]
mod tests {
    use figment::Figment;
    use figment::providers::{Format as _, Toml};

    use super::*;

    fn read(text: &str) -> std::result::Result<ReceiveConfig, String> {
        let text = format!("headers = [\"Trace*\"]\n{text}");
        let section: ReceiveSection =
            Figment::from(Toml::string(&text)).extract().map_err(|error: figment::Error| error.to_string())?;
        section.read().map_err(|failure| format!("{failure:?}"))
    }

    fn one(token: &str) -> String {
        format!("tokens = [{{ {token} }}]\n")
    }

    #[test]
    fn senders_are_read_with_what_they_speak_for_and_never_shown() {
        let more =
            "name = \"site\", token = \"hunter2\", sources = [\"site-*\"], tenants = [\"tenant-1\", \"\", \"eu/*\"]";
        let config = read(&format!("token = \"hunter1\"\n{}", one(more))).unwrap();
        let [trusted, site] = config.senders.as_slice() else { panic!("{config:?}") };
        assert_eq!((trusted.name.as_str(), trusted.secret.as_str()), ("sender", "hunter1"));
        assert!(trusted.sources[0].matches("any") && trusted.tenants[0].matches(""));
        assert!(site.sources[0].matches("site-7") && !site.sources[0].matches("hub"));
        assert!(site.tenants[0].matches("tenant-1") && !site.tenants[0].matches("tenant-10"), "{site:?}");
        assert!(site.tenants[1].matches("") && !site.tenants[1].matches("tenant-1"), "{site:?}");
        assert!(site.tenants[2].matches("eu/acme") && !site.tenants[2].matches(""), "{site:?}");
        assert!(config.headers[0].matches("traceparent") && !config.headers[0].matches("cookie"));
        assert!(!format!("{config:?}").contains("hunter"), "{config:?}");
    }

    #[test]
    fn what_cannot_be_a_sender_is_refused() {
        let all = "sources = [\"*\"], tenants = [\"*\"]";
        for (text, said) in [
            ("token = \" \"\n".to_owned(), "it is empty"),
            ("token = \"two words\"\n".to_owned(), "no HTTP header"),
            (
                format!("token = \"x\"\n{}", one(&format!("name = \"sender\", token = \"y\", {all}"))),
                "two of that name",
            ),
            (
                format!("token = \"x\"\n{}", one(&format!("name = \"a\", token = \"x\", {all}"))),
                "another one is the same",
            ),
            (one(&format!("name = \"\", token = \"y\", {all}")), "no name"),
            (one("name = \"a\", token = \"y\", sources = [\"*\"], tenants = []"), "no tenants"),
            (one("name = \"a\", token = \"y\", sources = [\"*\"], tenants = [\"*-1\"]"), "at the end of a name"),
            (one("name = \"a\", token = \"y\", sources = [\"*-7\"], tenants = [\"*\"]"), "at the end of a name"),
            (one("name = \"a\", token = \"y\", tenants = [\"*\"]"), "sources"),
            (one("name = \"a\", token = \"y\", sources = [\"*\"]"), "tenants"),
            ("token = { env = \"POSTRIDER_NO_SUCH\" }\n".to_owned(), "POSTRIDER_NO_SUCH"),
            ("hosts = [\"inbox.example:443\"]\n".to_owned(), "receive.hosts"),
        ] {
            let wrong = read(&text).unwrap_err();
            assert!(wrong.contains(said), "{text}: {wrong}");
        }
    }
}
