//! Carries out an operator's action in SQLite and writes it down, in one transaction: both commit or neither does. Called by
//! the store; what an action does is in `operate.rs` and `waiting.rs`.

use rusqlite::{ToSql, Transaction};
use serde_json::Value;
use uuid::Uuid;

use super::session::Session;
use super::statement::{execute, sql};
use super::{dead, input, operate, waiting};
use crate::enqueue::{self, Enqueued};
use crate::error::Error;
use crate::message::Message;
use crate::operate::{Action, Done, MAX_PER_ACTION, check};
use crate::store::Pruned;

/// Who acts when nobody is named: SQLite has no logins.
const UNNAMED: &str = "local";

pub(super) fn carry_out(session: &mut Session, actor: &str, action: &Action) -> Result<Done, Error> {
    action.check(actor)?;
    let detail = action.detail()?;
    check_input(action)?;
    session.write(|tx, now| {
        let done = change(tx, actor, action, now)?;
        let affected = i64::try_from(done.affected).unwrap_or(i64::MAX);
        write_audit(tx, now, (actor, action.name(), &detail), affected)?;
        Ok(done)
    })
}

pub(super) fn enqueue(session: &mut Session, actor: &str, message: &Message) -> Result<Enqueued, Error> {
    check::enqueue(actor, message)?;
    let mut detail = check::enqueue_detail(message);
    session.write(|tx, now| {
        let enqueued = enqueue::rusqlite::enqueue(tx, message)?;
        detail.insert("message_id".to_owned(), enqueued.message_id.to_string().into());
        let detail = Value::Object(detail).to_string();
        write_audit(tx, now, (actor, check::ENQUEUE, &detail), enqueued.created.into())?;
        Ok(enqueued)
    })
}

/// What the house-keeping pruned, batch by batch: one entry after the last of them.
pub(super) fn pruned(session: &mut Session, pruned: Pruned) -> Result<(), Error> {
    let affected = i64::try_from(pruned.rest_deleted + pruned.dedupe_deleted).unwrap_or(i64::MAX);
    if affected == 0 {
        return Ok(());
    }
    let action = Action::Prune { older_than: None };
    let detail = action.detail()?;
    session.write(|tx, now| write_audit(tx, now, (UNNAMED, action.name(), &detail), affected))
}

fn write_audit(
    tx: &Transaction<'_>,
    now: i64,
    (actor, action, detail): (&str, &str, &str),
    affected: i64,
) -> Result<(), Error> {
    let entry: [(&str, &dyn ToSql); 5] =
        [(":now", &now), (":affected", &affected), (":actor", &actor), (":action", &action), (":detail", &detail)];
    execute(tx, sql!("operate", "write_audit"), &entry)?;
    Ok(())
}

/// Refuses what PostgreSQL's functions refuse.
fn check_input(action: &Action) -> Result<(), Error> {
    match action {
        Action::Skip { sink, lane } => input::lane(sink, lane),
        Action::Pause { sink } | Action::Resume { sink } | Action::SetOnDead { sink, .. } => input::sink(sink),
        Action::Replay(replay) => input::sink(&replay.sink),
        Action::UnclaimStuck { older_than } => input::age(*older_than),
        Action::Prune { older_than } => older_than.map_or(Ok(()), input::age),
        Action::AddRoute { route } => input::route(route),
        Action::Redrive { .. }
        | Action::Discard { .. }
        | Action::RetryNow { .. }
        | Action::Cancel { .. }
        | Action::RemoveRoute { .. } => Ok(()),
    }
}

fn change(tx: &Transaction<'_>, actor: &str, action: &Action, now: i64) -> Result<Done, Error> {
    let affected = match action {
        Action::Redrive { which, at_most } => operate::redrive_letters(tx, &dead::choose(tx, which, *at_most)?, now)?,
        Action::Discard { which, at_most } => operate::discard_letters(tx, &dead::choose(tx, which, *at_most)?)?,
        Action::RetryNow { which, at_most } => waiting::retry_now(tx, which, *at_most, now)?,
        Action::Cancel { which, at_most } => waiting::cancel(tx, actor, which, *at_most, now)?,
        Action::Skip { sink, lane } => operate::skip(tx, sink, lane)?.into(),
        Action::Replay(replay) => return operate::replay(tx, replay, now),
        Action::Pause { sink } => operate::configure_sink(tx, sink, Some(true), None)?.into(),
        Action::Resume { sink } => operate::configure_sink(tx, sink, Some(false), None)?.into(),
        Action::SetOnDead { sink, on_dead } => operate::configure_sink(tx, sink, None, Some(*on_dead))?.into(),
        Action::UnclaimStuck { older_than } => operate::end_stale_leases(tx, now, None, Some(*older_than))?,
        Action::Prune { older_than } => {
            let batch_size = MAX_PER_ACTION as usize;
            let (messages, _) = operate::prune_messages(tx, now, *older_than, Uuid::nil(), batch_size)?;
            messages + operate::prune_dedupe(tx, now, batch_size)?
        }
        Action::AddRoute { route } => operate::change_route(tx, sql!("operate", "add_route"), route)?.into(),
        Action::RemoveRoute { route } => operate::change_route(tx, sql!("operate", "remove_route"), route)?.into(),
    };
    Ok(Done { affected, next: None, paced_until: None })
}
