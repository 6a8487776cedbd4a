//! `postrider cancel` and `postrider retry-now`: pending deliveries, by id or by what they are about, are taken back or made
//! due at once. How they are counted, asked about and changed is in `operator.rs`.

use async_trait::async_trait;
use postrider::inspect::DeliveryFilter;
use uuid::Uuid;

use super::OnOutbox;
use crate::bulk::Bulk;
use crate::exit_code::ExitCode;
use crate::failure::{Failure, Result};
use crate::filter::DeliveryOptions;
use crate::operator::{self, Consent};
use crate::output::Output;
use crate::store::Opened;

const AFTER_CANCEL: &str = "\
Use it for messages that were enqueued or replayed by mistake. A cancelled
delivery is never handed out, its lane continues without it, and an attempt
CANCELLED records who did it. The message stays as history and can be replayed.
Leased deliveries and dead letters are left alone; discard the latter. You
confirm by typing the number. Ids without a pending delivery are listed, and the
exit code is 4.

Examples:
  postrider cancel 019a8f3c-6b1e-7c02-9d55-0f2b6a3e8d41
  postrider cancel --sink wraehouse --dry-run
  postrider cancel --sink orders --topic order.placed --yes";

const AFTER_RETRY_NOW: &str = "\
Makes pending deliveries due: retries that wait, and messages that were
scheduled for later. Earlier attempts still count. Lanes keep their order; leased
deliveries and dead letters are left alone. Counts first, and asks if there is
more than one. Ids without a pending delivery are listed, and the exit code is
4.

Examples:
  postrider retry-now 019a8f3c-6b1e-7c02-9d55-0f2b6a3e8d41
  postrider retry-now --sink orders --dry-run
  postrider retry-now --all --yes";

/// Cancel pending deliveries
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_CANCEL)]
pub(crate) struct CancelArgs {
    #[command(flatten)]
    what: What,
}

/// Make retries and scheduled messages due now
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_RETRY_NOW)]
pub(crate) struct RetryNowArgs {
    #[command(flatten)]
    what: What,
}

#[derive(Debug, clap::Args)]
struct What {
    /// These messages
    #[arg(value_name = "ID")]
    message_ids: Vec<Uuid>,
    #[command(flatten)]
    which: DeliveryOptions,
    /// Every pending delivery
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    consent: Consent,
}

impl What {
    fn filter(&self) -> DeliveryFilter {
        let message_ids = (!self.message_ids.is_empty()).then(|| self.message_ids.clone());
        DeliveryFilter { message_ids, ..self.which.clone().filter() }
    }

    fn check(&self) -> Result<()> {
        match (self.all, self.filter() == DeliveryFilter::default()) {
            (true, false) => Err(Failure::usage("--all is every delivery: it does not go with ids or filters")
                .hint("leave --all out to take only those")),
            (false, true) => {
                Err(Failure::usage("say which deliveries").hint("give ids, filters such as --sink NAME, or --all"))
            }
            _ => Ok(()),
        }
    }
}

#[async_trait(?Send)]
impl OnOutbox for CancelArgs {
    fn check(&self) -> Result<()> {
        self.what.check()
    }

    async fn run(self: Box<Self>, outbox: Opened, output: &mut Output) -> Result<ExitCode> {
        let bulk = Bulk::Cancel(self.what.filter());
        operator::carry_out(&*outbox.store, bulk, self.what.consent, output).await
    }
}

#[async_trait(?Send)]
impl OnOutbox for RetryNowArgs {
    fn check(&self) -> Result<()> {
        self.what.check()
    }

    async fn run(self: Box<Self>, outbox: Opened, output: &mut Output) -> Result<ExitCode> {
        let bulk = Bulk::RetryNow(self.what.filter());
        operator::carry_out(&*outbox.store, bulk, self.what.consent, output).await
    }
}
