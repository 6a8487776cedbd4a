//! One word for how a sink is doing, from what the store knows and what the relays that serve it report. The command line,
//! the admin API, the web page, `top` and `doctor` all show this word, and none of them decides it again.

use std::time::SystemTime;

use serde::Serialize;

use super::{RelayRecord, SinkReport, SinkStatus};
use crate::json;

/// How a sink is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SinkState {
    /// A relay delivers to it.
    Running,
    /// Every relay that serves it is trying one message, to see whether the destination is back.
    HalfOpen,
    /// Every relay that serves it has stopped trying for a while: the destination kept failing.
    BreakerOpen,
    /// No relay that is alive delivers to it.
    Unserved,
    /// An operator paused it.
    Paused,
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

    /// The word used in JSON and shown to people.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::HalfOpen => "half_open",
            Self::BreakerOpen => "breaker_open",
            Self::Unserved => "unserved",
            Self::Paused => "paused",
        }
    }
}

/// What the relays that serve a sink report about it, taken together. A silent relay does not count.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
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
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "json::time_if_given")]
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::inspect::RelayReport;
    use crate::store::OnDead;

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
        SinkStatus {
            sink: "orders".to_owned(),
            paused,
            on_dead: OnDead::Park,
            pending: 0,
            due: 0,
            leased: 0,
            expired: 0,
            dead: 0,
            parked_lanes: 0,
            oldest_due_age_seconds: 0.0,
            recent_seconds: 300.0,
            recent: [0; 4],
            last_success_at: None,
            last_error_at: None,
        }
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
