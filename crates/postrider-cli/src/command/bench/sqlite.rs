//! The same on SQLite: the outbox in a file of its own, beside a bare rusqlite loop that makes the same writes by hand in tables
//! of its own. The file is in a temporary directory, which goes when this is dropped.

use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use postrider::{Message, SqliteStore, Store, sqlite};
use rusqlite::{Connection, TransactionBehavior, params};
use tempfile::TempDir;
use uuid::Uuid;

use super::figure::Figure;
use super::measurement::{Measurement, RATE};
use super::place::{Place, Position};
use super::run::{Run, Watch};
use super::{Bench, load, relays};
use crate::exit_code::ExitCode;
use crate::failure::{Failure, Result};

const TABLES: &str = include_str!("sql/sqlite_floor.sql");
const INSERT_MESSAGE: &str = "insert into floor_message (id, occurred_at, payload) values (?1, unixepoch(), ?2)";
const INSERT_JOB: &str = "insert into floor_job (message_id, due_at) values (?1, unixepoch())";
const CLAIM: &str = include_str!("sql/sqlite_claim.sql");
const COMPLETE: &str = "delete from floor_job where message_id = ?1 and lease_token = ?2";
const ATTEMPT: &str = "insert into floor_attempt (message_id, attempt_no, completed_at) values (?1, 1, unixepoch())";

const SAME_WRITES: &str = "a bare rusqlite loop with the same writes";

/// A directory with the file of the present run.
pub(super) struct Sqlite {
    directory: TempDir,
    run: Rc<RefCell<u32>>,
}

impl Sqlite {
    pub(super) fn new(directory: Option<PathBuf>) -> Result<Self> {
        let mut builder = tempfile::Builder::new();
        let builder = builder.prefix("postrider-bench-");
        let made = match directory.filter(|directory| !directory.as_os_str().is_empty()) {
            Some(directory) => builder.tempdir_in(directory),
            None => builder.tempdir(),
        };
        let directory = made.map_err(|error| {
            Failure::new(ExitCode::Unreachable, format!("cannot make a temporary directory: {error}"))
        })?;
        Ok(Self { directory, run: Rc::default() })
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join(format!("{}.db", self.run.borrow()))
    }

    fn store(&self) -> Result<SqliteStore> {
        Ok(SqliteStore::open(self.file())?)
    }

    /// Opened as the outbox opens it, with the tables of the floor.
    fn bare(&self) -> Result<Connection> {
        let connection = Connection::open(self.file())?;
        connection.execute_batch("pragma journal_mode = wal; pragma synchronous = full; pragma busy_timeout = 5000")?;
        connection.execute_batch(TABLES)?;
        Ok(connection)
    }
}

impl Place for Sqlite {
    async fn fresh(&self) -> Result<()> {
        let mut run = self.run.borrow_mut();
        *run += 1;
        Ok(())
    }

    async fn position(&self) -> Result<Position> {
        Ok(Position::default())
    }
}

pub(super) async fn run(measurement: Measurement, bench: &Bench<Sqlite>) -> Result<Vec<Figure>> {
    let (single, messages, batch) = (bench.size.single(), bench.size.messages, bench.size.batch);
    let enqueue = async |name: &str, label: String, messages: u32, batch: u32| {
        let pair = bench
            .compare(
                name,
                async |bench| enqueue(bench, messages, batch, ours).await,
                async |bench| enqueue(bench, messages, batch, by_hand).await,
            )
            .await?;
        Ok(vec![pair.figure(label, RATE, SAME_WRITES, Run::rate)])
    };
    match measurement {
        Measurement::Enqueue => enqueue("enqueue", "enqueue in a transaction".to_owned(), single, 1).await,
        Measurement::Batch => enqueue("batches", format!("enqueue in batches of {batch}"), messages, batch).await,
        Measurement::Drain => {
            let pair =
                bench.compare("drain", async |bench| drain(bench).await, async |bench| drain_by_hand(bench).await);
            let pair = pair.await?;
            Ok(vec![
                pair.figure("drain by one relay", RATE, SAME_WRITES, Run::rate),
                pair.figure("processor time of the drain", "µs/message", SAME_WRITES, Run::cpu_us),
                pair.alone("memory of the drain", "MiB", Run::memory_mib),
            ])
        }
        // There is no server.
        Measurement::EndToEnd | Measurement::Latency | Measurement::RoundTrips => Ok(Vec::new()),
    }
}

/// Writes a batch in one transaction.
type Write = fn(&mut Connection, &[Message], &str) -> Result<()>;

fn ours(connection: &mut Connection, messages: &[Message], _: &str) -> Result<()> {
    let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    sqlite::enqueue_many(&tx, messages)?;
    Ok(tx.commit()?)
}

fn by_hand(connection: &mut Connection, messages: &[Message], payload: &str) -> Result<()> {
    let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    for _ in messages {
        let id = Uuid::now_v7();
        tx.prepare_cached(INSERT_MESSAGE)?.execute(params![id, payload])?;
        tx.prepare_cached(INSERT_JOB)?.execute([id])?;
    }
    Ok(tx.commit()?)
}

async fn enqueue(bench: &Bench<Sqlite>, messages: u32, batch: u32, write: Write) -> Result<Run> {
    drop(bench.place.store()?);
    let mut connection = bench.place.bare()?;
    let done = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&done);
    let watch = Watch::start(&bench.place, move || seen.load(Ordering::Relaxed)).await?;
    fill(bench, &mut connection, messages, batch, write, &done).await?;
    watch.finish(&bench.place, u64::from(messages)).await
}

async fn fill(
    bench: &Bench<Sqlite>,
    connection: &mut Connection,
    messages: u32,
    batch: u32,
    write: Write,
    done: &AtomicU64,
) -> Result<()> {
    let payload = load::payload(bench.size.payload_bytes);
    let value: serde_json::Value = serde_json::from_str(&payload).unwrap_or_default();
    let message = Message::json("bench", &value).map_err(|error| Failure::new(ExitCode::Failure, error.to_string()))?;
    let many = vec![message; batch as usize];
    for count in load::batches(messages, batch) {
        tokio::task::block_in_place(|| write(connection, &many[..count as usize], &payload))?;
        done.fetch_add(u64::from(count), Ordering::Relaxed);
        // So that a signal is heard.
        tokio::task::yield_now().await;
    }
    Ok(())
}

async fn drain(bench: &Bench<Sqlite>) -> Result<Run> {
    let store = bench.place.store()?;
    let mut connection = bench.place.bare()?;
    fill(bench, &mut connection, bench.size.messages, bench.size.batch, ours, &AtomicU64::new(0)).await?;
    let store: Arc<dyn Store> = Arc::new(store);
    relays::drain(&bench.place, [store], bench.size.batch, bench.size.messages).await
}

async fn drain_by_hand(bench: &Bench<Sqlite>) -> Result<Run> {
    drop(bench.place.store()?);
    let mut connection = bench.place.bare()?;
    fill(bench, &mut connection, bench.size.messages, bench.size.batch, by_hand, &AtomicU64::new(0)).await?;
    let done = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&done);
    let watch = Watch::start(&bench.place, move || seen.load(Ordering::Relaxed)).await?;
    loop {
        let count = tokio::task::block_in_place(|| round_by_hand(&mut connection, bench.size.batch))?;
        if count == 0 {
            break;
        }
        done.fetch_add(count, Ordering::Relaxed);
        tokio::task::yield_now().await;
    }
    watch.finish(&bench.place, done.load(Ordering::Relaxed)).await
}

/// Claims a batch in one transaction and completes it in another.
fn round_by_hand(connection: &mut Connection, batch: u32) -> Result<u64> {
    let token = Uuid::new_v4();
    let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let claimed = tx
        .prepare_cached(CLAIM)?
        .query_map(params![token, batch], |row| row.get(0))?
        .collect::<rusqlite::Result<Vec<Uuid>>>()?;
    for id in &claimed {
        let read = "select payload from floor_message where id = ?1";
        tx.prepare_cached(read)?.query_row([id], |row| row.get::<_, String>(0))?;
    }
    tx.commit()?;
    let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    for id in &claimed {
        tx.prepare_cached(COMPLETE)?.execute(params![id, token])?;
        tx.prepare_cached(ATTEMPT)?.execute([id])?;
    }
    tx.commit()?;
    Ok(claimed.len() as u64)
}
