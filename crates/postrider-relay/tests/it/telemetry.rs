//! The figures a relay gives, under their names.

use std::collections::BTreeMap;
use std::time::Duration;

use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use postrider_relay::{RelayOptions, SinkFailure, telemetry};

use crate::support::{arrivals_unless, message, messages, quick, site, start};

/// Proves P14: every figure of the requirement is there, under its `outbox_…` name, by sink.
#[tokio::test]
async fn every_figure_has_its_name() {
    let recorder = DebuggingRecorder::new();
    let figures = recorder.snapshotter();
    recorder.install().expect("the only recorder of this process");
    let site = site().await;
    let (sink, mut arrivals) = arrivals_unless(|message| match message.topic.as_str() {
        "bad" => Some(SinkFailure::terminal("BAD", "no")),
        "busy" if message.attempt_no == 1 => Some(SinkFailure::retryable("BUSY", "later")),
        _ => None,
    });
    // A lease that ended, for the reaper.
    site.enqueue(&[message("zombie")]).await;
    site.client.batch_execute("select * from outbox.claim('dead', 1, 0.01)").await.expect("claim");
    site.client.batch_execute("select outbox.configure_sink('default', paused => true)").await.expect("pause");
    let options =
        RelayOptions { lease: Duration::from_secs(2), measure_every: Some(Duration::from_millis(50)), ..quick() };
    let sink_options =
        postrider_relay::SinkOptions { deadline: Duration::from_secs(1), ..postrider_relay::SinkOptions::default() };
    let relay = start(site.relay().sink_with("default", sink, sink_options).options(options));
    site.until("select exists (select from outbox.attempts where state = 'ZOMBIE_REQUEUE')").await;
    site.client.batch_execute("select outbox.configure_sink('default', paused => false)").await.expect("resume");
    site.until("select exists (select from outbox.sleeper)").await;
    site.enqueue(&[message("bad"), message("busy")]).await;
    site.enqueue(&messages(5)).await;
    arrivals.take(9).await;
    site.until("select not exists (select from outbox.deliveries where state <> 'dead')").await;
    let mut seen: BTreeMap<String, f64> = BTreeMap::new();
    while seen.get("outbox_dlq_depth").is_none_or(|depth| *depth < 1.0) {
        tokio::time::sleep(Duration::from_millis(20)).await;
        for (key, _, _, value) in figures.snapshot().into_vec() {
            let labels: Vec<&str> =
                key.key().labels().filter(|label| label.key() == "state").map(metrics::Label::value).collect();
            let name = [&[key.key().name()], labels.as_slice()].concat().join(" ");
            #[expect(clippy::cast_precision_loss, reason = "small counts")]
            let value = match value {
                DebugValue::Counter(count) => count as f64,
                DebugValue::Gauge(value) => value.0,
                DebugValue::Histogram(values) => values.len() as f64,
            };
            let figure = seen.entry(name).or_default();
            // A counter's snapshot takes it back to zero.
            *figure = if key.key().name().ends_with("_total") { *figure + value } else { value };
        }
    }
    relay.stop().await;
    let at_least = |name: &str, least: f64| {
        let value = seen.get(name);
        assert!(value.is_some_and(|value| *value >= least), "{name} is {value:?}, of {seen:?}");
    };
    for name in [telemetry::PENDING_DEPTH, telemetry::OLDEST_PENDING_AGE, telemetry::STUCK_LEASES] {
        at_least(name, 0.0);
    }
    at_least(telemetry::NOTIFY_WAKEUPS, 1.0);
    at_least(telemetry::CLAIM_BATCHES, 1.0);
    at_least(telemetry::CLAIMED_MESSAGES, 8.0);
    at_least(telemetry::DISPATCH_LATENCY, 1.0);
    at_least(telemetry::REAPER_REQUEUES, 1.0);
    at_least(telemetry::DLQ_DEPTH, 1.0);
    at_least("outbox_attempts_total DISPATCHED", 7.0);
    at_least("outbox_attempts_total RETRYABLE", 1.0);
    at_least("outbox_attempts_total FAILED", 1.0);
}
