//! `postrider bench`: what an outbox does here, beside what the same database does without one. The outbox and a floor of
//! hand-written statements take turns, so that a ratio holds on a busy machine too. Works in a schema of its own, on a given
//! database or on a private server, and removes it however the run ends.

mod enqueue;
mod figure;
mod floor;
mod latency;
mod load;
mod measurement;
mod picture;
mod place;
mod relays;
mod report;
mod run;
mod server;
mod shape;
mod sqlite;
mod wire;

use std::cell::RefCell;
use std::fs;
use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use self::figure::{Figure, Pair};
use self::measurement::Measurement;
use self::place::{Place, Postgres};
use self::report::{Report, Series};
use self::run::Run;
use self::server::Server;
use self::shape::Shape;
use self::sqlite::Sqlite;
use crate::exit_code::ExitCode;
use crate::failure::{Failure, Result};
use crate::options::Global;
use crate::output::Output;
use crate::signals::Stop;

const TICK: Duration = Duration::from_millis(200);

const AFTER_HELP: &str = "\
Without a database it starts a private server and removes it afterwards. A given
database gets a schema of its own, postrider_bench_…, which is dropped at the
end; nothing else in it is read or written, but the server is kept busy. Ctrl-C
ends it and removes everything.

Each measurement and its floor take turns: the same work by hand, without an
outbox. Read the ratio; the figures alone depend on the machine and its mood. A
dash is what this system does not tell.

Examples:
  postrider bench
  postrider bench --only enqueue,drain --messages 200000 --svg bench.svg
  postrider bench --shape blocked-lane --backlog 1000000
  postrider bench --shape payload,relays --json > bench.json
  postrider bench --sqlite";

/// Measure what an outbox does here, beside a floor
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Measure only these
    #[arg(long, value_name = "NAME", value_delimiter = ',', conflicts_with = "shape")]
    only: Vec<Measurement>,
    /// Measure how these change what is drained
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    shape: Vec<Shape>,
    /// Measure SQLite, in a temporary file
    #[arg(long, conflicts_with_all = ["database_url", "database", "shape"])]
    sqlite: bool,
    /// Write a picture of the throughput over time
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    #[command(flatten)]
    size: Size,
}

/// How much is measured.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Size {
    /// Messages of a run; a tenth where each has a transaction of its own
    #[arg(long, value_name = "N", default_value_t = 50_000, value_parser = clap::value_parser!(u32).range(10..=10_000_000))]
    messages: u32,
    /// Rounds; the median counts
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=100))]
    rounds: u16,
    /// Producers at once
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=64))]
    clients: u16,
    /// Messages of one call or claim
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    batch: u32,
    /// Bytes of a payload
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(16..=1_048_576))]
    payload_bytes: u32,
    /// Relays at once
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=16))]
    relays: u16,
    /// Lanes of the messages that are drained; 0 is none
    #[arg(long, value_name = "N", default_value_t = 0)]
    lanes: u32,
    /// Messages that lie before the relay, for shapes
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    backlog: u32,
    /// Messages that were delivered before, for shapes
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    history: u32,
}

impl Size {
    /// Messages, if each has a transaction of its own.
    fn single(&self) -> u32 {
        self.messages / 10
    }
}

pub(crate) struct Prepared {
    target: Target,
    only: Vec<Measurement>,
    shapes: Vec<Shape>,
    svg: Option<PathBuf>,
    size: Size,
}

enum Target {
    /// A given database, or a server of its own.
    Postgres(Option<String>),
    /// The directory in which the file is made, if not the usual one.
    Sqlite(Option<PathBuf>),
}

impl Args {
    pub(crate) fn prepare(self, global: &Global) -> Result<Prepared> {
        let target = match global.named_url()? {
            _ if self.sqlite => Target::Sqlite(None),
            None => Target::Postgres(None),
            Some((_, Some(file))) if self.shape.is_empty() => Target::Sqlite(file.parent().map(PathBuf::from)),
            Some((_, Some(_))) => {
                return Err(Failure::usage("the shapes are PostgreSQL's, and this is an SQLite file")
                    .hint("leave out --shape, or give another --database-url"));
            }
            Some((url, None)) => Target::Postgres(Some(url)),
        };
        let only = if self.only.is_empty() && self.shape.is_empty() { Measurement::all() } else { self.only };
        Ok(Prepared { target, only, shapes: self.shape, svg: self.svg, size: self.size })
    }
}

/// A place, how much is measured there, and what has been seen.
struct Bench<P> {
    place: P,
    size: Size,
    seen: Seen,
}

/// What the rounds leave behind for the picture, and the bar that shows where they are.
#[derive(Clone)]
struct Seen {
    bar: ProgressBar,
    series: Rc<RefCell<Vec<Series>>>,
}

impl<P: Place> Bench<P> {
    /// The outbox and its floor take turns, each in an outbox with nothing in it.
    async fn compare(
        &self,
        name: &str,
        ours: impl AsyncFn(&Self) -> Result<Run>,
        floor: impl AsyncFn(&Self) -> Result<Run>,
    ) -> Result<Pair> {
        let mut pair = Pair { ours: Vec::new(), floor: Vec::new() };
        for round in 0..self.size.rounds {
            self.seen.say(name, round, self.size.rounds);
            self.place.fresh().await?;
            pair.ours.push(ours(self).await?);
            self.place.fresh().await?;
            pair.floor.push(floor(self).await?);
        }
        self.seen.keep(name, &pair);
        Ok(pair)
    }
}

impl Seen {
    fn new(steps: usize, json: bool) -> Self {
        let bar = ProgressBar::new(steps as u64);
        if json || !std::io::stderr().is_terminal() {
            bar.set_draw_target(ProgressDrawTarget::hidden());
        }
        if let Ok(style) = ProgressStyle::with_template("{bar:24.green} {pos}/{len}  {msg}  {elapsed}") {
            bar.set_style(style.progress_chars("━━╌"));
        }
        bar.enable_steady_tick(TICK);
        Self { bar, series: Rc::default() }
    }

    fn say(&self, name: &str, round: u16, rounds: u16) {
        self.bar.set_message(format!("{name}, round {} of {rounds}", round + 1));
    }

    /// The first round, for the picture.
    fn keep(&self, name: &str, pair: &Pair) {
        if let (Some(ours), Some(floor)) = (pair.ours.first(), pair.floor.first()) {
            let series = Series { name: name.to_owned(), ours: ours.series.clone(), floor: floor.series.clone() };
            self.series.borrow_mut().push(series);
        }
    }
}

impl Prepared {
    pub(crate) async fn run(self, output: &mut Output) -> Result<ExitCode> {
        let server: Arc<OnceLock<Weak<Server>>> = Arc::default();
        let running = Arc::clone(&server);
        let stop =
            Stop::on_signals(move || running.get().and_then(Weak::upgrade).iter().for_each(|server| server.end()))?;
        let seen = Seen::new(self.only.len() + self.shapes.len(), output.json);
        let Self { target, only, shapes, svg, size } = self;
        let measured = match target {
            Target::Sqlite(directory) => {
                let bench = Bench { place: Sqlite::new(directory)?, size: size.clone(), seen: seen.clone() };
                or_stopped(&stop, measure_sqlite(&bench, &only)).await?
            }
            Target::Postgres(url) => {
                let place = if let Some(url) = url {
                    Postgres::at(url)?
                } else {
                    let started = Arc::new(Server::start()?);
                    let _ = server.set(Arc::downgrade(&started));
                    Postgres::on(started)?
                };
                let bench = Bench { place, size: size.clone(), seen: seen.clone() };
                let measured = or_stopped(&stop, measure(&bench, &only, &shapes)).await;
                seen.bar.set_message("removing what it made");
                // Whatever happened; a failure before it comes first.
                let removed = bench.place.remove().await;
                let measured = measured?;
                removed?;
                measured
            }
        };
        seen.bar.finish_and_clear();
        let Some((place, figures)) = measured else { return Ok(stop.heard().unwrap_or(ExitCode::Interrupted)) };
        let report = Report { place, size: report::Sizes::of(&size), figures, series: seen.series.take() };
        if let Some(file) = svg {
            fs::write(&file, picture::draw(&report.series)).map_err(|error| {
                Failure::new(ExitCode::Failure, format!("cannot write {}: {error}", file.display()))
            })?;
        }
        report.print(output)?;
        Ok(ExitCode::Ok)
    }
}

/// `None` if a signal came first. What was under way is dropped.
async fn or_stopped<T>(stop: &Stop, work: impl Future<Output = Result<T>>) -> Result<Option<T>> {
    tokio::select! {
        done = work => done.map(Some),
        () = stop.token.cancelled() => Ok(None),
    }
}

async fn measure(bench: &Bench<Postgres>, only: &[Measurement], shapes: &[Shape]) -> Result<(String, Vec<Figure>)> {
    let place = measurement::place(&bench.place).await?;
    let mut figures = Vec::new();
    for measurement in only {
        figures.extend(measurement.run(bench).await?);
        bench.seen.bar.inc(1);
    }
    for shape in shapes {
        figures.extend(shape.run(bench).await?);
        bench.seen.bar.inc(1);
    }
    Ok((place, figures))
}

async fn measure_sqlite(bench: &Bench<Sqlite>, only: &[Measurement]) -> Result<(String, Vec<Figure>)> {
    let mut figures = Vec::new();
    for measurement in only {
        figures.extend(sqlite::run(*measurement, bench).await?);
        bench.seen.bar.inc(1);
    }
    Ok((format!("SQLite {}", rusqlite::version()), figures))
}
