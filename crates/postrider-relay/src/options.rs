//! Everything about a relay that can be set, with its default, its reason, and the rules that hold between them. Checked
//! once, before anything is started.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::backoff::Backoff;
use uuid::Uuid;

use crate::breaker::BreakerOptions;
use crate::error::Error;
use crate::policy::CodeTable;

/// A method for each field that sets it and returns the options. They are `non_exhaustive`: an option that comes later
/// breaks nobody.
macro_rules! setters {
    ($options:ident: $($field:ident: $type:ty),* $(,)?) => {
        impl $options {$(
            #[doc = concat!("Sets [`", stringify!($field), "`](Self#structfield.", stringify!($field), ").")]
            #[must_use]
            pub fn $field(mut self, $field: $type) -> Self {
                self.$field = $field;
                self
            }
        )*}
    };
}
pub(crate) use setters;

/// The most messages of one claim; the store's limit.
const MAX_BATCH_SIZE: u32 = 10_000;
/// The longest lease the store gives.
const MAX_LEASE: Duration = Duration::from_hours(24);

/// What concerns the whole relay.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct RelayOptions {
    /// Who this is: stands beside every lease and attempt, so it should name the process.
    pub worker_id: String,
    /// Which outbox this is, beside others that one process drains or one Prometheus watches: the label `database` of every
    /// metric. `default`.
    pub database: String,
    /// How long a claimed message is held before others may take it; renewed while it is worked on. A crashed relay's
    /// messages wait this long. 120 seconds.
    pub lease: Duration,
    /// How often to look without having been woken: 500 ms, and at most a third of the lease, unless `reap_every` is.
    pub poll: Duration,
    /// How often to look for leases that ran out, at most a third of the lease: then `poll` may be longer. `None`: claims
    /// find them, and twice in each lease a look for those that no claim meets.
    pub reap_every: Option<Duration>,
    /// After a wake-up, how long to let further messages gather before the next claim: 30 ms. The first is at once.
    pub wake_gather: Duration,
    /// How long to gather outcomes before they are recorded together: 5 ms, or until nothing is in flight.
    pub complete_gather: Duration,
    /// Most messages in memory, over all sinks: 10,000.
    pub max_messages: u32,
    /// Most bytes of headers and content in memory, over all sinks: 64 MiB. Each sink's claims have their share of it; a
    /// message that is larger than that share goes past it, alone. While a claim is read, its bytes are there twice.
    pub max_bytes: usize,
    /// Most deliveries at once, over all sinks: 256.
    pub concurrency: usize,
    /// How long deliveries in flight may take to finish after a shutdown was asked for: 25 seconds, which fits inside
    /// the 30 that Kubernetes gives.
    pub grace: Duration,
    /// How often partitions are made and history is dropped: ten minutes.
    pub keep_every: Duration,
    /// How often the relay tells the store that it is alive, and has it measured for the gauges: ten seconds. Three round
    /// trips each time; of all relays one measures.
    pub report_every: Duration,
}

impl Default for RelayOptions {
    fn default() -> Self {
        Self {
            worker_id: format!("relay-{}-{}", std::process::id(), Uuid::new_v4().simple()),
            database: "default".to_owned(),
            lease: Duration::from_mins(2),
            poll: Duration::from_millis(500),
            reap_every: None,
            wake_gather: Duration::from_millis(30),
            complete_gather: Duration::from_millis(5),
            max_messages: 10_000,
            max_bytes: 64 * 1024 * 1024,
            concurrency: 256,
            grace: Duration::from_secs(25),
            keep_every: Duration::from_mins(10),
            report_every: Duration::from_secs(10),
        }
    }
}

/// What concerns one sink.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct SinkOptions {
    /// Most messages of one claim: 500.
    pub batch_size: u32,
    /// Most messages of one lane in one claim: 500, and 100 while other lanes wait or after one of a lane failed.
    pub lane_run: u32,
    /// Most deliveries at once to this sink: 32.
    pub concurrency: usize,
    /// How long one delivery may take: 30 seconds, and always less than the lease.
    pub deadline: Duration,
    /// When and how often to try again.
    pub retry: RetryOptions,
    /// Which failure codes are terminal or retryable here, whatever the sink says.
    pub codes: CodeTable,
    /// When to leave the sink alone for a while.
    pub breaker: BreakerOptions,
    /// Most messages a second; `None` is as fast as it goes.
    pub rate: Option<NonZeroU32>,
    /// Only this tenant's messages.
    pub tenant_id: Option<String>,
}

impl Default for SinkOptions {
    fn default() -> Self {
        Self {
            batch_size: 500,
            lane_run: 500,
            concurrency: 32,
            deadline: Duration::from_secs(30),
            retry: RetryOptions::default(),
            codes: CodeTable::default(),
            breaker: BreakerOptions::default(),
            rate: None,
            tenant_id: None,
        }
    }
}

/// When and how often a failed delivery is tried again.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RetryOptions {
    /// How long to wait.
    pub backoff: Backoff,
    /// After this many attempts a message is dead: 10.
    pub max_attempts: u32,
    /// A destination may ask for a longer wait than the backoff, up to this: one hour.
    pub retry_after_max: Duration,
}

impl Default for RetryOptions {
    fn default() -> Self {
        Self { backoff: Backoff::default(), max_attempts: 10, retry_after_max: Duration::from_hours(1) }
    }
}

setters! { RelayOptions:
    worker_id: String, database: String, lease: Duration, poll: Duration, reap_every: Option<Duration>, wake_gather: Duration,
    complete_gather: Duration, max_messages: u32, max_bytes: usize, concurrency: usize, grace: Duration,
    keep_every: Duration, report_every: Duration,
}
setters! { SinkOptions:
    batch_size: u32, lane_run: u32, concurrency: usize, deadline: Duration, retry: RetryOptions, codes: CodeTable,
    breaker: BreakerOptions, rate: Option<NonZeroU32>, tenant_id: Option<String>,
}
setters! { RetryOptions:
    backoff: Backoff, max_attempts: u32, retry_after_max: Duration,
}

impl RelayOptions {
    /// Between the moment an attempt is cut off and the end of its lease: time to record what is known.
    pub(crate) fn lease_margin(&self) -> Duration {
        (self.lease / 10).min(Duration::from_secs(5))
    }

    /// Whether a relay can run like this. The builder asks too; whoever has a store to open may ask before.
    pub fn check(&self) -> Result<(), Error> {
        let named = (1..=postrider::limit::NAME_BYTES).contains(&self.worker_id.len());
        rule(named && !self.worker_id.contains('\0'), || "worker_id must be 1 to 255 bytes of text".to_owned())?;
        rule(!self.lease.is_zero() && self.lease <= MAX_LEASE, || {
            format!("the lease must be more than 0 and at most 24 hours, not {:?}", self.lease)
        })?;
        rule(!self.poll.is_zero() && self.reap_every.is_none_or(|every| !every.is_zero()), || {
            "poll and reap_every must be more than 0".to_owned()
        })?;
        rule(self.reap_every.map_or(self.poll, |every| every.min(self.poll)) <= self.lease / 3, || {
            format!(
                "the poll interval is {:?} and the lease {:?}: poll at most every third of the lease ({:?}), or ended \
                 leases are found too late; with reap_every of at most that they are found whatever the interval",
                self.poll,
                self.lease,
                self.lease / 3
            )
        })?;
        rule(self.max_messages > 0 && self.max_bytes > 0 && self.concurrency > 0, || {
            "max_messages, max_bytes and concurrency must be more than 0".to_owned()
        })?;
        rule(!self.keep_every.is_zero() && !self.report_every.is_zero(), || {
            "keep_every and report_every must be more than 0".to_owned()
        })
    }
}

impl SinkOptions {
    /// Whether a sink of this name can be run like this, by such a relay.
    pub fn check(&self, sink: &str, relay: &RelayOptions) -> Result<(), Error> {
        rule((1..=postrider::limit::NAME_BYTES).contains(&sink.len()), || {
            format!("the sink name {sink:?} is not 1 to {} bytes long", postrider::limit::NAME_BYTES)
        })?;
        rule((1..=MAX_BATCH_SIZE).contains(&self.batch_size), || {
            format!("sink {sink:?}: batch_size must be between 1 and {MAX_BATCH_SIZE}")
        })?;
        rule((1..=MAX_BATCH_SIZE).contains(&self.lane_run), || {
            format!("sink {sink:?}: lane_run must be between 1 and {MAX_BATCH_SIZE}")
        })?;
        rule(self.concurrency > 0, || format!("sink {sink:?}: concurrency must be more than 0"))?;
        rule((1..=1_000_000).contains(&self.retry.max_attempts), || {
            format!("sink {sink:?}: max_attempts must be between 1 and 1000000")
        })?;
        let named =
            self.tenant_id.as_ref().is_none_or(|tenant| (1..=postrider::limit::NAME_BYTES).contains(&tenant.len()));
        rule(named, || format!("sink {sink:?}: tenant_id must be 1 to {} bytes long", postrider::limit::NAME_BYTES))?;
        let longest = relay.lease.saturating_sub(relay.lease_margin());
        rule(!self.deadline.is_zero() && self.deadline <= longest, || {
            format!(
                "sink {sink:?}: the deadline of a delivery is {:?}, but it must end before the lease does: at most {longest:?} \
                 with a lease of {:?}",
                self.deadline, relay.lease
            )
        })
    }

    /// How many of a message's last attempts must have lost their lease before it is delivered with nothing beside it:
    /// two, unless it would be dead by then.
    pub(crate) fn suspect_after(&self) -> i32 {
        if self.retry.max_attempts > 2 { 2 } else { 1 }
    }
}

fn rule(holds: bool, reason: impl FnOnce() -> String) -> Result<(), Error> {
    if holds { Ok(()) } else { Err(Error::options(reason())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves M10: a poll interval of more than a third of the lease is refused, a third is not.
    #[test]
    fn polls_at_least_three_times_a_lease() {
        let options = |poll_ms, lease_ms| RelayOptions {
            poll: Duration::from_millis(poll_ms),
            lease: Duration::from_millis(lease_ms),
            ..RelayOptions::default()
        };
        assert!(options(1_000, 3_000).check().is_ok());
        let refused = options(1_001, 3_000).check().unwrap_err().to_string();
        assert!(refused.contains("1.001s") && refused.contains("at most every third of the lease (1s)"), "{refused}");
        assert!(options(0, 3_000).check().is_err());
        let reaping = |every_ms| options(60_000, 3_000).reap_every(Some(Duration::from_millis(every_ms))).check();
        assert!(reaping(1_000).is_ok(), "ended leases are looked for in between");
        assert!(reaping(1_001).is_err() && reaping(0).is_err());
    }

    /// Proves P10: no delivery may outlive its lease.
    #[test]
    fn a_deadline_ends_before_the_lease() {
        let relay = RelayOptions { lease: Duration::from_secs(30), ..RelayOptions::default() };
        let sink = |secs| SinkOptions { deadline: Duration::from_secs(secs), ..SinkOptions::default() };
        assert!(sink(27).check("s", &relay).is_ok());
        assert!(sink(28).check("s", &relay).unwrap_err().to_string().contains("at most 27s with a lease of 30s"));
        assert_eq!(SinkOptions::default().deadline, Duration::from_secs(30), "the default of the requirement");
    }

    #[test]
    fn a_message_that_may_be_tried_twice_is_suspect_after_one_lost_lease() {
        let suspect_after = |max_attempts| {
            SinkOptions { retry: RetryOptions { max_attempts, ..RetryOptions::default() }, ..SinkOptions::default() }
                .suspect_after()
        };
        assert_eq!([1, 2, 3, 10].map(suspect_after), [1, 1, 2, 2]);
    }
}
