//! Who holds locks on the outbox's tables: a session that forgot to end its transaction, or one that others wait for. Asked
//! by `doctor`, and by a migration that did not get a lock, to say whom to ask.

use std::time::Duration;

use tokio_postgres::types::Type;
use tokio_postgres::{GenericClient, Row};

use crate::doctor::{Finding, Level, Limits};
use crate::error::Error;
use crate::schema::Schema;
use crate::store::postgres::PostgresStore;
use crate::store::postgres::statement::sql;
use crate::text::{counted, seconds, short_span};

const SQL: &str = sql!("doctor", "locks");
/// Sessions that are named: the first ones are those to look at.
const MAX_HOLDERS: i64 = 5;
/// Tables of a session that are named.
const MAX_TABLES: usize = 3;
/// A wait shorter than this is how locks work.
const LONG_WAIT: Duration = Duration::from_secs(5);

/// A transaction with locks on the outbox's tables.
struct Holder {
    pid: i32,
    login: String,
    application: String,
    tables: Vec<String>,
    /// Unknown to roles that may not see it.
    age_seconds: Option<f64>,
    blocked: i64,
    blocked_seconds: f64,
}

impl Holder {
    fn from_row(row: &Row) -> Result<Self, Error> {
        Ok(Self {
            pid: row.try_get("pid")?,
            login: row.try_get::<_, Option<String>>("login")?.unwrap_or_default(),
            application: row.try_get::<_, Option<String>>("application")?.unwrap_or_default(),
            tables: row.try_get("tables")?,
            age_seconds: row.try_get("age_seconds")?,
            blocked: row.try_get("blocked")?,
            blocked_seconds: row.try_get("blocked_seconds")?,
        })
    }

    /// `process 7 of bob (psql), in a transaction for 5m, with locks on message, attempt and 2 more tables`
    fn words(&self) -> String {
        let application = if self.application.is_empty() { String::new() } else { format!(" ({})", self.application) };
        let age = self.age_seconds.map_or_else(
            || ", in a transaction of unknown age".to_owned(),
            |age| format!(", in a transaction for {}", short_span(seconds(age))),
        );
        let named = self.tables.iter().take(MAX_TABLES).map(String::as_str).collect::<Vec<_>>().join(", ");
        let more = match self.tables.len().saturating_sub(MAX_TABLES) {
            0 => String::new(),
            1 => " and 1 more table".to_owned(),
            more => format!(" and {more} more tables"),
        };
        format!("process {} of {}{application}{age}, with locks on {named}{more}", self.pid, self.login)
    }
}

/// Sessions that a migration may have waited for, in words; empty if none has a lock now.
pub(crate) async fn holders(client: &impl GenericClient, schema: &Schema) -> Result<Vec<String>, Error> {
    let found = ask(client, schema, Duration::ZERO, Duration::ZERO).await?;
    Ok(found.iter().map(Holder::words).collect())
}

/// Locks that are held for long, or that somebody waits for.
pub(super) async fn locks(store: &PostgresStore, limits: &Limits) -> Result<Vec<Finding>, Error> {
    let connection = store.connection().await?;
    let found = ask(&*connection, store.schema(), LONG_WAIT, limits.old_lock).await?;
    if found.is_empty() {
        let limit = short_span(limits.old_lock);
        return Ok(vec![Finding::ok("locks", format!("nobody has held a lock on the outbox for longer than {limit}"))]);
    }
    Ok(found.iter().map(judge).collect())
}

fn judge(holder: &Holder) -> Finding {
    let waits = Duration::try_from_secs_f64(holder.blocked_seconds).unwrap_or_default() >= LONG_WAIT;
    let (level, waiting) = if waits {
        let verb = if holder.blocked == 1 { "waits" } else { "wait" };
        (
            Level::Bad,
            format!(
                "; {} {verb} for it, for up to {}",
                counted(holder.blocked, "session"),
                short_span(seconds(holder.blocked_seconds))
            ),
        )
    } else {
        (Level::Warning, String::new())
    };
    let why = "while it lasts, partitions are not dropped, migrations wait, and what needs the same lock waits or is left \
               undone";
    let fix = format!("end its transaction, or select pg_terminate_backend({})", holder.pid);
    Finding::new("locks", level, format!("{}{waiting}", holder.words()), why).fix(fix)
}

async fn ask(
    client: &impl GenericClient,
    schema: &Schema,
    waited: Duration,
    age: Duration,
) -> Result<Vec<Holder>, Error> {
    let (schema, waited, age) = (schema.quoted(), waited.as_secs_f64(), age.as_secs_f64());
    let rows = client
        .query_typed(
            SQL,
            &[(&schema, Type::TEXT), (&waited, Type::FLOAT8), (&age, Type::FLOAT8), (&MAX_HOLDERS, Type::INT8)],
        )
        .await?;
    rows.iter().map(Holder::from_row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_somebody_waits_for_is_bad() {
        let mut holder = Holder {
            pid: 7,
            login: "bob".to_owned(),
            application: "psql".to_owned(),
            tables: ["a", "b", "c", "d", "e"].map(str::to_owned).to_vec(),
            age_seconds: Some(301.0),
            blocked: 0,
            blocked_seconds: 0.0,
        };
        let found = judge(&holder);
        assert_eq!(
            (found.level, found.seen.as_str()),
            (
                Level::Warning,
                "process 7 of bob (psql), in a transaction for 5m, with locks on a, b, c and 2 more tables"
            )
        );
        holder =
            Holder { blocked: 2, blocked_seconds: 12.0, age_seconds: None, tables: vec!["a".to_owned()], ..holder };
        let found = judge(&holder);
        assert_eq!(
            (found.level, found.seen.as_str()),
            (
                Level::Bad,
                "process 7 of bob (psql), in a transaction of unknown age, with locks on a; 2 sessions wait for it, for up to 12s"
            )
        );
    }
}
