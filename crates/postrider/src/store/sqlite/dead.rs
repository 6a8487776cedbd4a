//! Dead letters in SQLite as a filter means them: listed, grouped, counted, on the connection of `inspect.rs`; and chosen,
//! redriven, discarded or skipped inside the transaction of an action, by `operate.rs`.

use rusqlite::{ToSql, Transaction};
use uuid::Uuid;

use super::statement::{all, digits, execute, matching, micros_of, sql, value, values};
use crate::error::Error;
use crate::inspect::{Cursor, DeadFilter, DeadGroup, DeadLetter, MAX_DEAD_GROUPS, Page, PageRequest};
use crate::record::records;

/// A filter as SQLite takes it.
struct Terms<'a> {
    message_ids: Option<String>,
    died_from: Option<i64>,
    died_to: Option<i64>,
    filter: &'a DeadFilter,
}

impl<'a> Terms<'a> {
    fn new(filter: &'a DeadFilter) -> Self {
        Self {
            message_ids: digits(filter.message_ids.as_ref()),
            died_from: filter.died_from.map(micros_of),
            died_to: filter.died_to.map(micros_of),
            filter,
        }
    }

    fn with<'b>(&'b self, more: &[(&'static str, &'b dyn ToSql)]) -> Vec<(&'static str, &'b dyn ToSql)> {
        let mut parameters: Vec<(&'static str, &dyn ToSql)> = vec![
            (":message_ids", &self.message_ids),
            (":sink", &self.filter.sink),
            (":namespace", &self.filter.namespace),
            (":topic", &self.filter.topic),
            (":tenant_id", &self.filter.tenant_id),
            (":lane", &self.filter.lane),
            (":reason", &self.filter.reason),
            (":error_code", &self.filter.error_code),
            (":died_from", &self.died_from),
            (":died_to", &self.died_to),
        ];
        parameters.extend_from_slice(more);
        parameters
    }
}

pub(super) fn count(tx: &Transaction<'_>, filter: &DeadFilter) -> Result<u64, Error> {
    Ok(value(tx, matching!("dead", "count"), &Terms::new(filter).with(&[]))?.unwrap_or(0))
}

pub(super) fn missing(tx: &Transaction<'_>, filter: &DeadFilter) -> Result<Vec<Uuid>, Error> {
    values(tx, matching!("dead", "missing"), &Terms::new(filter).with(&[]))
}

pub(super) fn list(tx: &Transaction<'_>, filter: &DeadFilter, page: &PageRequest) -> Result<Page<DeadLetter>, Error> {
    let after = page.after.as_ref().map(Cursor::letter).transpose()?;
    let after = after.as_ref();
    let died_at = after.map(|(died_at, ..)| micros_of(*died_at));
    let (message_id, sink) = (after.map(|(_, id, _)| id), after.map(|(.., sink)| sink));
    let terms = Terms::new(filter);
    let parameters = terms.with(&[
        (":after_died_at", &died_at),
        (":after_message_id", &message_id),
        (":after_sink", &sink),
        (":limit", &page.limit),
    ]);
    Ok(Page::of_dead(all(tx, matching!("dead", "list"), &parameters)?, page.limit))
}

pub(super) fn group(tx: &Transaction<'_>, filter: &DeadFilter) -> Result<Vec<DeadGroup>, Error> {
    all(tx, matching!("dead", "group"), &Terms::new(filter).with(&[(":at_most", &MAX_DEAD_GROUPS)]))
}

/// A dead letter that was chosen to be changed.
pub(super) struct Letter {
    message_id: Uuid,
    sink: String,
    parked: bool,
}

records! { Letter(row) { message_id, sink, parked } }

/// The oldest dead letters of a kind.
pub(super) fn choose(tx: &Transaction<'_>, filter: &DeadFilter, at_most: u32) -> Result<Vec<Letter>, Error> {
    all(tx, matching!("dead", "choose"), &Terms::new(filter).with(&[(":at_most", &at_most)]))
}

pub(super) fn redrive(tx: &Transaction<'_>, letters: &[Letter], now: i64) -> Result<u64, Error> {
    for letter in letters {
        let back = if letter.parked { sql!("dead", "redrive_parked") } else { sql!("dead", "redrive") };
        execute(tx, back, &[(":message_id", &letter.message_id), (":sink", &letter.sink), (":now", &now)])?;
        forget(tx, letter)?;
    }
    Ok(letters.len() as u64)
}

pub(super) fn discard(tx: &Transaction<'_>, letters: &[Letter]) -> Result<u64, Error> {
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
    execute(tx, sql!("dead", "forget"), &which).map(drop)
}

/// Lets a parked lane go on without its dead head; whether it was parked.
pub(super) fn skip(tx: &Transaction<'_>, sink: &str, lane: &str) -> Result<bool, Error> {
    let head = value::<Uuid>(tx, sql!("dead", "dead_head"), &[(":sink", &sink), (":lane", &lane)])?;
    let Some(head) = head else { return Ok(false) };
    let which: [(&str, &dyn ToSql); 2] = [(":message_id", &head), (":sink", &sink)];
    execute(tx, sql!("dead", "unpark"), &which)?;
    execute(tx, sql!("complete", "end"), &which)?;
    Ok(true)
}
