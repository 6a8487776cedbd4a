//! `postrider cancel` and `postrider retry-now`: pending deliveries, by id or by what they are about, are taken back or made
//! due at once. How they are counted, asked about and changed is in `operator.rs`.

use postrider::DeliveryFilter;
use uuid::Uuid;

use crate::bulk::Bulk;
use crate::exit_code::ExitCode;
use crate::failure::{Failure, Result};
use crate::operator::{self, Consent};
use crate::options::Global;
use crate::output::Output;
use crate::store::{Address, Missing, Opened};

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

const HEADING: &str = "Which";

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

/// Which deliveries; everything that is given must hold.
#[derive(Debug, clap::Args)]
struct What {
    /// These messages
    #[arg(value_name = "ID")]
    message_ids: Vec<Uuid>,
    /// Of this sink
    #[arg(long, value_name = "NAME", help_heading = HEADING)]
    sink: Option<String>,
    /// Of this namespace
    #[arg(long, value_name = "NAME", help_heading = HEADING)]
    namespace: Option<String>,
    /// Of this topic
    #[arg(long, value_name = "TOPIC", help_heading = HEADING)]
    topic: Option<String>,
    /// Of this tenant
    #[arg(long, value_name = "UUID", help_heading = HEADING)]
    tenant: Option<Uuid>,
    /// In this lane
    #[arg(long, value_name = "LANE", help_heading = HEADING)]
    lane: Option<String>,
    /// Every pending delivery
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    consent: Consent,
}

pub(crate) struct Prepared {
    address: Address,
    bulk: Bulk,
    consent: Consent,
}

impl CancelArgs {
    pub(crate) fn prepare(self, global: &Global) -> Result<Prepared> {
        self.what.prepare(global, Bulk::Cancel)
    }
}

impl RetryNowArgs {
    pub(crate) fn prepare(self, global: &Global) -> Result<Prepared> {
        self.what.prepare(global, Bulk::RetryNow)
    }
}

impl What {
    fn prepare(self, global: &Global, bulk: fn(DeliveryFilter) -> Bulk) -> Result<Prepared> {
        let which = DeliveryFilter {
            message_ids: (!self.message_ids.is_empty()).then_some(self.message_ids),
            sink: self.sink,
            namespace: self.namespace,
            topic: self.topic,
            tenant_id: self.tenant,
            lane: self.lane,
        };
        match (self.all, which == DeliveryFilter::default()) {
            (true, false) => Err(Failure::usage("--all is every delivery: it does not go with ids or filters")
                .hint("leave --all out to take only those")),
            (false, true) => {
                Err(Failure::usage("say which deliveries").hint("give ids, filters such as --sink NAME, or --all"))
            }
            _ => Ok(Prepared { address: global.address()?, bulk: bulk(which), consent: self.consent }),
        }
    }
}

impl Prepared {
    pub(crate) async fn run(self, output: &mut Output) -> Result<ExitCode> {
        let Opened { store, .. } = self.address.open(Missing::Refuse).await?;
        operator::carry_out(&*store, self.bulk, self.consent, output).await
    }
}
