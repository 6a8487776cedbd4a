//! The idempotent receiver: the first time is told from every other time, inside the consumer's own transaction, also
//! after the event's row was pruned, and a new event is never taken for an old one. Each case runs on both stores; races
//! and plans, which are each store's own, are in `inbox/postgres.rs` and `inbox/sqlite.rs`.

mod postgres;
mod sqlite;

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use postrider::{Error, ErrorKind, Event, Inbox, InvalidMessage, SqliteStore, Store};
use postrider::{PostgresStore, Schema, sqlite as embedded};
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use rand::{Rng as _, SeedableRng as _};
use rusqlite::{Connection, TransactionBehavior};
use tempfile::TempDir;
use tokio::sync::Mutex;
use tokio_postgres::Client;
use uuid::Uuid;

const TENANT: &str = "tenant-1";

/// A fresh outbox and inbox of either kind.
pub(crate) struct Site {
    pub(crate) store: Arc<dyn Store>,
    at: At,
}

enum At {
    Postgres(Box<Mutex<Client>>),
    Sqlite(TempDir),
}

impl Site {
    pub(crate) async fn on_postgres() -> Self {
        let database = postrider_testkit::database().await;
        let store = PostgresStore::connect(&database.url(), Schema::default()).await.unwrap();
        // The server is this process's own, and outlives the handle.
        let client = Box::new(Mutex::new(database.connect().await));
        Self { store: Arc::new(store), at: At::Postgres(client) }
    }

    pub(crate) fn on_sqlite() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(directory.path().join("app.db")).unwrap();
        Self { store: Arc::new(store), at: At::Sqlite(directory) }
    }

    /// Receives in a transaction of its own, which ends as it is told.
    async fn receive_and(&self, commit: bool, events: &[Event]) -> Result<Vec<bool>, Error> {
        match &self.at {
            At::Postgres(client) => {
                let mut client = client.lock().await;
                let tx = client.transaction().await.unwrap();
                let first = Inbox::default().receive_many(&tx, events).await;
                let ended = if commit && first.is_ok() { tx.commit().await } else { tx.rollback().await };
                ended.unwrap();
                first
            }
            At::Sqlite(directory) => {
                let mut connection = connect(directory.path().join("app.db"));
                let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
                let first = embedded::receive_many(&tx, events);
                let ended = if commit && first.is_ok() { tx.commit() } else { tx.rollback() };
                ended.unwrap();
                first
            }
        }
    }

    async fn receive(&self, events: &[Event]) -> Vec<bool> {
        self.receive_and(true, events).await.unwrap()
    }

    async fn is_first(&self, event: Event) -> bool {
        self.receive(&[event]).await[0]
    }

    /// Runs a statement; in SQLite the tables have another name.
    pub(crate) async fn execute(&self, sql: &str) {
        match &self.at {
            At::Postgres(client) => client.lock().await.batch_execute(sql).await.unwrap(),
            At::Sqlite(directory) => {
                let sql = sql.replace("outbox.", "outbox_");
                connect(directory.path().join("app.db")).execute_batch(&sql).unwrap();
            }
        }
    }

    /// So many hours, as its tables have them.
    pub(crate) fn hours(&self, hours: u64) -> String {
        match self.at {
            At::Postgres(_) => format!("interval '{hours} hours'"),
            At::Sqlite(_) => (hours * 3_600_000_000).to_string(),
        }
    }

    async fn count(&self, table: &str) -> i64 {
        match &self.at {
            At::Postgres(client) => {
                let client = client.lock().await;
                client.query_one(&format!("select count(*) from outbox.{table}"), &[]).await.unwrap().get(0)
            }
            At::Sqlite(directory) => connect(directory.path().join("app.db"))
                .query_row(&format!("select count(*) from outbox_{table}"), [], |row| row.get(0))
                .unwrap(),
        }
    }

    /// Until every row is gone: what was received in this very millisecond is not yet in the past.
    async fn prune(&self) {
        let deadline = std::time::Instant::now() + Duration::from_mins(1);
        while self.count("inbox").await > 0 {
            assert!(std::time::Instant::now() < deadline, "the rows stay");
            self.store.prune_inbox(Some(Duration::ZERO)).await.unwrap();
        }
    }
}

fn connect(file: PathBuf) -> Connection {
    let connection = Connection::open(file).unwrap();
    connection.busy_timeout(Duration::from_secs(30)).unwrap();
    connection
}

/// An id as our own outbox makes them: later ones are greater.
fn id() -> Uuid {
    Uuid::now_v7()
}

/// Number 1 to n of a lane, as one sender made them.
fn lane(count: i64) -> Vec<Event> {
    (1..=count).map(|n| Event::new(id()).tenant(TENANT).source("site-7").lane("orders", n)).collect()
}

macro_rules! on_both_stores {
    ($($case:ident)*) => {
        mod on_postgres {
            $(#[tokio::test] async fn $case() { super::$case(super::Site::on_postgres().await).await; })*
        }
        mod on_sqlite {
            $(#[tokio::test] async fn $case() { super::$case(super::Site::on_sqlite()).await; })*
        }
    };
}

on_both_stores! {
    the_first_time_is_true_and_every_other_false
    a_rollback_was_not_received
    an_event_twice_in_a_batch_is_first_once
    wrong_input_is_refused
    retention_takes_what_is_older
    a_late_duplicate_is_recognised_after_its_row_was_pruned
    a_skipped_number_is_first_when_it_comes
    a_receiver_that_joins_in_the_middle_takes_lower_numbers
    lanes_belong_to_their_source_and_tenant
    a_sender_that_counts_anew_loses_nothing
    an_id_from_the_future_is_not_remembered
    what_a_lane_remembers_is_bounded
    nothing_new_is_ever_taken_for_a_duplicate
}

/// Proves E1: an event is known by tenant and id; no tenant is a value of its own.
async fn the_first_time_is_true_and_every_other_false(site: Site) {
    let event = id();
    let others = [
        Event::new(event),
        Event::new(event).tenant("Tenant-1"),
        Event::new(event).tenant(TENANT),
        Event::new(event).tenant("t".repeat(255)),
        Event::new(Uuid::new_v4()),
        Event::new(id()).lane("orders", 1),
    ];
    for other in &others {
        assert!(site.is_first(other.clone()).await, "{other:?}");
    }
    assert_eq!(site.receive(&others).await, [false; 6]);
    // Where it came from is no part of its name: a sender may change its mind.
    assert!(!site.is_first(Event::new(event).source("elsewhere").lane("other", 9)).await);
    assert_eq!(site.receive(&[]).await, Vec::<bool>::new());
}

async fn a_rollback_was_not_received(site: Site) {
    let events = lane(2);
    for _ in 0..2 {
        assert_eq!(site.receive_and(false, &events).await.unwrap(), [true, true]);
    }
    assert_eq!(site.receive(&events[..1]).await, [true]);
    assert_eq!(site.receive(&events).await, [false, true]);
}

async fn an_event_twice_in_a_batch_is_first_once(site: Site) {
    let [a, b] = [Event::new(id()), Event::new(id())];
    let batch = [b.clone(), a.clone(), b.clone(), a.clone().tenant(TENANT), a.clone(), b];
    assert_eq!(site.receive(&batch).await, [true, true, false, true, false, false]);
    assert_eq!(site.receive(&batch).await, [false; 6]);
}

async fn wrong_input_is_refused(site: Site) {
    let event = || Event::new(id());
    let cases = [
        (event().source("s".repeat(256)), InvalidMessage::TooLong { field: "source", bytes: 256, max: 255 }),
        (event().lane("", 1), InvalidMessage::Empty { field: "lane" }),
        (event().lane("a\0", 1), InvalidMessage::Nul { field: "lane" }),
        (event().lane("a", 0), InvalidMessage::Sequence { sequence_id: 0 }),
    ];
    for (wrong, expected) in cases {
        let refused = site.receive_and(true, &[event(), wrong]).await.unwrap_err();
        assert_eq!((refused.batch_index(), refused.invalid_message()), (Some(1), Some(&expected)), "{refused:?}");
    }
    assert_eq!(site.count("inbox").await, 0);
    for older_than in [Duration::MAX, Duration::from_secs(3_155_760_001)] {
        let refused = site.store.prune_inbox(Some(older_than)).await;
        assert!(matches!(&refused, Err(error) if error.kind() == ErrorKind::Refused), "{refused:?}");
    }
}

/// Only what is older than the retention goes, in batches, and without a lane it is then new again.
async fn retention_takes_what_is_older(site: Site) {
    let old: Vec<Event> = (0..2_500).map(|_| Event::new(id())).collect();
    site.receive(&old).await;
    site.execute(&format!("update outbox.inbox set received_at = received_at - {}", site.hours(8 * 24))).await;
    let young = Event::new(id());
    site.is_first(young.clone()).await;
    assert_eq!(site.store.prune_inbox(Some(Duration::from_hours(9 * 24))).await.unwrap(), 0);
    assert_eq!(site.store.prune_inbox(None).await.unwrap(), 2_500, "seven days, unless somebody says otherwise");
    assert_eq!((site.count("inbox").await, site.count("inbox_lane").await), (1, 0));
    assert!(!site.is_first(young).await);
    assert!(site.is_first(old[0].clone()).await, "the window is over");
}

/// Proves E1: the lane knows how far it got.
async fn a_late_duplicate_is_recognised_after_its_row_was_pruned(site: Site) {
    let events = lane(50);
    for some in events.chunks(20) {
        assert!(site.receive(some).await.iter().all(|first| *first));
        site.prune().await;
    }
    assert_eq!(site.count("inbox_lane").await, 1, "one span, however long the lane");
    let mut again = events.clone();
    again.reverse();
    assert_eq!(site.receive(&again).await, [false; 50]);
    assert_eq!(site.count("inbox").await, 0, "what the lane knows needs no row");
    assert!(site.is_first(Event::new(id()).tenant(TENANT).source("site-7").lane("orders", 51)).await);

    // An id that tells no time cannot be told from a sender that counts anew: the row alone decides.
    let timeless = Event::new(Uuid::new_v4()).lane("timeless", 1);
    assert!(site.is_first(timeless.clone()).await && !site.is_first(timeless.clone()).await);
    site.prune().await;
    assert!(site.is_first(timeless).await);
}

/// Dead at the sender, skipped there, redriven later: it comes after higher numbers, and is new.
async fn a_skipped_number_is_first_when_it_comes(site: Site) {
    let events = lane(9);
    let skipped: Vec<Event> = [3, 4, 7].map(|n| events[n - 1].clone()).to_vec();
    let others: Vec<Event> = events.iter().filter(|event| !skipped.contains(event)).cloned().collect();
    assert_eq!(site.receive(&others).await, [true; 6]);
    assert_eq!(site.receive(&skipped[2..]).await, [true], "while the rows are there");
    site.prune().await;
    assert_eq!(site.count("inbox_lane").await, 2, "1 to 2, and 5 to 9");
    assert_eq!(site.receive(&others).await, [false; 6]);
    assert_eq!(site.receive(&skipped).await, [true, true, false], "when they are pruned");
    site.prune().await;
    assert_eq!(site.count("inbox_lane").await, 1, "the gap is filled");
    assert_eq!(site.receive(&events).await, [false; 9]);
}

async fn a_receiver_that_joins_in_the_middle_takes_lower_numbers(site: Site) {
    let events = lane(10);
    assert_eq!(site.receive(&events[5..]).await, [true; 5]);
    site.prune().await;
    assert_eq!(site.receive(&events[..2]).await, [true; 2]);
    assert_eq!(site.receive(&events).await, [false, false, true, true, true, false, false, false, false, false]);
    site.prune().await;
    assert_eq!(site.receive(&events).await, [false; 10]);
}

async fn lanes_belong_to_their_source_and_tenant(site: Site) {
    let event_id = id();
    let known = Event::new(event_id).tenant(TENANT).source("site-7").lane("orders", 1);
    assert!(site.is_first(known.clone()).await);
    site.prune().await;
    assert!(!site.is_first(known).await);
    let others = [
        Event::new(event_id).source("site-7").lane("orders", 1),
        Event::new(event_id).tenant("tenant-10").source("site-7").lane("orders", 1),
    ];
    assert_eq!(site.receive(&others).await, [true, true], "other tenants");
    for (source, lane, number) in [("site-8", "orders", 1), ("site-7", "Orders", 1), ("site-7", "orders", 2)] {
        let other = Event::new(event_id).tenant(TENANT).source(source).lane(lane, number);
        assert!(site.is_first(other).await, "{source} {lane} {number}");
        site.execute("delete from outbox.inbox").await;
    }
}

/// A site whose database was lost numbers its lanes from 1 again, under the same name.
async fn a_sender_that_counts_anew_loses_nothing(site: Site) {
    let before = lane(10);
    site.receive(&before).await;
    site.prune().await;
    let after = lane(20);
    // Of the new count, 4 is held up at the sender for longer than the retention of those around it.
    let (held_up, prompt) = (after[3].clone(), [&after[..3], &after[4..]].concat());
    assert!(site.receive(&prompt).await.iter().all(|first| *first));
    assert!(!site.receive(&prompt).await.iter().any(|first| *first));
    site.prune().await;
    assert!(site.is_first(held_up.clone()).await, "the old 4 is not this one");
    site.prune().await;
    let more = lane(22)[20..].to_vec();
    assert_eq!(site.receive(&more).await, [true, true]);
    site.prune().await;
    assert_eq!(site.receive(&more).await, [false, false], "the lane remembers again");
}

/// An id that was made so many milliseconds from now, or tells so.
fn id_in(ms: i64) -> Uuid {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis();
    let made = u128::try_from(i128::try_from(now).unwrap() + i128::from(ms)).unwrap();
    let [random, version] = [Uuid::new_v4().as_u128() >> 66, 0x7000_8000_0000_0000_0000];
    Uuid::from_u128((made << 80) | version | random)
}

/// Senders choose the ids. One that lies ahead of the database's clock tells no time: it neither makes genuine events of its
/// lane look old nor makes the lane forget them.
async fn an_id_from_the_future_is_not_remembered(site: Site) {
    const MINUTE: i64 = 60_000;
    const CENTURY: i64 = 100 * 365 * 24 * 60 * MINUTE;
    let numbered = |id: Uuid, n: i64| Event::new(id).tenant(TENANT).source("site-7").lane("orders", n);
    let last = Uuid::from_u128(!(0xf << 76) | (7 << 76));
    for forged in [id_in(6 * MINUTE), id_in(CENTURY), last] {
        let forged = [numbered(forged, 1)];
        assert_eq!(site.receive(&forged).await, [true]);
        assert_eq!(site.receive(&forged).await, [false], "its row decides while it is there");
        site.prune().await;
        assert_eq!(site.count("inbox_lane").await, 0, "{forged:?}");
    }
    let genuine = lane(3);
    assert_eq!(site.receive(&genuine).await, [true; 3]);
    site.prune().await;
    assert!(site.is_first(numbered(id_in(CENTURY), 2)).await);
    site.prune().await;
    assert_eq!(site.receive(&genuine).await, [false; 3], "the lane remembers what it did");

    // A clock that goes a little fast is still a clock.
    let fast = numbered(id_in(4 * MINUTE), 4);
    assert!(site.is_first(fast.clone()).await);
    site.prune().await;
    assert!(!site.is_first(fast).await);
}

/// Of too many gaps the lowest are forgotten, and lanes that are silent for long: then a duplicate is new again.
async fn what_a_lane_remembers_is_bounded(site: Site) {
    site.execute("update outbox.setting set inbox_lane_spans = 2").await;
    let events = lane(7);
    let odd: Vec<Event> = events.iter().step_by(2).cloned().collect();
    site.receive(&odd).await;
    site.prune().await;
    assert_eq!(site.count("inbox_lane").await, 2);
    assert_eq!(site.receive_and(false, &odd).await.unwrap(), [true, true, false, false]);
    site.execute(&format!("update outbox.inbox_lane set remembered_at = remembered_at - {}", site.hours(91 * 24)))
        .await;
    site.store.prune_inbox(None).await.unwrap();
    assert_eq!(site.count("inbox_lane").await, 0);
    assert_eq!(site.receive(&odd).await, [true; 4]);
}

/// Random senders, skips, resends and prunes: every event is first exactly once.
async fn nothing_new_is_ever_taken_for_a_duplicate(site: Site) {
    let seed: u64 = rand::random();
    println!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let all: Vec<Event> =
        (1..=60).flat_map(|n| ["a", "b", "c"].map(|lane| Event::new(id()).source("site-7").lane(lane, n))).collect();
    let mut known = HashSet::new();
    for round in 1..=60 {
        // What is sent next: mostly a run of numbers from anywhere, sometimes some of them in any order; all of it at last.
        let from = random.random_range(0..all.len());
        let mut batch: Vec<Event> =
            if round == 60 { all.clone() } else { all[from..all.len().min(from + 20)].to_vec() };
        if round < 60 && random.random_bool(0.3) {
            batch.shuffle(&mut random);
            batch.truncate(7);
        }
        let first = site.receive(&batch).await;
        for (event, first) in batch.iter().zip(first) {
            assert_eq!(first, known.insert(event.clone()), "seed {seed}: {event:?}");
        }
        if random.random_bool(0.4) {
            site.prune().await;
        }
    }
    assert_eq!(known.len(), all.len());
}
