//! Looks at the storm while it goes on: whether everything that was enqueued is somewhere in each snapshot, how much
//! memory the relays have, and how many connections. And reads the whole history for the checker at the end. It writes
//! nothing to the database.

use std::pin::pin;

use futures_util::TryStreamExt as _;
use postrider_testkit::Database;
use tokio_postgres::{Client, Row};
use uuid::Uuid;

use crate::books::Books;
use crate::checker::{AttemptRow, Checker, MessageRow, State};

/// The bound of a relay's memory in a storm: what it holds is small.
pub(crate) const MOST_MEMORY_BYTES: u64 = 128 * 1024 * 1024;
/// The pool's eight and the listener; and as many as were cut off and have not noticed, for they are in a statement.
pub(crate) const MOST_CONNECTIONS: i64 = 17;

/// One snapshot: what was enqueued is pending, leased, dead, delivered, or given up by an operator.
pub(crate) async fn conservation(client: &Client, books: &Books) -> Result<i64, tokio_postgres::Error> {
    let row = client
        .query_one(
            "select (select count(*) from outbox.message), \
             (select count(*) from outbox.delivery where lease_token is null and due_at < 'infinity'), \
             (select count(*) from outbox.delivery where lease_token is not null), \
             (select count(*) from outbox.dead_letter), \
             (select count(*) from outbox.attempt where state = 'DISPATCHED'), \
             (select coalesce(sum(affected), 0)::bigint from outbox.audit where action in ('discard', 'cancel'))",
            &[],
        )
        .await?;
    let [enqueued, pending, leased, dead, delivered, given_up]: [i64; 6] = std::array::from_fn(|n| row.get(n));
    if enqueued != pending + leased + dead + delivered + given_up {
        books.violation(format!(
            "conservation: {enqueued} enqueued, {pending} pending, {leased} leased, {dead} dead, {delivered} delivered, \
             {given_up} given up"
        ));
    }
    Ok(enqueued)
}

/// The most sessions that one relay has.
pub(crate) async fn sessions(client: &Client, books: &Books) -> Result<i64, tokio_postgres::Error> {
    let statement = "select coalesce(max(n), 0) from (select count(*) as n from pg_stat_activity \
                     where application_name like 'relay-%' group by application_name) s";
    let sessions = client.query_one(statement, &[]).await?.get(0);
    if sessions > MOST_CONNECTIONS {
        books.violation(format!("connections: a relay has {sessions}"));
    }
    Ok(sessions)
}

/// What is still to be delivered, and dead letters that an operator is to redrive.
pub(crate) async fn left(client: &Client, redriven: &str) -> Result<i64, tokio_postgres::Error> {
    let statement = "select (select count(*) from outbox.deliveries where state <> 'dead') \
                     + (select count(*) from outbox.dead_letters where last_error_code = $1)";
    client.query_one(statement, &[&redriven]).await.map(|row| row.get(0))
}

/// Every row of the application's own table has its message, and every message of that producer has its row.
pub(crate) async fn own_rows(client: &Client, books: &Books, producer: u32) -> Result<i64, tokio_postgres::Error> {
    let statement = "select count(*), count(*) filter (where o.position is null), count(*) filter (where m.n is null) \
                     from (select (payload ->> 'n')::int as n from outbox.message where (payload ->> 'p')::int = $1) m \
                     full join own_row o on o.position = m.n";
    let row = client.query_one(statement, &[&i32::try_from(producer).unwrap_or(0)]).await?;
    let (all, without_row, without_message): (i64, i64, i64) = (row.get(0), row.get(1), row.get(2));
    if without_row + without_message > 0 {
        books.violation(format!(
            "torn: of {all} transactions' rows {without_row} are messages alone, {without_message} rows alone"
        ));
    }
    Ok(all)
}

const HISTORY: &str = "select m.id, (m.payload ->> 'p')::bigint, (m.payload ->> 'n')::bigint, m.lane, m.sequence_id, \
     l.message_id is not null, d.message_id is not null and d.due_at < 'infinity', \
     a.attempt_no, a.state::text, a.worker_id, (extract(epoch from a.claimed_at) * 1e6)::bigint, \
     (extract(epoch from a.completed_at) * 1e6)::bigint \
     from outbox.message m left join outbox.attempt a on a.message_id = m.id \
     left join outbox.dead_letter l on l.message_id = m.id left join outbox.delivery d on d.message_id = m.id \
     order by m.id, a.attempt_no";

/// Reads every message and attempt, one after the other, and hands them to the checker.
pub(crate) async fn history(database: &Database, checker: &mut Checker<'_>) -> Result<(), tokio_postgres::Error> {
    let client = database.connect().await;
    let no_parameters: [&str; 0] = [];
    let mut rows = pin!(client.query_raw(HISTORY, no_parameters).await?);
    let mut current: Option<(Uuid, MessageRow)> = None;
    let mut attempts = Vec::new();
    while let Some(row) = rows.try_next().await? {
        let id: Uuid = row.get(0);
        if current.as_ref().is_none_or(|(known, _)| *known != id) {
            if let Some((_, message)) = current.replace((id, message(&row))) {
                checker.message(&message, &attempts);
            }
            attempts.clear();
        }
        attempts.extend(attempt(&row));
    }
    if let Some((_, message)) = &current {
        checker.message(message, &attempts);
    }
    Ok(())
}

fn message(row: &Row) -> MessageRow {
    let part = |column| u32::try_from(row.get::<_, i64>(column)).unwrap_or(u32::MAX);
    MessageRow {
        number: crate::kinds::Number { producer: part(1), position: part(2) },
        lane: row.get(3),
        sequence_id: row.get(4),
        dead: row.get(5),
        open: row.get(6),
    }
}

fn attempt(row: &Row) -> Option<AttemptRow> {
    let attempt_no: Option<i32> = row.get(7);
    Some(AttemptRow {
        attempt_no: attempt_no?,
        state: State::of(row.get(8)),
        worker: row.get(9),
        claimed_us: row.get(10),
        completed_us: row.get(11),
    })
}
