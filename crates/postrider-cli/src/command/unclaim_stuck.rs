//! `postrider unclaim-stuck`: takes back what is held under a lease that ended, or that was claimed too long ago. A worker
//! that still works on it loses its lease and cannot record an outcome, so the message may arrive twice.

use std::time::Duration;

use postrider::Action;

use crate::exit_code::ExitCode;
use crate::failure::Result;
use crate::humane::{self, counted, parse_duration};
use crate::operator::{self, Answer, Consent, Document};
use crate::options::Global;
use crate::output::Output;
use crate::store::{Address, Missing, Opened};

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

pub(crate) struct Prepared {
    address: Address,
    older_than: Duration,
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
        let matching = store.count_stale(older_than).await?;
        if matching == 0 || consent.dry_run {
            let words = match matching {
                0 => format!("nothing is held for longer than {}", humane::span(older_than)),
                some => format!("would take back {}", counted(some, "message")),
            };
            return Document::new(matching, 0, consent.dry_run).print(output, &words, "");
        }
        if !consent.yes && matching > 1 {
            let question =
                format!("This takes back {}, which may then be delivered twice", counted(matching, "message"));
            operator::confirm(&question, Answer::Yes)?;
        }
        let affected = store.operate(&operator::actor(), &Action::UnclaimStuck { older_than }).await?.affected;
        let words =
            format!("took back {}: pending again, or dead where attempts are used up", counted(affected, "message"));
        Document::new(matching, affected, false).print(output, &words, "")
    }
}
