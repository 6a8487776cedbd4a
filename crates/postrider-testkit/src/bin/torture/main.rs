//! The torture of an outbox, by one command: a seeded storm of every fault, and a history checker that says whether any
//! promise was broken. `scripts/torture` builds and runs it; CI runs a slice of it. The same program is its own relay
//! processes. It starts its own servers, talks to nothing else, and leaves nothing behind.

#![expect(clippy::print_stdout, reason = "a command that reports to people")]

mod books;
mod checker;
mod database;
mod faults;
mod figures;
mod fleet;
mod kinds;
mod log;
mod network;
mod operator;
mod producers;
mod receiver;
mod relay;
mod samples;
mod storm;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Parser;
use postrider_testkit::Cluster;

use crate::faults::{Fault, Injected, RELAY_KILLS};
use crate::figures::RunFigures;
use crate::storm::{Pace, Round, SETTINGS};

/// Breaks everything around an outbox, with a seed, and checks that nothing was lost.
#[derive(Debug, Parser)]
#[command(name = "torture")]
struct Arguments {
    /// How long things break; draining and checking come on top.
    #[arg(long, default_value_t = 10, conflicts_with = "seconds")]
    minutes: u64,
    /// The same in seconds.
    #[arg(long)]
    seconds: Option<u64>,
    /// How long one round is: each has a fresh database and is checked at its end.
    #[arg(long, default_value_t = 60)]
    round_seconds: u64,
    /// Makes the choices of an earlier run again.
    #[arg(long)]
    seed: Option<u64>,
    /// Only these faults, by their names; all of them if none is given.
    #[arg(long, value_delimiter = ',')]
    faults: Vec<Fault>,
    /// End after the round in which so many relays have been killed.
    #[arg(long)]
    kills: Option<u64>,
    /// Arrivals between two faults of a relay, on average.
    #[arg(long, default_value_t = 400)]
    relay_every: u64,
    /// Arrivals between two kills of the server, on average.
    #[arg(long, default_value_t = 4_000)]
    server_every: u64,
    /// Arrivals between two faults of the network, on average.
    #[arg(long, default_value_t = 1_000)]
    network_every: u64,
    /// Arrivals between two other faults of the database, on average.
    #[arg(long, default_value_t = 4_000)]
    database_every: u64,
    /// Do not fail when redelivery takes longer than a lease and a second: for a machine that is busy with other things.
    #[arg(long)]
    any_redelivery: bool,
    /// Names every fault, with what it does.
    #[arg(long)]
    list: bool,
    /// Prints the figures as one JSON object.
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    if relay::run_if_asked() {
        return ExitCode::SUCCESS;
    }
    let arguments = Arguments::parse();
    if arguments.list {
        for fault in Fault::all() {
            println!("{:30} {}", fault.name(), fault.explained());
        }
        return ExitCode::SUCCESS;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("threads").block_on(run(&arguments))
}

async fn run(arguments: &Arguments) -> ExitCode {
    let seed = arguments.seed.unwrap_or_else(rand::random);
    let time = arguments.seconds.map_or(Duration::from_secs(60 * arguments.minutes), Duration::from_secs);
    println!("{}", arguments.again(seed));
    let chosen = if arguments.faults.is_empty() { Fault::all() } else { &arguments.faults };
    let injected = Arc::new(Injected::new(chosen.iter().copied().filter(|fault| is_possible(*fault))));
    let cluster = Cluster::start_with(SETTINGS).await;
    let mut figures = RunFigures::default();
    let began = Instant::now();
    let mut round = 0;
    while began.elapsed() < time && arguments.kills.is_none_or(|kills| injected.number(&RELAY_KILLS) < kills) {
        let left = time.saturating_sub(began.elapsed());
        let shown = Round {
            seed: seed.wrapping_add(round),
            time: left.min(Duration::from_secs(arguments.round_seconds)),
            pace: arguments.pace(),
            injected: Arc::clone(&injected),
        }
        .run(&cluster)
        .await;
        figures.add(&shown);
        round += 1;
        for violation in &shown.violations {
            println!("VIOLATION in round {round}: {violation}");
        }
        println!(
            "round {round}: {} messages, {} in all; {} relay kills, {} server kills; drained in {:?}; {:.0?} since the start",
            shown.history.messages,
            figures.messages(),
            injected.number(&RELAY_KILLS),
            injected.number(&[Fault::ServerKilled]),
            shown.drained,
            began.elapsed(),
        );
    }
    report(arguments, seed, &figures, &injected)
}

fn report(arguments: &Arguments, seed: u64, figures: &RunFigures, injected: &Injected) -> ExitCode {
    if arguments.json {
        println!("{}", figures.json(seed, injected));
    } else {
        println!("{}", figures.text(injected));
    }
    let late = !arguments.any_redelivery && !figures.redelivers_in_time();
    if late {
        println!("VIOLATION: p99 of redelivery is more than a lease and a second");
    }
    println!("{}", arguments.again(seed));
    if figures.violations == 0 && !late { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// A clock can be made wrong only where the library for it is.
fn is_possible(fault: Fault) -> bool {
    let possible = fault != Fault::RelayClock || fleet::faketime().is_some();
    if !possible {
        eprintln!("no wrong clocks: Debian's faketime is not installed (scripts/setup does it)");
    }
    possible
}

impl Arguments {
    fn pace(&self) -> Pace {
        Pace {
            relay: self.relay_every,
            server: self.server_every,
            network: self.network_every,
            database: self.database_every,
        }
    }

    /// The line that repeats this run.
    fn again(&self, seed: u64) -> String {
        let time = match self.seconds {
            Some(seconds) => format!("--seconds {seconds}"),
            None => format!("--minutes {}", self.minutes),
        };
        let names: Vec<String> = self.faults.iter().map(|fault| fault.name()).collect();
        let faults = if names.is_empty() { String::new() } else { format!(" --faults {}", names.join(",")) };
        format!(
            "scripts/torture --seed {seed} {time} --round-seconds {} --relay-every {} --server-every {} \
             --network-every {} --database-every {}{faults}",
            self.round_seconds, self.relay_every, self.server_every, self.network_every, self.database_every
        )
    }
}
