//! `postrider unclaim-stuck`: takes back what is held under a lease that has ended, and with `--live` under one that was
//! claimed too long ago. A worker that still works on it loses its lease and cannot record an outcome, so the message may
//! arrive twice: that is asked about with a question of its own.

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
gets an attempt ZOMBIE_REQUEUE. A relay does this by itself with leases that have
ended; here it is done without one. Counts first, and asks if there is more than
one.

--live is for a worker that hangs and renews its leases for ever: it takes leases
away that were claimed longer ago than --older-than. What their workers hold may
then be delivered twice. Leases from the future, of a clock that was wrong, are
taken back as well; with 0s it is every lease. Asks for the number of these.

Examples:
  postrider unclaim-stuck
  postrider unclaim-stuck --dry-run
  postrider unclaim-stuck --live --older-than 15m";

/// End leases that have expired, or that workers have held too long
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// With --live: leases that were taken longer ago than this
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = parse_duration)]
    older_than: Duration,
    /// Also leases that have not ended: their workers lose them
    #[arg(long)]
    live: bool,
    #[command(flatten)]
    consent: Consent,
}

#[async_trait(?Send)]
impl OnOutbox for Args {
    async fn run(self: Box<Self>, outbox: Opened, output: &mut Output) -> Result<ExitCode> {
        let (Self { older_than, live, consent }, store) = (*self, outbox.store);
        let ended = store.count_stale(older_than, false).await?;
        let alive = store.count_stale(older_than, true).await?.saturating_sub(ended);
        let matching = if live { ended + alive } else { ended };
        let report = |affected| {
            let counted = ActionReport { leased: (!live).then_some(alive), ..ActionReport::dry_run(matching) };
            if consent.dry_run { counted } else { counted.acted(affected, 0) }
        };
        if matching == 0 || consent.dry_run {
            let words = match matching {
                0 if live => format!("no lease has ended or was taken longer than {} ago", format::span(older_than)),
                0 => "no lease has ended".to_owned(),
                some => format!("would take back {}", counted(some, "message")),
            };
            let about_live = match alive {
                0 => String::new(),
                some if live => format!(", {} of them under live leases", format::count(some)),
                some => format!("; {} more under live leases (--live takes them)", format::count(some)),
            };
            return operator::report(&report(0), output, &format!("{words}{about_live}"), "");
        }
        if !consent.yes && live && alive > 0 {
            let question = format!(
                "This takes {} away from workers that may be delivering them, so they may be delivered twice",
                counted(alive, "message")
            );
            operator::confirm(&question, Answer::Count(alive))?;
        } else if !consent.yes && matching > 1 {
            operator::confirm(&format!("This takes back {}", counted(matching, "message")), Answer::Yes)?;
        }
        let affected = store.operate(&operator::actor(), &Action::UnclaimStuck { older_than, live }).await?.affected;
        let words =
            format!("took back {}: pending again, or dead where attempts are used up", counted(affected, "message"));
        operator::report(&report(affected), output, &words, "")
    }
}
