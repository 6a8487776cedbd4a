//! The URL of a request. The operator chooses the host, a message fills in pieces of the path and the query at most: none
//! of its values can leave its piece, climb up a path, or become a name and password. What is wrong with the template
//! itself is said when the sink is made.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use postrider::lifecycle::Claimed;
use url::Url;

use super::options::HttpOptions;
use crate::error::Error;
use crate::sink::SinkFailure;
use crate::sink::destinations::{Destinations, forbidden};
use crate::sink::template::Template;

/// Everything but what RFC 3986 calls unreserved.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Where requests go.
#[derive(Debug, Clone)]
pub(super) enum Target {
    /// All to one place.
    Fixed(Url),
    /// Each message has a place of its own, among these.
    Each(Template, Destinations),
}

impl Target {
    pub(super) fn new(options: &HttpOptions) -> Result<Self, Error> {
        let source = options.url.to_string();
        // A path can be a secret (that of a chat's hook is), so the URL itself is not repeated.
        let wrong = |reason: &str| Error::options(format!("the url of an HTTP sink {reason}"));
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
        options.destinations.check(&options.url)?;
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
            None => Ok(Self::Each(options.url.clone(), options.destinations.clone())),
        }
    }

    /// Where this message goes.
    pub(super) fn url(&self, message: &Claimed) -> Result<Url, SinkFailure> {
        let (template, destinations) = match self {
            Self::Fixed(url) => return Ok(url.clone()),
            Self::Each(template, destinations) => (template, destinations),
        };
        let no_address = |reason: &str| {
            let words = format!("the message makes no URL of the sink's template: {reason}");
            SinkFailure::terminal(SinkFailure::NO_ADDRESS, words)
        };
        let rendered = template
            .render_with(message, percent_encoded)
            .map_err(|_| no_address("it has no tenant or no lane, and the template asks for it"))?;
        if climbs(&rendered) {
            return Err(no_address("one of its values is . or .. as a piece of the path, or becomes one when decoded"));
        }
        let url = Url::parse(&rendered).map_err(|error| no_address(&error.to_string()))?;
        if !matches!(url.scheme(), "http" | "https") || !url.username().is_empty() || url.password().is_some() {
            return Err(no_address("it is not a plain http or https address"));
        }
        // A path can be a secret, so the URL itself is not repeated.
        if !destinations.allow(url.as_str()) {
            return Err(forbidden("the message makes a URL that the sink's `destinations` do not allow"));
        }
        Ok(url)
    }

    /// The place that all messages go to, as far as it is the same: a URL without its fields.
    pub(super) fn common(&self) -> Option<Url> {
        match self {
            Self::Fixed(url) => Some(url.clone()),
            Self::Each(template, _) => {
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

/// Whether a receiver could take a piece of the path for a step up or in place: as it is, after decoding it once or more
/// often, with `\` for `/`, or with what follows a `;` taken away.
fn climbs(url: &str) -> bool {
    let path = url.split(['?', '#']).next().unwrap_or_default();
    let mut path = path.to_owned();
    loop {
        let mut pieces = path.split(['/', '\\']).map(|piece| piece.split(';').next().unwrap_or_default());
        if pieces.any(|piece| matches!(piece, "." | "..")) {
            return true;
        }
        // Each round is shorter than the one before, so it ends.
        let decoded = percent_decode_str(&path).decode_utf8_lossy().into_owned();
        if decoded.len() >= path.len() {
            return false;
        }
        path = decoded;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_becomes_a_step_up_is_seen() {
        for piece in [
            ".",
            "..",
            "%2e",
            "%2E%2e",
            "..%2Fetc",
            "a%2F..%2Fb",
            "a%2f%2e%2e",
            "..%5C..",
            "a%5c.%5cb",
            "%252e%252E",
            "..%252f",
            "..%25252f..",
            "..%3Bx",
            "..;x",
        ] {
            assert!(climbs(&format!("https://h/a/{piece}/b?c=d")), "{piece}");
        }
        for piece in
            ["...", "a..b", ".hidden", "a%2Fb", "a%5Cb", "100%25", "%25", "a%252Fb", "v1.2", "%ff", "..a", "%C3%BC"]
        {
            assert!(!climbs(&format!("https://h/a/{piece}/b?c=..")), "{piece}");
        }
    }
}
