//! Producers that keep writing whatever breaks, as fast as the relays deliver. Two use dedupe keys and ask again until
//! they are answered; one has no keys and asks once, so what became of a lost answer is unknown to it; one writes in
//! transactions with a row of its own beside the messages, by a prepared statement, rolls some back and drops others in
//! the middle. Each has lanes of its own. What they hear goes into the books.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use postrider::{Message, PostgresStore, Queue as _};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::task::JoinSet;
use tokio_postgres::{Client, NoTls, Statement};
use tokio_util::sync::CancellationToken;

use crate::books::{Books, Fate};
use crate::faults::{Fault, Injected};
use crate::kinds::{CANCELLED, Kind, Number};

pub(crate) const PRODUCERS: u32 = 4;
/// The one without keys, and the one with transactions of its own.
const WITHOUT_KEYS: u32 = 2;
const IN_TRANSACTIONS: u32 = 3;
/// Messages of one statement.
const BATCH: std::ops::Range<usize> = 10..120;
/// Acknowledged messages that may be on their way before producers wait: about a second of work, for what waits behind a
/// long queue says nothing about redelivery.
const MOST_BEHIND: u64 = 600;
const LOOK_EVERY: Duration = Duration::from_millis(5);
const TRY_AGAIN_MS: std::ops::Range<u64> = 10..100;
/// Of a hundred transactions, these are rolled back, and these dropped in the middle.
const ROLLED_BACK: u32 = 8;
const DROPPED: u32 = 4;
/// A statement that a producer of its own waits for.
const PATIENCE: Duration = Duration::from_secs(10);

/// The application's own table, beside the outbox.
pub(crate) const OWN_TABLE: &str =
    "create table if not exists own_row (producer int, position int, primary key (position))";
const OWN_INSERT: &str = "insert into own_row select $1, generate_series($2::int, $3::int)";
/// What an application prepares once and keeps: migrations and restarts come and go.
const ENQUEUE: &str = "select count(*) from outbox.enqueue_many(topic => $1, payload => $2::text[]::jsonb[], lane => $3, \
                       delay_seconds => $4::float8[]::numeric[])";

#[derive(Debug, Clone)]
pub(crate) struct Producers {
    pub(crate) books: Arc<Books>,
    pub(crate) injected: Arc<Injected>,
    pub(crate) enough: CancellationToken,
    /// Behind the producers' proxy.
    pub(crate) url: String,
    pub(crate) seed: u64,
    pub(crate) lost_answers: Arc<AtomicU64>,
}

impl Producers {
    pub(crate) fn start(&self, store: &PostgresStore) -> JoinSet<()> {
        let mut producers = JoinSet::new();
        for producer in 0..PRODUCERS {
            let rng = StdRng::seed_from_u64(self.seed.wrapping_add(u64::from(producer)));
            let this = self.clone();
            match producer {
                IN_TRANSACTIONS => producers.spawn(this.in_transactions(producer, rng)),
                _ => producers.spawn(this.by_the_store(store.clone(), producer, rng)),
            };
        }
        producers
    }

    async fn by_the_store(self, store: PostgresStore, producer: u32, mut rng: StdRng) {
        let with_key = producer != WITHOUT_KEYS;
        let mut begin = 0;
        while self.may_go_on().await {
            let count = rng.random_range(BATCH);
            let messages = self.messages(producer, begin, count, with_key);
            self.books.sent(producer, count);
            loop {
                match store.enqueue(&messages).await {
                    Ok(_) => self.books.heard(producer, count, Fate::Acknowledged),
                    Err(error) if with_key => {
                        self.lost_answers.fetch_add(u64::from(!error.changed_nothing()), Ordering::Relaxed);
                        tokio::time::sleep(Duration::from_millis(rng.random_range(TRY_AGAIN_MS))).await;
                        continue;
                    }
                    Err(error) => {
                        let fate = if error.changed_nothing() { Fate::Refused } else { Fate::Unknown };
                        self.lost_answers.fetch_add(u64::from(fate == Fate::Unknown), Ordering::Relaxed);
                        self.books.heard(producer, count, fate);
                        tokio::time::sleep(Duration::from_millis(rng.random_range(TRY_AGAIN_MS))).await;
                    }
                }
                break;
            }
            begin += count;
        }
    }

    async fn in_transactions(self, producer: u32, mut rng: StdRng) {
        let mut begin = 0;
        let mut session = None;
        while self.may_go_on().await {
            let Some((client, statement)) = &mut session else {
                session = self.session().await;
                tokio::time::sleep(Duration::from_millis(rng.random_range(TRY_AGAIN_MS))).await;
                continue;
            };
            let count = rng.random_range(BATCH);
            let dice = rng.random_range(0..100);
            self.books.sent(producer, count);
            let ending = match dice {
                _ if dice < ROLLED_BACK && self.injected.is_chosen(Fault::RolledBack) => Ending::RollBack,
                _ if dice < ROLLED_BACK + DROPPED && self.injected.is_chosen(Fault::FutureCancelled) => Ending::Drop,
                _ => Ending::Commit,
            };
            let write = self.transaction(client, statement, producer, begin, count, ending);
            let patience = match ending {
                Ending::Drop => Duration::from_micros(rng.random_range(0..6_000)),
                _ => PATIENCE,
            };
            let heard = tokio::time::timeout(patience, write).await;
            let fate = match heard {
                Ok(Ok(fate)) => fate,
                Ok(Err(error)) => refused_or_unknown(&error),
                Err(_) => {
                    if ending == Ending::Drop {
                        self.injected.count(Fault::FutureCancelled);
                    }
                    Fate::Unknown
                }
            };
            if fate == Fate::Unknown || client.is_closed() {
                self.lost_answers.fetch_add(1, Ordering::Relaxed);
                // A new session, as a pool gives after such an error. The old one's transaction may still be open.
                session = None;
            }
            self.books.heard(producer, count, fate);
            begin += count;
        }
    }

    /// One row of the application's for each message, and the messages.
    async fn transaction(
        &self,
        client: &mut Client,
        statement: &Statement,
        producer: u32,
        begin: usize,
        count: usize,
        ending: Ending,
    ) -> Result<Fate, tokio_postgres::Error> {
        let place = |n: usize| i32::try_from(n).unwrap_or(i32::MAX);
        let plan = self.books.plan;
        let numbers = || (begin..begin + count).map(|position| number(producer, position));
        let delay = |number| match plan.kind(number) {
            Kind::Delayed(delay) => delay.as_secs_f64(),
            Kind::Cancelled => 7_200.0,
            _ => 0.0,
        };
        let topics: Vec<&str> =
            numbers().map(|number| if plan.kind(number) == Kind::Cancelled { CANCELLED } else { "t" }).collect();
        let payloads: Vec<String> =
            numbers().map(|number| serde_json::to_string(&number).unwrap_or_default()).collect();
        let lanes: Vec<Option<String>> = numbers().map(|number| plan.lane(number)).collect();
        let delays: Vec<f64> = numbers().map(delay).collect();

        let transaction = client.transaction().await?;
        let producer = i32::try_from(producer).unwrap_or(i32::MAX);
        transaction.execute(OWN_INSERT, &[&producer, &place(begin), &place(begin + count - 1)]).await?;
        transaction.query(statement, &[&topics, &payloads, &lanes, &delays]).await?;
        if ending == Ending::RollBack {
            transaction.rollback().await?;
            self.injected.count(Fault::RolledBack);
            return Ok(Fate::Refused);
        }
        // Whatever goes wrong from here on may have gone wrong after the commit.
        Ok(match transaction.commit().await {
            Ok(()) => Fate::Acknowledged,
            Err(error) => refused_or_unknown(&error),
        })
    }

    async fn session(&self) -> Option<(Client, Statement)> {
        let (client, connection) = tokio_postgres::connect(&self.url, NoTls).await.ok()?;
        tokio::spawn(connection);
        let statement = tokio::time::timeout(PATIENCE, client.prepare(ENQUEUE)).await.ok()?.ok()?;
        Some((client, statement))
    }

    fn messages(&self, producer: u32, begin: usize, count: usize, with_key: bool) -> Vec<Message> {
        let message = |position| self.books.plan.message(number(producer, position), with_key);
        (begin..begin + count).map(message).collect()
    }

    /// Waits while too much is on its way. False: it is enough.
    async fn may_go_on(&self) -> bool {
        while self.books.open().behind() > MOST_BEHIND && !self.enough.is_cancelled() {
            tokio::time::sleep(LOOK_EVERY).await;
        }
        !self.enough.is_cancelled()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    Commit,
    RollBack,
    Drop,
}

fn number(producer: u32, position: usize) -> Number {
    Number { producer, position: u32::try_from(position).unwrap_or(u32::MAX) }
}

/// An error of the server about the statement says that nothing was written; one about the session says nothing.
fn refused_or_unknown(error: &tokio_postgres::Error) -> Fate {
    let refused = error.code().is_some_and(|code| {
        let code = code.code();
        code != "40003" && !["57P", "08", "58"].iter().any(|class| code.starts_with(class))
    });
    if refused { Fate::Refused } else { Fate::Unknown }
}
