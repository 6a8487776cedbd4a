//! `postrider replay`: delivers again what was delivered to a sink: messages that are named, or those that were enqueued in a
//! span of time. Counts first, asks, and goes on in bounded steps, each where the last one ended. What is pending or dead
//! for the sink is left alone, and so is what the sink never had, unless that is asked for.

use std::num::NonZeroU32;
use std::time::SystemTime;

use async_trait::async_trait;
use postrider::Store;
use postrider::operate::{MAX_PER_ACTION, Replay};
use uuid::Uuid;

use super::OnOutbox;
use crate::bulk::{self, ActionReport};
use crate::exit_code::ExitCode;
use crate::failure::{Failure, Result};
use crate::format::{self, Moment, parse_moment};
use crate::operator::{self, Answer, Consent};
use crate::output::{Output, printable};
use crate::signals::Stop;
use crate::store::Opened;

/// Stands before the ids that are not in the store.
const NOT_FOUND: &str = "no message";

const AFTER_HELP: &str = "\
What was delivered to the sink is delivered to it again, with its old id and
number: a receiver that deduplicates takes none twice. What is pending, leased
or dead for the sink is left alone. What the sink never had, because no route
sent it there or because somebody gave it up, is counted and left out, unless
--include-never-delivered is given. With --rate they become due one after the
other. Ctrl-C stops between two steps of 10,000. Exit code 4 if there is no such
sink, or for ids that are not in the store.

Examples:
  postrider replay --sink orders 019a8f3c-6b1e-7c02-9d55-0f2b6a3e8d41
  postrider replay --sink orders --from '6h ago' --to '2h ago' --dry-run
  postrider replay --sink audit --from 2026-11-14T12:00:00Z --to now --rate 200
  postrider replay --sink orders --topic order.placed --from 1d --to now --yes";

/// Deliver messages again, by id or time range
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// These messages
    #[arg(value_name = "ID")]
    message_ids: Vec<Uuid>,
    /// To this sink
    #[arg(long, value_name = "NAME")]
    sink: String,
    /// Enqueued at this time or later: RFC 3339, or "2h ago"
    #[arg(long, value_name = "TIME", value_parser = parse_moment)]
    #[arg(required_unless_present = "message_ids", conflicts_with = "message_ids")]
    from: Option<Moment>,
    /// Enqueued before this time
    #[arg(long, value_name = "TIME", value_parser = parse_moment)]
    #[arg(required_unless_present = "message_ids", conflicts_with = "message_ids")]
    to: Option<Moment>,
    /// Only of this topic
    #[arg(long)]
    topic: Option<String>,
    /// Only of this namespace
    #[arg(long, value_name = "NAME")]
    namespace: Option<String>,
    /// Also messages that were never delivered to this sink
    #[arg(long)]
    include_never_delivered: bool,
    /// At most this many a second
    #[arg(long, value_name = "N")]
    rate: Option<NonZeroU32>,
    #[command(flatten)]
    consent: Consent,
}

#[async_trait(?Send)]
impl OnOutbox for Args {
    async fn run(self: Box<Self>, outbox: Opened, output: &mut Output) -> Result<ExitCode> {
        let (args, store) = (*self, &*outbox.store);
        let wanted = replay_of(&args, store.now().await?)?;
        let missing = bulk::not_in_store(store, &wanted).await?;
        let counted = ActionReport { missing, ..bulk::count_replay(store, &wanted, || true).await? };
        let matching = counted.matching;
        let left_out = left_out(&args, counted.never_delivered.unwrap_or(0));
        let messages = format::counted(matching, "message");
        if matching == 0 || args.consent.dry_run {
            let words =
                if matching == 0 { "no messages to replay".to_owned() } else { format!("would replay {messages}") };
            let report = if args.consent.dry_run { counted } else { counted.acted(0, 0) };
            return operator::report(&report, output, &(words + &left_out), NOT_FOUND);
        }
        if !args.consent.yes {
            let question = format!("This delivers {messages} to the sink {} again{left_out}", printable(&args.sink));
            operator::confirm(&question, Answer::Yes)?;
        }
        let affected = replay(store, wanted, matching, output.json).await?;
        let words = format!("replaying {}: pending again{left_out}", format::counted(affected, "message"));
        operator::report(&counted.acted(affected, 0), output, &words, NOT_FOUND)
    }
}

/// What was never delivered to the sink, if there is something.
fn left_out(args: &Args, never_delivered: u64) -> String {
    let many = format::count(never_delivered);
    match (never_delivered, args.include_never_delivered) {
        (0, _) => String::new(),
        (_, true) => format!("; {many} of them for the first time"),
        (_, false) => format!("; {many} never delivered to this sink: left out without --include-never-delivered"),
    }
}

fn replay_of(args: &Args, now: SystemTime) -> Result<Replay> {
    // What is enqueued while it works is on its way already.
    let (from, to) = (args.from.map(|from| from.resolve(now)), args.to.map(|to| to.resolve(now).min(now)));
    if let (Some(from), Some(to)) = (from, to)
        && from >= to
    {
        let words = format!("nothing is from {} and before {}", format::clock(from), format::clock(to));
        return Err(Failure::usage(words).hint("--from has to be before --to, and in the past"));
    }
    Ok(Replay {
        sink: args.sink.clone(),
        message_ids: (!args.message_ids.is_empty()).then(|| args.message_ids.clone()),
        from,
        to,
        namespace: args.namespace.clone(),
        topic: args.topic.clone(),
        include_never_delivered: args.include_never_delivered,
        per_second: args.rate,
        paced_from: None,
        after: None,
        at_most: MAX_PER_ACTION,
    })
}

async fn replay(store: &dyn Store, wanted: Replay, matching: u64, json: bool) -> Result<u64> {
    let stop = Stop::on_signals(|| ())?;
    let bar = operator::progress(matching, "replaying", json);
    let person = operator::Person::new(store);
    let done = bulk::replay(wanted, &person, |done| {
        bar.set_position(done);
        !stop.token.is_cancelled()
    });
    let done = done.await;
    bar.finish_and_clear();
    let done = done.map_err(|(_, error)| error)?;
    match done.next {
        Some(last) => Err(stopped(&stop, done.affected, last)),
        None => Ok(done.affected),
    }
}

/// What was replayed is pending now and is not taken again, so the same command goes on with the rest; unless it is
/// already delivered.
fn stopped(stop: &Stop, affected: u64, last: Uuid) -> Failure {
    let since = last.get_timestamp().map(|time| {
        let (seconds, nanos) = time.to_unix();
        format::rfc3339(SystemTime::UNIX_EPOCH + std::time::Duration::new(seconds, nanos))
    });
    let failure = operator::interrupted(stop, affected, "replayed")
        .unwrap_or_else(|| Failure::new(ExitCode::Interrupted, "interrupted"));
    match since {
        Some(since) => failure.hint(format!("to go on, give --from {since}")),
        None => failure,
    }
}
