//! The commands, one file each. A command is prepared (arguments checked, files opened, URL read) and then run; this
//! file only hands over.

mod enqueue;
mod list;
mod migrate;
mod show;
mod status;

use clap::Subcommand;

use crate::exit_code::ExitCode;
use crate::failure::Result;
use crate::options::Global;
use crate::output::Output;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Migrate(migrate::Args),
    Enqueue(Box<enqueue::Args>),
    Status(status::Args),
    List(list::Args),
    Show(show::Args),
}

/// A command that has all it needs but the database.
pub(crate) enum Prepared {
    Migrate(migrate::Prepared),
    Enqueue(enqueue::Prepared),
    Status(status::Prepared),
    List(list::Prepared),
    Show(show::Prepared),
}

impl Command {
    pub(crate) fn prepare(self, global: &Global) -> Result<Prepared> {
        Ok(match self {
            Self::Migrate(args) => Prepared::Migrate(args.prepare(global)?),
            Self::Enqueue(args) => Prepared::Enqueue(args.prepare(global)?),
            Self::Status(args) => Prepared::Status(args.prepare(global)?),
            Self::List(args) => Prepared::List(args.prepare(global)?),
            Self::Show(args) => Prepared::Show(args.prepare(global)?),
        })
    }
}

impl Prepared {
    pub(crate) async fn run(self, output: &mut Output) -> Result<ExitCode> {
        match self {
            Self::Migrate(command) => command.run(output).await,
            Self::Enqueue(command) => command.run(output).await,
            Self::Status(command) => command.run(output).await,
            Self::List(command) => command.run(output).await,
            Self::Show(command) => command.run(output).await,
        }
    }
}
