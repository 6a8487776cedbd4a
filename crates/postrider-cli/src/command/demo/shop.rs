//! The application of the demo: a shop with tables of its own in the same SQLite file. Each producer changes a row and
//! enqueues what happened in ONE rusqlite transaction; now and then it changes its mind and rolls both back. So at the
//! end the shop's own count of changes must be the number of messages.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use postrider::{Message, sqlite};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};
use rusqlite::{Connection, Transaction, TransactionBehavior, params};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::world::{LANE_PREFIX, World};
use crate::exit_code::ExitCode;
use crate::failure::{Failure, Result};

const PRODUCERS: u32 = 3;
/// Orders that a producer has open at once; then it works on what it has.
const OPEN_ORDERS: usize = 5;
/// How often out of a hundred a producer opens an order, or counts stock; otherwise it goes on with an order.
const OPENS: u32 = 25;
const COUNTS_STOCK: u32 = 20;
/// How often out of a hundred it changes its mind at the last moment.
const ROLLS_BACK: u32 = 3;
/// How long to wait for the others' transactions.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// What happens to an order, one after the other.
const STEPS: [&str; 6] =
    ["order.placed", "order.paid", "order.picked", "order.packed", "order.shipped", "order.received"];
const GOODS: [&str; 6] = ["tea", "coffee", "cocoa", "honey", "rusks", "jam"];

const TABLES: &str = "
    create table shop_order (id integer primary key, step text not null, changes integer not null) strict;
    create table shop_stock (sku text primary key, on_hand integer not null, changes integer not null) strict;";

/// The shop's tables.
pub(super) struct Shop {
    file: PathBuf,
}

/// The producers' threads.
pub(super) struct Producers(Vec<JoinHandle<Result<()>>>);

impl Shop {
    /// Makes the tables, beside the outbox's.
    pub(super) fn open(file: &Path) -> Result<Self> {
        let shop = Self { file: file.to_owned() };
        let connection = shop.connection().map_err(|error| broken(&error))?;
        connection.execute_batch(TABLES).map_err(|error| broken(&error))?;
        for sku in GOODS {
            let insert = "insert into shop_stock (sku, on_hand, changes) values (?1, 100, 0)";
            connection.execute(insert, [sku]).map_err(|error| broken(&error))?;
        }
        Ok(shop)
    }

    /// How often the shop's own rows were changed, by the shop's own count.
    pub(super) fn changes(&self) -> Result<u64> {
        let sum = "select (select coalesce(sum(changes), 0) from shop_order) + (select sum(changes) from shop_stock)";
        let changes: i64 = self
            .connection()
            .and_then(|connection| connection.query_row(sum, [], |row| row.get(0)))
            .map_err(|error| broken(&error))?;
        Ok(u64::try_from(changes).unwrap_or(0))
    }

    /// Starts the producers. One that fails ends the demo.
    pub(super) fn start_producers(
        &self,
        world: &Arc<World>,
        rate: u32,
        stop: &CancellationToken,
        end: &CancellationToken,
    ) -> Result<Producers> {
        let mut threads = Vec::new();
        for number in 0..PRODUCERS {
            let connection = self.connection().map_err(|error| broken(&error))?;
            let mut producer = Producer {
                world: Arc::clone(world),
                connection,
                dice: StdRng::seed_from_u64(world.seed.wrapping_add(u64::from(number))),
                orders: Vec::new(),
                pause: Duration::from_secs(1) * PRODUCERS / rate,
            };
            let (stop, end) = (stop.clone(), end.clone());
            let work = move || {
                let ended = producer.work(&stop);
                if ended.is_err() {
                    end.cancel();
                }
                ended
            };
            let thread = std::thread::Builder::new().name(format!("producer-{number}")).spawn(work);
            threads.push(thread.map_err(|error| {
                Failure::new(ExitCode::Failure, format!("cannot start a producer: the system gave no thread: {error}"))
            })?);
        }
        Ok(Producers(threads))
    }

    fn connection(&self) -> rusqlite::Result<Connection> {
        let connection = Connection::open(&self.file)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        Ok(connection)
    }
}

impl Producers {
    /// Waits for them, once they were told to stop.
    pub(super) async fn join(self) -> Result<()> {
        let Self(threads) = self;
        let joined = tokio::task::spawn_blocking(move || {
            threads.into_iter().try_for_each(|thread| {
                thread.join().unwrap_or_else(|_| Err(Failure::new(ExitCode::Failure, "a producer panicked")))
            })
        });
        joined.await.unwrap_or_else(|error| Err(Failure::new(ExitCode::Failure, error.to_string())))
    }
}

struct Producer {
    world: Arc<World>,
    connection: Connection,
    dice: StdRng,
    /// Orders that are open, and how far each is.
    orders: Vec<(u64, usize)>,
    pause: Duration,
}

/// What to do next.
#[derive(Clone, Copy)]
enum Work {
    Open,
    /// The order at this place of the list.
    GoOn(usize),
    CountStock(&'static str),
}

impl Producer {
    fn work(&mut self, stop: &CancellationToken) -> Result<()> {
        let mut next = Instant::now();
        while !stop.is_cancelled() {
            self.change()?;
            next += self.pause.mul_f64(self.dice.random_range(0.2..1.8));
            // A disk that cannot keep up sets the pace: what was missed is not caught up.
            next = next.max(Instant::now());
            while let Some(wait) = next.checked_duration_since(Instant::now()).filter(|wait| !wait.is_zero()) {
                if stop.is_cancelled() {
                    break;
                }
                std::thread::sleep(wait.min(Duration::from_millis(100)));
            }
        }
        Ok(())
    }

    /// One change of the shop, with its message.
    fn change(&mut self) -> Result<()> {
        let work = self.choose();
        let rolls_back = self.dice.random_range(0..100) < ROLLS_BACK;
        let amount = self.dice.random_range(-5..=5);
        let tx = self
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(|error| broken(&error))?;
        let (message, order) = match work {
            Work::Open => open(&tx)?,
            Work::GoOn(place) => go_on(&tx, self.orders[place])?,
            Work::CountStock(sku) => (count_stock(&tx, sku, amount)?, None),
        };
        sqlite::enqueue(&tx, &message)?;
        if rolls_back {
            tx.rollback().map_err(|error| broken(&error))?;
            self.world.rolled_back.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        }
        tx.commit().map_err(|error| broken(&error))?;
        self.world.enqueued.fetch_add(1, Ordering::Relaxed);
        if let Some((id, step)) = order {
            self.world.lane_enqueued(id, STEPS[step]);
            self.orders.retain(|(open, _)| *open != id);
            if step + 1 < STEPS.len() {
                self.orders.push((id, step));
            }
        }
        Ok(())
    }

    fn choose(&mut self) -> Work {
        let rolled = self.dice.random_range(0..100);
        if rolled < COUNTS_STOCK {
            return Work::CountStock(GOODS.choose(&mut self.dice).copied().unwrap_or(GOODS[0]));
        }
        let full = self.orders.len() >= OPEN_ORDERS;
        if self.orders.is_empty() || (rolled < COUNTS_STOCK + OPENS && !full) {
            return Work::Open;
        }
        Work::GoOn(self.dice.random_range(0..self.orders.len()))
    }
}

/// The message, and the order with its step, if it is about one.
type Changed = (Message, Option<(u64, usize)>);

fn open(tx: &Transaction<'_>) -> Result<Changed> {
    let insert = "insert into shop_order (step, changes) values (?1, 1)";
    tx.execute(insert, [STEPS[0]]).map_err(|error| broken(&error))?;
    about_order(u64::try_from(tx.last_insert_rowid()).unwrap_or(0), 0)
}

fn go_on(tx: &Transaction<'_>, (id, step): (u64, usize)) -> Result<Changed> {
    let step = step + 1;
    let update = "update shop_order set step = ?1, changes = changes + 1 where id = ?2";
    tx.execute(update, params![STEPS[step], i64::try_from(id).unwrap_or(i64::MAX)]).map_err(|error| broken(&error))?;
    about_order(id, step)
}

fn about_order(id: u64, step: usize) -> Result<Changed> {
    let payload = json!({"order": id, "step": STEPS[step]});
    let message = Message::json(STEPS[step], &payload).map_err(postrider::Error::from)?;
    Ok((message.lane(format!("{LANE_PREFIX}{id}")), Some((id, step))))
}

fn count_stock(tx: &Transaction<'_>, sku: &str, amount: i32) -> Result<Message> {
    let update = "update shop_stock set on_hand = max(0, on_hand + ?1), changes = changes + 1 where sku = ?2";
    tx.execute(update, params![amount, sku]).map_err(|error| broken(&error))?;
    Ok(Message::json("stock.counted", &json!({"sku": sku, "change": amount})).map_err(postrider::Error::from)?)
}

fn broken(error: &rusqlite::Error) -> Failure {
    Failure::new(ExitCode::Failure, format!("the shop's own tables cannot be used: {error}"))
}
