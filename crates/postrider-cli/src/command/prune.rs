//! `postrider prune`: drops history that is older than the retention, and never anything undelivered. A relay does the
//! same by itself; this is for outboxes without one, and for making room now.

use std::time::Duration;

use async_trait::async_trait;
use postrider::operate::{Action, MAX_PER_ACTION, Pruned};

use super::OnOutbox;
use crate::bulk::ActionReport;
use crate::exit_code::ExitCode;
use crate::failure::Result;
use crate::format::{count, counted, parse_duration};
use crate::operator::{self, Answer, Consent};
use crate::output::Output;
use crate::store::Opened;

const AFTER_HELP: &str = "\
Pending, leased and dead messages are never pruned; in PostgreSQL one of them
keeps its whole partition (a day of messages). Dedupe keys are deleted after
their own window. Counts first, and asks; use --yes in a scheduler.

Examples:
  postrider prune --dry-run
  postrider prune --older-than 7d --yes";

/// Delete old delivered history
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Older than this [default: the store's retention, 7 days unless changed]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    older_than: Option<Duration>,
    #[command(flatten)]
    consent: Consent,
}

#[async_trait(?Send)]
impl OnOutbox for Args {
    async fn run(self: Box<Self>, outbox: Opened, output: &mut Output) -> Result<ExitCode> {
        let (Self { older_than, consent }, store) = (*self, outbox.store);
        let prunable = store.prunable(older_than).await?;
        let matching = prunable.partitions_dropped + prunable.rest_deleted + prunable.dedupe_deleted;
        let report = |affected| {
            let counted = ActionReport::dry_run(matching);
            if consent.dry_run { counted } else { counted.acted(affected, 0) }
        };
        if matching == 0 || consent.dry_run {
            let words = match matching {
                0 => "nothing is old enough".to_owned(),
                _ => format!("would drop {}", parts(prunable)),
            };
            return operator::report(&report(0), output, &words, "");
        }
        if !consent.yes {
            operator::confirm(&format!("This drops {} for good", parts(prunable)), Answer::Yes)?;
        }
        let (actor, action) = (operator::actor(), Action::Prune { older_than });
        let mut affected = 0;
        loop {
            let batch = store.operate(&actor, &action).await?.affected;
            affected += batch;
            // A store that deletes row by row stops at its limit, and may have more.
            if batch < u64::from(MAX_PER_ACTION) {
                break;
            }
        }
        let words = format!("pruned {}, counting partitions and single rows", count(affected));
        operator::report(&report(affected), output, &words, "")
    }
}

/// `2 partitions, 10 rows, 3 dedupe keys`.
fn parts(pruned: Pruned) -> String {
    let parts =
        [(pruned.partitions_dropped, "partition"), (pruned.rest_deleted, "row"), (pruned.dedupe_deleted, "dedupe key")];
    let told: Vec<String> = parts.iter().filter(|(many, _)| *many > 0).map(|(many, of)| counted(*many, of)).collect();
    told.join(", ")
}
