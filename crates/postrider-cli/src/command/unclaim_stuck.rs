//! `postrider unclaim-stuck`: takes back what is held under a lease that ended, or that was claimed too long ago. A worker
//! that still works on it loses its lease and cannot record an outcome, so the message may arrive twice.

use std::time::Duration;

use async_trait::async_trait;
use postrider::operate::Action;

use super::OnOutbox;
use crate::bulk::ActionReport;
use crate::exit_code::ExitCode;
use crate::failure::Result;
use crate::format::{self, counted, parse_duration};
use crate::operator::{self, Answer, Consent};
use crate::output::Output;
use crate::store::Opened;

const AFTER_HELP: &str = "\
What is taken back is pending again, or dead if its attempts are used up; each
gets an attempt ZOMBIE_REQUEUE. A relay that is alive renews its leases, and ends
them itself when it dies: this is for one that hangs and renews for ever. What it
holds may then be delivered twice. Leases from the future, of a clock that was
wrong, are taken back as well; 0s takes back every lease. Counts first, and asks
if there is more than one.

Examples:
  postrider unclaim-stuck
  postrider unclaim-stuck --older-than 15m --dry-run
  postrider unclaim-stuck --older-than 0s --yes";

/// End leases that workers have held too long
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Leases older than this
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = parse_duration)]
    older_than: Duration,
    #[command(flatten)]
    consent: Consent,
}

#[async_trait(?Send)]
impl OnOutbox for Args {
    async fn run(self: Box<Self>, outbox: Opened, output: &mut Output) -> Result<ExitCode> {
        let (Self { older_than, consent }, store) = (*self, outbox.store);
        let matching = store.count_stale(older_than).await?;
        let report = |affected| {
            let counted = ActionReport::dry_run(matching);
            if consent.dry_run { counted } else { counted.acted(affected, 0) }
        };
        if matching == 0 || consent.dry_run {
            let words = match matching {
                0 => format!("nothing is held for longer than {}", format::span(older_than)),
                some => format!("would take back {}", counted(some, "message")),
            };
            return operator::report(&report(0), output, &words, "");
        }
        if !consent.yes && matching > 1 {
            let question =
                format!("This takes back {}, which may then be delivered twice", counted(matching, "message"));
            operator::confirm(&question, Answer::Yes)?;
        }
        let affected = store.operate(&operator::actor(), &Action::UnclaimStuck { older_than }).await?.affected;
        let words =
            format!("took back {}: pending again, or dead where attempts are used up", counted(affected, "message"));
        operator::report(&report(affected), output, &words, "")
    }
}
