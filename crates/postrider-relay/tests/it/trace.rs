//! How a message's trace goes on: what a sink sees of the headers, with a tracer and without.

use std::collections::BTreeMap;

use postrider_relay::trace::Propagate;
use tracing::Span;

use crate::support::{arrivals, message, quick, site, start};

/// Writes the child of whatever is there.
struct Child;

impl Propagate for Child {
    fn propagate(&self, _: &Span, headers: &mut BTreeMap<String, String>) {
        let parent = headers.get("traceparent").cloned().unwrap_or_default();
        headers.insert("traceparent".to_owned(), format!("child of {parent:?}"));
    }
}

#[tokio::test]
async fn a_sink_sees_the_deliverys_context_and_the_store_keeps_the_producers() {
    let site = site().await;
    let (sink, mut arrivals) = arrivals();
    let relay = start(site.relay().sink("default", sink).options(quick()).propagate(Child));
    site.enqueue(&[message("t").header("traceparent", "00-ab"), message("t")]).await;
    let mut seen: Vec<_> =
        arrivals.take(2).await.iter().map(|message| message.headers["traceparent"].clone()).collect();
    seen.sort();
    assert_eq!(seen, ["child of \"\"", "child of \"00-ab\""]);
    site.until("select not exists (select from outbox.deliveries)").await;
    let kept = "select count(*) from outbox.messages where headers = '{\"traceparent\": \"00-ab\"}'";
    assert_eq!(site.number(kept).await, 1);
    relay.stop().await;
}

#[tokio::test]
async fn without_a_tracer_headers_pass_as_they_are() {
    let site = site().await;
    let (relay, mut arrivals) = site.running(quick());
    site.enqueue(&[message("t").header("traceparent", "00-ab")]).await;
    assert_eq!(arrivals.next().await.headers["traceparent"], "00-ab");
    relay.stop().await;
}
