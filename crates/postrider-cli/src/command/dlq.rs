//! `postrider dlq`: the dead letters. Lists and groups them, sends them on their way again, or gives them up for good.
//! Here is said which are meant, by id or by filter; how they are counted, asked about and changed is in `operator.rs`.

mod show;

use async_trait::async_trait;
use clap::Subcommand;
use postrider::Store;
use postrider::inspect::DeadFilter;
use uuid::Uuid;

use super::OnOutbox;
use crate::bulk::Bulk;
use crate::exit_code::ExitCode;
use crate::failure::{Failure, Result};
use crate::filter::DeadOptions;
use crate::operator::{self, Consent};
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

const AFTER_REDRIVE: &str = "\
Counts first, and asks if there is more than one. A message that dies again
meanwhile is not taken twice. Ctrl-C stops between two batches of 10,000. Ids
that are not dead letters are listed, and the exit code is 4.

Examples:
  postrider dlq redrive 019a8f3c-6b1e-7c02-9d55-0f2b6a3e8d41
  postrider dlq redrive --sink orders --error-code HTTP_503
  postrider dlq redrive --all --yes";

const AFTER_DISCARD: &str = "\
A discarded dead letter is never delivered to its sink, unless it is replayed
with --include-never-delivered while its message is stored. A lane that it
blocked continues. You confirm by typing the number. Ids that are not dead
letters are listed, and the exit code is 4.

Examples:
  postrider dlq discard 019a8f3c-6b1e-7c02-9d55-0f2b6a3e8d41
  postrider dlq discard --topic order.placed --reason failed --dry-run
  postrider dlq discard --sink legacy --yes";

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
    /// Make dead letters pending again, with a new attempt count
    #[command(after_help = AFTER_REDRIVE)]
    Redrive(What),
    /// Give up dead letters for good
    #[command(after_help = AFTER_DISCARD)]
    Discard(What),
}

#[derive(Debug, clap::Args)]
struct What {
    /// These messages
    #[arg(value_name = "ID")]
    message_ids: Vec<Uuid>,
    #[command(flatten)]
    which: DeadOptions,
    /// Every dead letter
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    consent: Consent,
}

impl What {
    fn check(&self) -> Result<()> {
        let named = !self.message_ids.is_empty() || !self.which.is_empty();
        if self.all && named {
            return Err(Failure::usage("--all is every dead letter: it does not go with ids or filters")
                .hint("leave --all out to take only those"));
        }
        if !self.all && !named {
            return Err(Failure::usage("say which dead letters")
                .hint("give ids, filters such as --sink NAME, or --all; `postrider dlq groups` shows what there is"));
        }
        Ok(())
    }

    async fn run(self, bulk: fn(DeadFilter) -> Bulk, store: &dyn Store, output: &mut Output) -> Result<ExitCode> {
        let message_ids = (!self.message_ids.is_empty()).then_some(self.message_ids);
        let which = DeadFilter { message_ids, ..self.which.filter(store.now().await?) };
        operator::carry_out(store, bulk(which), self.consent, output).await
    }
}

#[async_trait(?Send)]
impl OnOutbox for Args {
    fn check(&self) -> Result<()> {
        match &self.verb {
            Verb::List(_) | Verb::Groups(_) => Ok(()),
            Verb::Redrive(what) | Verb::Discard(what) => what.check(),
        }
    }

    async fn run(self: Box<Self>, outbox: Opened, output: &mut Output) -> Result<ExitCode> {
        let store = &*outbox.store;
        match self.verb {
            Verb::List(args) => show::list(store, args, output).await,
            Verb::Groups(args) => show::groups(store, args, output).await,
            Verb::Redrive(what) => what.run(Bulk::Redrive, store, output).await,
            Verb::Discard(what) => what.run(Bulk::Discard, store, output).await,
        }
    }
}
