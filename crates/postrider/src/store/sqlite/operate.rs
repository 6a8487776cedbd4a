//! Carries out an operator's action in SQLite and writes it down, in one transaction: both commit or neither does. Called by
//! the store. What is done to deliveries is in `dead.rs`, `pending.rs`, `routes.rs`, `complete.rs` and `prune.rs`; replays, sinks
//! and the routes themselves are here.

use async_trait::async_trait;
use rusqlite::{ToSql, Transaction};
use serde_json::Value;
use uuid::Uuid;

use super::session::Session;
use super::statement::{all, digits, execute, micros_of, sql, value};
use super::{SqliteStore, complete, dead, input, pending, prune, routes};
use crate::enqueue::{self, Enqueued};
use crate::error::{Cause, Error};
use crate::inspect::{AuditRecord, Cursor, Page, PageRequest, ReplayCount};
use crate::message::Message;
use crate::operate::{Action, ActionName, Done, MAX_PER_ACTION, Replay, check};
use crate::record::records;
use crate::store::row::time;
use crate::store::{OnDead, Operate, Pruned, Route};

const MICROS_PER_SECOND: i64 = 1_000_000;

/// Who acts when nobody is named: SQLite has no logins.
const UNNAMED: &str = "local";

#[async_trait]
impl Operate for SqliteStore {
    async fn operate(&self, actor: &str, action: &Action) -> Result<Done, Error> {
        action.check(actor)?;
        let detail = action.detail()?;
        check_input(action)?;
        let (actor, action) = (actor.to_owned(), action.clone());
        self.write(move |tx, now| {
            let done = change(tx, &actor, &action, now)?;
            let affected = i64::try_from(done.affected).unwrap_or(i64::MAX);
            write_audit(tx, now, (&actor, action.name(), &detail), affected)?;
            Ok(done)
        })
        .await
    }

    async fn enqueue_as(&self, actor: &str, message: &Message) -> Result<Enqueued, Error> {
        check::enqueue(actor, message)?;
        let mut detail = check::enqueue_detail(message);
        let (actor, message) = (actor.to_owned(), message.clone());
        self.write(move |tx, now| {
            let enqueued = enqueue::rusqlite::enqueue(tx, &message)?;
            detail.insert("message_id".to_owned(), enqueued.message_id.to_string().into());
            let detail = Value::Object(detail).to_string();
            write_audit(tx, now, (&actor, ActionName::Enqueue, &detail), enqueued.created.into())?;
            Ok(enqueued)
        })
        .await
    }
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
    (actor, action, detail): (&str, ActionName, &str),
    affected: i64,
) -> Result<(), Error> {
    let entry: [(&str, &dyn ToSql); 5] =
        [(":now", &now), (":affected", &affected), (":actor", &actor), (":action", &action), (":detail", &detail)];
    execute(tx, sql!("operate", "write_audit"), &entry).map(drop)
}

/// Refuses what PostgreSQL's functions refuse.
fn check_input(action: &Action) -> Result<(), Error> {
    match action {
        Action::Skip { sink, lane } => input::lane(sink, lane),
        Action::Pause { sink } | Action::Resume { sink } | Action::SetOnDead { sink, .. } => input::sink(sink),
        Action::Replay(replay) => input::sink(&replay.sink),
        Action::UnclaimStuck { older_than, .. } => input::age(*older_than),
        Action::Prune { older_than } => older_than.map_or(Ok(()), input::age),
        Action::AddRoute { route } => input::route(route),
        Action::Redrive { .. }
        | Action::Discard { .. }
        | Action::RetryNow { .. }
        | Action::Cancel { .. }
        | Action::RemoveRoute { .. }
        | Action::ApplyRoutes { .. } => Ok(()),
    }
}

fn change(tx: &Transaction<'_>, actor: &str, action: &Action, now: i64) -> Result<Done, Error> {
    let affected = match action {
        Action::Redrive { which, at_most } => dead::redrive(tx, &dead::choose(tx, which, *at_most)?, now)?,
        Action::Discard { which, at_most } => dead::discard(tx, &dead::choose(tx, which, *at_most)?)?,
        Action::RetryNow { which, at_most } => pending::retry_now(tx, which, *at_most, now)?,
        Action::Cancel { which, at_most } => pending::cancel(tx, actor, which, *at_most, now)?,
        Action::Skip { sink, lane } => dead::skip(tx, sink, lane)?.into(),
        Action::Replay(wanted) => return replay(tx, wanted, now),
        Action::Pause { sink } => configure_sink(tx, sink, Some(true), None)?.into(),
        Action::Resume { sink } => configure_sink(tx, sink, Some(false), None)?.into(),
        Action::SetOnDead { sink, on_dead } => configure_sink(tx, sink, None, Some(*on_dead))?.into(),
        Action::UnclaimStuck { older_than, live } => complete::end_stale(tx, now, None, (*older_than, *live))?,
        Action::Prune { older_than } => {
            let batch_size = MAX_PER_ACTION as usize;
            let (messages, _) = prune::prune_messages(tx, now, *older_than, Uuid::nil(), batch_size)?;
            messages + prune::prune_dedupe(tx, now, batch_size)?
        }
        Action::AddRoute { route } => change_route(tx, sql!("operate", "add_route"), route)?.into(),
        Action::RemoveRoute { route } => change_route(tx, sql!("operate", "remove_route"), route)?.into(),
        Action::ApplyRoutes { at_most } => routes::apply(tx, *at_most, now)?,
    };
    Ok(Done { affected, next: None, paced_until: None })
}

/// One step of a replay, at its rate: how many are pending again, and where the next step goes on if there may be more.
pub(super) fn replay(tx: &Transaction<'_>, replay: &Replay, now: i64) -> Result<Done, Error> {
    let looked_at = look_at(tx, replay)?;
    let step = replay.per_second.map_or(0, |rate| MICROS_PER_SECOND / i64::from(rate.get()));
    let mut due_at = replay.paced_from.map_or(now, |from| now.max(micros_of(from)));
    input::ahead(due_at, now)?;
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

records! { LookedAt(row) { id, meant, delivered } }

fn look_at(tx: &Transaction<'_>, replay: &Replay) -> Result<Vec<LookedAt>, Error> {
    let message_ids = digits(replay.message_ids.as_ref());
    let (id_from, id_before) = replay.ids();
    let span: [(&str, &dyn ToSql); 4] =
        [(":sink", &replay.sink), (":message_ids", &message_ids), (":id_from", &id_from), (":id_before", &id_before)];
    // Asked at the first step: a name that is mistyped would get deliveries that nobody ever takes.
    if replay.after.is_none() && value(tx, sql!("operate", "sink_is_known"), &span)? != Some(true) {
        return Err(Error::from(Cause::NoSuchSink { message: format!("there is no sink {:?}", replay.sink) }));
    }
    let narrowed: [(&str, &dyn ToSql); 4] = [
        (":namespace", &replay.namespace),
        (":topic", &replay.topic),
        (":after", &replay.after),
        (":at_most", &replay.at_most),
    ];
    all(tx, sql!("operate", "replay_candidates"), &[span, narrowed].concat())
}

/// Where the next step goes on: if this one met its limit, there may be more.
fn go_on(looked_at: &[LookedAt], replay: &Replay) -> Option<Uuid> {
    looked_at.last().map(|last| last.id).filter(|_| looked_at.len() >= replay.at_most as usize)
}

/// Pauses or resumes a sink, or says what a dead lane head does; whether that is new.
pub(super) fn configure_sink(
    tx: &Transaction<'_>,
    sink: &str,
    paused: Option<bool>,
    on_dead: Option<OnDead>,
) -> Result<bool, Error> {
    execute(tx, sql!("operate", "add_sink"), &[(":sink", &sink)])?;
    let which: [(&str, &dyn ToSql); 3] = [(":sink", &sink), (":paused", &paused), (":on_dead", &on_dead)];
    Ok(execute(tx, sql!("operate", "configure_sink"), &which)? > 0)
}

/// Adds or removes a route; whether something changed.
pub(super) fn change_route(tx: &Transaction<'_>, sql: &str, route: &Route) -> Result<bool, Error> {
    let which: [(&str, &dyn ToSql); 3] =
        [(":sink", &route.sink), (":topic", &route.topic), (":namespace", &route.namespace)];
    Ok(execute(tx, sql, &which)? > 0)
}

pub(super) fn audit(tx: &Transaction<'_>, page: &PageRequest) -> Result<Page<AuditRecord>, Error> {
    let before = page.after.as_ref().map(Cursor::entry).transpose()?;
    let entries = all(tx, sql!("operate", "audit"), &[(":before", &before), (":limit", &page.limit)])?;
    Ok(Page::of_audit(entries, page.limit))
}
