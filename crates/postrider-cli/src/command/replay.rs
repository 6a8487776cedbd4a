//! `postrider replay`: delivers again what was enqueued in a span of time, to one sink. Counts first, asks, and goes on
//! in bounded steps, each where the last one ended. What is pending or dead for the sink is left alone.

use std::num::NonZeroU32;
use std::time::SystemTime;

use postrider::{Action, ListFilter, MAX_PER_ACTION, ReplayAction, Store};
use serde::Serialize;
use uuid::Uuid;

use crate::exit_code::ExitCode;
use crate::failure::{Failure, Result};
use crate::humane::{self, Moment, counted, parse_moment};
use crate::operator::{self, Answer};
use crate::options::Global;
use crate::output::{Output, printable};
use crate::signals::Stop;
use crate::store::{Address, Missing, Opened};

/// Lines of one page while it counts.
const COUNT_PAGE: u32 = 10_000;

const AFTER_HELP: &str = "\
Every message of the span is delivered to the sink again, or for the first time
if it never went there, with its old id and number: a receiver that deduplicates
takes none twice. What is pending, leased or dead for the sink is left alone.
With --rate they become due one after the other. Ctrl-C stops between two steps
of 10,000.

Examples:
  postrider replay --sink orders --from '6h ago' --to '2h ago' --dry-run
  postrider replay --sink audit --from 2026-11-14T12:00:00Z --to now --rate 200
  postrider replay --sink orders --topic order.placed --from 1d --to now --yes";

/// Deliver again what was enqueued in a span of time
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// To this sink
    #[arg(long, value_name = "NAME")]
    sink: String,
    /// Enqueued at this time or later: RFC 3339, or "2h ago"
    #[arg(long, value_name = "TIME", value_parser = parse_moment)]
    from: Moment,
    /// Enqueued before this time
    #[arg(long, value_name = "TIME", value_parser = parse_moment)]
    to: Moment,
    /// Only of this topic
    #[arg(long)]
    topic: Option<String>,
    /// Only of this namespace
    #[arg(long, value_name = "NAME")]
    namespace: Option<String>,
    /// At most this many a second
    #[arg(long, value_name = "N")]
    rate: Option<NonZeroU32>,
    /// Only count
    #[arg(long)]
    dry_run: bool,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
}

pub(crate) struct Prepared {
    address: Address,
    args: Args,
}

impl Args {
    pub(crate) fn prepare(self, global: &Global) -> Result<Prepared> {
        Ok(Prepared { address: global.address()?, args: self })
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
        let Self { address, args } = self;
        let Opened { store, .. } = address.open(Missing::Refuse).await?;
        let now = store.now().await?;
        let action = replay_of(&args, now)?;
        let matching = count(&*store, &action).await?;
        let messages = counted(matching, "message");
        if matching == 0 || args.dry_run {
            let words =
                if matching == 0 { "no messages to replay".to_owned() } else { format!("would replay {messages}") };
            return said(output, &Document { matching, affected: 0, dry_run: args.dry_run }, &words);
        }
        if !args.yes {
            let question = format!("This delivers {messages} to the sink {} again", printable(&args.sink));
            operator::confirm(&question, Answer::Yes)?;
        }
        let affected = replay(&*store, action, matching, output.json).await?;
        let words = format!("replaying {}: pending again", counted(affected, "message"));
        said(output, &Document { matching, affected, dry_run: false }, &words)
    }
}

fn replay_of(args: &Args, now: SystemTime) -> Result<ReplayAction> {
    // What is enqueued while it works is on its way already.
    let (from, to) = (args.from.resolve(now), args.to.resolve(now).min(now));
    if from >= to {
        let words = format!("nothing is from {} and before {}", humane::clock(from), humane::clock(to));
        return Err(Failure::usage(words).hint("--from has to be before --to, and in the past"));
    }
    Ok(ReplayAction {
        sink: args.sink.clone(),
        from,
        to,
        namespace: args.namespace.clone(),
        topic: args.topic.clone(),
        per_second: args.rate,
        paced_from: None,
        after: None,
        at_most: MAX_PER_ACTION,
    })
}

/// How many messages of the span have nothing open with the sink: what a replay takes.
async fn count(store: &dyn Store, action: &ReplayAction) -> Result<u64> {
    let mut filter = ListFilter {
        namespace: action.namespace.clone(),
        topic: action.topic.clone(),
        from: Some(action.from),
        to: Some(action.to),
        limit: COUNT_PAGE,
        ..ListFilter::default()
    };
    let mut matching = 0;
    loop {
        let page = store.list(&filter).await?;
        // A page ends between two messages, and the lines of one stand together.
        for lines in page.items.chunk_by(|one, next| one.message_id == next.message_id) {
            matching += u64::from(lines.iter().all(|line| line.sink.as_deref() != Some(&action.sink)));
        }
        match page.next {
            Some(next) => filter.before = Some(next),
            None => return Ok(matching),
        }
    }
}

async fn replay(store: &dyn Store, mut action: ReplayAction, matching: u64, json: bool) -> Result<u64> {
    let (actor, stop) = (operator::actor(), Stop::on_signals(|| ())?);
    let bar = operator::progress(matching, "replaying", json);
    let mut affected = 0;
    loop {
        let done = store.operate(&actor, &Action::Replay(action.clone())).await;
        let done = done.inspect_err(|_| bar.finish_and_clear())?;
        affected += done.affected;
        bar.set_position(affected);
        let Some(next) = done.next else { break };
        (action.after, action.paced_from) = (Some(next), done.paced_until);
        if stop.token.is_cancelled() {
            bar.finish_and_clear();
            return Err(stopped(&stop, affected, next));
        }
    }
    bar.finish_and_clear();
    Ok(affected)
}

/// What was replayed is pending now and is not taken again, so the same command goes on with the rest; unless it is
/// already delivered.
fn stopped(stop: &Stop, affected: u64, last: Uuid) -> Failure {
    let since = last.get_timestamp().map(|time| {
        let (seconds, nanos) = time.to_unix();
        humane::rfc3339(SystemTime::UNIX_EPOCH + std::time::Duration::new(seconds, nanos))
    });
    let failure = operator::interrupted(stop, affected, "replayed")
        .unwrap_or_else(|| Failure::new(ExitCode::Interrupted, "interrupted"));
    match since {
        Some(since) => failure.hint(format!("to go on, give --from {since}")),
        None => failure,
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
