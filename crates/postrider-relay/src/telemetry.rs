//! The names of what the relay measures, in one place, and the only code that speaks to the `metrics` facade. Nothing is
//! exported here: whoever embeds the relay installs a recorder. Labels are sinks and states, never tenants or lanes.

use std::time::Duration;

use metrics::{counter, gauge, histogram};
use postrider::{AttemptState, SinkStatus};

/// Messages waiting, by sink.
pub const PENDING_DEPTH: &str = "outbox_pending_depth";
/// How long the oldest due message has been due, in seconds, by sink.
pub const OLDEST_PENDING_AGE: &str = "outbox_oldest_pending_age_seconds";
/// Dead letters, by sink.
pub const DLQ_DEPTH: &str = "outbox_dlq_depth";
/// Leases that ran out and nobody has taken over yet, by sink.
pub const STUCK_LEASES: &str = "outbox_stuck_leases";
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

pub(crate) fn notify_wakeup() {
    counter!(NOTIFY_WAKEUPS).increment(1);
}

pub(crate) fn claimed(sink: &str, messages: usize) {
    counter!(CLAIM_BATCHES, "sink" => sink.to_owned()).increment(1);
    counter!(CLAIMED_MESSAGES, "sink" => sink.to_owned()).increment(messages as u64);
}

pub(crate) fn dispatched(sink: &str, latency: Duration) {
    histogram!(DISPATCH_LATENCY, "sink" => sink.to_owned()).record(latency.as_secs_f64());
}

pub(crate) fn attempts(sink: &str, state: AttemptState, count: usize) {
    counter!(ATTEMPTS, "sink" => sink.to_owned(), "state" => state.as_str()).increment(count as u64);
}

pub(crate) fn reaped(leases: u64) {
    counter!(REAPER_REQUEUES).increment(leases);
}

pub(crate) fn lost_leases(messages: usize) {
    counter!(LOST_LEASES).increment(messages as u64);
}

pub(crate) fn breaker_open(sink: &str, open: bool) {
    gauge!(BREAKER_OPEN, "sink" => sink.to_owned()).set(if open { 1.0 } else { 0.0 });
}

#[expect(clippy::cast_precision_loss, reason = "a gauge is a float; counts stay far below 2^53")]
pub(crate) fn status(sinks: &[SinkStatus]) {
    for status in sinks {
        let set = |name: &'static str, value: f64| gauge!(name, "sink" => status.sink.clone()).set(value);
        set(PENDING_DEPTH, status.pending as f64);
        set(OLDEST_PENDING_AGE, status.oldest_due_age_seconds);
        set(DLQ_DEPTH, status.dead as f64);
        set(STUCK_LEASES, status.expired as f64);
    }
}
