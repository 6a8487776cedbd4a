//! `postrider prune`: drops history that is older than the retention, and never anything undelivered. A relay does the
//! same by itself; this is for outboxes without one, and for making room now.

use std::time::Duration;

use postrider::{Action, MAX_PER_ACTION, Pruned};

use crate::exit_code::ExitCode;
use crate::failure::Result;
use crate::humane::{count, counted, parse_duration};
use crate::operator::{self, Answer, Consent, Document};
use crate::options::Global;
use crate::output::Output;
use crate::store::{Address, Missing, Opened};

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

pub(crate) struct Prepared {
    address: Address,
    older_than: Option<Duration>,
    consent: Consent,
}

impl Args {
    pub(crate) fn prepare(self, global: &Global) -> Result<Prepared> {
        Ok(Prepared { address: global.address()?, older_than: self.older_than, consent: self.consent })
    }
}

impl Prepared {
    pub(crate) async fn run(self, output: &mut Output) -> Result<ExitCode> {
        let Self { address, older_than, consent } = self;
        let Opened { store, .. } = address.open(Missing::Refuse).await?;
        let prunable = store.prunable(older_than).await?;
        let matching = prunable.partitions_dropped + prunable.rest_deleted + prunable.dedupe_deleted;
        if matching == 0 || consent.dry_run {
            let words = match matching {
                0 => "nothing is old enough".to_owned(),
                _ => format!("would drop {}", parts(prunable)),
            };
            return Document::new(matching, 0, consent.dry_run).print(output, &words, "");
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
        Document::new(matching, affected, false).print(output, &words, "")
    }
}

/// `2 partitions, 10 rows, 3 dedupe keys`.
fn parts(pruned: Pruned) -> String {
    let parts =
        [(pruned.partitions_dropped, "partition"), (pruned.rest_deleted, "row"), (pruned.dedupe_deleted, "dedupe key")];
    let told: Vec<String> = parts.iter().filter(|(many, _)| *many > 0).map(|(many, of)| counted(*many, of)).collect();
    told.join(", ")
}
