//! Spans for a tracer, and how a message's trace goes on behind the relay. Nothing here knows a tracing system: whoever
//! installs one gives the relay a [`Propagate`] that speaks its headers. Without one no span of a message is made, and the
//! headers pass as the producer wrote them.

use std::collections::BTreeMap;
use std::sync::Arc;

use tracing::{Span, debug_span, field};

use crate::leases::Held;
use crate::outlet::Outlet;

/// The target of the spans `claim` and `deliver`, and of nothing else: what a tracer's filter lets through. They are at
/// the level `DEBUG`, so that a log at `INFO` does not know them.
pub const TARGET: &str = "postrider_relay::trace";

/// Joins the spans of a relay to the traces of messages: reads a producer's context from a message's headers, and writes
/// the delivery's into them.
pub trait Propagate: Send + Sync + 'static {
    /// The span of a delivery begins: makes it a child of what the headers name, if they name something, and then puts
    /// the span's own context in its place. The receiver's spans become its children.
    fn propagate(&self, span: &Span, headers: &mut BTreeMap<String, String>);
}

/// One claim, from the question until the last of its messages has ended.
pub(crate) fn claim(outlet: &Outlet) -> Span {
    debug_span!(target: TARGET, parent: None, "claim", sink = outlet.name, messages = field::Empty)
}

/// The claim brought so many.
pub(crate) fn claimed(span: &Span, messages: usize) {
    // Signed, as numbers are in most tracers.
    span.record("messages", i64::try_from(messages).unwrap_or(i64::MAX));
}

/// One message is handed to its sink.
pub(crate) fn begin(propagate: &dyn Propagate, outlet: &Outlet, held: &mut Held) {
    let message = Arc::make_mut(&mut held.message);
    let span = debug_span!(
        target: TARGET,
        parent: None,
        "deliver",
        otel.kind = "producer",
        otel.status_code = field::Empty,
        sink = outlet.name,
        topic = message.topic,
        message_id = %message.message_id,
        attempt_no = message.attempt_no,
        outcome = field::Empty,
        error_code = field::Empty,
    );
    span.follows_from(&held.hold.span);
    propagate.propagate(&span, &mut message.headers);
    held.span = span;
}

/// The sink has answered about a message, or will not. The text of a failure is the destination's and stays out.
pub(crate) fn end(held: &mut Held, outcome: &'static str, error_code: Option<&str>) {
    let span = std::mem::replace(&mut held.span, Span::none());
    span.record("outcome", outcome);
    if let Some(code) = error_code {
        span.record("error_code", code);
        span.record("otel.status_code", "ERROR");
    }
}
