//! The commands, one file each. A command is prepared (arguments checked, files opened, URL read) and then run; this
//! file only hands over. Most work on one outbox: they are [`OnOutbox`], and are given it opened.

mod audit;
mod bench;
mod check;
mod completions;
mod config;
mod deliver;
mod deliveries;
mod demo;
mod dlq;
mod doctor;
mod drain;
mod enqueue;
mod explain;
mod import;
mod lanes;
mod list;
mod man;
mod message;
mod migrate;
mod prune;
mod receive;
mod relays;
mod replay;
mod routes;
mod run;
mod serve;
mod show;
mod sinks;
mod status;
mod top;
mod unclaim_stuck;

use async_trait::async_trait;
use clap::Subcommand;

use crate::exit_code::ExitCode;
use crate::failure::Result;
use crate::options::Global;
use crate::output::Output;
use crate::store::{Address, Missing, Opened};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Demo(demo::Args),
    Enqueue(Box<enqueue::Args>),
    Run(run::Args),
    Serve(serve::Args),
    Drain(drain::Args),
    Check(check::Args),
    Config(config::Args),
    Routes(routes::Args),
    Receive(receive::Args),
    Status(status::Args),
    List(list::Args),
    Show(show::Args),
    Explain(explain::Args),
    Top(top::Args),
    Dlq(Box<dlq::Args>),
    Lanes(lanes::Args),
    Sinks(sinks::Args),
    Relays(relays::Args),
    Replay(replay::Args),
    RetryNow(deliveries::RetryNowArgs),
    Cancel(deliveries::CancelArgs),
    UnclaimStuck(unclaim_stuck::Args),
    Prune(prune::Args),
    Audit(audit::Args),
    Doctor(doctor::Args),
    Bench(Box<bench::Args>),
    Migrate(migrate::Args),
    Import(import::Args),
    Completions(completions::Args),
    Man(man::Args),
}

/// A command that works on one outbox.
#[async_trait(?Send)]
pub(crate) trait OnOutbox {
    /// Refuses arguments that do not go together, before anything is opened.
    fn check(&self) -> Result<()> {
        Ok(())
    }

    /// What to do if it is an SQLite file that is not there.
    fn missing(&self) -> Missing {
        Missing::Refuse
    }

    async fn run(self: Box<Self>, outbox: Opened, output: &mut Output) -> Result<ExitCode>;
}

/// A command that has all it needs but the database.
pub(crate) enum Prepared {
    Demo(demo::Prepared),
    Enqueue(enqueue::Prepared),
    Run(run::Prepared),
    Serve(serve::Prepared),
    Drain(drain::Prepared),
    Check(check::Prepared),
    Config(config::Prepared),
    Receive(receive::Prepared),
    Top(top::Prepared),
    Doctor(doctor::Prepared),
    Bench(bench::Prepared),
    Migrate(migrate::Prepared),
    Import(Box<import::Prepared>),
    Completions(completions::Prepared),
    Man(man::Prepared),
    OnOutbox(Address, Box<dyn OnOutbox>),
}

impl Command {
    pub(crate) fn prepare(self, global: &Global) -> Result<Prepared> {
        let command: Box<dyn OnOutbox> = match self {
            Self::Demo(args) => return args.prepare().map(Prepared::Demo),
            Self::Enqueue(args) => return args.prepare(global).map(Prepared::Enqueue),
            Self::Run(args) => return args.prepare(global).map(Prepared::Run),
            Self::Serve(args) => return args.prepare(global).map(Prepared::Serve),
            Self::Drain(args) => return args.prepare(global).map(Prepared::Drain),
            Self::Check(args) => return args.prepare(global).map(Prepared::Check),
            Self::Config(args) => return args.prepare(global).map(Prepared::Config),
            Self::Receive(args) => return args.prepare(global).map(Prepared::Receive),
            Self::Top(args) => return args.prepare(global).map(Prepared::Top),
            Self::Doctor(args) => return args.prepare(global).map(Prepared::Doctor),
            Self::Bench(args) => return args.prepare(global).map(Prepared::Bench),
            Self::Migrate(args) => return args.prepare(global).map(Prepared::Migrate),
            Self::Import(args) => return args.prepare(global).map(|import| Prepared::Import(Box::new(import))),
            Self::Completions(args) => return args.prepare().map(Prepared::Completions),
            Self::Man(args) => return args.prepare().map(Prepared::Man),
            Self::Routes(args) => Box::new(args),
            Self::Status(args) => Box::new(args),
            Self::List(args) => Box::new(args),
            Self::Show(args) => Box::new(args),
            Self::Explain(args) => Box::new(args),
            Self::Dlq(args) => args,
            Self::Lanes(args) => Box::new(args),
            Self::Sinks(args) => Box::new(args),
            Self::Relays(args) => Box::new(args),
            Self::Replay(args) => Box::new(args),
            Self::RetryNow(args) => Box::new(args),
            Self::Cancel(args) => Box::new(args),
            Self::UnclaimStuck(args) => Box::new(args),
            Self::Prune(args) => Box::new(args),
            Self::Audit(args) => Box::new(args),
        };
        command.check()?;
        Ok(Prepared::OnOutbox(global.address()?, command))
    }
}

impl Prepared {
    /// Whether it does several things at once.
    pub(crate) fn wants_threads(&self) -> bool {
        matches!(
            self,
            Self::Demo(_)
                | Self::Run(_)
                | Self::Serve(_)
                | Self::Drain(_)
                | Self::Check(_)
                | Self::Receive(_)
                | Self::Top(_)
                | Self::Bench(_)
        )
    }

    pub(crate) async fn run(self, output: &mut Output) -> Result<ExitCode> {
        match self {
            Self::Demo(command) => command.run(output).await,
            Self::Enqueue(command) => command.run(output).await,
            Self::Run(command) => command.run().await,
            Self::Serve(command) => command.run().await,
            Self::Drain(command) => command.run(output.json).await,
            Self::Check(command) => command.run(output).await,
            Self::Config(command) => command.run(output),
            Self::Receive(command) => command.run().await,
            Self::Top(command) => command.run(output.json).await,
            Self::Doctor(command) => command.run(output).await,
            Self::Bench(command) => command.run(output).await,
            Self::Migrate(command) => command.run(output).await,
            Self::Import(command) => command.run(output).await,
            Self::Completions(command) => command.run(output),
            Self::Man(command) => command.run(output),
            Self::OnOutbox(address, command) => {
                let outbox = address.open(command.missing()).await?;
                command.run(outbox, output).await
            }
        }
    }
}
