//! What waits, whatever the store: dead letters, parked lanes, leases that ended, what is late, and relays that stopped
//! reporting. Asks the store; changes nothing.

use crate::doctor::{Finding, Level, Limits, counted, words};
use crate::inspect::{FutureTimes, RelayRecord, SinkStatus};
use crate::store::Store;

/// Looks at what waits and at who works on it.
pub async fn backlog(store: &dyn Store, limits: &Limits) -> Vec<Finding> {
    let sinks = match store.status().await {
        Ok(sinks) => sinks,
        Err(error) => return vec![Finding::unseen("backlog", &error)],
    };
    let mut findings = vec![dead(&sinks), parked(&sinks), expired(&sinks), late(&sinks, limits)];
    findings.extend(paused(&sinks));
    match store.relays().await {
        Ok(relays) => findings.push(relays_of(&relays, sinks.iter().map(|sink| sink.due).sum())),
        Err(error) => findings.push(Finding::unseen("relays", &error)),
    }
    findings.push(match store.future_times(limits.clock_skew).await {
        Ok(found) => future(&found),
        Err(error) => Finding::unseen("future_times", &error),
    });
    findings
}

fn future(found: &FutureTimes) -> Finding {
    let named = [(found.leases, "lease"), (found.reports, "relay report"), (found.samples, "sample")];
    let told: Vec<String> = named
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, one)| counted(i64::try_from(*count).unwrap_or(i64::MAX), one))
        .collect();
    if told.is_empty() {
        return Finding::ok("future_times", "no lease, report or sample is from the future");
    }
    let seen = format!("from the future of the store's clock: {}", told.join(", "));
    let why = "the clock was ahead or was set back: leases are held, and nothing is due, until that time has come";
    let level = if found.leases > 0 { Level::Bad } else { Level::Warning };
    Finding::new("future_times", level, seen, why).fix(
        "keep the clock steady (NTP that slews, no steps); postrider unclaim-stuck --older-than 0s frees every lease, \
         postrider retry-now --all makes what waits due",
    )
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
        .fix("postrider dlq groups; then postrider dlq redrive or postrider dlq discard")
}

fn parked(sinks: &[SinkStatus]) -> Finding {
    let (names, count) = gathered(sinks, |sink| sink.parked_lanes);
    if count == 0 {
        return Finding::ok("parked_lanes", "no lane is parked");
    }
    let seen = format!("{} parked ({names})", counted(count, "lane"));
    Finding::new("parked_lanes", Level::Warning, seen, "nothing behind a dead lane head is delivered")
        .fix("postrider lanes --state parked; then redrive or discard the head, or postrider lanes skip SINK LANE")
}

fn expired(sinks: &[SinkStatus]) -> Finding {
    let (names, count) = gathered(sinks, |sink| sink.expired);
    if count == 0 {
        return Finding::ok("stuck_leases", "no lease has run out");
    }
    let seen = format!("{} under a lease that ran out ({names})", counted(count, "message"));
    let why = "their relay is gone, and no other has claimed or repaired them";
    Finding::new("stuck_leases", Level::Warning, seen, why)
        .fix("start a relay (postrider run), or postrider unclaim-stuck")
}

fn late(sinks: &[SinkStatus], limits: &Limits) -> Finding {
    let working: Vec<&SinkStatus> = sinks.iter().filter(|sink| !sink.paused && sink.due > 0).collect();
    let oldest =
        working.iter().max_by(|one, other| one.oldest_due_age_seconds.total_cmp(&other.oldest_due_age_seconds));
    match oldest {
        Some(sink) if sink.oldest_due_age_seconds > limits.late.as_secs_f64() => {
            let seen =
                format!("sink {}: the oldest has been due for {}", sink.sink, words(sink.oldest_due_age_seconds));
            let why = "nobody delivers this sink, its destination is down, or relays are too slow";
            Finding::new("late", Level::Warning, seen, why)
                .fix("postrider explain ID, with an ID of postrider list --state pending")
        }
        _ => Finding::ok("late", format!("nothing has been due for longer than {}", words(limits.late.as_secs_f64()))),
    }
}

fn paused(sinks: &[SinkStatus]) -> Option<Finding> {
    let names: Vec<&str> = sinks.iter().filter(|sink| sink.paused).map(|sink| sink.sink.as_str()).collect();
    let seen = format!("paused: {}", names.join(", "));
    (!names.is_empty()).then(|| {
        Finding::new("paused", Level::Note, seen, "the messages of a paused sink wait until somebody resumes it")
            .fix("postrider sinks resume NAME")
    })
}

fn relays_of(relays: &[RelayRecord], due: i64) -> Finding {
    let silent: Vec<&str> =
        relays.iter().filter(|relay| relay.silent).map(|relay| relay.report.worker_id.as_str()).collect();
    let alive = i64::try_from(relays.len() - silent.len()).unwrap_or(0);
    if !silent.is_empty() {
        let seen = format!("stopped reporting without a word: {}", silent.join(", "));
        let why = "it crashed, hangs, or cannot reach the database; what it holds comes back when its leases end";
        return Finding::new("relays", Level::Warning, seen, why)
            .fix("look at its log and its host, and start it again");
    }
    match (alive, due) {
        (0, 0) => Finding::new("relays", Level::Note, "no relay reports", "nothing is delivered until one runs")
            .fix("postrider run"),
        (0, due) => {
            let seen = format!("no relay reports, and {} due", counted(due, "message"));
            Finding::new("relays", Level::Warning, seen, "nothing is delivered until one runs").fix("postrider run")
        }
        (alive, _) => Finding::ok("relays", format!("{} alive", counted(alive, "relay"))),
    }
}
