//! Carries out an operator's order in SQLite and writes it down, in one transaction: both commit or neither does. Called by
//! the store; what an order does is in `operate.rs`.

use rusqlite::{ToSql, Transaction};
use uuid::Uuid;

use super::session::Session;
use super::statement::{execute, sql};
use super::{dead, input, operate};
use crate::error::Error;
use crate::operate::{Done, MAX_ORDER, Order};
use crate::store::SinkChange;

pub(super) fn carry_out(session: &mut Session, actor: &str, order: &Order) -> Result<Done, Error> {
    let detail = order.to_detail(actor)?;
    check(order)?;
    session.write(|tx, now| {
        let done = change(tx, order, now)?;
        let affected = i64::try_from(done.affected).unwrap_or(i64::MAX);
        let entry: [(&str, &dyn ToSql); 5] = [
            (":now", &now),
            (":affected", &affected),
            (":actor", &actor),
            (":action", &order.action()),
            (":detail", &detail),
        ];
        execute(tx, sql!("write_audit"), &entry)?;
        Ok(done)
    })
}

/// Refuses what PostgreSQL's functions refuse.
fn check(order: &Order) -> Result<(), Error> {
    match order {
        Order::Skip { sink, lane } => input::lane(sink, lane),
        Order::Pause { sink } | Order::Resume { sink } => input::sink(sink),
        Order::Replay(replay) => input::sink(&replay.sink),
        Order::UnclaimStuck { older_than } => input::age(*older_than),
        Order::Prune { older_than } => older_than.map_or(Ok(()), input::age),
        Order::AddRoute { route } => input::route(route),
        Order::Redrive { .. } | Order::Discard { .. } | Order::RemoveRoute { .. } => Ok(()),
    }
}

fn change(tx: &Transaction<'_>, order: &Order, now: i64) -> Result<Done, Error> {
    let affected = match order {
        Order::Redrive { which, at_most } => {
            operate::redrive_letters(tx, &dead::choose(tx, which, Some(*at_most))?, now)?
        }
        Order::Discard { which, at_most } => operate::discard_letters(tx, &dead::choose(tx, which, Some(*at_most))?)?,
        Order::Skip { sink, lane } => operate::skip(tx, sink, lane)?.into(),
        Order::Replay(replay) => return operate::replay_batch(tx, replay, now),
        Order::Pause { sink } => operate::configure_sink(tx, sink, SinkChange::pause())?.into(),
        Order::Resume { sink } => operate::configure_sink(tx, sink, SinkChange::resume())?.into(),
        Order::UnclaimStuck { older_than } => operate::end_stale_leases(tx, now, None, Some(*older_than))?,
        Order::Prune { older_than } => {
            let batch_size = MAX_ORDER as usize;
            let (messages, _) = operate::prune_messages(tx, now, *older_than, Uuid::nil(), batch_size)?;
            messages + operate::prune_dedupe(tx, now, batch_size)?
        }
        Order::AddRoute { route } => operate::change_route(tx, sql!("add_route"), route)?.into(),
        Order::RemoveRoute { route } => operate::change_route(tx, sql!("remove_route"), route)?.into(),
    };
    Ok(Done { affected, next: None })
}
