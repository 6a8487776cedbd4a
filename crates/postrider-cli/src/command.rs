//! The commands, one file each. A command is prepared (arguments checked, files opened, URL read) and then run; this
//! file only hands over.

mod audit;
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
mod lanes;
mod list;
mod man;
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
mod which;

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
    Migrate(migrate::Args),
    Completions(completions::Args),
    Man(man::Args),
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
    Routes(routes::Prepared),
    Receive(receive::Prepared),
    Status(status::Prepared),
    List(list::Prepared),
    Show(show::Prepared),
    Explain(explain::Prepared),
    Top(top::Prepared),
    Dlq(Box<dlq::Prepared>),
    Lanes(lanes::Prepared),
    Sinks(sinks::Prepared),
    Relays(relays::Prepared),
    Replay(Box<replay::Prepared>),
    Deliveries(deliveries::Prepared),
    UnclaimStuck(unclaim_stuck::Prepared),
    Prune(prune::Prepared),
    Audit(audit::Prepared),
    Doctor(doctor::Prepared),
    Migrate(migrate::Prepared),
    Completions(completions::Prepared),
    Man(man::Prepared),
}

impl Command {
    pub(crate) fn prepare(self, global: &Global) -> Result<Prepared> {
        Ok(match self {
            Self::Demo(args) => Prepared::Demo(args.prepare()?),
            Self::Enqueue(args) => Prepared::Enqueue(args.prepare(global)?),
            Self::Run(args) => Prepared::Run(args.prepare(global)?),
            Self::Serve(args) => Prepared::Serve(args.prepare(global)?),
            Self::Drain(args) => Prepared::Drain(args.prepare(global)?),
            Self::Check(args) => Prepared::Check(args.prepare(global)?),
            Self::Config(args) => Prepared::Config(args.prepare(global)?),
            Self::Routes(args) => Prepared::Routes(args.prepare(global)?),
            Self::Receive(args) => Prepared::Receive(args.prepare(global)?),
            Self::Status(args) => Prepared::Status(args.prepare(global)?),
            Self::List(args) => Prepared::List(args.prepare(global)?),
            Self::Show(args) => Prepared::Show(args.prepare(global)?),
            Self::Explain(args) => Prepared::Explain(args.prepare(global)?),
            Self::Top(args) => Prepared::Top(args.prepare(global)?),
            Self::Dlq(args) => Prepared::Dlq(Box::new(args.prepare(global)?)),
            Self::Lanes(args) => Prepared::Lanes(args.prepare(global)?),
            Self::Sinks(args) => Prepared::Sinks(args.prepare(global)?),
            Self::Relays(args) => Prepared::Relays(args.prepare(global)?),
            Self::Replay(args) => Prepared::Replay(Box::new(args.prepare(global)?)),
            Self::RetryNow(args) => Prepared::Deliveries(args.prepare(global)?),
            Self::Cancel(args) => Prepared::Deliveries(args.prepare(global)?),
            Self::UnclaimStuck(args) => Prepared::UnclaimStuck(args.prepare(global)?),
            Self::Prune(args) => Prepared::Prune(args.prepare(global)?),
            Self::Audit(args) => Prepared::Audit(args.prepare(global)?),
            Self::Doctor(args) => Prepared::Doctor(args.prepare(global)?),
            Self::Migrate(args) => Prepared::Migrate(args.prepare(global)?),
            Self::Completions(args) => Prepared::Completions(args.prepare()?),
            Self::Man(args) => Prepared::Man(args.prepare()?),
        })
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
            Self::Routes(command) => command.run(output).await,
            Self::Receive(command) => command.run().await,
            Self::Status(command) => command.run(output).await,
            Self::List(command) => command.run(output).await,
            Self::Show(command) => command.run(output).await,
            Self::Explain(command) => command.run(output).await,
            Self::Top(command) => command.run(output.json).await,
            Self::Dlq(command) => command.run(output).await,
            Self::Lanes(command) => command.run(output).await,
            Self::Sinks(command) => command.run(output).await,
            Self::Relays(command) => command.run(output).await,
            Self::Replay(command) => command.run(output).await,
            Self::Deliveries(command) => command.run(output).await,
            Self::UnclaimStuck(command) => command.run(output).await,
            Self::Prune(command) => command.run(output).await,
            Self::Audit(command) => command.run(output).await,
            Self::Doctor(command) => command.run(output).await,
            Self::Migrate(command) => command.run(output).await,
            Self::Completions(command) => command.run(output),
            Self::Man(command) => command.run(output),
        }
    }
}
