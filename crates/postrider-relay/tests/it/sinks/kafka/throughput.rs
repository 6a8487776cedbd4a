//! How fast the sink is beside a bare loop over the same library. Both send to librdkafka's mock cluster, which keeps
//! records in memory: nisshi writes each header into a row of its own, and would be all that is measured.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use postrider::lifecycle::Claimed;
use postrider_relay::Sink as _;
use postrider_relay::sink::kafka::KafkaSink;
use postrider_testkit::sink_contract::claimed;
use rdkafka::ClientConfig;
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::{FutureProducer, FutureRecord};
use rdkafka::util::Timeout;

use super::support::{all_delivered, options};

const BATCH: usize = 1_000;
const ROUNDS: usize = 3;
const LANES: usize = 100;

/// Without lanes, and with a hundred. Asserts the ratio only if `POSTRIDER_TEST_THROUGHPUT` is set: a machine that does
/// other things at the same time says nothing about it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_throughput_beside_a_bare_loop() {
    let measure = std::env::var_os("POSTRIDER_TEST_THROUGHPUT").is_some();
    let batches = if measure { 50 } else { 2 };
    let cluster = MockCluster::new(1).expect("a cluster");
    cluster.create_topic("orders", 3, 1).expect("a topic");
    let (brokers, topic) = (cluster.bootstrap_servers(), "orders");
    let sink = KafkaSink::new(options(&brokers, topic)).expect("a sink");
    let bare: FutureProducer = ClientConfig::new()
        .set("bootstrap.servers", &brokers)
        .set("enable.idempotence", "true")
        .set("linger.ms", "1")
        .create()
        .expect("a producer");
    for lanes in [0, LANES] {
        let messages: Vec<Arc<Claimed>> = (0..BATCH).map(|number| Arc::new(message(number, lanes))).collect();
        let (mut ours, mut theirs) = (Duration::MAX, Duration::MAX);
        for _ in 0..ROUNDS {
            let start = Instant::now();
            for _ in 0..batches {
                assert!(all_delivered(&sink.deliver(&messages).await));
            }
            ours = ours.min(start.elapsed());
            let start = Instant::now();
            for _ in 0..batches {
                send(&bare, topic, &messages).await;
            }
            theirs = theirs.min(start.elapsed());
        }
        let rate = |took: Duration| f64::from(u32::try_from(batches * BATCH).expect("few")) / took.as_secs_f64();
        let ratio = rate(ours) / rate(theirs);
        println!("{lanes} lanes: sink {:.0}/s, bare {:.0}/s, ratio {ratio:.2}", rate(ours), rate(theirs));
        assert!(!measure || ratio >= 0.5, "{ratio}");
    }
}

/// 200 bytes.
fn message(number: usize, lanes: usize) -> Claimed {
    let mut message = claimed("orders", &format!("\"{number:0198}\""));
    if let Some(lane) = number.checked_rem(lanes) {
        message.lane = Some(format!("lane-{lane}"));
        message.sequence_id = i64::try_from(number / lanes + 1).ok();
    }
    message
}

async fn send(producer: &FutureProducer, topic: &str, messages: &[Arc<Claimed>]) {
    let keys: Vec<String> =
        messages.iter().map(|message| message.lane.clone().unwrap_or_else(|| message.message_id.to_string())).collect();
    let sending = messages.iter().zip(&keys).map(|(message, key)| {
        let record = FutureRecord::to(topic).key(key).payload(message.content.as_bytes()).headers(headers(message));
        producer.send(record, Timeout::Never)
    });
    assert!(join_all(sending).await.iter().all(Result::is_ok));
}

/// As many and as long as the sink's, so that both send the same records.
fn headers(message: &Claimed) -> OwnedHeaders {
    let id = message.message_id.to_string();
    let lane = message.lane.as_deref().map(|lane| ("postrider-lane", lane));
    let number = message.sequence_id.map(|number| number.to_string());
    let headers = [
        ("content-type", "application/json"),
        ("postrider-message-id", &id),
        ("postrider-namespace", "default"),
        ("postrider-topic", "orders"),
        ("postrider-occurred-at", "2026-11-16T04:29:00.123456789Z"),
    ];
    let number = number.as_deref().map(|number| ("postrider-sequence-id", number));
    headers
        .into_iter()
        .chain(lane)
        .chain(number)
        .fold(OwnedHeaders::new(), |headers, (key, value)| headers.insert(Header { key, value: Some(value) }))
}
