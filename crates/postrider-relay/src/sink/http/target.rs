//! The URL of a request. The operator chooses the host, a message fills in pieces of the path and the query at most: none
//! of its values can leave its piece, climb up a path, or become a name and password. What is wrong with the template
//! itself is said when the sink is made.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use postrider::Claimed;
use url::Url;

use super::options::HttpOptions;
use crate::error::Error;
use crate::sink::SinkFailure;
use crate::sink::template::Template;

/// Everything but what RFC 3986 calls unreserved.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Where requests go.
#[derive(Debug, Clone)]
pub(super) enum Target {
    /// All to one place.
    Fixed(Url),
    /// Each message has a place of its own.
    Each(Template),
}

impl Target {
    pub(super) fn new(options: &HttpOptions) -> Result<Self, Error> {
        let source = options.url.to_string();
        // A path can be a secret (that of a chat's hook is), so the URL itself is not repeated.
        let wrong = |reason: &str| Error::Options { reason: format!("the url of an HTTP sink {reason}") };
        let (scheme, rest) = source.split_once("://").ok_or_else(|| wrong("must begin with https:// or http://"))?;
        if !["http", "https"].iter().any(|known| known.eq_ignore_ascii_case(scheme)) {
            return Err(wrong("must begin with https:// or http://: no other scheme is spoken"));
        }
        if source.chars().any(|letter| letter == '\\' || letter.is_whitespace() || letter.is_control()) {
            return Err(wrong("has a backslash, a space or a control character in it"));
        }
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        if authority.contains('@') {
            return Err(wrong("has a name or a password in it: put them into `basic`, where they are not printed"));
        }
        if climbs(&source) {
            return Err(wrong("has . or .. as a piece of its path: write the path as it is meant"));
        }
        match options.url.fixed() {
            Some(url) => {
                let url = Url::parse(url).map_err(|error| wrong(&format!("cannot be read: {error}")))?;
                Ok(Self::Fixed(url))
            }
            None if authority.contains('{') && !options.guarded() => {
                Err(wrong("takes its host from the message: then `guard = true` must keep it from internal addresses"))
            }
            None if options.body.holds_several() => {
                Err(wrong("has fields, and a request that holds several messages has one url: take the fields out"))
            }
            None => Ok(Self::Each(options.url.clone())),
        }
    }

    /// Where this message goes.
    pub(super) fn url(&self, message: &Claimed) -> Result<Url, SinkFailure> {
        let template = match self {
            Self::Fixed(url) => return Ok(url.clone()),
            Self::Each(template) => template,
        };
        let no_address = |reason: &str| {
            let words = format!("the message makes no URL of the sink's template: {reason}");
            SinkFailure::terminal(SinkFailure::NO_ADDRESS, words)
        };
        let rendered = template
            .render_with(message, percent_encoded)
            .map_err(|_| no_address("it has no tenant or no lane, and the template asks for it"))?;
        if climbs(&rendered) {
            return Err(no_address("one of its values is . or .. as a piece of the path"));
        }
        let url = Url::parse(&rendered).map_err(|error| no_address(&error.to_string()))?;
        if !matches!(url.scheme(), "http" | "https") || !url.username().is_empty() || url.password().is_some() {
            return Err(no_address("it is not a plain http or https address"));
        }
        Ok(url)
    }

    /// The place that all messages go to, as far as it is the same: a URL without its fields.
    pub(super) fn common(&self) -> Option<Url> {
        match self {
            Self::Fixed(url) => Some(url.clone()),
            Self::Each(template) => {
                let source = template.to_string();
                let (scheme, rest) = source.split_once("://")?;
                let authority = rest.split(['/', '?', '#']).next().filter(|authority| !authority.contains('{'))?;
                Url::parse(&format!("{scheme}://{authority}/")).ok()
            }
        }
    }
}

/// As one piece of a URL.
pub(super) fn percent_encoded(value: &str) -> String {
    utf8_percent_encode(value, RESERVED).to_string()
}

/// Host and port: what may be said of a URL in an error.
pub(super) fn host(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    url.port_or_known_default().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

/// Whether a parser would take a piece of the path for a step up or in place.
fn climbs(url: &str) -> bool {
    let path = url.split(['?', '#']).next().unwrap_or_default();
    path.split('/')
        .map(|piece| piece.to_ascii_lowercase().replace("%2e", "."))
        .any(|piece| piece == "." || piece == "..")
}
