//! What an operator or a scheduler does to deliveries and history: repair, unclaim, redrive, discard, skip, replay, prune,
//! and to sinks and routes. Called by the store and by `order.rs`, which writes down who wanted it; the transaction is
//! theirs where it is passed in.

use std::time::Duration;

use rusqlite::{ToSql, Transaction};
use uuid::Uuid;

use super::session::Session;
use super::statement::{all, execute, first, micros, micros_of, sql, time};
use super::{bury, dead, input};
use crate::error::Error;
use crate::inspect::DeadFilter;
use crate::operate::{Done, ReplayAction};
use crate::store::{OnDead, Replay, Route, SinkChange};

/// Messages or keys that go in one transaction of a prune.
pub(super) const PRUNE_BATCH: usize = 1000;

/// A negative limit is none.
pub(super) const NO_LIMIT: i64 = -1;

const MICROS_PER_SECOND: i64 = 1_000_000;

/// Ends leases that ran out, and those taken at least `claimed_ago` ago if that is given; how many.
pub(super) fn end_stale_leases(
    tx: &Transaction<'_>,
    now: i64,
    batch_size: Option<u32>,
    claimed_ago: Option<Duration>,
) -> Result<u64, Error> {
    let claimed_before = claimed_ago.map(|ago| now.saturating_sub(micros(ago)));
    let batch_size = batch_size.map_or(NO_LIMIT, i64::from);
    let which: [(&str, &dyn ToSql); 3] =
        [(":now", &now), (":claimed_before", &claimed_before), (":batch_size", &batch_size)];
    let stale = all(tx, sql!("stale_leases"), &which, |row| Ok((row.get::<_, Uuid>(0)?, row.get::<_, String>(1)?)))?;
    let mut ended = 0;
    for (id, sink) in stale {
        let settled = bury::settle(tx, id, &sink, None, now)?;
        execute(tx, sql!("end_lease"), &[(":message_id", &id), (":sink", &sink)])?;
        ended += u64::from(settled.closed);
    }
    Ok(ended)
}

/// A dead letter that was chosen to be changed.
pub(super) struct Letter {
    pub(super) message_id: Uuid,
    pub(super) sink: String,
    pub(super) parked: bool,
}

pub(super) fn redrive(session: &mut Session, message_ids: Option<&[Uuid]>, sink: Option<&str>) -> Result<u64, Error> {
    let filter = named(message_ids, sink);
    session.write(|tx, now| redrive_letters(tx, &dead::choose(tx, &filter, None)?, now))
}

pub(super) fn discard(session: &mut Session, message_ids: &[Uuid], sink: Option<&str>) -> Result<u64, Error> {
    let filter = named(Some(message_ids), sink);
    session.write(|tx, _| discard_letters(tx, &dead::choose(tx, &filter, None)?))
}

/// The dead letters of these messages, `None` being every one; of one sink, if that is given.
fn named(message_ids: Option<&[Uuid]>, sink: Option<&str>) -> DeadFilter {
    let (message_ids, sink) = (message_ids.map(<[Uuid]>::to_vec), sink.map(str::to_owned));
    DeadFilter { message_ids, sink, ..DeadFilter::default() }
}

pub(super) fn redrive_letters(tx: &Transaction<'_>, letters: &[Letter], now: i64) -> Result<u64, Error> {
    for letter in letters {
        let back = if letter.parked { sql!("redrive_parked") } else { sql!("redrive") };
        execute(tx, back, &[(":message_id", &letter.message_id), (":sink", &letter.sink), (":now", &now)])?;
        forget(tx, letter)?;
    }
    Ok(letters.len() as u64)
}

pub(super) fn discard_letters(tx: &Transaction<'_>, letters: &[Letter]) -> Result<u64, Error> {
    for letter in letters {
        if letter.parked {
            execute(tx, sql!("end"), &[(":message_id", &letter.message_id), (":sink", &letter.sink)])?;
        }
        forget(tx, letter)?;
    }
    Ok(letters.len() as u64)
}

fn forget(tx: &Transaction<'_>, letter: &Letter) -> Result<(), Error> {
    let which: [(&str, &dyn ToSql); 2] = [(":message_id", &letter.message_id), (":sink", &letter.sink)];
    execute(tx, sql!("forget_dead_letter"), &which)?;
    Ok(())
}

/// Lets a parked lane go on without its dead head; whether it was parked.
pub(super) fn skip(tx: &Transaction<'_>, sink: &str, lane: &str) -> Result<bool, Error> {
    let head = first(tx, sql!("dead_head"), &[(":sink", &sink), (":lane", &lane)], |row| row.get::<_, Uuid>(0))?;
    let Some(head) = head else { return Ok(false) };
    let which: [(&str, &dyn ToSql); 2] = [(":message_id", &head), (":sink", &sink)];
    execute(tx, sql!("unpark"), &which)?;
    execute(tx, sql!("end"), &which)?;
    Ok(true)
}

pub(super) fn replay(session: &mut Session, sink: &str, what: &Replay) -> Result<u64, Error> {
    session.write(|tx, now| {
        let ids = match what {
            Replay::Messages(ids) => ids.clone(),
            Replay::Enqueued { from, to, namespace, topic } => {
                let which: [(&str, &dyn ToSql); 7] = [
                    (":sink", &sink),
                    (":enqueued_from", &micros_of(*from)),
                    (":enqueued_to", &micros_of(*to)),
                    (":namespace", namespace),
                    (":topic", topic),
                    (":after", &None::<Uuid>),
                    (":at_most", &NO_LIMIT),
                ];
                replay_candidates(tx, &which)?.into_iter().filter(|(_, meant)| *meant).map(|(id, _)| id).collect()
            }
        };
        let mut replayed = 0;
        for id in ids {
            replayed += replay_message(tx, id, sink, now)?;
        }
        Ok(replayed)
    })
}

/// One step of a replay, at its rate: how many are pending again, and where the next step goes on if there may be more.
pub(super) fn replay_batch(tx: &Transaction<'_>, action: &ReplayAction, now: i64) -> Result<Done, Error> {
    let which: [(&str, &dyn ToSql); 7] = [
        (":sink", &action.sink),
        (":enqueued_from", &micros_of(action.from)),
        (":enqueued_to", &micros_of(action.to)),
        (":namespace", &action.namespace),
        (":topic", &action.topic),
        (":after", &action.after),
        (":at_most", &action.at_most),
    ];
    let looked_at = replay_candidates(tx, &which)?;
    let step = action.per_second.map_or(0, |rate| MICROS_PER_SECOND / i64::from(rate.get()));
    let mut due_at = action.paced_from.map_or(now, |from| now.max(micros_of(from)));
    input::within_a_year(due_at, now)?;
    let mut affected = 0;
    for (id, _) in looked_at.iter().filter(|(_, meant)| *meant) {
        affected += replay_message(tx, *id, &action.sink, due_at)?;
        due_at += step;
    }
    let next = looked_at.last().map(|(id, _)| *id).filter(|_| looked_at.len() == action.at_most as usize);
    Ok(Done { affected, next, paced_until: action.per_second.map(|_| time(due_at)) })
}

/// Each message that is looked at, and whether it is meant.
fn replay_candidates(tx: &Transaction<'_>, which: &[(&str, &dyn ToSql)]) -> Result<Vec<(Uuid, bool)>, Error> {
    all(tx, sql!("replay_candidates"), which, |row| Ok((row.get(0)?, row.get(1)?)))
}

fn replay_message(tx: &Transaction<'_>, id: Uuid, sink: &str, due_at: i64) -> Result<u64, Error> {
    let which: [(&str, &dyn ToSql); 3] = [(":message_id", &id), (":sink", &sink), (":due_at", &due_at)];
    Ok(execute(tx, sql!("replay_message"), &which)? as u64)
}

/// One batch of messages that are over, from `after` on: how many went, and the last one if there may be more.
pub(super) fn prune_messages(
    tx: &Transaction<'_>,
    now: i64,
    older_than: Option<Duration>,
    after: Uuid,
    batch_size: usize,
) -> Result<(u64, Option<Uuid>), Error> {
    let older_than = older_than.map(micros);
    let which: [(&str, &dyn ToSql); 4] =
        [(":now", &now), (":older_than_us", &older_than), (":after", &after), (":batch_size", &batch_size)];
    let over = all(tx, sql!("prune_candidates"), &which, |row| row.get::<_, Uuid>(0))?;
    for id in &over {
        execute(tx, sql!("prune_message"), &[(":message_id", id)])?;
        execute(tx, sql!("prune_attempts"), &[(":message_id", id)])?;
    }
    let next = if over.len() < batch_size { None } else { over.last().copied() };
    Ok((over.len() as u64, next))
}

/// One batch of dedupe keys past their window; how many went.
pub(super) fn prune_dedupe(tx: &Transaction<'_>, now: i64, batch_size: usize) -> Result<u64, Error> {
    Ok(execute(tx, sql!("prune_dedupe"), &[(":now", &now), (":batch_size", &batch_size)])? as u64)
}

/// Pauses or resumes a sink, or says what a dead lane head does; whether that is new.
pub(super) fn configure_sink(tx: &Transaction<'_>, sink: &str, change: SinkChange) -> Result<bool, Error> {
    execute(tx, sql!("add_sink"), &[(":sink", &sink)])?;
    let on_dead = change.on_dead.map(OnDead::as_str);
    let which: [(&str, &dyn ToSql); 3] = [(":sink", &sink), (":paused", &change.paused), (":on_dead", &on_dead)];
    Ok(execute(tx, sql!("configure_sink"), &which)? > 0)
}

/// Adds or removes a route; whether something changed.
pub(super) fn change_route(tx: &Transaction<'_>, sql: &str, route: &Route) -> Result<bool, Error> {
    let which: [(&str, &dyn ToSql); 3] =
        [(":sink", &route.sink), (":topic", &route.topic), (":namespace", &route.namespace)];
    Ok(execute(tx, sql, &which)? > 0)
}
