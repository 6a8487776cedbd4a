//! Refuses arguments that are out of range, in the words that PostgreSQL's functions use for the same. Called by the
//! store before anything is asked of the file.

use std::time::Duration;

use super::statement::micros;
use crate::error::{Cause, Error};
use crate::inspect::{LONGEST_LEASE, RelayReport};
use crate::lifecycle::{Claim, Completion, Outcome};
use crate::message::limit;
use crate::store::Route;

/// Most messages or numbers of a lane in one claim.
const MOST_CLAIMED: u32 = 10_000;
/// Most attempts.
const MOST_ATTEMPTS: u32 = 1_000_000;
const MOST_AHEAD: Duration = Duration::from_hours(366 * 24);

fn refuse(holds: bool, message: &str) -> Result<(), Error> {
    if holds { Ok(()) } else { Err(Error::from(Cause::Refused { message: message.to_owned(), hint: None })) }
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= limit::NAME_BYTES
}

pub(super) fn claim(claim: &Claim) -> Result<(), Error> {
    worker(&claim.worker_id)?;
    refuse((1..=MOST_CLAIMED).contains(&claim.batch_size), "batch_size must be between 1 and 10000")?;
    lease(claim.lease)?;
    sink(&claim.sink)?;
    refuse((1..=MOST_ATTEMPTS).contains(&claim.max_attempts), "max_attempts must be between 1 and 1000000")?;
    refuse((1..=MOST_CLAIMED).contains(&claim.lane_run), "lane_run must be between 1 and 10000")?;
    refuse(claim.max_bytes != Some(0), "max_bytes must be at least 1")
}

pub(super) fn completions(completions: &[Completion]) -> Result<(), Error> {
    completions.iter().try_for_each(|completion| match completion.outcome {
        Outcome::Retryable { retry_after, .. } => {
            let message = format!(
                "message {}: retry_after_seconds must be between 0 and 3155760000 (100 years)",
                completion.message_id
            );
            refuse(retry_after <= Duration::from_secs(limit::DELAY_SECONDS), &message)
        }
        _ => Ok(()),
    })
}

pub(super) fn worker(worker_id: &str) -> Result<(), Error> {
    refuse(is_name(worker_id), "worker_id must be 1 to 255 bytes of text")
}

pub(super) fn sink(sink: &str) -> Result<(), Error> {
    refuse(is_name(sink), "sink must be 1 to 255 bytes of text")
}

pub(super) fn lane(sink: &str, lane: &str) -> Result<(), Error> {
    refuse(is_name(sink) && is_name(lane), "sink and lane must each be 1 to 255 bytes of text")
}

pub(super) fn lease(lease: Duration) -> Result<(), Error> {
    refuse(lease.as_micros() > 0 && lease <= LONGEST_LEASE, "lease_seconds must be more than 0 and at most 86400")
}

pub(super) fn sleep(at_most: Duration) -> Result<(), Error> {
    refuse(at_most.as_micros() > 0 && at_most <= LONGEST_LEASE, "seconds must be more than 0 and at most 86400")
}

pub(super) fn report(report: &RelayReport) -> Result<(), Error> {
    worker(&report.worker_id)?;
    refuse(report.version.len() <= limit::NAME_BYTES, "version must be at most 255 bytes of text")?;
    refuse(
        report.every.as_micros() > 0 && report.every <= LONGEST_LEASE,
        "every_seconds must be more than 0 and at most 86400",
    )
}

pub(crate) fn age(older_than: Duration) -> Result<(), Error> {
    refuse(
        older_than <= Duration::from_secs(limit::DELAY_SECONDS),
        "older_than_seconds must be between 0 and 3155760000",
    )
}

pub(crate) fn batch_size(batch_size: u32) -> Result<(), Error> {
    refuse(batch_size >= 1, "batch_size must be at least 1")
}

pub(super) fn ahead(paced_from: i64, now: i64) -> Result<(), Error> {
    refuse(paced_from <= now.saturating_add(micros(MOST_AHEAD)), "paced_from must be at most 366 days ahead")
}

pub(super) fn route(route: &Route) -> Result<(), Error> {
    refuse(
        is_name(&route.sink) && is_name(&route.topic) && is_name(&route.namespace),
        "sink, topic and namespace must each be 1 to 255 bytes of text",
    )
}
