//! What is measured without being asked for more: each measurement is a few figures, with the floor that each is held against.

use std::sync::Arc;
use std::time::Duration;

use postrider::Store;

use super::enqueue::{BatchWay, Way};
use super::figure::{Figure, Pair};
use super::latency::Pace;
use super::load::Load;
use super::place::Postgres;
use super::run::Run;
use super::wire::Wire;
use super::{Bench, Size, enqueue, floor, latency, relays};
use crate::exit_code::ExitCode;
use crate::failure::{Failure, Result};
use crate::format::{self, counted};

pub(super) const RATE: &str = "messages/s";
pub(super) const MS: &str = "ms";
pub(super) const WAL: &str = "WAL bytes/message";
const COMMITS: &str = "commits/message";
const TRIPS: &str = "round trips/message";

const INSERT: &str = "a bare INSERT into the table message";
const ONE_TABLE: &str = "an INSERT into one table";
const OWN_TABLES: &str = "INSERTs into message and delivery";
const LISTEN: &str = "a bare LISTEN and claim loop";

/// Messages a second, end to end.
const STEADY_RATE: u32 = 1_000;
const STEADY_MESSAGES: u32 = 3_000;
/// So long apart the relay has gone to sleep again.
const IDLE_PACE: Duration = Duration::from_millis(60);
const IDLE_MESSAGES: u32 = 70;
/// Enough for an exact figure.
const WIRE_MESSAGES: u32 = 5_000;

/// A measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Measurement {
    /// One message in each transaction
    Enqueue,
    /// Batches
    Batch,
    /// What the relay delivers to a sink that does nothing
    Drain,
    /// From commit to handler at 1,000 messages a second
    EndToEnd,
    /// From commit to handler with a relay that sleeps
    Latency,
    /// Round trips, counted by a proxy
    RoundTrips,
}

impl Measurement {
    pub(super) fn all() -> Vec<Self> {
        <Self as clap::ValueEnum>::value_variants().to_vec()
    }

    pub(super) async fn run(self, bench: &Bench<Postgres>) -> Result<Vec<Figure>> {
        match self {
            Self::Enqueue => singles(bench).await,
            Self::Batch => batches(bench).await,
            Self::Drain => drained(bench).await,
            Self::EndToEnd => steady(bench).await,
            Self::Latency => idle(bench).await,
            Self::RoundTrips => round_trips(bench).await,
        }
    }
}

/// What is measured on, without the URL.
pub(super) async fn place(place: &Postgres) -> Result<String> {
    let client = place.client().await?;
    let row = client.query_one("select current_setting('server_version'), current_setting('fsync')", &[]).await?;
    let (version, fsync): (String, String) = (row.try_get(0)?, row.try_get(1)?);
    let kind = if place.is_private() { "private" } else { "given" };
    Ok(format!("PostgreSQL {version}, {kind} server, fsync {fsync}"))
}

async fn singles(bench: &Bench<Postgres>) -> Result<Vec<Figure>> {
    let clients = bench.size.clients;
    let library = bench
        .compare(
            "enqueue",
            async |bench| enqueue::single(bench, Way::Library, clients).await,
            async |bench| enqueue::single(bench, Way::InsertInTransaction, clients).await,
        )
        .await?;
    let function = bench
        .compare(
            "enqueue, SQL function",
            async |bench| enqueue::single(bench, Way::Function, clients).await,
            async |bench| enqueue::single(bench, Way::Insert, clients).await,
        )
        .await?;
    let by = |what: &str| format!("{what}, {clients} producers");
    Ok(vec![
        library.figure(by("enqueue in a transaction"), RATE, INSERT, Run::rate),
        function.figure(by("enqueue by the SQL function, prepared"), RATE, INSERT, Run::rate),
        library.figure("enqueue in a transaction", WAL, INSERT, Run::wal_bytes),
        library.figure("enqueue in a transaction", COMMITS, INSERT, Run::commits),
    ])
}

async fn batches(bench: &Bench<Postgres>) -> Result<Vec<Figure>> {
    let Size { messages, batch, payload_bytes, .. } = bench.size;
    let name = format!("enqueue in batches of {}", format::count(batch));
    let ours =
        async |bench: &Bench<Postgres>| enqueue::batches(bench, BatchWay::Library, payload_bytes, messages).await;
    let floor = async |bench: &Bench<Postgres>, sql| {
        enqueue::batches(bench, BatchWay::Floor(sql), payload_bytes, messages).await
    };
    let own = bench.compare("batches", ours, async |bench| floor(bench, floor::INSERT_TABLES).await).await?;
    let one = bench.compare("batches, one table", ours, async |bench| floor(bench, floor::INSERT_TABLE).await).await?;
    Ok(vec![
        own.figure(&name, RATE, OWN_TABLES, Run::rate),
        one.figure(&name, RATE, ONE_TABLE, Run::rate),
        own.figure(&name, WAL, OWN_TABLES, Run::wal_bytes),
    ])
}

/// A full outbox, emptied by as many relays as are asked for.
pub(super) async fn drain(bench: &Bench<Postgres>, load: Load) -> Result<Run> {
    load.run(&bench.place).await?;
    empty(bench, bench.size.relays, load.messages).await
}

/// Empties what is there, up to so many messages.
pub(super) async fn empty(bench: &Bench<Postgres>, count: u16, messages: u32) -> Result<Run> {
    let mut stores: Vec<Arc<dyn Store>> = Vec::new();
    for _ in 0..count {
        stores.push(Arc::new(bench.place.store()?));
    }
    relays::drain(&bench.place, stores, bench.size.batch, messages).await
}

async fn drained(bench: &Bench<Postgres>) -> Result<Vec<Figure>> {
    let Size { messages, payload_bytes, lanes, relays, .. } = bench.size;
    let load = Load { lanes, ..Load::new(messages, payload_bytes) };
    let pair = bench
        .compare(
            "drain",
            async |bench| drain(bench, load).await,
            async |bench| floor::drain(bench, payload_bytes, messages).await,
        )
        .await?;
    let name = match (relays, lanes) {
        (1, 0) => "drain by one relay".to_owned(),
        (relays, 0) => format!("drain by {}", counted(relays, "relay")),
        (relays, lanes) => format!("drain by {}, {}", counted(relays, "relay"), counted(lanes, "lane")),
    };
    Ok(vec![
        pair.figure(&name, RATE, floor::LOOP, Run::rate),
        pair.figure("drain", WAL, floor::LOOP, Run::wal_bytes),
        pair.figure("drain", COMMITS, floor::LOOP, Run::commits),
        pair.figure("processor time of the drain", "µs/message", floor::LOOP, Run::cpu_us),
        pair.alone("memory of the drain", "MiB", Run::memory_mib),
    ])
}

async fn steady(bench: &Bench<Postgres>) -> Result<Vec<Figure>> {
    let producers = bench.size.clients.min(4);
    let every = Duration::from_secs(1) * u32::from(producers) / STEADY_RATE;
    let pace = Pace { producers, messages: bench.size.single().min(STEADY_MESSAGES), every };
    let name = "commit to handler, 1,000 messages/s";
    latencies(bench, "end to end", name, pace).await
}

async fn idle(bench: &Bench<Postgres>) -> Result<Vec<Figure>> {
    let pace = Pace { producers: 1, messages: (bench.size.messages / 100).clamp(5, IDLE_MESSAGES), every: IDLE_PACE };
    latencies(bench, "latency", "commit to handler, relay asleep", pace).await
}

async fn latencies(bench: &Bench<Postgres>, short: &str, name: &str, pace: Pace) -> Result<Vec<Figure>> {
    let pair = bench
        .compare(short, async |bench| latency::ours(bench, pace).await, async |bench| latency::floor(bench, pace).await)
        .await?;
    Ok(vec![
        pair.figure(format!("{name}, p50"), MS, LISTEN, Run::p50_ms),
        pair.figure(format!("{name}, p99"), MS, LISTEN, Run::p99_ms),
    ])
}

/// Through a proxy, so its times mean nothing. A server that wants TLS cannot be looked at: no figure.
async fn round_trips(bench: &Bench<Postgres>) -> Result<Vec<Figure>> {
    let target = bench.place.store()?.place().to_owned();
    let target = target.rsplit_once('/').map_or(target.as_str(), |(hosts, _)| hosts);
    let wire = Wire::start(target.split(',').next().unwrap_or_default().to_owned()).await;
    let wire =
        wire.map_err(|error| Failure::new(ExitCode::Failure, format!("there is no port for the proxy: {error}")))?;
    let place = bench.place.through(&wire);
    let messages = bench.size.messages.min(WIRE_MESSAGES);
    let size = Size { rounds: 1, messages, ..bench.size.clone() };
    let payload_bytes = size.payload_bytes;
    let through = Bench { place, size, seen: bench.seen.clone() };
    if through.place.client().await.is_err() {
        let nothing = Pair { ours: vec![Run::default()], floor: Vec::new() };
        return Ok(vec![nothing.alone(
            "round trips (the server cannot be reached without TLS)",
            TRIPS,
            Run::round_trips,
        )]);
    }
    let enqueued = through
        .compare(
            "round trips of enqueue",
            async |bench| enqueue::single(bench, Way::Library, 1).await,
            async |bench| enqueue::single(bench, Way::InsertInTransaction, 1).await,
        )
        .await?;
    let drained = through
        .compare(
            "round trips of drain",
            async |bench| drain(bench, Load::new(messages, payload_bytes)).await,
            async |bench| floor::drain(bench, payload_bytes, messages).await,
        )
        .await?;
    Ok(vec![
        enqueued.figure("enqueue in a transaction", TRIPS, INSERT, Run::round_trips),
        drained.figure("drain", TRIPS, floor::LOOP, Run::round_trips),
    ])
}
