//! The metrics of this process as Prometheus reads them. `postrider run` records them from its start; the admin API hands
//! them out at `/metrics`. The names and their meaning are the relay's, in its `telemetry.rs`; here are only the buckets
//! and what is forgotten. Nothing here listens on a port.

use std::sync::OnceLock;
use std::time::Duration;

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use metrics_util::MetricKindMask;
use postrider_relay::telemetry::{DISPATCH_LATENCY, EDGE_BATCH_LATENCY};

use crate::exit_code::ExitCode;
use crate::failure::{Failure, Result};

/// From a local broker to the longest deadline that anybody sets, in milliseconds.
const LATENCY_BUCKETS_MS: [f64; 15] =
    [1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1_000.0, 2_500.0, 5_000.0, 10_000.0, 30_000.0, 60_000.0];
/// A gauge that nobody has set for this long is of a sink that is gone, or of a store that is not measured any more: no
/// figure is better than an old one. Relays set all of theirs every ten seconds.
const GAUGE_IDLE: Duration = Duration::from_mins(5);
/// What histograms gathered is put into buckets this often, read or not, so that it does not pile up.
const UPKEEP_EVERY: Duration = Duration::from_secs(5);

static RECORDED: OnceLock<PrometheusHandle> = OnceLock::new();

/// From here on metrics are recorded. Once in a process, inside its runtime.
pub(crate) fn record() -> Result<()> {
    let cannot = |error: metrics_exporter_prometheus::BuildError| {
        Failure::new(ExitCode::Failure, format!("metrics cannot be recorded: {error}"))
    };
    let handle = builder().map_err(cannot)?.install_recorder().map_err(cannot)?;
    let upkeep = RECORDED.get_or_init(|| handle).clone();
    tokio::spawn(async move {
        let mut beat = tokio::time::interval(UPKEEP_EVERY);
        loop {
            beat.tick().await;
            upkeep.run_upkeep();
        }
    });
    Ok(())
}

/// Everything recorded until now, in Prometheus' text format; nothing if nothing is recorded in this process.
pub(crate) fn render() -> String {
    RECORDED.get().map(PrometheusHandle::render).unwrap_or_default()
}

fn builder() -> std::result::Result<PrometheusBuilder, metrics_exporter_prometheus::BuildError> {
    let seconds = LATENCY_BUCKETS_MS.map(|milliseconds| milliseconds / 1_000.0);
    Ok(PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Full(DISPATCH_LATENCY.to_owned()), &seconds)?
        .set_buckets_for_metric(Matcher::Full(EDGE_BATCH_LATENCY.to_owned()), &LATENCY_BUCKETS_MS)?
        .idle_timeout(MetricKindMask::GAUGE, Some(GAUGE_IDLE)))
}

#[cfg(test)]
mod tests {
    use metrics::{Unit, counter, describe_counter, gauge, histogram};
    use postrider_relay::telemetry::{ATTEMPTS, PENDING_DEPTH};

    use super::*;

    /// Proves P14: Prometheus reads the names as they are, with help, and histograms have buckets in their own unit.
    #[test]
    fn prometheus_reads_the_names_as_they_are() {
        let recorder = builder().expect("buckets").build_recorder();
        let text = metrics::with_local_recorder(&recorder, || {
            describe_counter!(ATTEMPTS, Unit::Count, "Attempts recorded");
            counter!(ATTEMPTS, "sink" => "s\"1\n", "state" => "FAILED").increment(3);
            gauge!(PENDING_DEPTH, "sink" => "s").set(7.0);
            histogram!(DISPATCH_LATENCY, "sink" => "s").record(0.004);
            histogram!(EDGE_BATCH_LATENCY, "sink" => "s").record(4.0);
            recorder.handle().render()
        });
        for line in [
            "# HELP outbox_attempts_total Attempts recorded",
            "# TYPE outbox_attempts_total counter",
            r#"outbox_attempts_total{sink="s\"1\n",state="FAILED"} 3"#,
            r#"outbox_pending_depth{sink="s"} 7"#,
            r#"outbox_dispatch_latency_seconds_bucket{sink="s",le="0.0025"} 0"#,
            r#"outbox_dispatch_latency_seconds_bucket{sink="s",le="0.005"} 1"#,
            r#"outbox_dispatch_latency_seconds_bucket{sink="s",le="60"} 1"#,
            r#"sync_batch_latency_ms_bucket{sink="s",le="2.5"} 0"#,
            r#"sync_batch_latency_ms_bucket{sink="s",le="5"} 1"#,
            r#"sync_batch_latency_ms_count{sink="s"} 1"#,
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in:\n{text}");
        }
    }
}
