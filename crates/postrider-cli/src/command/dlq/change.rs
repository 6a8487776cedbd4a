//! Redrive and discard: count, ask, then act batch by batch. What dies while it works is left for the next time, and
//! an interruption between two batches says how far it came.

use postrider::{DeadFilter, Store};
use serde::Serialize;
use uuid::Uuid;

use super::filter::Which;
use crate::exit_code::ExitCode;
use crate::failure::{Failure, Result};
use crate::humane::counted;
use crate::operator::{self, Answer, Fate};
use crate::output::Output;
use crate::signals::Stop;

const AFTER_REDRIVE: &str = "\
Counts first, and asks if there is more than one. What dies again meanwhile is
not taken twice. Ctrl-C stops between two batches of 10,000.

Examples:
  postrider dlq redrive 019a8f3c-6b1e-7c02-9d55-0f2b6a3e8d41
  postrider dlq redrive --sink orders --error-code HTTP_503
  postrider dlq redrive --all --yes";

const AFTER_DISCARD: &str = "\
A discarded dead letter is given up for good: it is never delivered to its sink,
unless somebody replays it while its message is still in the store. A lane that
waited for it goes on. The number has to be typed to go on.

Examples:
  postrider dlq discard 019a8f3c-6b1e-7c02-9d55-0f2b6a3e8d41
  postrider dlq discard --topic order.placed --reason failed --dry-run
  postrider dlq discard --sink legacy --yes";

/// Make dead letters pending again, with a new budget of attempts
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_REDRIVE)]
pub(super) struct RedriveArgs {
    #[command(flatten)]
    pub(super) what: What,
}

/// Give dead letters up for good
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_DISCARD)]
pub(super) struct DiscardArgs {
    #[command(flatten)]
    pub(super) what: What,
}

#[derive(Debug, clap::Args)]
pub(super) struct What {
    /// These messages
    #[arg(value_name = "ID")]
    message_ids: Vec<Uuid>,
    #[command(flatten)]
    which: Which,
    /// Every dead letter there is
    #[arg(long)]
    all: bool,
    /// Only count
    #[arg(long)]
    dry_run: bool,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
}

pub(super) struct Change {
    what: What,
    fate: Fate,
}

impl What {
    pub(super) fn prepare(self, fate: Fate) -> Result<Change> {
        let named = !self.message_ids.is_empty() || !self.which.is_empty();
        if self.all && named {
            return Err(Failure::usage("--all is every dead letter: it does not go with ids or filters")
                .hint("leave --all out to take only those"));
        }
        if !self.all && !named {
            return Err(Failure::usage("it is not said which dead letters")
                .hint("give ids, filters such as --sink NAME, or --all; `postrider dlq groups` shows what there is"));
        }
        Ok(Change { what: self, fate })
    }
}

#[derive(Serialize)]
struct Document {
    matching: u64,
    affected: u64,
    dry_run: bool,
}

impl Change {
    pub(super) async fn run(self, store: &dyn Store, output: &mut Output) -> Result<ExitCode> {
        let Self { what, fate } = self;
        let which = filter(&what, store).await?;
        let matching = store.count_dead(&which).await?;
        if matching == 0 {
            return said(output, &Document { matching, affected: 0, dry_run: what.dry_run }, "no dead letters");
        }
        let letters = counted(matching, "dead letter");
        if what.dry_run {
            let words = match fate {
                Fate::Redrive => format!("would make {letters} pending again"),
                Fate::Discard => format!("would give up {letters} for good"),
            };
            return said(output, &Document { matching, affected: 0, dry_run: true }, &words);
        }
        if !what.yes {
            ask(fate, matching, &letters)?;
        }
        let stop = Stop::on_signals(|| ())?;
        let bar = operator::progress(matching, fate.done(), output.json);
        let affected = operator::in_batches(store, fate, &which, matching, |done| {
            bar.set_position(done);
            !stop.token.is_cancelled()
        })
        .await;
        bar.finish_and_clear();
        let affected = affected?;
        if affected < matching
            && let Some(failure) = operator::interrupted(&stop, affected, fate.done())
        {
            return Err(failure);
        }
        let words = format!("{} {}", fate.done(), counted(affected, "dead letter"));
        said(output, &Document { matching, affected, dry_run: false }, &words)
    }
}

/// With ids, those; otherwise what was dead before now, so that nothing is taken that dies meanwhile.
async fn filter(what: &What, store: &dyn Store) -> Result<DeadFilter> {
    let now = store.now().await?;
    let mut which = what.which.filter(now);
    if what.message_ids.is_empty() {
        which.died_to = Some(which.died_to.map_or(now, |to| to.min(now)));
    } else {
        which.message_ids = Some(what.message_ids.clone());
    }
    Ok(which)
}

/// One dead letter can be redriven without a question; giving up is always asked about.
fn ask(fate: Fate, matching: u64, letters: &str) -> Result<()> {
    match fate {
        Fate::Redrive if matching == 1 => Ok(()),
        Fate::Redrive => operator::confirm(&format!("This makes {letters} pending again"), Answer::Yes),
        Fate::Discard => operator::confirm(&format!("This gives up {letters} for good"), Answer::Count(matching)),
    }
}

fn said(output: &mut Output, document: &Document, words: &str) -> Result<ExitCode> {
    if output.json {
        output.json(document)?;
    } else {
        output.line(words)?;
    }
    Ok(ExitCode::Ok)
}
