//! What an operator or a scheduler does to deliveries and history: repair, unclaim, redrive, discard, replay, prune.
//! Each call is one transaction; pruning is one for each batch, so that nobody waits for long.

use std::time::Duration;

use rusqlite::{ToSql, Transaction};
use uuid::Uuid;

use super::bury;
use super::session::Session;
use super::statement::{all, execute, micros, micros_of, sql};
use crate::error::Error;
use crate::store::Replay;

/// Messages or keys that go in one transaction of a prune.
pub(super) const PRUNE_BATCH: usize = 1000;

/// Ends leases that ran out, and those taken at least `claimed_ago` ago if that is given; how many.
pub(super) fn end_stale_leases(
    session: &mut Session,
    batch_size: Option<u32>,
    claimed_ago: Option<Duration>,
) -> Result<u64, Error> {
    session.write(|tx, now| {
        let claimed_before = claimed_ago.map(|ago| now.saturating_sub(micros(ago)));
        // A negative limit is none.
        let batch_size = batch_size.map_or(-1, i64::from);
        let which: [(&str, &dyn ToSql); 3] =
            [(":now", &now), (":claimed_before", &claimed_before), (":batch_size", &batch_size)];
        let stale =
            all(tx, sql!("stale_leases"), &which, |row| Ok((row.get::<_, Uuid>(0)?, row.get::<_, String>(1)?)))?;
        let mut ended = 0;
        for (id, sink) in stale {
            let settled = bury::settle(tx, id, &sink, None, now)?;
            execute(tx, sql!("end_lease"), &[(":message_id", &id), (":sink", &sink)])?;
            ended += u64::from(settled.closed);
        }
        Ok(ended)
    })
}

struct DeadLetter {
    message_id: Uuid,
    sink: String,
    parked: bool,
}

/// The dead letters that are meant: `None` is every one.
fn dead_letters(
    tx: &Transaction<'_>,
    message_ids: Option<&[Uuid]>,
    sink: Option<&str>,
) -> Result<Vec<DeadLetter>, Error> {
    let read =
        |row: &rusqlite::Row<'_>| Ok(DeadLetter { message_id: row.get(0)?, sink: row.get(1)?, parked: row.get(2)? });
    let Some(ids) = message_ids else {
        return all(tx, sql!("dead_letters"), &[(":sink", &sink)], read);
    };
    let mut named = ids.to_vec();
    named.sort_unstable();
    named.dedup();
    let mut letters = Vec::new();
    for id in named {
        letters.extend(all(tx, sql!("dead_letters_of"), &[(":message_id", &id), (":sink", &sink)], read)?);
    }
    Ok(letters)
}

pub(super) fn redrive(session: &mut Session, message_ids: Option<&[Uuid]>, sink: Option<&str>) -> Result<u64, Error> {
    session.write(|tx, now| {
        let letters = dead_letters(tx, message_ids, sink)?;
        for letter in &letters {
            let back = if letter.parked { sql!("redrive_parked") } else { sql!("redrive") };
            execute(tx, back, &[(":message_id", &letter.message_id), (":sink", &letter.sink), (":now", &now)])?;
            forget(tx, letter)?;
        }
        Ok(letters.len() as u64)
    })
}

pub(super) fn discard(session: &mut Session, message_ids: &[Uuid], sink: Option<&str>) -> Result<u64, Error> {
    session.write(|tx, _| {
        let letters = dead_letters(tx, Some(message_ids), sink)?;
        for letter in &letters {
            if letter.parked {
                execute(tx, sql!("end"), &[(":message_id", &letter.message_id), (":sink", &letter.sink)])?;
            }
            forget(tx, letter)?;
        }
        Ok(letters.len() as u64)
    })
}

fn forget(tx: &Transaction<'_>, letter: &DeadLetter) -> Result<(), Error> {
    let which: [(&str, &dyn ToSql); 2] = [(":message_id", &letter.message_id), (":sink", &letter.sink)];
    execute(tx, sql!("forget_dead_letter"), &which)?;
    Ok(())
}

pub(super) fn replay(session: &mut Session, sink: &str, what: &Replay) -> Result<u64, Error> {
    session.write(|tx, now| {
        let replayed = match what {
            Replay::Messages(ids) => {
                let mut replayed = 0;
                for id in ids {
                    replayed +=
                        execute(tx, sql!("replay_message"), &[(":message_id", id), (":sink", &sink), (":now", &now)])?;
                }
                replayed
            }
            Replay::Enqueued { from, to, namespace, topic } => {
                let which: [(&str, &dyn ToSql); 6] = [
                    (":sink", &sink),
                    (":now", &now),
                    (":enqueued_from", &micros_of(*from)),
                    (":enqueued_to", &micros_of(*to)),
                    (":namespace", namespace),
                    (":topic", topic),
                ];
                execute(tx, sql!("replay_enqueued"), &which)?
            }
        };
        Ok(replayed as u64)
    })
}

/// One batch of messages that are over, from `after` on: how many went, and the last one if there may be more.
pub(super) fn prune_messages(
    session: &mut Session,
    older_than: Option<Duration>,
    after: Uuid,
) -> Result<(u64, Option<Uuid>), Error> {
    session.write(|tx, now| {
        let older_than = older_than.map(micros);
        let which: [(&str, &dyn ToSql); 4] =
            [(":now", &now), (":older_than_us", &older_than), (":after", &after), (":batch_size", &PRUNE_BATCH)];
        let over = all(tx, sql!("prune_candidates"), &which, |row| row.get::<_, Uuid>(0))?;
        for id in &over {
            execute(tx, sql!("prune_message"), &[(":message_id", id)])?;
            execute(tx, sql!("prune_attempts"), &[(":message_id", id)])?;
        }
        let next = if over.len() < PRUNE_BATCH { None } else { over.last().copied() };
        Ok((over.len() as u64, next))
    })
}

/// One batch of dedupe keys past their window; how many went.
pub(super) fn prune_dedupe(session: &mut Session) -> Result<u64, Error> {
    session.write(|tx, now| {
        let deleted = execute(tx, sql!("prune_dedupe"), &[(":now", &now), (":batch_size", &PRUNE_BATCH)])?;
        Ok(deleted as u64)
    })
}
