//! The names of what the relay measures, in one place, and the only code that speaks to the `metrics` facade. Nothing is
//! exported here: whoever embeds the relay installs a recorder. Labels are databases, sinks and states, never tenants or
//! lanes, so that there are never more series than a configuration has lines.

use std::sync::Arc;
use std::time::Duration;

use metrics::Unit::{Count, Milliseconds, Seconds};
use metrics::{
    Key, KeyName, Label, Level, Metadata, SharedString, Unit, counter, describe_counter, describe_gauge,
    describe_histogram, gauge,
};
use postrider::inspect::{RelayReport, Sample};
use postrider::lifecycle::AttemptState;

use self::MetricKind::{Counter, Gauge, Histogram};

/// Messages waiting, by sink.
pub const PENDING_DEPTH: &str = "outbox_pending_depth";
/// How long ago the oldest message that is not delivered yet occurred, in seconds, by sink, whatever it waits for.
pub const OLDEST_PENDING_AGE: &str = "outbox_oldest_pending_age_seconds";
/// How long the oldest due message has been due, in seconds, by sink.
pub const OLDEST_DUE_AGE: &str = "outbox_oldest_due_age_seconds";
/// Dead letters, by sink.
pub const DLQ_DEPTH: &str = "outbox_dlq_depth";
/// Leases that ran out and nobody has taken over yet, by sink.
pub const STUCK_LEASES: &str = "outbox_stuck_leases";
/// Lanes that wait for a person, by sink.
pub const PARKED_LANES: &str = "outbox_parked_lanes";
/// Wake-ups by notification.
pub const NOTIFY_WAKEUPS: &str = "outbox_notify_wakeups_total";
/// Claims that brought something, by sink.
pub const CLAIM_BATCHES: &str = "outbox_claim_batches_total";
/// Messages claimed, by sink.
pub const CLAIMED_MESSAGES: &str = "outbox_claimed_messages_total";
/// How long deliveries took, in seconds, by sink.
pub const DISPATCH_LATENCY: &str = "outbox_dispatch_latency_seconds";
/// Attempts recorded, by sink and state.
pub const ATTEMPTS: &str = "outbox_attempts_total";
/// Leases the reaper ended, by the store's count.
pub const REAPER_REQUEUES: &str = "outbox_reaper_requeues_total";
/// Leases this relay lost.
pub const LOST_LEASES: &str = "outbox_lost_leases_total";
/// 1 while the sink is left alone, by sink.
pub const BREAKER_OPEN: &str = "outbox_breaker_open";
/// 1, with the relay's version.
pub const RELAY_INFO: &str = "outbox_relay_info";

// The names of the edge forwarder's document, beside ours: its gauges end in `_total`, and its histogram counts
// milliseconds.

/// Messages waiting, by sink: the same as [`PENDING_DEPTH`].
pub const EDGE_PENDING: &str = "outbox_pending_total";
/// Messages held by workers, by sink.
pub const EDGE_CLAIMED: &str = "outbox_claimed_total";
/// Dead letters, by sink: the same as [`DLQ_DEPTH`].
pub const EDGE_DLQ: &str = "outbox_dlq_total";
/// Batches that arrived whole, by sink.
pub const EDGE_SEND_SUCCESS: &str = "sync_send_success_total";
/// Batches of which something did not arrive, by sink.
pub const EDGE_SEND_FAILURE: &str = "sync_send_failure_total";
/// How long batches took, in milliseconds, by sink.
pub const EDGE_BATCH_LATENCY: &str = "sync_batch_latency_ms";
/// How long ago the oldest message that is not delivered yet occurred, in seconds, by sink: the same as [`OLDEST_PENDING_AGE`].
pub const EDGE_OLDEST_PENDING_AGE: &str = "oldest_pending_age_seconds";

/// What a metric is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricKind {
    /// It goes up, from the start of the process.
    Counter,
    /// It is what it was when it was last looked at.
    Gauge,
    /// It counts values by size.
    Histogram,
}

/// One metric: what a recorder, a dashboard and the documentation say about it.
#[derive(Debug, Clone, Copy)]
pub struct Metric {
    /// As it is exported.
    pub name: &'static str,
    /// What it is.
    pub kind: MetricKind,
    /// What its value counts or measures.
    pub unit: Unit,
    /// The names of its labels.
    pub labels: &'static [&'static str],
    /// What it means.
    pub help: &'static str,
}

const fn metric(
    kind: MetricKind,
    name: &'static str,
    unit: Unit,
    labels: &'static [&'static str],
    help: &'static str,
) -> Metric {
    Metric { name, kind, unit, labels, help }
}

const DATABASE: &[&str] = &["database"];
const SINK: &[&str] = &["database", "sink"];

/// Every metric that a relay records; there are no others.
pub const METRICS: &[Metric] = &[
    metric(Gauge, PENDING_DEPTH, Count, SINK, "Messages waiting, due or not"),
    metric(Gauge, OLDEST_PENDING_AGE, Seconds, SINK, "Age of the oldest message that is not delivered"),
    metric(Gauge, OLDEST_DUE_AGE, Seconds, SINK, "How long the oldest due message has been due"),
    metric(Gauge, DLQ_DEPTH, Count, SINK, "Dead letters"),
    metric(Gauge, STUCK_LEASES, Count, SINK, "Messages under a lease that ran out"),
    metric(Gauge, PARKED_LANES, Count, SINK, "Lanes that wait for a person"),
    metric(Counter, NOTIFY_WAKEUPS, Count, DATABASE, "Wake-ups by notification"),
    metric(Counter, CLAIM_BATCHES, Count, SINK, "Claims that brought something"),
    metric(Counter, CLAIMED_MESSAGES, Count, SINK, "Messages claimed"),
    metric(Histogram, DISPATCH_LATENCY, Seconds, SINK, "How long one call of the sink took"),
    metric(Counter, ATTEMPTS, Count, &["database", "sink", "state"], "Attempts recorded, by their state"),
    metric(Counter, REAPER_REQUEUES, Count, DATABASE, "Leases that ran out and this relay ended"),
    metric(Counter, LOST_LEASES, Count, DATABASE, "Messages whose lease this relay lost"),
    metric(Gauge, BREAKER_OPEN, Count, SINK, "1 while the sink keeps failing and is left alone"),
    metric(Gauge, RELAY_INFO, Count, &["database", "version"], "1, with the version of the relay"),
    metric(Gauge, EDGE_PENDING, Count, SINK, "Messages waiting, due or not"),
    metric(Gauge, EDGE_CLAIMED, Count, SINK, "Messages held by workers"),
    metric(Gauge, EDGE_DLQ, Count, SINK, "Dead letters"),
    metric(Counter, EDGE_SEND_SUCCESS, Count, SINK, "Batches that arrived whole"),
    metric(Counter, EDGE_SEND_FAILURE, Count, SINK, "Batches of which something did not arrive"),
    metric(Histogram, EDGE_BATCH_LATENCY, Milliseconds, SINK, "How long one call of the sink took"),
    metric(Gauge, EDGE_OLDEST_PENDING_AGE, Seconds, SINK, "Age of the oldest message that is not delivered"),
];

/// Records what one relay does, under the name of its database. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Telemetry {
    database: SharedString,
}

/// The keys of what is recorded for every call of one sink: made once, for a call may hold one message. The recorder is
/// asked each time, because it may forget what rests.
#[derive(Debug)]
pub(crate) struct SinkCalls {
    latency: Key,
    edge_latency: Key,
    whole: Key,
    failed: Key,
}

impl SinkCalls {
    /// One call ended; `whole` if everything of it arrived.
    pub(crate) fn ended(&self, latency: Duration, whole: bool) {
        static METADATA: Metadata<'static> = Metadata::new(module_path!(), Level::INFO, Some(module_path!()));
        metrics::with_recorder(|recorder| {
            recorder.register_histogram(&self.latency, &METADATA).record(latency.as_secs_f64());
            recorder.register_histogram(&self.edge_latency, &METADATA).record(latency.as_secs_f64() * 1_000.0);
            recorder.register_counter(if whole { &self.whole } else { &self.failed }, &METADATA).increment(1);
        });
    }
}

impl Telemetry {
    pub(crate) fn new(database: &str) -> Self {
        Self { database: SharedString::from(Arc::<str>::from(database)) }
    }

    /// Says to the recorder what each metric is, and that nothing has happened yet: a counter that begins when something
    /// does hides its first step from whoever computes rates.
    pub(crate) fn begin<'a>(&self, sinks: impl Iterator<Item = &'a str>) {
        for Metric { name, kind, unit, help, .. } in METRICS.iter().copied() {
            match kind {
                Counter => describe_counter!(name, unit, help),
                Gauge => describe_gauge!(name, unit, help),
                Histogram => describe_histogram!(name, unit, help),
            }
        }
        let counters = |labels: &'static [&'static str]| {
            METRICS.iter().filter(move |metric| metric.kind == Counter && metric.labels == labels)
        };
        for metric in counters(DATABASE) {
            self.count(metric.name, 0);
        }
        for sink in sinks {
            for metric in counters(SINK) {
                self.count_of(metric.name, sink, 0);
            }
            for state in [AttemptState::Dispatched, AttemptState::Retryable, AttemptState::Failed] {
                self.attempts(sink, state, 0);
            }
        }
    }

    pub(crate) fn notify_wakeup(&self) {
        self.count(NOTIFY_WAKEUPS, 1);
    }

    pub(crate) fn claimed(&self, sink: &str, messages: usize) {
        self.count_of(CLAIM_BATCHES, sink, 1);
        self.count_of(CLAIMED_MESSAGES, sink, messages as u64);
    }

    /// What is counted for each call of this sink.
    pub(crate) fn calls_of(&self, sink: &str) -> SinkCalls {
        let sink = SharedString::from(Arc::<str>::from(sink));
        let key = |name: &'static str| {
            let labels = [("database", &self.database), ("sink", &sink)];
            let labels: Vec<Label> =
                labels.into_iter().map(|(label, value)| Label::new(label, value.clone())).collect();
            Key::from_parts(KeyName::from_const_str(name), labels)
        };
        SinkCalls {
            latency: key(DISPATCH_LATENCY),
            edge_latency: key(EDGE_BATCH_LATENCY),
            whole: key(EDGE_SEND_SUCCESS),
            failed: key(EDGE_SEND_FAILURE),
        }
    }

    pub(crate) fn attempts(&self, sink: &str, state: AttemptState, count: usize) {
        counter!(ATTEMPTS, "database" => self.database.clone(), "sink" => sink.to_owned(), "state" => state.as_str())
            .increment(count as u64);
    }

    pub(crate) fn reaped(&self, leases: u64) {
        self.count(REAPER_REQUEUES, leases);
    }

    pub(crate) fn lost_leases(&self, messages: usize) {
        self.count(LOST_LEASES, messages as u64);
    }

    pub(crate) fn breaker_open(&self, sink: &str, open: bool) {
        self.set(BREAKER_OPEN, sink, if open { 1.0 } else { 0.0 });
    }

    /// What this relay says about itself. Said again on every beat, for an exporter may forget a gauge that nobody sets.
    pub(crate) fn relay(&self, report: &RelayReport) {
        gauge!(RELAY_INFO, "database" => self.database.clone(), "version" => report.version.clone()).set(1.0);
        for sink in &report.sinks {
            self.breaker_open(&sink.sink, sink.breaker != "closed");
        }
    }

    /// How every sink stood when it was last measured. Samples are in the order of their time: the newest stays.
    #[expect(clippy::cast_precision_loss, reason = "a gauge is a float; counts stay far below 2^53")]
    pub(crate) fn samples(&self, samples: &[Sample]) {
        for sample in samples {
            for (name, value) in [
                (PENDING_DEPTH, sample.pending as f64),
                (EDGE_PENDING, sample.pending as f64),
                (EDGE_CLAIMED, sample.leased as f64),
                (OLDEST_PENDING_AGE, sample.oldest_pending_age_seconds),
                (EDGE_OLDEST_PENDING_AGE, sample.oldest_pending_age_seconds),
                (OLDEST_DUE_AGE, sample.oldest_due_age_seconds),
                (DLQ_DEPTH, sample.dead as f64),
                (EDGE_DLQ, sample.dead as f64),
                (STUCK_LEASES, sample.expired as f64),
                (PARKED_LANES, sample.parked_lanes as f64),
            ] {
                self.set(name, &sample.sink, value);
            }
        }
    }

    fn count(&self, name: &'static str, more: u64) {
        counter!(name, "database" => self.database.clone()).increment(more);
    }

    fn count_of(&self, name: &'static str, sink: &str, more: u64) {
        counter!(name, "database" => self.database.clone(), "sink" => sink.to_owned()).increment(more);
    }

    fn set(&self, name: &'static str, sink: &str, value: f64) {
        gauge!(name, "database" => self.database.clone(), "sink" => sink.to_owned()).set(value);
    }
}
