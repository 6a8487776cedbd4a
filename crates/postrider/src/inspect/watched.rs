//! What is watched while an outbox works: samples, relays that report, and why a message is where it is. The types of
//! [`crate::Queue::report`], [`crate::Queue::measure`] and [`crate::Inspect::explain`], and how they are written as JSON.

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// How one sink stood at the end of one interval, and what happened in it.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// The end of the interval.
    pub at: SystemTime,
    /// How long it was.
    pub seconds: f64,
    /// The sink.
    pub sink: String,
    /// Waiting, due or not.
    pub pending: i64,
    /// Waiting and due.
    pub due: i64,
    /// Held by workers.
    pub leased: i64,
    /// Held under a lease that ended.
    pub expired: i64,
    /// Dead letters.
    pub dead: i64,
    /// Lanes that wait for a person.
    pub parked_lanes: i64,
    /// How long the oldest due delivery has been due; what waits behind a parked or waiting lane head is not due.
    pub oldest_due_age_seconds: f64,
    /// Attempts of the interval, by outcome: dispatched, retryable, failed, zombie.
    pub attempts: [i64; 4],
    /// From enqueue to delivery, for half of what was delivered in the interval; `None` if nothing was.
    pub latency_p50_ms: Option<f64>,
    /// The same for 99 of 100.
    pub latency_p99_ms: Option<f64>,
}

/// A relay as it last reported.
#[derive(Debug, Clone, PartialEq)]
pub struct RelayRecord {
    /// What it said.
    pub report: RelayReport,
    /// When it first reported.
    pub started_at: SystemTime,
    /// When it last reported.
    pub reported_at: SystemTime,
    /// Whether it is late with its next report: it has stopped without a word, or cannot reach the store.
    pub silent: bool,
}

/// What a relay says about itself now and then.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RelayReport {
    /// Who it is.
    pub worker_id: String,
    /// The version of its program.
    pub version: String,
    /// How often it reports.
    #[serde(rename = "every_seconds", with = "seconds")]
    pub every: Duration,
    /// The sinks it delivers to.
    pub sinks: Vec<SinkReport>,
}

/// What a relay says about one of its sinks. Whatever is missing in what another program reported is left at nothing.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SinkReport {
    /// The sink.
    pub sink: String,
    /// What it is: `http`, `kafka`, `handler`.
    pub kind: String,
    /// `closed`, `open` or `half_open`.
    pub breaker: String,
    /// For how much longer nothing is sent to it, while the breaker is open.
    #[serde(rename = "open_for_seconds", with = "seconds::option")]
    pub open_for: Option<Duration>,
    /// Messages claimed and not yet ended.
    pub held: u64,
    /// Most messages a second, if there is a limit.
    pub rate: Option<u32>,
    /// The last failure since the breaker was last closed: code and message, cut short.
    pub last_error: Option<String>,
}

/// Why a message is where it is.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Explanation {
    /// The message.
    pub message_id: Uuid,
    /// For each sink that has or had to do with it.
    pub deliveries: Vec<Reason>,
}

/// Why one delivery is where it is, and what to do.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Reason {
    /// The sink.
    pub sink: String,
    /// A stable code, see `explain.rs`: `DELIVERED`, `DEAD`, `LEASED`, `LEASE_EXPIRED`, `NOT_DUE`, `RETRY_LATER`,
    /// `BEHIND_LANE_HEAD`, `LANE_PARKED`, `SINK_PAUSED`, `BREAKER_OPEN`, `NO_RELAY`, `RELAY_SILENT`, `DUE`, `DISCARDED`, `CANCELLED`.
    pub code: &'static str,
    /// What is the case, for people.
    pub why: String,
    /// What to do; empty if there is nothing to do.
    pub advice: String,
    /// The message that has to go first, if it waits behind one.
    pub behind: Option<Uuid>,
}

impl RelayReport {
    /// What was said about the sinks, from its JSON. An entry that is no object is left out: anybody may report.
    pub(crate) fn sinks_from(json: &str) -> Vec<SinkReport> {
        let entries: Vec<serde_json::Value> = serde_json::from_str(json).unwrap_or_default();
        entries.into_iter().filter_map(|entry| serde_json::from_value(entry).ok()).collect()
    }
}

/// A duration as a number of seconds.
mod seconds {
    use std::time::Duration;

    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

    pub(super) fn serialize<S: Serializer>(span: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        span.as_secs_f64().serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        Duration::try_from_secs_f64(f64::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }

    /// The same, or nothing.
    pub(super) mod option {
        use std::time::Duration;

        use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

        #[expect(clippy::ref_option, reason = "serde calls it with a reference to the field")]
        pub(in super::super) fn serialize<S: Serializer>(span: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
            span.map(|span| span.as_secs_f64()).serialize(to)
        }

        pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
            let seconds = Option::<f64>::deserialize(from)?;
            seconds.map(Duration::try_from_secs_f64).transpose().map_err(serde::de::Error::custom)
        }
    }
}
