//! Shapes: how what is drained and enqueued depends on what lies in the outbox and on who else is at work. Each is a figure
//! beside the plain case, or beside the floor of the same shape; the two take turns.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use postrider::lifecycle::Claim;
use postrider::{Queue as _, Store};
use tokio_postgres::IsolationLevel;

use super::enqueue::{self, BatchWay, Producer, Way};
use super::figure::{Figure, Pair};
use super::load::{self, Load};
use super::measurement::{self, MS, RATE};
use super::place::{Place as _, Postgres};
use super::relays::Relays;
use super::run::{Run, Watch};
use super::{Bench, Size, floor};
use crate::failure::Result;
use crate::format::{count, counted};

const FEW: &str = "the same, alone in the outbox";
const PLAIN: &str = "the same without lanes";
const ALONE: &str = "the same without a relay";
const ONE_RELAY: &str = "one relay";
const FIRST_ROUND: &str = "the first round";
const LANE_COUNTS: [u32; 3] = [1, 1_000, 100_000];
const PAYLOAD_BYTES: [u32; 3] = [200, 2_048, 65_536];
/// A run with large payloads has fewer messages.
const PAYLOAD_BYTES_MAX: u32 = 256 * 1024 * 1024;
const RELAY_COUNTS: [u16; 3] = [2, 4, 8];
/// Rounds under an open transaction.
const HELD_ROUNDS: u16 = 20;
const PRODUCERS: u16 = 32;
const CONNECTIONS: u32 = 50;
/// The head of the blocked lane is due after this: later than any run.
const BLOCKED_SECONDS: u32 = 7 * 24 * 3_600;
const ASLEEP: Duration = Duration::from_hours(1);

/// A shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Shape {
    /// A backlog of --backlog messages
    Backlog,
    /// A history of --history delivered messages
    History,
    /// 1, 1,000 and 100,000 lanes
    Lanes,
    /// A blocked lane of --backlog messages beside the others
    BlockedLane,
    /// Payloads of 200 bytes, 2 KiB and 64 KiB
    Payload,
    /// 2, 4 and 8 relays
    Relays,
    /// A transaction that stays open for 20 rounds
    OldTransaction,
    /// 32 producers with a relay asleep, and with a busy one
    Producers,
    /// Connections that are used once
    Connections,
}

impl Shape {
    pub(super) async fn run(self, bench: &Bench<Postgres>) -> Result<Vec<Figure>> {
        let Size { messages, payload_bytes, backlog, history, .. } = bench.size;
        let plain = Load::new(messages, payload_bytes);
        match self {
            Self::Backlog => {
                let name = format!("drain with a backlog of {}", count(backlog));
                let load = async |place: &Postgres| Load::new(backlog, payload_bytes).run(place).await;
                beside(bench, name, load, Load { messages: 0, ..plain }).await
            }
            Self::History => {
                let name = format!("drain with a history of {}", count(history));
                beside(bench, name, async |place| load::history(place, history, payload_bytes).await, plain).await
            }
            Self::BlockedLane => {
                let name = format!("drain beside a blocked lane of {}", count(backlog));
                let blocked = Load { lanes: 1, lane: "blocked", ..plain };
                let load = async |place: &Postgres| {
                    Load { messages: 1, delay_seconds: BLOCKED_SECONDS, ..blocked }.run(place).await?;
                    Load { messages: backlog, ..blocked }.run(place).await
                };
                beside(bench, name, load, Load { lanes: 1_000, ..plain }).await
            }
            Self::Lanes => lanes(bench, plain).await,
            Self::Payload => payloads(bench).await,
            Self::Relays => relays(bench, plain).await,
            Self::OldTransaction => old_transaction(bench, plain).await,
            Self::Producers => producers(bench).await,
            Self::Connections => connections(bench).await,
        }
    }
}

/// Drains beside what `prepare` put there once, and the same from an outbox with nothing else in it. `added` comes on top in each
/// round.
async fn beside(
    bench: &Bench<Postgres>,
    name: String,
    prepare: impl AsyncFn(&Postgres) -> Result<()>,
    added: Load,
) -> Result<Vec<Figure>> {
    let full = Bench { place: bench.place.beside("full")?, size: bench.size.clone(), seen: bench.seen.clone() };
    bench.seen.bar.set_message(format!("{name}: loading"));
    full.place.fresh().await?;
    prepare(&full.place).await?;
    let alone = Load { messages: bench.size.messages, ..added };
    let pair = bench
        .compare(
            &name,
            async |_| {
                added.run(&full.place).await?;
                measurement::empty(&full, full.size.relays, alone.messages).await
            },
            async |bench| measurement::drain(bench, alone).await,
        )
        .await?;
    Ok(vec![pair.figure(name, RATE, FEW, Run::rate)])
}

async fn lanes(bench: &Bench<Postgres>, plain: Load) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for lanes in LANE_COUNTS {
        let name = format!("drain with {}", counted(lanes, "lane"));
        let pair = bench
            .compare(
                &name,
                async |bench| measurement::drain(bench, Load { lanes, ..plain }).await,
                async |bench| measurement::drain(bench, plain).await,
            )
            .await?;
        figures.push(pair.figure(&name, RATE, PLAIN, Run::rate));
    }
    Ok(figures)
}

async fn payloads(bench: &Bench<Postgres>) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for bytes in PAYLOAD_BYTES {
        let messages = bench.size.messages.min(PAYLOAD_BYTES_MAX / bytes);
        let (put, taken) = (
            format!("enqueue payloads of {}", counted(bytes, "byte")),
            format!("drain payloads of {}", counted(bytes, "byte")),
        );
        let way = BatchWay::Floor(floor::INSERT_TABLE);
        let enqueued = bench
            .compare(
                &put,
                async |bench| enqueue::batches(bench, BatchWay::Library, bytes, messages).await,
                async |bench| enqueue::batches(bench, way, bytes, messages).await,
            )
            .await?;
        let drained = bench
            .compare(
                &taken,
                async |bench| measurement::drain(bench, Load::new(messages, bytes)).await,
                async |bench| floor::drain(bench, bytes, messages).await,
            )
            .await?;
        figures.push(enqueued.figure(put, RATE, "an INSERT into one table", Run::rate));
        figures.push(drained.figure(taken, RATE, floor::LOOP, Run::rate));
    }
    Ok(figures)
}

async fn relays(bench: &Bench<Postgres>, plain: Load) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for count in RELAY_COUNTS {
        let name = format!("drain by {count} relays");
        let drain = async |bench: &Bench<Postgres>, relays| {
            plain.run(&bench.place).await?;
            measurement::empty(bench, relays, plain.messages).await
        };
        let pair =
            bench.compare(&name, async |bench| drain(bench, count).await, async |bench| drain(bench, 1).await).await?;
        figures.push(pair.figure(&name, RATE, ONE_RELAY, Run::rate));
    }
    Ok(figures)
}

/// Nothing that is deleted can be cleaned up while the transaction is open.
async fn old_transaction(bench: &Bench<Postgres>, plain: Load) -> Result<Vec<Figure>> {
    bench.place.fresh().await?;
    let mut holder = bench.place.client().await?;
    let held = holder.build_transaction().isolation_level(IsolationLevel::RepeatableRead).start().await?;
    held.query_one("select txid_current_snapshot()::text", &[]).await?;
    let (mut ours, mut floor) = (Vec::new(), Vec::new());
    for round in 0..HELD_ROUNDS {
        bench.seen.say("old transaction", round, HELD_ROUNDS);
        ours.push(measurement::drain(bench, plain).await?);
        floor.push(floor::drain(bench, plain.payload_bytes, plain.messages).await?);
    }
    held.rollback().await?;
    let figure = |name: &str, mut runs: Vec<Run>| {
        let last = runs.pop().into_iter().collect();
        runs.truncate(1);
        Pair { ours: last, floor: runs }.figure(format!("{name}, round {HELD_ROUNDS}"), RATE, FIRST_ROUND, Run::rate)
    };
    Ok(vec![
        figure("drain under an old transaction", ours),
        figure("the hand-written loop under an old transaction", floor),
    ])
}

/// What NOTIFY costs those who enqueue. Nobody works for the one that sleeps.
async fn producers(bench: &Bench<Postgres>) -> Result<Vec<Figure>> {
    let absent = async |bench: &Bench<Postgres>| enqueue::single(bench, Way::Library, PRODUCERS).await;
    let asleep = bench
        .compare(
            "producers, a relay asleep",
            async |bench| {
                bench.place.store()?.sleep("bench", ASLEEP).await?;
                enqueue::single(bench, Way::Library, PRODUCERS).await
            },
            absent,
        )
        .await?;
    let busy = bench
        .compare(
            "producers, a busy relay",
            async |bench| {
                let store: Arc<dyn Store> = Arc::new(bench.place.store()?);
                let relays = Relays::start([store], bench.size.batch, None)?;
                let run = enqueue::single(bench, Way::Library, PRODUCERS).await?;
                relays.stop().await?;
                Ok(run)
            },
            absent,
        )
        .await?;
    Ok(vec![
        asleep.figure(format!("enqueue by {PRODUCERS} producers, a relay asleep"), RATE, ALONE, Run::rate),
        busy.figure(format!("enqueue by {PRODUCERS} producers, a busy relay"), RATE, ALONE, Run::rate),
    ])
}

/// The first call of a session looks up what later ones know.
async fn connections(bench: &Bench<Postgres>) -> Result<Vec<Figure>> {
    let enqueued = bench
        .compare(
            "first enqueue",
            async |bench| first_calls(bench, Way::Library).await,
            async |bench| first_calls(bench, Way::InsertInTransaction).await,
        )
        .await?;
    let claimed = bench
        .compare(
            "first claim",
            async |bench| first_claims(bench).await,
            async |bench| first_calls(bench, Way::Insert).await,
        )
        .await?;
    Ok(vec![
        enqueued.figure("first enqueue of a connection, p50", MS, "a first bare INSERT", Run::p50_ms),
        claimed.alone("first claim of a connection, p50", MS, Run::p50_ms),
    ])
}

async fn first_calls(bench: &Bench<Postgres>, way: Way) -> Result<Run> {
    once_each(bench, async || {
        let mut producer = Producer::new(&bench.place, way, bench.size.payload_bytes).await?;
        let started = Instant::now();
        producer.once().await?;
        Ok(started.elapsed())
    })
    .await
}

async fn first_claims(bench: &Bench<Postgres>) -> Result<Run> {
    Load::new(CONNECTIONS, bench.size.payload_bytes).run(&bench.place).await?;
    once_each(bench, async || {
        let store = bench.place.store()?;
        // Connected, but nothing of the outbox is known yet.
        drop(store.connection().await?);
        let started = Instant::now();
        store.claim(&Claim::new("bench").batch_size(1)).await?;
        Ok(started.elapsed())
    })
    .await
}

async fn once_each(bench: &Bench<Postgres>, call: impl AsyncFn() -> Result<Duration>) -> Result<Run> {
    let done = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&done);
    let watch = Watch::start(&bench.place, move || seen.load(Ordering::Relaxed)).await?;
    let mut latencies = Vec::new();
    for _ in 0..CONNECTIONS {
        latencies.push(call().await?);
        done.fetch_add(1, Ordering::Relaxed);
    }
    latencies.sort_unstable();
    Ok(Run { latencies, ..watch.finish(&bench.place, u64::from(CONNECTIONS)).await? })
}
