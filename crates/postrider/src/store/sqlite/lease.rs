//! What becomes of a lease before its outcome, in SQLite: the holder renews, releases, abandons and reads under its token, and a
//! lease that ran out is ended. What the holder does is fenced: only a row that still holds the token, and whose lease
//! has not ended by SQLite's clock, is changed.

use std::time::Duration;

use rusqlite::{ToSql, Transaction};
use uuid::Uuid;

use super::complete;
use super::session::Session;
use super::statement::{all, execute, first, micros, sql, value, values};
use crate::error::Error;
use crate::lifecycle::{ClaimedContent, LeaseToken};

/// A negative limit is none.
const NO_LIMIT: i64 = -1;

pub(super) fn renew(
    session: &mut Session,
    token: LeaseToken,
    message_ids: &[Uuid],
    lease: Duration,
) -> Result<Vec<Uuid>, Error> {
    session.write(|tx, now| {
        changed(message_ids, |id| {
            let terms: [(&str, &dyn ToSql); 4] =
                [(":message_id", id), (":lease_token", &token.0), (":now", &now), (":lease_us", &micros(lease))];
            execute(tx, sql!("lease", "renew"), &terms)
        })
    })
}

pub(super) fn release(session: &mut Session, token: LeaseToken, message_ids: &[Uuid]) -> Result<Vec<Uuid>, Error> {
    session.write(|tx, now| {
        changed(message_ids, |id| {
            let terms: [(&str, &dyn ToSql); 3] = [(":message_id", id), (":lease_token", &token.0), (":now", &now)];
            execute(tx, sql!("lease", "release"), &terms)
        })
    })
}

/// Takes back what a claim leased that nobody waits for. A claim that is still in front of the writer is not carried out, since
/// its caller has gone, and one that has just been committed stands before this.
pub(super) fn abandon(session: &mut Session, token: LeaseToken) -> Result<u64, Error> {
    let held: [(&str, &dyn ToSql); 1] = [(":lease_token", &token.0)];
    let ids: Vec<Uuid> = session.read(|tx, _| values(tx, sql!("lease", "held_under"), &held))?;
    if ids.is_empty() {
        return Ok(0);
    }
    Ok(release(session, token, &ids)?.len() as u64)
}

/// `None`: the message is not held under this token.
pub(super) fn content(
    session: &mut Session,
    token: LeaseToken,
    message_id: Uuid,
) -> Result<Option<ClaimedContent>, Error> {
    session.read(|tx, now| {
        let fence: [(&str, &dyn ToSql); 3] = [(":message_id", &message_id), (":lease_token", &token.0), (":now", &now)];
        first(tx, sql!("lease", "content"), &fence)
    })
}

/// The ids for which something changed, each once.
fn changed(message_ids: &[Uuid], mut change: impl FnMut(&Uuid) -> Result<usize, Error>) -> Result<Vec<Uuid>, Error> {
    let mut named = message_ids.to_vec();
    named.sort_unstable();
    named.dedup();
    let mut changed = Vec::new();
    for id in named {
        if change(&id)? > 0 {
            changed.push(id);
        }
    }
    Ok(changed)
}

/// Ends leases that ended at least `older_than` ago, and with `live` those taken that long ago; how many.
pub(super) fn end_stale(
    tx: &Transaction<'_>,
    now: i64,
    batch_size: Option<u32>,
    (older_than, live): (Duration, bool),
) -> Result<u64, Error> {
    let until = now.saturating_sub(micros(older_than));
    let batch_size = batch_size.map_or(NO_LIMIT, i64::from);
    let which: [(&str, &dyn ToSql); 4] =
        [(":now", &now), (":until", &until), (":live", &live), (":batch_size", &batch_size)];
    let stale: Vec<(Uuid, String)> = all(tx, sql!("lease", "stale"), &which)?;
    let mut ended = 0;
    for (id, sink) in stale {
        let settled = complete::settle(tx, id, &sink, None, now)?;
        execute(tx, sql!("lease", "end"), &[(":message_id", &id), (":sink", &sink)])?;
        ended += u64::from(settled.closed);
    }
    Ok(ended)
}

pub(super) fn count_stale(tx: &Transaction<'_>, older_than: Duration, live: bool, now: i64) -> Result<u64, Error> {
    let until = now.saturating_sub(micros(older_than));
    let which: [(&str, &dyn ToSql); 3] = [(":now", &now), (":until", &until), (":live", &live)];
    Ok(value(tx, sql!("lease", "count_stale"), &which)?.unwrap_or(0))
}
