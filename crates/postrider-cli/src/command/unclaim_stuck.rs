//! `postrider unclaim-stuck`: takes back what is held under a lease that ended, or that was claimed too long ago. A worker
//! that still works on it loses its lease and cannot record an outcome, so the message may arrive twice.

use std::time::Duration;

use postrider::Action;
use serde::Serialize;

use crate::exit_code::ExitCode;
use crate::failure::Result;
use crate::humane::{self, counted, parse_duration};
use crate::operator;
use crate::options::Global;
use crate::output::Output;
use crate::store::{Address, Missing, Opened};

const AFTER_HELP: &str = "\
What is taken back is pending again, or dead if its attempts are used up; each
gets an attempt ZOMBIE_REQUEUE. A relay that is alive renews its leases, and ends
them itself when it dies: this is for one that hangs and renews for ever. What it
holds may then be delivered twice. Leases from the future, of a clock that was
wrong, are taken back as well; 0s takes back every lease.

Examples:
  postrider unclaim-stuck
  postrider unclaim-stuck --older-than 15m
  postrider unclaim-stuck --older-than 0s";

/// Take back what workers have held for too long
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Held for longer than this
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = parse_duration)]
    older_than: Duration,
}

pub(crate) struct Prepared {
    address: Address,
    older_than: Duration,
}

impl Args {
    pub(crate) fn prepare(self, global: &Global) -> Result<Prepared> {
        Ok(Prepared { address: global.address()?, older_than: self.older_than })
    }
}

impl Prepared {
    pub(crate) async fn run(self, output: &mut Output) -> Result<ExitCode> {
        #[derive(Serialize)]
        struct Document {
            unclaimed: u64,
        }
        let Opened { store, .. } = self.address.open(Missing::Refuse).await?;
        let action = Action::UnclaimStuck { older_than: self.older_than };
        let unclaimed = store.operate(&operator::actor(), &action).await?.affected;
        if output.json {
            output.json(&Document { unclaimed })?;
        } else if unclaimed == 0 {
            output.line(format!("nothing is held for longer than {}", humane::span(self.older_than)))?;
        } else {
            let messages = counted(unclaimed, "message");
            output.line(format!("took back {messages}: pending again, or dead where attempts are used up"))?;
        }
        Ok(ExitCode::Ok)
    }
}
