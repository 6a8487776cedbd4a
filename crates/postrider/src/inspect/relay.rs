//! What relays report about themselves and their sinks: see [`crate::Queue::report`] and [`crate::Inspect::relays`].

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::json;
#[cfg(feature = "openapi")]
use crate::json::Time;
use crate::record::records;

/// A relay as it last reported.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RelayRecord {
    /// What it said.
    #[serde(flatten)]
    pub report: RelayReport,
    /// When it first reported.
    #[serde(serialize_with = "json::time")]
    #[cfg_attr(feature = "openapi", schema(value_type = Time))]
    pub started_at: SystemTime,
    /// When it last reported.
    #[serde(serialize_with = "json::time")]
    #[cfg_attr(feature = "openapi", schema(value_type = Time))]
    pub reported_at: SystemTime,
    /// Whether it is late with its next report: it has stopped without a word, or cannot reach the store.
    pub silent: bool,
}

/// What a relay says about itself now and then.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RelayReport {
    /// Who it is.
    pub worker_id: String,
    /// The version of its program.
    pub version: String,
    /// How often it reports.
    #[serde(rename = "every_seconds", with = "json::seconds")]
    #[cfg_attr(feature = "openapi", schema(value_type = f64))]
    pub every: Duration,
    /// The sinks it delivers to.
    pub sinks: Vec<SinkReport>,
}

records! {
    RelayRecord(row) { report: crate::store::row::FromRow::from_row(row)?, started_at, reported_at, silent }
    RelayReport(row) {
        worker_id, version,
        every: Duration::try_from_secs_f64(row.read("every_seconds")?).unwrap_or_default(),
        sinks: RelayReport::sinks_from(&row.read::<String>("sinks")?),
    }
}

/// What a relay says about one of its sinks. Whatever is missing in what another program reported is left at nothing.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct SinkReport {
    /// The sink.
    pub sink: String,
    /// What it is: `http`, `kafka`, `handler`.
    pub kind: String,
    /// `closed`, `open` or `half_open`.
    pub breaker: String,
    /// For how much longer nothing is sent to it, while the breaker is open.
    #[serde(rename = "open_for_seconds", with = "json::seconds_option")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<f64>))]
    pub open_for: Option<Duration>,
    /// Messages claimed and not yet ended.
    pub held: u64,
    /// Most messages a second, if there is a limit.
    pub rate: Option<u32>,
    /// The last failure since the breaker was last closed: code and message, cut short.
    pub last_error: Option<String>,
}

impl RelayReport {
    /// What was said about the sinks, from its JSON. An entry that is no object is left out: anybody may report.
    pub(crate) fn sinks_from(json: &str) -> Vec<SinkReport> {
        let entries: Vec<serde_json::Value> = serde_json::from_str(json).unwrap_or_default();
        entries.into_iter().filter_map(|entry| serde_json::from_value(entry).ok()).collect()
    }
}
