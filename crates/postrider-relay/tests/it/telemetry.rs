//! The figures a relay gives, under their names.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use postrider::Operate as _;
use postrider::operate::Action;
use postrider_relay::telemetry::{self, METRICS};
use postrider_relay::{SinkFailure, SinkOptions};
use uuid::Uuid;

use crate::support::{Site, arrivals_unless, drain, message, messages, patiently, quick, site, start};

/// What was recorded, by name and labels: counters added up, gauges at their highest, histograms by their count.
#[derive(Default)]
struct Figures(BTreeMap<(String, Vec<(String, String)>), f64>);

impl Figures {
    fn read(&mut self, snapshotter: &Snapshotter) {
        for (key, _, _, value) in snapshotter.snapshot().into_vec() {
            let labels = key.key().labels().map(|label| (label.key().to_owned(), label.value().to_owned())).collect();
            let figure = self.0.entry((key.key().name().to_owned(), labels)).or_default();
            #[expect(clippy::cast_precision_loss, reason = "small counts")]
            match value {
                // A snapshot takes everything back to zero.
                DebugValue::Counter(count) => *figure += count as f64,
                DebugValue::Histogram(values) => *figure += values.len() as f64,
                DebugValue::Gauge(value) => *figure = figure.max(value.0),
            }
        }
    }

    /// Over all labels, or those that have this value.
    fn total(&self, name: &str, label: Option<&str>) -> f64 {
        let is_meant = |labels: &[(String, String)]| label.is_none_or(|label| labels.iter().any(|(_, it)| it == label));
        self.0.iter().filter(|((known, labels), _)| known == name && is_meant(labels)).map(|(_, value)| value).sum()
    }

    fn names(&self) -> BTreeSet<&str> {
        self.0.keys().map(|(name, _)| name.as_str()).collect()
    }
}

fn refusing() -> (impl postrider_relay::Sink, crate::support::Arrivals) {
    arrivals_unless(|message| match message.topic.as_str() {
        "bad" => Some(SinkFailure::terminal("BAD", "no")),
        "busy" if message.attempt_no == 1 => Some(SinkFailure::retryable("BUSY", "later")),
        _ => None,
    })
}

/// A dead letter that parks its lane, and a lease that ended, so that the first measurement has something to see.
async fn with_trouble(site: &Site) {
    site.enqueue(&[message("bad").lane("l"), message("t").lane("l")]).await;
    drain(site.relay().sink("default", refusing().0).options(quick())).await;
    site.enqueue(&[message("zombie")]).await;
    site.client.batch_execute("select * from outbox.claim('dead', 1, 0.01)").await.expect("claim");
    site.until("select exists (select from outbox.in_flight where expired)").await;
    site.store.operate("ann", &Action::Pause { sink: "default".to_owned() }).await.expect("pause");
}

/// Proves P14: every figure of the requirement is there, under its `outbox_…` name, by sink.
/// Proves E9: and so are the edge forwarder's, under theirs.
#[tokio::test]
async fn every_figure_has_its_name() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _recording = metrics::set_default_local_recorder(&recorder);
    let site = site().await;
    with_trouble(&site).await;
    let options = quick().lease(Duration::from_secs(2)).report_every(Duration::from_millis(50));
    let sink_options = SinkOptions::default().deadline(Duration::from_secs(1));
    let (sink, mut arrivals) = refusing();
    let mut figures = Figures::default();
    let relay = start(site.relay().sink_with("default", sink, sink_options).options(options));
    let first_measured = async {
        while !figures.names().contains(telemetry::STUCK_LEASES) {
            tokio::time::sleep(Duration::from_millis(10)).await;
            figures.read(&snapshotter);
        }
    };
    patiently("the first measurement", first_measured).await;
    for (name, value) in [
        (telemetry::PENDING_DEPTH, 1.0),
        (telemetry::EDGE_PENDING, 1.0),
        (telemetry::EDGE_CLAIMED, 1.0),
        (telemetry::STUCK_LEASES, 1.0),
        (telemetry::DLQ_DEPTH, 1.0),
        (telemetry::EDGE_DLQ, 1.0),
        (telemetry::PARKED_LANES, 1.0),
        (telemetry::BREAKER_OPEN, 0.0),
        (telemetry::RELAY_INFO, 1.0),
    ] {
        assert!(figures.names().contains(name), "{name} is not there");
        assert!((figures.total(name, None) - value).abs() < 0.1, "{name} is {}", figures.total(name, None));
    }
    site.until("select exists (select from outbox.attempts where state = 'ZOMBIE_REQUEUE')").await;
    site.store.operate("ann", &Action::Resume { sink: "default".to_owned() }).await.expect("resume");
    site.until("select exists (select from outbox.sleeper)").await;
    site.enqueue(&[message("bad"), message("busy")]).await;
    site.enqueue(&messages(5)).await;
    arrivals.take(9).await;
    site.until("select count(*) = 8 from outbox.attempts where state = 'DISPATCHED' or state = 'RETRYABLE'").await;
    relay.stop().await;
    figures.read(&snapshotter);
    for (name, label, least) in [
        (telemetry::NOTIFY_WAKEUPS, None, 1.0),
        (telemetry::CLAIM_BATCHES, None, 1.0),
        (telemetry::CLAIMED_MESSAGES, None, 9.0),
        (telemetry::DISPATCH_LATENCY, None, 9.0),
        (telemetry::EDGE_BATCH_LATENCY, None, 9.0),
        (telemetry::REAPER_REQUEUES, None, 1.0),
        (telemetry::EDGE_SEND_SUCCESS, None, 7.0),
        (telemetry::EDGE_SEND_FAILURE, None, 2.0),
        (telemetry::ATTEMPTS, Some("DISPATCHED"), 7.0),
        (telemetry::ATTEMPTS, Some("RETRYABLE"), 1.0),
        (telemetry::ATTEMPTS, Some("FAILED"), 1.0),
    ] {
        let value = figures.total(name, label);
        assert!(value >= least, "{name} {label:?} is {value}, of {:?}", figures.0);
    }
    let known: BTreeSet<&str> = METRICS.iter().map(|metric| metric.name).collect();
    assert_eq!(figures.names(), known, "what is recorded and what is described differ");
}

/// Tenants, lanes and topics come and go in any number; series must not.
#[tokio::test]
async fn series_do_not_grow_with_tenants_lanes_or_topics() {
    const MANY: usize = 60;
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _recording = metrics::set_default_local_recorder(&recorder);
    let site = site().await;
    let (sink, mut arrivals) = refusing();
    let options = quick().report_every(Duration::from_millis(50));
    let relay = start(site.relay().sink("default", sink).options(options));
    let mut figures = Figures::default();
    let mut series = Vec::new();
    for count in [1, MANY] {
        let many: Vec<_> = (0..count)
            .map(|n| message(&format!("topic-{n}")).lane(format!("lane-{n}")).tenant(Uuid::new_v4()))
            .collect();
        site.enqueue(&[many, vec![message("bad"), message("busy")]].concat()).await;
        arrivals.take(count + 3).await;
        site.until("select not exists (select from outbox.deliveries where state <> 'dead')").await;
        let measured = async {
            while !figures.names().contains(telemetry::PARKED_LANES) {
                tokio::time::sleep(Duration::from_millis(10)).await;
                figures.read(&snapshotter);
            }
        };
        patiently("a measurement", measured).await;
        figures.read(&snapshotter);
        series.push(figures.0.len());
    }
    relay.stop().await;
    assert_eq!(series[0], series[1], "{:?}", figures.0.keys());
    for (name, labels) in figures.0.keys() {
        let metric = METRICS.iter().find(|metric| metric.name == name).expect("a described metric");
        let names: Vec<&str> = labels.iter().map(|(label, _)| label.as_str()).collect();
        assert_eq!(names, metric.labels, "the labels of {name}");
    }
}
