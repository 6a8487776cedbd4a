//! What the sink costs beside a bare loop of the same library: the same content to the same server, by turns.

use std::sync::Arc;
use std::time::{Duration, Instant};

use postrider::lifecycle::{Claimed, Content};
use postrider_relay::sink::http::{HttpBody, HttpSink};
use postrider_relay::{Sink as _, Verdict};
use postrider_testkit::sink_contract::claimed;
use serde::Serialize;
use serde_json::value::RawValue;
use uuid::Uuid;

use super::receiver::Receiver;
use super::{options, sink};

/// Messages of one delivery, where a request holds several.
const BATCH: usize = 1_000;
const PAYLOAD_BYTES: usize = 200;
/// With this set, the figures are asserted: on a machine that does nothing else.
const MEASURE: &str = "POSTRIDER_TEST_THROUGHPUT";

/// Best of three, each by turns: the sink's rate and the bare loop's, in messages a second.
async fn rates<S: Future<Output = usize>, B: Future<Output = usize>>(
    what: &str,
    through_the_sink: impl Fn() -> S,
    bare: impl Fn() -> B,
) {
    let mut best = [0.0_f64; 2];
    for _ in 0..3 {
        best[0] = best[0].max(rate(through_the_sink()).await);
        best[1] = best[1].max(rate(bare()).await);
    }
    let ratio = best[0] / best[1];
    println!("{what}: {:.0}/s through the sink, {:.0}/s bare, {ratio:.2}", best[0], best[1]);
    if std::env::var_os(MEASURE).is_some() {
        assert!(ratio >= 0.5, "{what}: {ratio:.2}");
    }
}

async fn rate(run: impl Future<Output = usize>) -> f64 {
    let started = Instant::now();
    let count = run.await;
    f64::from(u32::try_from(count).expect("a count")) / started.elapsed().max(Duration::from_nanos(1)).as_secs_f64()
}

async fn deliver_all(http: &HttpSink, batches: &[Vec<Arc<Claimed>>]) -> usize {
    let mut delivered = 0;
    for batch in batches {
        let verdicts = http.deliver(batch).await;
        assert!(verdicts.iter().all(|verdict| matches!(verdict, Verdict::Delivered(_))), "{:?}", verdicts[0]);
        delivered += verdicts.len();
    }
    delivered
}

fn messages(count: usize, lanes: usize) -> Vec<Arc<Claimed>> {
    let payload = format!("\"{}\"", "x".repeat(PAYLOAD_BYTES - 2));
    (0..count)
        .map(|number| {
            let mut message = claimed("orders", &payload);
            if let Some(lane) = number.checked_rem(lanes) {
                message.lane = Some(format!("lane-{lane}"));
                message.sequence_id = Some(i64::try_from(number / lanes + 1).expect("a number"));
            }
            Arc::new(message)
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_throughput_beside_a_bare_loop() {
    let scale = if std::env::var_os(MEASURE).is_some() { 50 } else { 2 };
    let receiver = Receiver::accepting().await;
    drop(rustls::crypto::ring::default_provider().install_default());
    let client = reqwest::Client::builder().no_proxy().build().expect("a client");
    let post = async |body: Vec<u8>| {
        let response = client.post(receiver.url("/in")).body(body).send().await.expect("an answer");
        assert!(response.status().is_success());
    };

    let one_by_one: Vec<Vec<Arc<Claimed>>> =
        messages(scale * 100, 0).into_iter().map(|message| vec![message]).collect();
    let http = sink(&options(&receiver));
    let bare = async || {
        for batch in &one_by_one {
            post(batch[0].content.as_bytes().to_vec()).await;
        }
        one_by_one.len()
    };
    rates("one message a request", || deliver_all(&http, &one_by_one), bare).await;

    for lanes in [0, 100] {
        let batches: Vec<Vec<Arc<Claimed>>> = messages(scale * BATCH, lanes).chunks(BATCH).map(<[_]>::to_vec).collect();
        let http = sink(
            &options(&receiver)
                .body(HttpBody::Batch)
                .max_batch(BATCH)
                .max_response_bytes(1024 * 1024)
                .lanes_in_order(lanes > 0),
        );
        let bare = async || {
            for batch in &batches {
                let events = batch.iter().map(|message| event(message));
                post(serde_json::to_vec(&Events { events: events.collect() }).expect("JSON")).await;
            }
            batches.len() * BATCH
        };
        rates(&format!("{BATCH} messages a request, {lanes} lanes"), || deliver_all(&http, &batches), bare).await;
    }
}

/// What a loop without a sink would send: the same events.
#[derive(Serialize)]
struct Events<'a> {
    events: Vec<Event<'a>>,
}

#[derive(Serialize)]
#[expect(clippy::struct_field_names, reason = "these are the names of the contract")]
struct Event<'a> {
    event_id: Uuid,
    event_type: &'a str,
    occurred_at: String,
    namespace: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    lane: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sequence_id: Option<i64>,
    content_type: &'a str,
    payload: &'a RawValue,
}

fn event(message: &Claimed) -> Event<'_> {
    let Content::Json(payload) = &message.content else { panic!("these are JSON") };
    Event {
        event_id: message.message_id,
        event_type: &message.topic,
        occurred_at: jiff::Timestamp::try_from(message.occurred_at).expect("a time").to_string(),
        namespace: &message.namespace,
        lane: message.lane.as_deref(),
        sequence_id: message.sequence_id,
        content_type: "application/json",
        payload,
    }
}
