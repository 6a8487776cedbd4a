//! How a sink is doing, from what the store knows and what the relays that serve it report: the record that the command line,
//! the admin API, the web page, `top` and the doctor show. None of them decides it again.

use std::time::SystemTime;

use serde::Serialize;

use super::{RelayRecord, SinkReport};
use crate::json;
#[cfg(feature = "openapi")]
use crate::json::Time;
use crate::record::records;
use crate::store::OnDead;
use crate::words::words;

/// Attempts, by outcome.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AttemptCounts {
    /// Delivered.
    pub dispatched: i64,
    /// Failed, to be tried again.
    pub retryable: i64,
    /// Failed for good.
    pub failed: i64,
    /// The lease ran out first.
    pub zombie_requeue: i64,
}

impl AttemptCounts {
    /// Those that did not deliver.
    #[must_use]
    pub fn failures(&self) -> i64 {
        self.retryable + self.failed + self.zombie_requeue
    }
}

/// How one sink stands.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct SinkStatus {
    /// The sink.
    pub sink: String,
    /// Whether an operator paused it.
    pub paused: bool,
    /// What a dead lane head does to its lane.
    pub on_dead: OnDead,
    /// Waiting, due or not.
    pub pending: i64,
    /// Waiting and due; what waits behind a parked or waiting lane head is not due.
    pub due: i64,
    /// Held by workers.
    pub leased: i64,
    /// Held under a lease that ended.
    pub expired: i64,
    /// Dead letters.
    pub dead: i64,
    /// Lanes that wait for a person.
    pub parked_lanes: i64,
    /// How long ago the oldest that is not delivered yet occurred, whatever it waits for: a retry, its time, its lane.
    pub oldest_pending_age_seconds: f64,
    /// How long the oldest due delivery has been due.
    pub oldest_due_age_seconds: f64,
    /// How far back the attempts look: the setting `status_window`.
    pub recent_seconds: f64,
    /// Attempts of that time, by outcome.
    pub recent: AttemptCounts,
    /// The last success of all, as far as it was measured.
    #[serde(serialize_with = "json::time_option")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Time>))]
    pub last_success_at: Option<SystemTime>,
    /// The last failure of all, as far as it was measured.
    #[serde(serialize_with = "json::time_option")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Time>))]
    pub last_error_at: Option<SystemTime>,
}

/// How one sink stood at the end of one interval, and what happened in it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Sample {
    /// The end of the interval.
    #[serde(serialize_with = "json::time")]
    #[cfg_attr(feature = "openapi", schema(value_type = Time))]
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
    /// How long ago the oldest that is not delivered yet occurred, whatever it waits for.
    pub oldest_pending_age_seconds: f64,
    /// How long the oldest due delivery has been due; what waits behind a parked or waiting lane head is not due.
    pub oldest_due_age_seconds: f64,
    /// Attempts of the interval, by outcome.
    pub attempts: AttemptCounts,
    /// From enqueue to delivery, for half of what was delivered in the interval; `None` if nothing was.
    pub latency_p50_ms: Option<f64>,
    /// The same for 99 of 100.
    pub latency_p99_ms: Option<f64>,
}

records! {
    AttemptCounts(row) { dispatched, retryable, failed, zombie_requeue }
    SinkStatus(row) {
        sink, paused, on_dead, pending, due, leased, expired, dead, parked_lanes, oldest_pending_age_seconds,
        oldest_due_age_seconds, recent_seconds,
        recent: AttemptCounts {
            dispatched: row.read("recent_dispatched")?, retryable: row.read("recent_retryable")?,
            failed: row.read("recent_failed")?, zombie_requeue: row.read("recent_zombies")?,
        },
        last_success_at, last_error_at,
    }
    Sample(row) {
        at, seconds, sink, pending, due, leased, expired, dead, parked_lanes, oldest_pending_age_seconds,
        oldest_due_age_seconds,
        attempts: crate::store::row::FromRow::from_row(row)?,
        latency_p50_ms, latency_p99_ms,
    }
}

words! {
    /// How a sink is doing.
    pub enum SinkState {
        /// A relay delivers to it.
        Running = "running",
        /// Every relay that serves it is trying one message, to see whether the destination is back.
        HalfOpen = "half_open",
        /// Every relay that serves it has stopped trying for a while: the destination kept failing.
        BreakerOpen = "breaker_open",
        /// No relay that is alive delivers to it.
        Unserved = "unserved",
        /// An operator paused it.
        Paused = "paused",
    }
}

impl SinkState {
    /// What an operator can change comes first: the pause, then the missing relay, then the destination.
    #[must_use]
    pub fn of(status: &SinkStatus, service: &SinkService) -> Self {
        if status.paused {
            return Self::Paused;
        }
        match (service.relays, service.closed, service.open) {
            (0, ..) => Self::Unserved,
            (_, 1.., _) => Self::Running,
            (relays, 0, open) if open == relays => Self::BreakerOpen,
            (_, 0, _) => Self::HalfOpen,
        }
    }
}

/// What the relays that serve a sink report about it, taken together. A silent relay does not count.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct SinkService {
    /// Relays that are alive and deliver to it.
    pub relays: usize,
    /// What it is: `http`, `kafka`; `None` if no relay delivers to it.
    pub kind: Option<String>,
    /// The worst breaker of them: `open`, then `half_open`, then `closed`.
    pub breaker: Option<&'static str>,
    /// How many of them have the breaker open.
    pub open: usize,
    /// How many of them have the breaker closed.
    #[serde(skip)]
    pub closed: usize,
    /// Messages that they have claimed and not yet ended.
    pub held: u64,
    /// Most messages a second, all relays together, if each has a limit.
    pub rate: Option<u32>,
    /// The last failure that opened a breaker or kept it open, as one of them reports it.
    pub last_error: Option<String>,
    /// How old all this is: the oldest of their last reports.
    #[serde(serialize_with = "json::time_option")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Time>))]
    pub reported_at: Option<SystemTime>,
}

impl SinkService {
    /// What these relays say about the sink of this name.
    #[must_use]
    pub fn of(sink: &str, relays: &[RelayRecord]) -> Self {
        let serving = relays.iter().filter(|relay| !relay.silent).filter_map(|relay| {
            let report = relay.report.sinks.iter().find(|report| report.sink == sink)?;
            Some((relay.reported_at, report))
        });
        let (times, reports): (Vec<SystemTime>, Vec<&SinkReport>) = serving.unzip();
        let count = |breaker: &str| reports.iter().filter(|report| report.breaker == breaker).count();
        let (open, half_open) = (count("open"), count("half_open"));
        let breaker = match reports.len() {
            0 => None,
            _ if open > 0 => Some("open"),
            _ if half_open > 0 => Some("half_open"),
            _ => Some("closed"),
        };
        Self {
            relays: reports.len(),
            kind: reports.first().map(|report| report.kind.clone()),
            breaker,
            open,
            closed: reports.len() - open - half_open,
            held: reports.iter().map(|report| report.held).sum(),
            rate: reports
                .iter()
                .map(|report| report.rate)
                .try_fold(0_u32, |sum, rate| Some(sum.saturating_add(rate?)))
                .filter(|_| !reports.is_empty()),
            last_error: reports.iter().find_map(|report| report.last_error.clone()),
            reported_at: times.into_iter().min(),
        }
    }
}

/// A sink with what the store and the relays know about it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct SinkOverview {
    /// How it is doing; null if nobody can tell: a standby does not have the relays' reports.
    pub state: Option<SinkState>,
    /// What the store knows.
    #[serde(flatten)]
    pub status: SinkStatus,
    /// What its relays report.
    #[serde(flatten)]
    pub service: SinkService,
}

impl SinkOverview {
    /// This sink, with what these relays say about it. `None`: the relays are not known.
    #[must_use]
    pub fn new(status: SinkStatus, relays: Option<&[RelayRecord]>) -> Self {
        let service = relays.map(|relays| SinkService::of(&status.sink, relays));
        let state = service.as_ref().map(|service| SinkState::of(&status, service));
        Self { state, status, service: service.unwrap_or_default() }
    }

    /// All of these sinks.
    #[must_use]
    pub fn all(sinks: Vec<SinkStatus>, relays: Option<&[RelayRecord]>) -> Vec<Self> {
        sinks.into_iter().map(|status| Self::new(status, relays)).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::inspect::RelayReport;

    fn relay(silent: bool, breaker: &str, held: u64, rate: Option<u32>) -> RelayRecord {
        let report = SinkReport {
            sink: "orders".to_owned(),
            kind: "http".to_owned(),
            breaker: breaker.to_owned(),
            held,
            rate,
            last_error: (breaker == "open").then(|| "HTTP_503: later".to_owned()),
            ..SinkReport::default()
        };
        RelayRecord {
            report: RelayReport {
                worker_id: "w".to_owned(),
                version: "1".to_owned(),
                every: Duration::from_secs(5),
                sinks: vec![report],
            },
            started_at: SystemTime::UNIX_EPOCH,
            reported_at: SystemTime::UNIX_EPOCH,
            silent,
        }
    }

    fn status(paused: bool) -> SinkStatus {
        SinkStatus { sink: "orders".to_owned(), paused, ..SinkStatus::default() }
    }

    #[test]
    fn relays_are_taken_together_and_silent_ones_do_not_count() {
        let relays =
            [relay(false, "closed", 3, Some(10)), relay(false, "open", 1, Some(5)), relay(true, "open", 9, None)];
        let service = SinkService::of("orders", &relays);
        assert_eq!((service.relays, service.open, service.held, service.rate), (2, 1, 4, Some(15)));
        assert_eq!(service.reported_at, Some(SystemTime::UNIX_EPOCH));
        assert_eq!((service.breaker, service.last_error.as_deref()), (Some("open"), Some("HTTP_503: later")));
        assert_eq!(SinkService::of("orders", &relays[..1]).breaker, Some("closed"));
        assert_eq!(SinkService::of("other", &relays), SinkService::default());
        let limited = [relay(false, "closed", 0, Some(u32::MAX)), relay(false, "closed", 0, Some(1))];
        assert_eq!(SinkService::of("orders", &limited).rate, Some(u32::MAX), "no overflow");
    }

    #[test]
    fn one_word_says_how_a_sink_is_doing() {
        let (closed, open, half) =
            (relay(false, "closed", 0, None), relay(false, "open", 0, None), relay(false, "half_open", 0, None));
        let silent = relay(true, "closed", 0, None);
        let state = |paused, relays: &[&RelayRecord]| {
            let relays: Vec<RelayRecord> = relays.iter().copied().cloned().collect();
            SinkState::of(&status(paused), &SinkService::of("orders", &relays)).as_str()
        };
        for (relays, word) in [
            (&[][..], "unserved"),
            (&[&silent], "unserved"),
            (&[&closed], "running"),
            (&[&open], "breaker_open"),
            (&[&open, &silent], "breaker_open"),
            (&[&open, &closed], "running"),
            (&[&open, &half], "half_open"),
            (&[&half], "half_open"),
        ] {
            assert_eq!((state(false, relays), state(true, relays)), (word, "paused"));
        }
    }
}
