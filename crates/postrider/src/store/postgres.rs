//! The PostgreSQL store: each transition is one call of one SQL function, one round trip. Statements carry their types
//! and are not prepared, so everything works through a pooler in transaction mode. No row is written any other way.

mod connect;
mod dead;
mod entries;
mod hosts;
mod inspect;
mod listen;
mod operate;
mod pool;
mod search;
mod tls;
mod url;
mod waiting;
mod watch;

use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use serde_json::value::RawValue;
use tokio_postgres::types::{Json, ToSql, Type};
use tokio_postgres::{IsolationLevel, Row};
use uuid::Uuid;

use self::connect::Connector;
use self::pool::Pool;
pub use self::pool::PostgresConnection;
use crate::enqueue::{self, Columns, Enqueued, Outbox};
use crate::error::{Error, words_and_causes};
use crate::inbox::{Event, Inbox};
use crate::inspect::RelayReport;
use crate::lifecycle::{Claim, Claimed, Completed, Completion, Content, LeaseToken, Outcome, Parcel};
use crate::message::Message;
use crate::migrate;
use crate::schema::Schema;
use crate::store::{Listener, Pruned, Queue};

type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

/// An outbox in a PostgreSQL database, behind a small pool of connections.
#[derive(Clone)]
pub struct PostgresStore {
    pool: Pool,
    schema: Schema,
}

/// How many blocked lanes a claim looks at before it stops; a thorough one looks at this many.
const THOROUGH_HOPS: i32 = 1_000_000;
const USUAL_HOPS: i32 = 2_000;

/// What stands before a statement of a relay. The server ends it by itself before a relay with the usual lease gives it up
/// (half a lease, 30 seconds at most), so that nothing goes on that nobody waits for; and if the network fails between the
/// statement and its commit, nothing stays locked. Whatever the database's default is, SQL here is written for READ COMMITTED.
const BEGIN: &str = "begin isolation level read committed; set local statement_timeout = '25s'; \
     set local idle_in_transaction_session_timeout = '25s'";

/// The same for a transaction of several statements.
const LIMIT: &str = "set local statement_timeout = '25s'; set local idle_in_transaction_session_timeout = '25s'";

/// What stands before an action or the house-keeping, which may take its time.
const BEGIN_UNLIMITED: &str =
    "begin isolation level read committed; set local idle_in_transaction_session_timeout = '25s'";

/// What stands before a question: nothing is changed, half a minute is enough, and deliveries keep the other cores. Most of
/// the hot table is in memory, so looking up a lane's head costs less than the planner thinks.
const BEGIN_TO_ASK: &str = "begin isolation level read committed read only; set local statement_timeout = '30s'; \
     set local max_parallel_workers_per_gather = 0; set local jit = off; set local random_page_cost = 2";

/// Received events that go in one transaction of a prune.
const INBOX_BATCH: u32 = 10_000;

impl PostgresStore {
    /// Connects, and checks that the schema is one this build understands.
    ///
    /// `url` is `postgres://user:password@host:port/database?sslmode=…`; see `docs/operating/install.md` for the modes.
    pub async fn connect(url: &str, schema: Schema) -> Result<Self, Error> {
        let store = Self::open(url, schema)?;
        let connection = store.connection().await?;
        migrate::check(&*connection, &store.schema).await?;
        Ok(store)
    }

    /// Connects without looking at the schema: for migrations.
    pub fn open(url: &str, schema: Schema) -> Result<Self, Error> {
        Ok(Self { pool: Pool::new(Connector::new(url)?)?, schema })
    }

    /// A connection of the pool.
    pub async fn connection(&self) -> Result<PostgresConnection, Error> {
        self.pool.get().await
    }

    /// Where it is: `host:port,host:port/database`, without user and password.
    #[must_use]
    pub fn place(&self) -> &str {
        self.pool.connector().target()
    }

    /// The schema the outbox is in.
    #[must_use]
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// A statement that is a transaction of its own, and that the server ends when it takes too long.
    pub(crate) async fn query(&self, sql: &str, parameters: &[Parameter<'_>]) -> Result<Vec<Row>, Error> {
        self.transact(BEGIN, sql, parameters).await
    }

    /// A statement that is a transaction of its own and may take as long as it takes.
    pub(crate) async fn change(&self, sql: &str, parameters: &[Parameter<'_>]) -> Result<Vec<Row>, Error> {
        self.transact(BEGIN_UNLIMITED, sql, parameters).await
    }

    /// A statement that only reads, and that the server ends when it takes too long.
    pub(crate) async fn ask(&self, sql: &str, parameters: &[Parameter<'_>]) -> Result<Vec<Row>, Error> {
        self.transact(BEGIN_TO_ASK, sql, parameters).await
    }

    /// A question about the server itself: what `judge` says of the one row is said by the server.
    pub(crate) async fn check(&self, sql: &str, judge: fn(&Row) -> Result<(), Error>) -> Result<(), Error> {
        let judged = |rows: Vec<Row>| rows.first().map_or(Ok(()), judge);
        self.transact_and(BEGIN, sql, &[], judged).await
    }

    async fn transact(&self, first: &str, sql: &str, parameters: &[Parameter<'_>]) -> Result<Vec<Row>, Error> {
        self.transact_and(first, sql, parameters, Ok).await
    }

    /// Three statements, sent together: one round trip. A pooler in transaction mode keeps them together, too.
    async fn transact_and<T>(
        &self,
        first: &str,
        sql: &str,
        parameters: &[Parameter<'_>],
        read: impl FnOnce(Vec<Row>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let sql = self.in_schema(sql);
        let mut call = self.pool.call().await?;
        let client = call.client()?;
        let (begun, rows, committed) = futures_util::future::join3(
            client.batch_execute(first),
            client.query_typed(&sql, parameters),
            client.batch_execute("commit"),
        )
        .await;
        call.end(begun.and(rows).and_then(|rows| committed.map(|()| rows)).map_err(Error::from).and_then(read))
    }

    fn in_schema(&self, sql: &str) -> String {
        sql.replace("outbox.", &format!("{}.", self.schema.quoted()))
    }

    /// For functions that return one number.
    async fn count(&self, sql: &str, parameters: &[Parameter<'_>]) -> Result<u64, Error> {
        count(&self.query(sql, parameters).await?)
    }

    /// The same, for changes.
    async fn change_count(&self, sql: &str, parameters: &[Parameter<'_>]) -> Result<u64, Error> {
        count(&self.change(sql, parameters).await?)
    }

    /// For functions that return a set of ids.
    async fn ids(&self, sql: &str, parameters: &[Parameter<'_>]) -> Result<Vec<Uuid>, Error> {
        let rows = self.query(sql, parameters).await?;
        rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }
}

#[async_trait]
impl Queue for PostgresStore {
    async fn enqueue(&self, messages: &[Message]) -> Result<Vec<Enqueued>, Error> {
        enqueue::check_many(messages)?;
        if messages.is_empty() {
            return Ok(Vec::new());
        }
        let columns = Columns::from_messages(messages)?;
        // The one statement is a transaction of its own.
        let sql = Outbox::new(self.schema.clone()).sql();
        let rows = self.query(&sql, &enqueue::tokio_postgres::parameters(&columns)).await?;
        rows.iter().map(enqueue::tokio_postgres::enqueued).collect()
    }

    async fn claim(&self, claim: &Claim) -> Result<Vec<Claimed>, Error> {
        let rows = self
            .query(
                "select message_id, sink, namespace, topic, tenant_id, lane, sequence_id, dedupe_key, priority, headers, \
                 payload, body, content_type, occurred_at, due_at, attempt_no, attempt_count, lost_leases, lease_token, \
                 claimed_at, lease_expires_at \
                 from outbox.claim(worker_id => $1, batch_size => $2, lease_seconds => $3::text::numeric, sink => $4, \
                 max_attempts => $5, tenant_id => $6, lane_run => $7, due_from => coalesce($8, '-infinity'), \
                 hop_limit => $9, max_bytes => $10, lease_token => $11, with_content => $12)",
                &[
                    (&claim.worker_id, Type::TEXT),
                    (&int(claim.batch_size), Type::INT4),
                    (&seconds(claim.lease), Type::TEXT),
                    (&claim.sink, Type::TEXT),
                    (&int(claim.max_attempts), Type::INT4),
                    (&claim.tenant_id, Type::UUID),
                    (&int(claim.lane_run), Type::INT4),
                    (&claim.due_from, Type::TIMESTAMPTZ),
                    (&if claim.thorough { THOROUGH_HOPS } else { USUAL_HOPS }, Type::INT4),
                    (&claim.max_bytes.map(|bytes| i64::try_from(bytes).unwrap_or(i64::MAX)), Type::INT8),
                    (&claim.lease_token.map(|token| token.0), Type::UUID),
                    (&claim.with_content, Type::BOOL),
                ],
            )
            .await?;
        rows.iter().map(claimed).collect()
    }

    async fn complete(&self, worker_id: &str, completions: &[Completion]) -> Result<Vec<Completed>, Error> {
        if completions.is_empty() {
            return Ok(Vec::new());
        }
        let message_ids: Vec<Uuid> = completions.iter().map(|completion| completion.message_id).collect();
        let tokens: Vec<Uuid> = completions.iter().map(|completion| completion.lease_token.0).collect();
        let states: Vec<&str> = completions.iter().map(|completion| completion.outcome.state().as_str()).collect();
        let retry_after: Vec<Option<String>> = completions
            .iter()
            .map(|completion| match &completion.outcome {
                Outcome::Retryable { retry_after, .. } => Some(seconds(*retry_after)),
                _ => None,
            })
            .collect();
        let failures: Vec<_> = completions.iter().map(|completion| completion.outcome.failure()).collect();
        let error_codes: Vec<Option<String>> =
            failures.iter().map(|failure| failure.and_then(|failure| text(failure.error_code.as_deref()))).collect();
        let error_messages: Vec<Option<String>> =
            failures.iter().map(|failure| failure.and_then(|failure| text(failure.error_message.as_deref()))).collect();
        let answers: Vec<Option<String>> =
            failures.iter().map(|failure| failure.and_then(|failure| text(failure.answer.as_deref()))).collect();
        let references: Vec<Option<String>> =
            completions.iter().map(|completion| text(completion.reference.as_deref())).collect();
        let codes: Vec<Option<String>> =
            completions.iter().map(|completion| text(completion.code.as_deref())).collect();
        let latencies: Vec<Option<i32>> = completions
            .iter()
            .map(|completion| completion.latency.map(|latency| i32::try_from(latency.as_millis()).unwrap_or(i32::MAX)))
            .collect();
        let rows = self
            .query(
                "select message_id, sink, attempt_no, dead from outbox.complete_many(message_id => $1, \
                 lease_token => $2, state => $3, worker_id => $4, retry_after_seconds => $5::text[]::numeric[], \
                 error_code => $6, error_message => $7, reference => $8, code => $9, latency_ms => $10, answer => $11)",
                &[
                    (&message_ids, Type::UUID_ARRAY),
                    (&tokens, Type::UUID_ARRAY),
                    (&states, Type::TEXT_ARRAY),
                    (&worker_id, Type::TEXT),
                    (&retry_after, Type::TEXT_ARRAY),
                    (&error_codes, Type::TEXT_ARRAY),
                    (&error_messages, Type::TEXT_ARRAY),
                    (&references, Type::TEXT_ARRAY),
                    (&codes, Type::TEXT_ARRAY),
                    (&latencies, Type::INT4_ARRAY),
                    (&answers, Type::TEXT_ARRAY),
                ],
            )
            .await?;
        rows.iter()
            .map(|row| {
                Ok(Completed {
                    message_id: row.try_get(0)?,
                    sink: row.try_get(1)?,
                    attempt_no: row.try_get(2)?,
                    dead: row.try_get(3)?,
                })
            })
            .collect()
    }

    async fn renew(&self, token: LeaseToken, message_ids: &[Uuid], lease: Duration) -> Result<Vec<Uuid>, Error> {
        self.ids(
            "select message_id from outbox.renew(lease_token => $1, message_ids => $2, \
             lease_seconds => $3::text::numeric)",
            &[(&token.0, Type::UUID), (&message_ids, Type::UUID_ARRAY), (&seconds(lease), Type::TEXT)],
        )
        .await
    }

    async fn abandon(&self, token: LeaseToken) -> Result<u64, Error> {
        self.count("select outbox.abandon(lease_token => $1)", &[(&token.0, Type::UUID)]).await
    }

    async fn has_due(&self, sink: &str, tenant_id: Option<Uuid>) -> Result<bool, Error> {
        let sql = "select outbox.has_due(sink => $1, tenant_id => $2)";
        let rows = self.query(sql, &[(&sink, Type::TEXT), (&tenant_id, Type::UUID)]).await?;
        Ok(rows.first().map(|row| row.try_get(0)).transpose()?.unwrap_or(false))
    }

    async fn content(&self, token: LeaseToken, message_id: Uuid) -> Result<Option<Parcel>, Error> {
        let sql = "select headers, payload, body from outbox.content(lease_token => $1, message_id => $2)";
        let rows = self.query(sql, &[(&token.0, Type::UUID), (&message_id, Type::UUID)]).await?;
        rows.first().map(parcel).transpose()
    }

    async fn release(&self, token: LeaseToken, message_ids: &[Uuid]) -> Result<Vec<Uuid>, Error> {
        self.ids(
            "select * from outbox.release(lease_token => $1, message_ids => $2)",
            &[(&token.0, Type::UUID), (&message_ids, Type::UUID_ARRAY)],
        )
        .await
    }

    async fn repair_expired_leases(&self, batch_size: u32) -> Result<u64, Error> {
        self.count("select outbox.repair_expired_leases(batch_size => $1)", &[(&int(batch_size), Type::INT4)]).await
    }

    async fn prune(&self) -> Result<Pruned, Error> {
        let sql = "select partitions_dropped, rest_deleted, dedupe_deleted from outbox.prune_at_retention()";
        let rows = self.change(sql, &[]).await?;
        let Some(row) = rows.first() else { return Ok(Pruned::default()) };
        let count = |column: &str| Ok::<u64, Error>(u64::try_from(row.try_get::<_, i32>(column)?).unwrap_or(0));
        Ok(Pruned {
            partitions_dropped: count("partitions_dropped")?,
            rest_deleted: count("rest_deleted")?,
            dedupe_deleted: count("dedupe_deleted")?,
        })
    }

    async fn forward(&self, arrivals: &[(Event, Message)]) -> Result<Vec<bool>, Error> {
        let (events, messages): (Vec<Event>, Vec<Message>) = arrivals.iter().cloned().unzip();
        enqueue::check_many(&messages)?;
        let mut call = self.pool.call().await?;
        let client = call.client()?;
        let done = async {
            let tx = client.build_transaction().isolation_level(IsolationLevel::ReadCommitted).start().await?;
            let inbox = Inbox::new(self.schema.clone());
            let (limited, first) =
                futures_util::future::join(tx.batch_execute(LIMIT), inbox.receive_many(&tx, &events)).await;
            limited?;
            let first = first?;
            let new: Vec<Message> =
                messages.into_iter().zip(&first).filter(|(_, first)| **first).map(|(message, _)| message).collect();
            Outbox::new(self.schema.clone()).enqueue_many(&tx, &new).await?;
            tx.commit().await?;
            Ok(first)
        }
        .await;
        call.end(done)
    }

    async fn prune_inbox(&self, older_than: Option<Duration>) -> Result<u64, Error> {
        let mut pruned = 0;
        loop {
            let batch = (&int(INBOX_BATCH) as &(dyn ToSql + Sync), Type::INT4);
            // Relays and receivers may prune at the retention, and nothing else.
            let deleted = if let Some(older_than) = older_than {
                let sql = "select outbox.prune_inbox(batch_size => $1, older_than_seconds => $2::text::numeric)";
                self.change_count(sql, &[batch, (&seconds(older_than), Type::TEXT)]).await?
            } else {
                self.change_count("select outbox.prune_inbox_at_retention(batch_size => $1)", &[batch]).await?
            };
            pruned += deleted;
            if deleted < u64::from(INBOX_BATCH) {
                return Ok(pruned);
            }
        }
    }

    async fn make_partitions(&self) -> Result<u64, Error> {
        self.change_count("select outbox.make_partitions()", &[]).await
    }

    async fn sleep(&self, worker_id: &str, at_most: Duration) -> Result<(), Error> {
        self.query(
            "select outbox.sleep(worker_id => $1, seconds => $2::text::numeric)",
            &[(&worker_id, Type::TEXT), (&seconds(at_most), Type::TEXT)],
        )
        .await?;
        Ok(())
    }

    async fn woke(&self, worker_id: &str) -> Result<(), Error> {
        self.query("select outbox.woke(worker_id => $1)", &[(&worker_id, Type::TEXT)]).await?;
        Ok(())
    }

    async fn listen(&self) -> Result<Box<dyn Listener>, Error> {
        Ok(Box::new(listen::PostgresListener::connect(self).await?))
    }

    async fn can_write(&self) -> Result<(), Error> {
        watch::can_write(self).await
    }

    async fn report(&self, report: &RelayReport) -> Result<(), Error> {
        watch::report(self, report).await
    }

    async fn sign_off(&self, worker_id: &str) -> Result<(), Error> {
        watch::sign_off(self, worker_id).await
    }

    async fn measure(&self) -> Result<bool, Error> {
        watch::measure(self).await
    }
}

fn parcel(row: &Row) -> Result<Parcel, Error> {
    // What was sent and is not what it should be is the message's fault, not the connection's.
    let unreadable = |error: tokio_postgres::Error| Error::Unreadable { reason: words_and_causes(&error) };
    let payload: Option<Json<Box<RawValue>>> = row.try_get("payload").map_err(unreadable)?;
    let body: Option<Vec<u8>> = row.try_get("body").map_err(unreadable)?;
    let headers: Option<Json<std::collections::BTreeMap<String, String>>> =
        row.try_get("headers").map_err(unreadable)?;
    Ok(Parcel {
        headers: headers.map(|Json(headers)| headers).unwrap_or_default(),
        // The table's CHECK makes it exactly one of the two; neither, if it was not asked for.
        content: match payload {
            Some(Json(payload)) => Content::Json(payload),
            None => Content::Bytes(body.unwrap_or_default()),
        },
    })
}

fn claimed(row: &Row) -> Result<Claimed, Error> {
    let Parcel { headers, content } = parcel(row)?;
    Ok(Claimed {
        message_id: row.try_get("message_id")?,
        sink: row.try_get("sink")?,
        namespace: row.try_get("namespace")?,
        topic: row.try_get("topic")?,
        tenant_id: row.try_get("tenant_id")?,
        lane: row.try_get("lane")?,
        sequence_id: row.try_get("sequence_id")?,
        dedupe_key: row.try_get("dedupe_key")?,
        priority: row.try_get("priority")?,
        headers,
        content,
        content_type: row.try_get("content_type")?,
        occurred_at: time(row, "occurred_at")?,
        due_at: time(row, "due_at")?,
        attempt_no: row.try_get("attempt_no")?,
        attempt_count: row.try_get("attempt_count")?,
        lost_leases: row.try_get("lost_leases")?,
        lease_token: LeaseToken(row.try_get("lease_token")?),
        claimed_at: time(row, "claimed_at")?,
        lease_expires_at: time(row, "lease_expires_at")?,
    })
}

fn count(rows: &[Row]) -> Result<u64, Error> {
    let count: i32 = rows.first().map(|row| row.try_get(0)).transpose()?.unwrap_or(0);
    Ok(u64::try_from(count).unwrap_or(0))
}

fn time(row: &Row, column: &str) -> Result<SystemTime, Error> {
    Ok(row.try_get(column)?)
}

/// Counts in the SQL functions are `integer`; what does not fit is out of their documented range and refused there.
fn int(count: u32) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// Exact to the microsecond, without a float in between.
fn seconds(duration: Duration) -> String {
    format!("{}.{:06}", duration.as_secs(), duration.subsec_micros())
}

/// What a destination said may hold NUL, which PostgreSQL's text cannot; an outcome must not be lost over it.
fn text(said: Option<&str>) -> Option<String> {
    said.map(|said| said.replace('\0', "\u{fffd}"))
}
