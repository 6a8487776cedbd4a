//! What waits, whatever the store: dead letters, parked lanes, leases that ended, what is late, sinks that no relay serves
//! or that keep failing, and relays that stopped reporting. Asks the store; changes nothing.

use crate::doctor::{Finding, Level, Limits};
use crate::inspect::{FutureTimes, RelayRecord, SinkService, SinkState, SinkStatus};
use crate::store::Store;
use crate::text::{counted, seconds, short_span};

/// A sink whose attempts all fail is told from this many on: one message that is retried says little.
const FAILING_FROM: i64 = 5;

/// Looks at what waits and at who works on it.
pub async fn backlog(store: &dyn Store, limits: &Limits) -> Vec<Finding> {
    let sinks = match store.status().await {
        Ok(sinks) => sinks,
        Err(error) => return vec![Finding::unseen("backlog", &error)],
    };
    let mut findings = vec![dead(&sinks), parked(&sinks), expired(&sinks), late(&sinks, limits)];
    findings.extend(paused(&sinks));
    match store.relays().await {
        Ok(relays) => {
            findings.push(relays_of(&relays, sinks.iter().map(|sink| sink.due).sum()));
            findings.extend(unserved(&sinks, &relays));
            findings.extend(breakers(&sinks, &relays));
        }
        Err(error) => findings.push(Finding::unseen("relays", &error)),
    }
    findings.push(failing(&sinks));
    findings.push(match store.future_times(limits.clock_skew).await {
        Ok(found) => future(&found),
        Err(error) => Finding::unseen("future_times", &error),
    });
    findings
}

fn future(found: &FutureTimes) -> Finding {
    let named = [(found.leases, "lease"), (found.reports, "relay report"), (found.samples, "sample")];
    let told: Vec<String> =
        named.iter().filter(|(count, _)| *count > 0).map(|(count, one)| counted(*count, one)).collect();
    if told.is_empty() {
        return Finding::ok("future_times", "no lease, report or sample is from the future");
    }
    let seen = format!("from the future of the store's clock: {}", told.join(", "));
    let why = "the clock was ahead or was set back: leases are held, and nothing is due, until that time has come";
    let level = if found.leases > 0 { Level::Bad } else { Level::Warning };
    Finding::new("future_times", level, seen, why).fix("keep the clock steady (NTP that slews, no steps)")
}

/// Names of the sinks for which something is more than zero, and the sum.
fn gathered(sinks: &[SinkStatus], of: fn(&SinkStatus) -> i64) -> (String, i64) {
    let names: Vec<&str> = sinks.iter().filter(|sink| of(sink) > 0).map(|sink| sink.sink.as_str()).collect();
    (names.join(", "), sinks.iter().map(of).sum())
}

fn dead(sinks: &[SinkStatus]) -> Finding {
    let (names, count) = gathered(sinks, |sink| sink.dead);
    if count == 0 {
        return Finding::ok("dead_letters", "no dead letters");
    }
    let seen = format!("{} ({names})", counted(count, "dead letter"));
    let why = "they wait for a person, and each keeps its partition from being pruned";
    Finding::new("dead_letters", Level::Warning, seen, why)
}

fn parked(sinks: &[SinkStatus]) -> Finding {
    let (names, count) = gathered(sinks, |sink| sink.parked_lanes);
    if count == 0 {
        return Finding::ok("parked_lanes", "no lane is parked");
    }
    let seen = format!("{} parked ({names})", counted(count, "lane"));
    Finding::new("parked_lanes", Level::Warning, seen, "nothing behind a dead lane head is delivered")
}

fn expired(sinks: &[SinkStatus]) -> Finding {
    let (names, count) = gathered(sinks, |sink| sink.expired);
    if count == 0 {
        return Finding::ok("stuck_leases", "no lease has run out");
    }
    let seen = format!("{} under a lease that ran out ({names})", counted(count, "message"));
    let why = "their relay is gone, and no other has claimed or repaired them";
    Finding::new("stuck_leases", Level::Warning, seen, why)
}

fn late(sinks: &[SinkStatus], limits: &Limits) -> Finding {
    let working: Vec<&SinkStatus> = sinks.iter().filter(|sink| !sink.paused && sink.due > 0).collect();
    let oldest =
        working.iter().max_by(|one, other| one.oldest_due_age_seconds.total_cmp(&other.oldest_due_age_seconds));
    match oldest {
        Some(sink) if sink.oldest_due_age_seconds > limits.late.as_secs_f64() => {
            let seen = format!(
                "sink {}: the oldest has been due for {}",
                sink.sink,
                short_span(seconds(sink.oldest_due_age_seconds))
            );
            let why = "nobody delivers this sink, its destination is down, or relays are too slow";
            Finding::new("late", Level::Warning, seen, why)
        }
        _ => Finding::ok("late", format!("nothing has been due for longer than {}", short_span(limits.late))),
    }
}

fn paused(sinks: &[SinkStatus]) -> Option<Finding> {
    let names: Vec<&str> = sinks.iter().filter(|sink| sink.paused).map(|sink| sink.sink.as_str()).collect();
    let seen = format!("paused: {}", names.join(", "));
    (!names.is_empty()).then(|| {
        Finding::new("paused", Level::Note, seen, "the messages of a paused sink wait until somebody resumes it")
    })
}

/// Sinks with something to deliver that no living relay serves. If no relay is alive at all, `relays` says so.
fn unserved(sinks: &[SinkStatus], relays: &[RelayRecord]) -> Vec<Finding> {
    if relays.iter().all(|relay| relay.silent) {
        return Vec::new();
    }
    let waits = |sink: &&SinkStatus| {
        sink.pending > 0 && SinkState::of(sink, &SinkService::of(&sink.sink, relays)) == SinkState::Unserved
    };
    let found: Vec<Finding> = sinks
        .iter()
        .filter(waits)
        .map(|sink| {
            let seen = format!("sink {}: {} pending, {} due", sink.sink, counted(sink.pending, "message"), sink.due);
            let why = "no relay that is alive has a sink of this name, so nothing is delivered to it";
            // A worker in SQL reports nothing: what it delivered lately tells that somebody serves the sink.
            let level = if sink.recent.dispatched == 0 { Level::Bad } else { Level::Note };
            Finding::new("unserved", level, seen, why).fix(format!(
                "add [sinks.{}] to the configuration of a relay and start it again; or correct the route",
                sink.sink
            ))
        })
        .collect();
    if found.is_empty() {
        vec![Finding::ok("unserved", "every sink with messages is served by a relay")]
    } else {
        found
    }
}

/// Sinks whose destination kept failing, so that relays wait before they try again.
fn breakers(sinks: &[SinkStatus], relays: &[RelayRecord]) -> Vec<Finding> {
    let found: Vec<Finding> =
        sinks.iter().filter_map(|sink| breaker(sink, &SinkService::of(&sink.sink, relays))).collect();
    if found.is_empty() { vec![Finding::ok("breakers", "no breaker is open")] } else { found }
}

fn breaker(sink: &SinkStatus, service: &SinkService) -> Option<Finding> {
    let not_closed = service.relays - service.closed;
    if not_closed == 0 {
        return None;
    }
    let (level, why) = if service.closed == 0 {
        (Level::Bad, "the destination keeps failing: every relay waits, tries one message, and waits again")
    } else {
        (Level::Warning, "the destination keeps failing for these relays; the others still deliver")
    };
    let error = service.last_error.as_ref().map(|error| format!("; the last error: {error}")).unwrap_or_default();
    let seen = format!(
        "sink {}: the breaker is open at {not_closed} of {}, {} pending{error}",
        sink.sink,
        counted(service.relays, "relay"),
        counted(sink.pending, "message")
    );
    let fix = "repair the destination, or its address in the configuration; delivery then goes on by itself";
    Some(Finding::new("breakers", level, seen, why).fix(fix))
}

/// Sinks that were tried lately and took nothing.
fn failing(sinks: &[SinkStatus]) -> Finding {
    let found = sinks.iter().filter(|sink| sink.recent.dispatched == 0 && sink.recent.failures() >= FAILING_FROM);
    let told: Vec<String> = found
        .map(|sink| {
            let window = short_span(seconds(sink.recent_seconds));
            format!(
                "sink {}: all {} of the last {window} failed",
                sink.sink,
                counted(sink.recent.failures(), "attempt")
            )
        })
        .collect();
    if told.is_empty() {
        return Finding::ok("failing", "no sink fails at everything");
    }
    let why = "each message is retried until its attempts are used up, and is a dead letter then";
    Finding::new("failing", Level::Warning, told.join("; "), why)
}

fn relays_of(relays: &[RelayRecord], due: i64) -> Finding {
    let silent: Vec<&str> =
        relays.iter().filter(|relay| relay.silent).map(|relay| relay.report.worker_id.as_str()).collect();
    let alive = relays.len() - silent.len();
    if !silent.is_empty() {
        let seen = format!("stopped reporting without a word: {}", silent.join(", "));
        let why = "it crashed, hangs, or cannot reach the database; what it holds comes back when its leases end";
        return Finding::new("relays", Level::Warning, seen, why)
            .fix("look at its log and its host, and start it again");
    }
    match (alive, due) {
        (0, 0) => Finding::new("relays", Level::Note, "no relay reports", "nothing is delivered until one runs"),
        (0, due) => {
            let seen = format!("no relay reports, and {} due", counted(due, "message"));
            Finding::new("relays", Level::Warning, seen, "nothing is delivered until one runs")
        }
        (alive, _) => Finding::ok("relays", format!("{} alive", counted(alive, "relay"))),
    }
}
