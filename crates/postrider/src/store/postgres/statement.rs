//! How the store calls the outbox's functions and runs the statements of `sql/postgres/statements`: each is a transaction of its
//! own and one round trip, typed and not prepared, so that it works through a pooler in transaction mode. Here the schema's
//! name is filled in. No statement's text is here but that of a call, and no rule.

use std::fmt::Write as _;
use std::ops::Deref;
use std::time::Duration;

use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use super::PostgresStore;
use crate::error::Error;
use crate::store::row::{Column, FromRow, Row as _};

pub(crate) type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

/// An argument of a function of the outbox: its name there, and what is bound to it.
pub(crate) type Argument<'a> = (&'static str, &'a (dyn ToSql + Sync), Type);

/// The text of a statement: `sql!("list", "status")` is the section `status` of `sql/postgres/statements/list.sql`.
macro_rules! sql {
    ($file:literal, $name:literal) => {
        $crate::statement::named!("postgres", $file, $name)
    };
}
pub(crate) use sql;

/// The text of a statement about what a filter means: behind the section `matching` of its file.
macro_rules! matching {
    ($file:literal, $name:literal) => {
        &[sql!($file, "matching"), sql!($file, $name)].concat()
    };
}
pub(crate) use matching;

/// What stands before a statement of a relay. The server ends it by itself before a relay with the usual lease gives it up
/// (half a lease, 30 seconds at most), so that nothing goes on that nobody waits for; and if the network fails between the
/// statement and its commit, nothing stays locked. Whatever the database's default is, SQL here is written for READ COMMITTED.
const BEGIN: &str = "begin isolation level read committed; set local statement_timeout = '25s'; \
     set local idle_in_transaction_session_timeout = '25s'";

/// The same for a transaction of several statements.
pub(super) const LIMIT: &str =
    "set local statement_timeout = '25s'; set local idle_in_transaction_session_timeout = '25s'";

/// What stands before an action or the house-keeping, which may take its time.
const BEGIN_UNLIMITED: &str =
    "begin isolation level read committed; set local idle_in_transaction_session_timeout = '25s'";

/// What stands before a question: nothing is changed, half a minute is enough, and deliveries keep the other cores. Most of
/// the hot table is in memory, so looking up a lane's head costs less than the planner thinks.
const BEGIN_TO_ASK: &str = "begin isolation level read committed read only; set local statement_timeout = '30s'; \
     set local max_parallel_workers_per_gather = 0; set local jit = off; set local random_page_cost = 2";

/// The rows that a statement returned.
pub(crate) struct Answer(Vec<Row>);

impl Deref for Answer {
    type Target = [Row];

    fn deref(&self) -> &[Row] {
        &self.0
    }
}

impl Answer {
    pub(crate) fn all<T: FromRow>(&self) -> Result<Vec<T>, Error> {
        self.iter().map(T::from_row).collect()
    }

    pub(crate) fn one<T: FromRow>(&self) -> Result<Option<T>, Error> {
        self.first().map(T::from_row).transpose()
    }

    /// The first column of every row.
    pub(crate) fn values<T: Column>(&self) -> Result<Vec<T>, Error> {
        self.iter().map(|row| row.at(0)).collect()
    }

    /// The first column of the first row.
    pub(crate) fn value<T: Column>(&self) -> Result<Option<T>, Error> {
        self.first().map(|row| row.at(0)).transpose()
    }

    /// How many, for a statement that returns one number; 1 or 0, for one that returns whether it changed something.
    pub(crate) fn count(&self) -> Result<u64, Error> {
        Ok(self.value()?.unwrap_or(0))
    }
}

impl PostgresStore {
    /// A call of a function, which the server ends when it takes too long.
    pub(crate) async fn call(&self, function: &str, arguments: &[Argument<'_>]) -> Result<Answer, Error> {
        self.query(&call(function, arguments), &values(arguments)).await
    }

    /// A call of a function that may take as long as it takes: an action or the house-keeping.
    pub(crate) async fn call_unlimited(&self, function: &str, arguments: &[Argument<'_>]) -> Result<Answer, Error> {
        self.change(&call(function, arguments), &values(arguments)).await
    }

    /// A call of a function that only reads, which the server ends when it takes too long.
    pub(crate) async fn look_up(&self, function: &str, arguments: &[Argument<'_>]) -> Result<Answer, Error> {
        self.ask(&call(function, arguments), &values(arguments)).await
    }

    /// A statement that is a transaction of its own, and that the server ends when it takes too long.
    pub(crate) async fn query(&self, sql: &str, parameters: &[Parameter<'_>]) -> Result<Answer, Error> {
        self.transact_and(BEGIN, sql, parameters, Ok).await
    }

    /// A statement that is a transaction of its own and may take as long as it takes.
    pub(crate) async fn change(&self, sql: &str, parameters: &[Parameter<'_>]) -> Result<Answer, Error> {
        self.transact_and(BEGIN_UNLIMITED, sql, parameters, Ok).await
    }

    /// A statement that only reads, and that the server ends when it takes too long.
    pub(crate) async fn ask(&self, sql: &str, parameters: &[Parameter<'_>]) -> Result<Answer, Error> {
        self.transact_and(BEGIN_TO_ASK, sql, parameters, Ok).await
    }

    /// A question about the server itself: what `judge` says of the answer is said by the server.
    pub(super) async fn check(&self, sql: &str, judge: fn(Answer) -> Result<(), Error>) -> Result<(), Error> {
        self.transact_and(BEGIN, sql, &[], judge).await
    }

    /// Three statements, sent together: one round trip. A pooler in transaction mode keeps them together, too.
    async fn transact_and<T>(
        &self,
        first: &str,
        sql: &str,
        parameters: &[Parameter<'_>],
        read: impl FnOnce(Answer) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let sql = self.schema.fill(sql);
        let mut call = self.pool.call().await?;
        let client = call.client();
        let (begun, rows, committed) = futures_util::future::join3(
            client.batch_execute(first),
            client.query_typed(&sql, parameters),
            client.batch_execute("commit"),
        )
        .await;
        let answer = begun.and(rows).and_then(|rows| committed.map(|()| Answer(rows)));
        call.end(answer.map_err(Error::from).and_then(read))
    }
}

/// Every argument by its name. A number of seconds is bound as text, so that no float is in between.
fn call(function: &str, arguments: &[Argument<'_>]) -> String {
    let mut sql = format!("select * from :\"schema\".{function}(");
    for (n, (name, _, bound)) in arguments.iter().enumerate() {
        let cast = match *bound {
            Type::TEXT if name.ends_with("seconds") => "::text::numeric",
            Type::TEXT_ARRAY if name.ends_with("seconds") => "::text[]::numeric[]",
            _ => "",
        };
        let comma = if n == 0 { "" } else { ", " };
        write!(sql, "{comma}{name} => ${}{cast}", n + 1).ok();
    }
    sql.push(')');
    sql
}

pub(super) fn values<'a>(arguments: &[Argument<'a>]) -> Vec<Parameter<'a>> {
    arguments.iter().map(|(_, value, bound)| (*value, bound.clone())).collect()
}

/// Counts in the SQL functions are `integer`; what does not fit is out of their documented range and refused there.
pub(super) fn int(count: u32) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// Exact to the microsecond, without a float in between.
pub(super) fn seconds(duration: Duration) -> String {
    format!("{}.{:06}", duration.as_secs(), duration.subsec_micros())
}
