//! The commands, one file each. A command is prepared (arguments checked, files opened, URL read) and then run; this
//! file only hands over.

mod check;
mod config;
mod deliver;
mod demo;
mod drain;
mod enqueue;
mod list;
mod migrate;
mod receive;
mod routes;
mod run;
mod show;
mod status;

use clap::Subcommand;

use crate::exit_code::ExitCode;
use crate::failure::Result;
use crate::options::Global;
use crate::output::Output;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Demo(demo::Args),
    Enqueue(Box<enqueue::Args>),
    Run(run::Args),
    Drain(drain::Args),
    Check(check::Args),
    Config(config::Args),
    Routes(routes::Args),
    Receive(receive::Args),
    Status(status::Args),
    List(list::Args),
    Show(show::Args),
    Migrate(migrate::Args),
}

/// A command that has all it needs but the database.
pub(crate) enum Prepared {
    Demo(demo::Prepared),
    Enqueue(enqueue::Prepared),
    Run(run::Prepared),
    Drain(drain::Prepared),
    Check(check::Prepared),
    Config(config::Prepared),
    Routes(routes::Prepared),
    Receive(receive::Prepared),
    Status(status::Prepared),
    List(list::Prepared),
    Show(show::Prepared),
    Migrate(migrate::Prepared),
}

impl Command {
    pub(crate) fn prepare(self, global: &Global) -> Result<Prepared> {
        Ok(match self {
            Self::Demo(args) => Prepared::Demo(args.prepare()?),
            Self::Enqueue(args) => Prepared::Enqueue(args.prepare(global)?),
            Self::Run(args) => Prepared::Run(args.prepare(global)?),
            Self::Drain(args) => Prepared::Drain(args.prepare(global)?),
            Self::Check(args) => Prepared::Check(args.prepare(global)?),
            Self::Config(args) => Prepared::Config(args.prepare(global)?),
            Self::Routes(args) => Prepared::Routes(args.prepare(global)?),
            Self::Receive(args) => Prepared::Receive(args.prepare(global)?),
            Self::Status(args) => Prepared::Status(args.prepare(global)?),
            Self::List(args) => Prepared::List(args.prepare(global)?),
            Self::Show(args) => Prepared::Show(args.prepare(global)?),
            Self::Migrate(args) => Prepared::Migrate(args.prepare(global)?),
        })
    }
}

impl Prepared {
    /// Whether it does several things at once.
    pub(crate) fn wants_threads(&self) -> bool {
        matches!(self, Self::Demo(_) | Self::Run(_) | Self::Drain(_) | Self::Check(_) | Self::Receive(_))
    }

    pub(crate) async fn run(self, output: &mut Output) -> Result<ExitCode> {
        match self {
            Self::Demo(command) => command.run(output).await,
            Self::Enqueue(command) => command.run(output).await,
            Self::Run(command) => command.run().await,
            Self::Drain(command) => command.run(output.json).await,
            Self::Check(command) => command.run(output).await,
            Self::Config(command) => command.run(output),
            Self::Routes(command) => command.run(output).await,
            Self::Receive(command) => command.run().await,
            Self::Status(command) => command.run(output).await,
            Self::List(command) => command.run(output).await,
            Self::Show(command) => command.run(output).await,
            Self::Migrate(command) => command.run(output).await,
        }
    }
}
