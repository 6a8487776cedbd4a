//! `postrider demo`: a little shop with an embedded outbox, a relay, and a receiver with bad days, live on the terminal.
//! Nothing is installed and nothing stays. At the end it counts what the producers wrote, what the store has and what
//! the receiver got, says whether that adds up, and fails if it does not.

mod account;
mod ledger;
mod plain;
mod receiver;
mod screen;
mod shop;
mod view;
mod watch;
mod world;

use std::fs;
use std::io::{self, IsTerminal as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use postrider::{SqliteStore, Store};
use postrider_relay::{Backoff, BreakerOptions, Relay, RelayOptions, RetryOptions, SinkOptions, handler};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use self::receiver::Receiver;
use self::shop::Shop;
use self::view::Viewer;
use self::world::World;
use super::deliver;
use crate::exit_code::ExitCode;
use crate::failure::{Failure, Result};
use crate::output::Output;
use crate::signals::Stop;

/// The only sink of the demo.
const SINK: &str = "default";
/// How long the receiver may take for one message.
const DEADLINE: Duration = Duration::from_secs(2);
/// How long what is on its way may take at the end: a little more than the longest delivery.
const GRACE: Duration = Duration::from_secs(4);
const FILE: &str = "demo.db";

const AFTER_HELP: &str = "\
Producers write to a shop's tables and enqueue in the same transaction. A relay
delivers to a receiver that fails, hangs, refuses and goes down. Keys: q quits,
p pauses the sink, d takes the receiver down, r redrives dead letters. Without a
terminal it prints a line every second.

Exit code 0 if everything adds up at the end: enqueued = delivered + dead +
pending, in the store and at the receiver, with each lane in order.

Examples:
  postrider demo
  postrider demo --seconds 20 --rate 300
  postrider demo --seconds 20 --keep /tmp/shop";

/// Run producers, a relay and an unreliable receiver on a temporary outbox
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Stop after this many seconds
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: Option<u64>,
    /// Messages a second, over all producers
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=5_000))]
    rate: u32,
    /// Seed of the random events [default: random]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Keep the outbox in this directory
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
}

pub(crate) struct Prepared {
    seconds: Option<u64>,
    rate: u32,
    seed: u64,
    place: Place,
}

/// Where the outbox is for the time of the demo.
enum Place {
    Kept(PathBuf),
    Temporary(TempDir),
}

impl Args {
    pub(crate) fn prepare(self) -> Result<Prepared> {
        let place = match self.keep {
            Some(directory) => Place::kept(directory)?,
            None => {
                Place::Temporary(tempfile::Builder::new().prefix("postrider-demo-").tempdir().map_err(|error| {
                    Failure::new(ExitCode::Unreachable, format!("cannot make a temporary directory: {error}"))
                        .hint("set TMPDIR to a directory that can be written, or give --keep DIR")
                })?)
            }
        };
        Ok(Prepared { seconds: self.seconds, rate: self.rate, seed: self.seed.unwrap_or_else(rand::random), place })
    }
}

impl Place {
    fn kept(directory: PathBuf) -> Result<Self> {
        fs::create_dir_all(&directory).map_err(|error| {
            Failure::new(ExitCode::Unreachable, format!("cannot make the directory {}: {error}", directory.display()))
        })?;
        if directory.join(FILE).exists() {
            return Err(Failure::usage(format!("there is a {FILE} in {} already", directory.display()))
                .hint("give --keep another directory, or move the file away: the demo counts from nothing"));
        }
        Ok(Self::Kept(directory))
    }

    fn file(&self) -> PathBuf {
        let directory: &Path = match self {
            Self::Kept(directory) => directory,
            Self::Temporary(directory) => directory.path(),
        };
        directory.join(FILE)
    }
}

impl Prepared {
    pub(crate) async fn run(self, output: &mut Output) -> Result<ExitCode> {
        let file = self.place.file();
        let world = Arc::new(World::new(self.seed));
        watch::start(&world);
        let store = SqliteStore::open(&file)?;
        let shop = Shop::open(&file)?;
        let store: Arc<dyn Store> = Arc::new(store);
        let receiver = Arc::new(Receiver::new(Arc::clone(&world)));
        let relay = relay(&store, &receiver, self.seed)?;
        let stats = relay.stats();

        let temporary = matches!(self.place, Place::Temporary(_)).then(|| file.clone());
        let signals = Stop::on_signals(move || {
            ratatui::restore();
            if let Some(directory) = temporary.as_deref().and_then(Path::parent) {
                drop(fs::remove_dir_all(directory));
            }
        })?;
        let end = signals.token.child_token();
        if let Some(seconds) = self.seconds {
            let end = end.clone();
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_secs(seconds)).await;
                end.cancel();
            });
        }

        // Each stops before the next: the producers, then the relay, so that the count stands still.
        let (producers_stop, relay_stop) = (CancellationToken::new(), CancellationToken::new());
        let producers = shop.start_producers(&world, self.rate, &producers_stop, &end)?;
        let weather = tokio::spawn(Arc::clone(&receiver).weather());
        let delivering = tokio::spawn(relay.run(relay_stop.clone()));

        let viewer = Viewer::new(Arc::clone(&world), Arc::clone(&store), stats, file.clone());
        let shown = if output.json {
            end.cancelled().await;
            Ok(())
        } else if io::stdout().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb") {
            screen::show(viewer, &receiver, &end).await
        } else {
            plain::show(viewer, &end, output).await
        };

        let elapsed = world.elapsed();
        producers_stop.cancel();
        producers.join().await?;
        relay_stop.cancel();
        let counts = match delivering.await {
            Ok(ended) => ended.map_err(deliver::explain)?,
            Err(error) => return Err(Failure::new(ExitCode::Failure, format!("the relay failed: {error}"))),
        };
        weather.abort();
        shown?;
        let account = account::take(&world, &store, &shop, counts, elapsed).await?;
        let adds_up = account.print(output)?;
        if let Place::Kept(_) = self.place {
            account::say_where(&file, output)?;
        }
        Ok(if adds_up { ExitCode::Ok } else { ExitCode::Failure })
    }
}

fn relay(store: &Arc<dyn Store>, receiver: &Arc<Receiver>, seed: u64) -> Result<Relay> {
    let options = RelayOptions::default()
        .worker_id(format!("demo-{}", std::process::id()))
        .lease(Duration::from_secs(10))
        .grace(GRACE);
    // Quick to give up and quick to come back: whoever watches has no five minutes.
    let sink_options = SinkOptions::default()
        .batch_size(100)
        .concurrency(16)
        .deadline(DEADLINE)
        .retry(
            RetryOptions::default()
                .backoff(Backoff::new(Duration::from_millis(300), Duration::from_secs(5)))
                .max_attempts(20),
        )
        .breaker(
            BreakerOptions::default()
                .failures(8)
                .cool_down(Duration::from_millis(700))
                .cool_down_max(Duration::from_secs(3)),
        );
    let receiver = Arc::clone(receiver);
    let sink = handler(move |message| {
        let receiver = Arc::clone(&receiver);
        async move { receiver.take(&message).await }
    });
    Relay::builder(Arc::clone(store))
        .sink_with(SINK, sink, sink_options)
        .options(options)
        .seed(seed)
        .build()
        .map_err(deliver::explain)
}
