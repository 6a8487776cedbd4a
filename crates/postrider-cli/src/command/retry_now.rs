//! `postrider retry-now`: makes deliveries that wait for a retry, or for their time, due at once. For a destination that is
//! back early, and for a database whose clock was wrong. Counts, asks, then acts batch by batch.

use postrider::{Action, MAX_PER_ACTION, Store, WaitingFilter};
use serde::Serialize;
use uuid::Uuid;

use crate::exit_code::ExitCode;
use crate::failure::{Failure, Result};
use crate::humane::counted;
use crate::operator::{self, Answer};
use crate::options::Global;
use crate::output::Output;
use crate::signals::Stop;
use crate::store::{Address, Missing, Opened};

const AFTER_HELP: &str = "\
What is pending and not due yet becomes due: retries that wait, and messages
that were scheduled for later, which then come early. Attempts that were made
still count. A lane keeps its order; what is held by a worker, and dead letters,
are left alone. Counts first, and asks if there is more than one.

Examples:
  postrider retry-now 019a8f3c-6b1e-7c02-9d55-0f2b6a3e8d41
  postrider retry-now --sink orders --dry-run
  postrider retry-now --all --yes";

/// Make what waits for its time due at once
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// These messages
    #[arg(value_name = "ID")]
    message_ids: Vec<Uuid>,
    /// Of this sink
    #[arg(long, value_name = "NAME")]
    sink: Option<String>,
    /// Everything that waits
    #[arg(long, conflicts_with_all = ["message_ids", "sink"])]
    all: bool,
    /// Only count
    #[arg(long)]
    dry_run: bool,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
}

pub(crate) struct Prepared {
    address: Address,
    which: WaitingFilter,
    dry_run: bool,
    yes: bool,
}

impl Args {
    pub(crate) fn prepare(self, global: &Global) -> Result<Prepared> {
        if self.message_ids.is_empty() && self.sink.is_none() && !self.all {
            return Err(Failure::usage("it is not said which messages").hint("give ids, --sink NAME, or --all"));
        }
        let message_ids = (!self.message_ids.is_empty()).then_some(self.message_ids);
        let which = WaitingFilter { message_ids, sink: self.sink };
        Ok(Prepared { address: global.address()?, which, dry_run: self.dry_run, yes: self.yes })
    }
}

#[derive(Serialize)]
struct Document {
    matching: u64,
    affected: u64,
    dry_run: bool,
}

impl Prepared {
    pub(crate) async fn run(self, output: &mut Output) -> Result<ExitCode> {
        let Self { address, which, dry_run, yes } = self;
        let Opened { store, .. } = address.open(Missing::Refuse).await?;
        let matching = store.count_waiting(&which).await?;
        let messages = counted(matching, "message");
        let (affected, words) = if matching == 0 {
            (0, "nothing waits for its time".to_owned())
        } else if dry_run {
            (0, format!("would make {messages} due now"))
        } else {
            if !yes && matching > 1 {
                operator::confirm(&format!("This makes {messages} due now"), Answer::Yes)?;
            }
            let affected = in_batches(&*store, &which, matching, output.json).await?;
            (affected, format!("made {} due now", counted(affected, "message")))
        };
        if output.json {
            output.json(&Document { matching, affected, dry_run })?;
        } else {
            output.line(words)?;
        }
        Ok(ExitCode::Ok)
    }
}

/// Never more than were counted: what fails again meanwhile waits as it should.
async fn in_batches(store: &dyn Store, which: &WaitingFilter, matching: u64, json: bool) -> Result<u64> {
    let (actor, stop) = (operator::actor(), Stop::on_signals(|| ())?);
    let bar = operator::progress(matching, "made due", json);
    let mut affected = 0;
    while affected < matching {
        let at_most = u32::try_from(matching - affected).unwrap_or(MAX_PER_ACTION).min(MAX_PER_ACTION);
        let done = store.operate(&actor, &Action::RetryNow { which: which.clone(), at_most }).await;
        let batch = done.inspect_err(|_| bar.finish_and_clear())?.affected;
        affected += batch;
        bar.set_position(affected);
        if batch == 0 || stop.token.is_cancelled() {
            break;
        }
    }
    bar.finish_and_clear();
    match operator::interrupted(&stop, affected, "made due") {
        Some(failure) if affected < matching => Err(failure),
        _ => Ok(affected),
    }
}
