//! Spans of claims and deliveries, and how a message's trace goes on behind the relay. This knows no tracing system: give
//! the relay a [`Propagate`] that reads and writes the headers of yours. Without one, messages get no spans and their
//! headers are sent as the producer wrote them.

use std::collections::BTreeMap;
use std::sync::Arc;

use tracing::{Span, debug_span, field};

use crate::lease::LeasedMessage;
use crate::sink_runtime::SinkRuntime;

/// The target of the spans `claim` and `deliver`, and of nothing else, for a tracer's filter. Their level is `DEBUG`, so
/// that a log at `INFO` does not show them.
pub const TARGET: &str = "postrider_relay::trace";

/// Joins the relay's spans to the traces of messages: reads the producer's context from a message's headers, and writes
/// the delivery's context into them.
pub trait Propagate: Send + Sync + 'static {
    /// Called when the span of a delivery begins. Makes it a child of the context in the headers, if there is one, and
    /// replaces that context by the span's own, so that the receiver's spans become its children.
    fn propagate(&self, span: &Span, headers: &mut BTreeMap<String, String>);
}

/// The span of a claim, open until the last of its messages has ended.
pub(crate) fn claim(sink: &SinkRuntime) -> Span {
    debug_span!(target: TARGET, parent: None, "claim", sink = sink.name, messages = field::Empty)
}

pub(crate) fn claimed(span: &Span, messages: usize) {
    // Signed, as numbers are in most tracers.
    span.record("messages", i64::try_from(messages).unwrap_or(i64::MAX));
}

/// Begins the span of a delivery.
pub(crate) fn begin(propagate: &dyn Propagate, sink: &SinkRuntime, leased: &mut LeasedMessage) {
    let message = Arc::make_mut(&mut leased.message);
    let span = debug_span!(
        target: TARGET,
        parent: None,
        "deliver",
        otel.kind = "producer",
        otel.status_code = field::Empty,
        sink = sink.name,
        topic = message.topic,
        message_id = %message.message_id,
        attempt_no = message.attempt_no,
        outcome = field::Empty,
        error_code = field::Empty,
    );
    span.follows_from(&leased.lease.span);
    propagate.propagate(&span, &mut message.headers);
    leased.span = span;
}

/// Ends the span of a delivery. The text of a failure may repeat the message and stays out.
pub(crate) fn end(leased: &mut LeasedMessage, outcome: &'static str, error_code: Option<&str>) {
    let span = std::mem::replace(&mut leased.span, Span::none());
    span.record("outcome", outcome);
    if let Some(code) = error_code {
        span.record("error_code", code);
        span.record("otel.status_code", "ERROR");
    }
}
