//! The HTTP sink against a real HTTP server: the contract in three ways of sending, and what is special about HTTP.

mod batches;
mod cloudevents;
mod configuration;
mod connections;
mod destination;
mod guard;
mod headers;
mod outcomes;
mod receiver;
mod secure;
mod throughput;
mod webhooks;

use std::sync::Arc;

use postrider::lifecycle::Claimed;
use postrider_relay::sink::http::{HttpOptions, HttpSink};
use postrider_relay::{Receipt, Sink as _, SinkFailure, Verdict};

use self::receiver::Receiver;
use crate::support::patiently;

/// Options for this receiver.
fn options(receiver: &Receiver) -> HttpOptions {
    HttpOptions::new(receiver.url("/in").parse().expect("a template"))
}

fn sink(options: &HttpOptions) -> HttpSink {
    HttpSink::new(options.clone()).expect("a sink")
}

/// Delivers messages in one call.
async fn deliver(sink: &HttpSink, messages: &[Claimed]) -> Vec<Verdict> {
    let batch: Vec<Arc<Claimed>> = messages.iter().cloned().map(Arc::new).collect();
    patiently("the sink answers", sink.deliver(&batch)).await
}

async fn delivered(sink: &HttpSink, message: &Claimed) -> Receipt {
    match deliver(sink, std::slice::from_ref(message)).await.pop() {
        Some(Verdict::Delivered(receipt)) => receipt,
        other => panic!("{other:?}"),
    }
}

async fn failed(sink: &HttpSink, message: &Claimed) -> SinkFailure {
    match deliver(sink, std::slice::from_ref(message)).await.pop() {
        Some(Verdict::Failed(failure)) => failure,
        other => panic!("{other:?}"),
    }
}
