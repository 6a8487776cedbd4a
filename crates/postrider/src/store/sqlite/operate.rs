//! What an operator or a scheduler does to deliveries and history: repair, unclaim, redrive, discard, skip, replay, prune,
//! and to sinks and routes. Called by the store and by `action.rs`, which writes down who wanted it; the transaction is
//! theirs.

use std::time::Duration;

use rusqlite::{ToSql, Transaction};
use uuid::Uuid;

use super::statement::{all, execute, first, micros, micros_of, sql, time};
use super::{bury, input, waiting};
use crate::error::Error;
use crate::inspect::ReplayCount;
use crate::operate::{Done, Replay};
use crate::store::{OnDead, Route};

/// Messages or keys that go in one transaction of a prune.
pub(super) const PRUNE_BATCH: usize = 1000;

/// A negative limit is none.
const NO_LIMIT: i64 = -1;

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
    let stale = all(tx, sql!("lease", "stale"), &which, |row| Ok((row.get::<_, Uuid>(0)?, row.get::<_, String>(1)?)))?;
    let mut ended = 0;
    for (id, sink) in stale {
        let settled = bury::settle(tx, id, &sink, None, now)?;
        execute(tx, sql!("lease", "end"), &[(":message_id", &id), (":sink", &sink)])?;
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

pub(super) fn redrive_letters(tx: &Transaction<'_>, letters: &[Letter], now: i64) -> Result<u64, Error> {
    for letter in letters {
        let back = if letter.parked { sql!("dead", "redrive_parked") } else { sql!("dead", "redrive") };
        execute(tx, back, &[(":message_id", &letter.message_id), (":sink", &letter.sink), (":now", &now)])?;
        forget(tx, letter)?;
    }
    Ok(letters.len() as u64)
}

pub(super) fn discard_letters(tx: &Transaction<'_>, letters: &[Letter]) -> Result<u64, Error> {
    for letter in letters {
        if letter.parked {
            execute(tx, sql!("complete", "end"), &[(":message_id", &letter.message_id), (":sink", &letter.sink)])?;
        }
        forget(tx, letter)?;
    }
    Ok(letters.len() as u64)
}

fn forget(tx: &Transaction<'_>, letter: &Letter) -> Result<(), Error> {
    let which: [(&str, &dyn ToSql); 2] = [(":message_id", &letter.message_id), (":sink", &letter.sink)];
    execute(tx, sql!("dead", "forget"), &which)?;
    Ok(())
}

/// Lets a parked lane go on without its dead head; whether it was parked.
pub(super) fn skip(tx: &Transaction<'_>, sink: &str, lane: &str) -> Result<bool, Error> {
    let head =
        first(tx, sql!("dead", "dead_head"), &[(":sink", &sink), (":lane", &lane)], |row| row.get::<_, Uuid>(0))?;
    let Some(head) = head else { return Ok(false) };
    let which: [(&str, &dyn ToSql); 2] = [(":message_id", &head), (":sink", &sink)];
    execute(tx, sql!("dead", "unpark"), &which)?;
    execute(tx, sql!("complete", "end"), &which)?;
    Ok(true)
}

/// One step of a replay, at its rate: how many are pending again, and where the next step goes on if there may be more.
pub(super) fn replay(tx: &Transaction<'_>, replay: &Replay, now: i64) -> Result<Done, Error> {
    let looked_at = look_at(tx, replay)?;
    let step = replay.per_second.map_or(0, |rate| MICROS_PER_SECOND / i64::from(rate.get()));
    let mut due_at = replay.paced_from.map_or(now, |from| now.max(micros_of(from)));
    input::within_a_year(due_at, now)?;
    let mut affected = 0;
    for one in looked_at.iter().filter(|one| one.meant && (one.delivered || replay.include_never_delivered)) {
        let which: [(&str, &dyn ToSql); 3] = [(":message_id", &one.id), (":sink", &replay.sink), (":due_at", &due_at)];
        affected += execute(tx, sql!("operate", "replay_message"), &which)? as u64;
        due_at += step;
    }
    let paced_until = replay.per_second.map(|_| time(due_at));
    Ok(Done { affected, next: go_on(&looked_at, replay), paced_until })
}

/// What such a step would take.
pub(super) fn count_replay(tx: &Transaction<'_>, replay: &Replay) -> Result<ReplayCount, Error> {
    let looked_at = look_at(tx, replay)?;
    let count = |delivered| looked_at.iter().filter(|one| one.meant && one.delivered == delivered).count() as u64;
    Ok(ReplayCount { delivered: count(true), never_delivered: count(false), next: go_on(&looked_at, replay) })
}

/// A message that a replay looks at: whether it is meant, if what was never delivered to the sink is meant, too.
struct LookedAt {
    id: Uuid,
    meant: bool,
    delivered: bool,
}

fn look_at(tx: &Transaction<'_>, replay: &Replay) -> Result<Vec<LookedAt>, Error> {
    let message_ids = waiting::digits(replay.message_ids.as_ref())?;
    let (id_from, id_before) = replay.ids();
    let span: [(&str, &dyn ToSql); 4] =
        [(":sink", &replay.sink), (":message_ids", &message_ids), (":id_from", &id_from), (":id_before", &id_before)];
    // Asked at the first step: a name that is mistyped would get deliveries that nobody ever takes.
    if replay.after.is_none() && first(tx, sql!("operate", "sink_is_known"), &span, |row| row.get(0))? != Some(true) {
        return Err(Error::NoSuchSink { message: format!("there is no sink {:?}", replay.sink) });
    }
    let narrowed: [(&str, &dyn ToSql); 4] = [
        (":namespace", &replay.namespace),
        (":topic", &replay.topic),
        (":after", &replay.after),
        (":at_most", &replay.at_most),
    ];
    all(tx, sql!("operate", "replay_candidates"), &[span, narrowed].concat(), |row| {
        Ok(LookedAt { id: row.get(0)?, meant: row.get(1)?, delivered: row.get(2)? })
    })
}

/// Where the next step goes on: if this one met its limit, there may be more.
fn go_on(looked_at: &[LookedAt], replay: &Replay) -> Option<Uuid> {
    looked_at.last().map(|last| last.id).filter(|_| looked_at.len() >= replay.at_most as usize)
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
    let over = all(tx, sql!("prune", "candidates"), &which, |row| row.get::<_, Uuid>(0))?;
    for id in &over {
        execute(tx, sql!("prune", "message"), &[(":message_id", id)])?;
        execute(tx, sql!("prune", "attempts"), &[(":message_id", id)])?;
    }
    let next = if over.len() < batch_size { None } else { over.last().copied() };
    Ok((over.len() as u64, next))
}

/// One batch of dedupe keys past their window; how many went.
pub(super) fn prune_dedupe(tx: &Transaction<'_>, now: i64, batch_size: usize) -> Result<u64, Error> {
    Ok(execute(tx, sql!("prune", "dedupe"), &[(":now", &now), (":batch_size", &batch_size)])? as u64)
}

/// Pauses or resumes a sink, or says what a dead lane head does; whether that is new.
pub(super) fn configure_sink(
    tx: &Transaction<'_>,
    sink: &str,
    paused: Option<bool>,
    on_dead: Option<OnDead>,
) -> Result<bool, Error> {
    execute(tx, sql!("operate", "add_sink"), &[(":sink", &sink)])?;
    let on_dead = on_dead.map(OnDead::as_str);
    let which: [(&str, &dyn ToSql); 3] = [(":sink", &sink), (":paused", &paused), (":on_dead", &on_dead)];
    Ok(execute(tx, sql!("operate", "configure_sink"), &which)? > 0)
}

/// Adds or removes a route; whether something changed.
pub(super) fn change_route(tx: &Transaction<'_>, sql: &str, route: &Route) -> Result<bool, Error> {
    let which: [(&str, &dyn ToSql); 3] =
        [(":sink", &route.sink), (":topic", &route.topic), (":namespace", &route.namespace)];
    Ok(execute(tx, sql, &which)? > 0)
}
