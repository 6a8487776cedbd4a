//! `postrider dlq`: the dead letters. Lists and groups them, sends them on their way again, or gives them up for good.
//! A change counts first, asks a person, and goes on in bounded batches that can be interrupted between two.

mod change;
mod filter;
mod show;

use clap::Subcommand;

use crate::bulk::Bulk;
use crate::exit_code::ExitCode;
use crate::failure::Result;
use crate::options::Global;
use crate::output::Output;
use crate::store::{Address, Missing, Opened};

const AFTER_HELP: &str = "\
A dead letter is a delivery that failed for good, or that is out of attempts. It
waits for an operator: redrive makes it pending again, with a new attempt count;
discard gives it up, and a lane that it blocked continues. Both are audited.

Examples:
  postrider dlq groups
  postrider dlq list --sink orders --error-code HTTP_422
  postrider dlq redrive --sink orders --dry-run
  postrider dlq discard 019a8f3c-6b1e-7c02-9d55-0f2b6a3e8d41";

/// List, redrive or discard dead letters
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP, alias = "dead-letters")]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    List(show::ListArgs),
    Groups(show::GroupsArgs),
    Redrive(change::RedriveArgs),
    Discard(change::DiscardArgs),
}

pub(crate) struct Prepared {
    address: Address,
    work: Work,
}

enum Work {
    List(show::List),
    Groups(filter::Which),
    Change(change::Change),
}

impl Args {
    pub(crate) fn prepare(self, global: &Global) -> Result<Prepared> {
        let work = match self.verb {
            Verb::List(args) => Work::List(args.prepare()?),
            Verb::Groups(args) => Work::Groups(args.which),
            Verb::Redrive(args) => Work::Change(args.what.prepare(Bulk::Redrive)?),
            Verb::Discard(args) => Work::Change(args.what.prepare(Bulk::Discard)?),
        };
        Ok(Prepared { address: global.address()?, work })
    }
}

impl Prepared {
    pub(crate) async fn run(self, output: &mut Output) -> Result<ExitCode> {
        let Opened { store, .. } = self.address.open(Missing::Refuse).await?;
        match self.work {
            Work::List(list) => list.run(&*store, output).await,
            Work::Groups(which) => show::groups(&*store, &which, output).await,
            Work::Change(change) => change.run(&*store, output).await,
        }
    }
}
