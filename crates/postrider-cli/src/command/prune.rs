//! `postrider prune`: drops history that is older than the retention, and never anything undelivered. A relay does the
//! same by itself; this is for outboxes without one, and for making room now.

use std::time::Duration;

use postrider::{Action, MAX_PER_ACTION};
use serde::Serialize;

use crate::exit_code::ExitCode;
use crate::failure::Result;
use crate::humane::{count, parse_duration};
use crate::operator;
use crate::options::Global;
use crate::output::Output;
use crate::store::{Address, Missing, Opened};

const AFTER_HELP: &str = "\
What is pending, leased or dead is never pruned; in PostgreSQL it keeps its whole
partition (a day of messages). Dedupe keys go after their own window.

Examples:
  postrider prune
  postrider prune --older-than 7d";

/// Drop delivered history that is old enough
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Older than this [default: the store's retention, 7 days unless changed]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    older_than: Option<Duration>,
}

pub(crate) struct Prepared {
    address: Address,
    older_than: Option<Duration>,
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
            pruned: u64,
        }
        let Opened { store, .. } = self.address.open(Missing::Refuse).await?;
        let (actor, action) = (operator::actor(), Action::Prune { older_than: self.older_than });
        let mut pruned = 0;
        loop {
            let affected = store.operate(&actor, &action).await?.affected;
            pruned += affected;
            // A store that deletes row by row stops at its limit, and may have more.
            if affected < u64::from(MAX_PER_ACTION) {
                break;
            }
        }
        if output.json {
            output.json(&Document { pruned })?;
        } else if pruned == 0 {
            output.line("nothing is old enough")?;
        } else {
            output.line(format!("pruned {}, counting partitions and single rows", count(pruned)))?;
        }
        Ok(ExitCode::Ok)
    }
}
