//! What a request may say, by who sends it: the sources and tenants that its token speaks for, and the headers that pass. A
//! token is compared in constant time, and never shown or logged. What is configured is `config/receive.rs`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::http::HeaderMap;
use tokio::sync::Semaphore;
use tracing::warn;

use super::answer::{Rejection, cut};
use super::server::MAX_REQUESTS;
use crate::config::receive::{Pattern, ReceiveConfig, Sender};
use crate::output;
use crate::server::token;

/// Headers with these names are written here or by a sink: nobody else says where a message came from.
const OURS: [&str; 2] = ["origin-", "postrider-"];

/// Requests of one sender at once, where there are others: it cannot take every place.
const MAX_SENDER_REQUESTS: usize = MAX_REQUESTS / 2;

/// Everybody who may send.
pub(super) struct Senders {
    /// None: nobody is asked for a token.
    known: Vec<Known>,
    anybody: Known,
    headers: Arc<HeaderFilter>,
}

/// One of them, with its places.
struct Known {
    sender: Arc<Sender>,
    places: Arc<Semaphore>,
}

impl Known {
    fn new(sender: Sender, places: usize) -> Self {
        Self { sender: Arc::new(sender), places: Arc::new(Semaphore::new(places)) }
    }
}

impl Senders {
    pub(super) fn new(config: ReceiveConfig) -> Self {
        let ReceiveConfig { senders, headers, hosts: _ } = config;
        let places = if senders.len() > 1 { MAX_SENDER_REQUESTS } else { MAX_REQUESTS };
        Self {
            known: senders.into_iter().map(|sender| Known::new(sender, places)).collect(),
            anybody: Known::new(Sender::trusted("", String::new()), MAX_REQUESTS),
            headers: Arc::new(HeaderFilter { patterns: headers, has_dropped: AtomicBool::new(false) }),
        }
    }

    pub(super) fn need_a_token(&self) -> bool {
        !self.known.is_empty()
    }

    /// What holds for a request, by who sends it; `None` for a stranger.
    pub(super) fn rules_for(&self, headers: &HeaderMap) -> Option<Rules> {
        let Known { sender, places } = if self.need_a_token() { self.find(headers)? } else { &self.anybody };
        Some(Rules { sender: Arc::clone(sender), places: Arc::clone(places), headers: Arc::clone(&self.headers) })
    }

    /// Looks at all tokens, whichever it is, and takes as long for a wrong one as for one that is nearly right.
    fn find(&self, headers: &HeaderMap) -> Option<&Known> {
        let given = token::given(headers)?;
        let is = |known: &Known| token::same(given, &known.sender.secret);
        self.known.iter().fold(None, |found, known| if is(known) { Some(known) } else { found })
    }
}

impl Sender {
    /// Whether it speaks for this source and this tenant. An event that names no source claims to be nobody's; one without
    /// a tenant is known by its id alone, so that takes leave of its own.
    pub(super) fn check(&self, source: Option<&str>, tenant_id: Option<&str>) -> Result<(), Rejection> {
        let name = &self.name;
        if let Some(source) = source
            && !self.sources.iter().any(|pattern| pattern.matches(source))
        {
            let words = cut(&format!("the token {name:?} does not speak for the source {source:?}"));
            return Err(Rejection::new("source_not_allowed", words));
        }
        if self.tenants.iter().any(|pattern| pattern.matches(tenant_id.unwrap_or_default())) {
            return Ok(());
        }
        let whom =
            tenant_id.map_or_else(|| "events without a tenant".to_owned(), |tenant| format!("the tenant {tenant:?}"));
        Err(Rejection::new("tenant_not_allowed", cut(&format!("the token {name:?} does not speak for {whom}"))))
    }
}

/// What holds for the events of one request.
pub(super) struct Rules {
    pub(super) sender: Arc<Sender>,
    pub(super) places: Arc<Semaphore>,
    pub(super) headers: Arc<HeaderFilter>,
}

#[cfg(test)]
impl Rules {
    /// A trusted sender.
    pub(super) fn none() -> Self {
        let headers = HeaderFilter { patterns: vec![Pattern::any()], has_dropped: AtomicBool::new(false) };
        let Known { sender, places } = Known::new(Sender::trusted("", String::new()), MAX_REQUESTS);
        Self { sender, places, headers: Arc::new(headers) }
    }
}

/// Which headers of an event go on with its message.
pub(super) struct HeaderFilter {
    patterns: Vec<Pattern>,
    has_dropped: AtomicBool,
}

impl HeaderFilter {
    /// Whether it passes. The first that does not is told in the log, and only that: names are the senders' to choose.
    pub(super) fn passes(&self, name: &str) -> bool {
        let lower = name.to_ascii_lowercase();
        if OURS.iter().any(|ours| lower.starts_with(ours)) {
            return false;
        }
        let passes = self.patterns.iter().any(|pattern| pattern.matches(&lower));
        if !passes && !self.has_dropped.swap(true, Ordering::Relaxed) {
            let name = output::printable(&cut(name));
            warn!("headers that are not in [receive] headers are dropped, such as {name:?}; this is said once");
        }
        passes
    }
}
