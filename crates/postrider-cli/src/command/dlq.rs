//! `postrider dlq`: the dead letters. Lists and groups them, sends them on their way again, or gives them up for good.
//! A change counts first, asks a person, and goes on in bounded batches that can be interrupted between two.

mod change;
mod show;

use async_trait::async_trait;
use clap::Subcommand;

use super::OnOutbox;
use crate::bulk::Bulk;
use crate::exit_code::ExitCode;
use crate::failure::Result;
use crate::output::Output;
use crate::store::Opened;

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

#[async_trait(?Send)]
impl OnOutbox for Args {
    fn check(&self) -> Result<()> {
        match &self.verb {
            Verb::List(_) | Verb::Groups(_) => Ok(()),
            Verb::Redrive(args) => args.what.check(),
            Verb::Discard(args) => args.what.check(),
        }
    }

    async fn run(self: Box<Self>, outbox: Opened, output: &mut Output) -> Result<ExitCode> {
        let store = &*outbox.store;
        match self.verb {
            Verb::List(args) => show::list(store, args, output).await,
            Verb::Groups(args) => show::groups(store, args, output).await,
            Verb::Redrive(args) => args.what.run(Bulk::Redrive, store, output).await,
            Verb::Discard(args) => args.what.run(Bulk::Discard, store, output).await,
        }
    }
}
