//! What the commands that change something share: who acts, whether a person agrees, the loop that carries a large action
//! out in batches, and what is printed then. Every change goes through `Store::operate`, which writes it down; nothing
//! here writes past it.

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, BufRead as _, IsTerminal as _};
use std::time::Duration;

use async_trait::async_trait;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use postrider::Store;
use postrider::operate::{Action, Done};
use uuid::Uuid;

use crate::bulk::{ActionReport, Bulk, Operator};
use crate::exit_code::ExitCode;
use crate::failure::{Failure, Result};
use crate::format::{self, counted};
use crate::output::Output;
use crate::signals::Stop;

/// Between two pictures of the progress bar, while a batch takes its time.
const TICK: Duration = Duration::from_millis(200);

/// More of a host's or a user's name says no more; the audit takes 255 bytes.
const MAX_NAME_CHARS: usize = 100;

/// Ids that are told to a person; `--json` has them all.
const MAX_TOLD: usize = 20;

/// Who acts, for the audit: `user@host`. Under cron and in containers nobody sets USER: then it is the name of the user id,
/// or `uid-1001` where that has no name.
pub(crate) fn actor() -> String {
    let user = ["USER", "LOGNAME"].iter().find_map(|name| env::var(name).ok().filter(|user| !user.is_empty()));
    let user = user.unwrap_or_else(|| {
        let id = rustix::process::getuid().as_raw();
        let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
        name_of(id, &users).unwrap_or_else(|| format!("uid-{id}"))
    });
    format!("{}@{}", named(&user), host())
}

/// The name of a user id, in the lines of `/etc/passwd`.
fn name_of(id: u32, users: &str) -> Option<String> {
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next().filter(|name| !name.is_empty())?;
        (fields.nth(1)? == id.to_string()).then(|| name.to_owned())
    })
}

/// The name of this machine.
pub(crate) fn host() -> String {
    let host = ["/proc/sys/kernel/hostname", "/etc/hostname"]
        .iter()
        .filter_map(|file| fs::read_to_string(file).ok())
        .map(|name| name.trim().to_owned())
        .find(|name| !name.is_empty())
        .unwrap_or_else(|| "host".to_owned());
    named(&host)
}

fn named(name: &str) -> String {
    name.chars().filter(|c| !c.is_control()).take(MAX_NAME_CHARS).collect()
}

/// What a person has to type to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Yes,
    /// The count itself: for what cannot be taken back.
    Count(u64),
}

impl Answer {
    fn is_given_by(self, line: &str) -> bool {
        let line = line.trim();
        match self {
            Self::Yes => line.eq_ignore_ascii_case("y") || line.eq_ignore_ascii_case("yes"),
            Self::Count(count) => line == count.to_string() || line == format::count(count),
        }
    }
}

/// Asks on the terminal, and fails unless the answer is the one that goes on. Without a terminal nobody can answer.
pub(crate) fn confirm(question: &str, answer: Answer) -> Result<()> {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Err(Failure::usage(format!("{question}: there is no terminal to confirm it"))
            .hint("give --yes to go on without a question, or --dry-run to see what it would take"));
    }
    let prompt = match answer {
        Answer::Yes => format!("{question}. Go on? [y/N] "),
        Answer::Count(count) => format!("{question}. Type {count} to go on: "),
    };
    let mut line = String::new();
    let asked = io::Write::write_all(&mut io::stderr().lock(), prompt.as_bytes())
        .and_then(|()| io::stdin().lock().read_line(&mut line));
    match asked {
        Ok(_) if answer.is_given_by(&line) => Ok(()),
        Ok(_) => Err(Failure::new(ExitCode::Failure, "not confirmed: nothing was changed")),
        Err(error) => Err(Failure::new(ExitCode::Failure, format!("cannot read the answer: {error}"))),
    }
}

/// A bar on stderr, for people who watch; for everybody else it draws nothing.
pub(crate) fn progress(total: u64, doing: &'static str, json: bool) -> ProgressBar {
    if json || !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template("{msg} {bar:30} {human_pos} of {human_len}, {elapsed}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.set_message(doing);
    bar.enable_steady_tick(TICK);
    bar
}

/// Whether a command only counts, and whether it asks.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Consent {
    /// Only count
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Do not ask
    #[arg(long, short)]
    pub(crate) yes: bool,
}

/// Prints what an action did, or the words for people. Ids that were named and not found are told behind `not_found`, and the
/// exit code says so.
pub(crate) fn report(report: &ActionReport, output: &mut Output, words: &str, not_found: &str) -> Result<ExitCode> {
    let code = if report.missing.is_empty() { ExitCode::Ok } else { ExitCode::NotFound };
    if output.json {
        output.json(report)?;
        return Ok(code);
    }
    output.line(words)?;
    if !report.missing.is_empty() {
        let shown: Vec<String> = report.missing.iter().take(MAX_TOLD).map(Uuid::to_string).collect();
        let more = report.missing.len() - shown.len();
        let rest = if more == 0 { String::new() } else { format!(" and {} more", format::count(more)) };
        output.line(format!("{not_found} {}{rest}", shown.join(", ")))?;
    }
    Ok(code)
}

/// Counts, asks, and acts batch by batch; an interruption between two says how far it came.
pub(crate) async fn carry_out(
    store: &dyn Store,
    bulk: Bulk,
    consent: Consent,
    output: &mut Output,
) -> Result<ExitCode> {
    let bulk = bulk.dead_by(store.now().await?);
    let mut counted = bulk.count(store).await?;
    let acts = counted.matching > 0 && !consent.dry_run;
    if acts && !consent.yes {
        ask(&bulk, counted.matching)?;
    }
    if !consent.dry_run {
        let affected = if acts { watched(store, &bulk, counted.matching, output.json).await? } else { 0 };
        counted = counted.acted(affected, 0);
    }
    let mut words = if acts { did(&bulk, counted.affected) } else { would(&bulk, counted.matching) };
    if let Some(leased) = counted.leased.filter(|leased| *leased > 0) {
        write!(words, "; {} held by workers: left alone", format::counted(leased, "delivery")).ok();
    }
    if let (Some(added), Some(removed), false) = (counted.added, counted.removed, acts || counted.matching == 0) {
        write!(words, ": add {}, remove {}", format::count(added), format::count(removed)).ok();
    }
    report(&counted, output, &words, bulk.not_found())
}

fn would(bulk: &Bulk, matching: u64) -> String {
    match bulk {
        Bulk::Redrive(_) | Bulk::Discard(_) if matching == 0 => "no dead letters".to_owned(),
        Bulk::Cancel(_) if matching == 0 => "nothing is pending".to_owned(),
        Bulk::RetryNow(_) if matching == 0 => "nothing waits for its time".to_owned(),
        Bulk::ApplyRoutes if matching == 0 => "every pending delivery is where the routes send it".to_owned(),
        Bulk::Redrive(_) => format!("would make {} pending again", counted(matching, "dead letter")),
        Bulk::Discard(_) => format!("would give up {} for good", counted(matching, "dead letter")),
        Bulk::Cancel(_) => format!("would cancel {}", counted(matching, "delivery")),
        Bulk::RetryNow(_) => format!("would make {} due now", counted(matching, "message")),
        Bulk::ApplyRoutes => format!("would change {}", counted(matching, "delivery")),
    }
}

fn did(bulk: &Bulk, affected: u64) -> String {
    match bulk {
        Bulk::Redrive(_) | Bulk::Discard(_) => format!("{} {}", bulk.done(), counted(affected, "dead letter")),
        Bulk::Cancel(_) => format!("cancelled {}", counted(affected, "delivery")),
        Bulk::RetryNow(_) => format!("made {} due now", counted(affected, "message")),
        Bulk::ApplyRoutes => format!("changed {}", counted(affected, "delivery")),
    }
}

/// One dead letter or delivery is tried again without a question; what is given up is always asked about.
fn ask(bulk: &Bulk, matching: u64) -> Result<()> {
    match bulk {
        Bulk::Redrive(_) | Bulk::RetryNow(_) if matching == 1 => Ok(()),
        Bulk::Redrive(_) => {
            confirm(&format!("This makes {} pending again", counted(matching, "dead letter")), Answer::Yes)
        }
        Bulk::RetryNow(_) => confirm(&format!("This makes {} due now", counted(matching, "message")), Answer::Yes),
        Bulk::ApplyRoutes => confirm(&format!("This changes {}", counted(matching, "delivery")), Answer::Yes),
        Bulk::Discard(_) => {
            confirm(&format!("This gives up {} for good", counted(matching, "dead letter")), Answer::Count(matching))
        }
        Bulk::Cancel(_) => {
            confirm(&format!("This cancels {} for good", counted(matching, "delivery")), Answer::Count(matching))
        }
    }
}

/// With a bar for people who watch, until it is done or a signal comes.
async fn watched(store: &dyn Store, bulk: &Bulk, matching: u64, json: bool) -> Result<u64> {
    let stop = Stop::on_signals(|| ())?;
    let bar = progress(matching, bulk.done(), json);
    let affected = in_batches(store, bulk, matching, |done| {
        bar.set_position(done);
        !stop.token.is_cancelled()
    });
    let affected = affected.await;
    bar.finish_and_clear();
    let affected = affected?;
    match interrupted(&stop, affected, bulk.done()) {
        Some(failure) if affected < matching => Err(failure),
        _ => Ok(affected),
    }
}

/// Acts batch by batch in the name of whoever runs this.
pub(crate) async fn in_batches(
    store: &dyn Store,
    bulk: &Bulk,
    total: u64,
    go_on: impl FnMut(u64) -> bool,
) -> std::result::Result<u64, postrider::Error> {
    bulk.in_batches(total, &Person::new(store), go_on).await.map_err(|(_, error)| error)
}

/// Whoever runs this command, at a store.
pub(crate) struct Person<'a> {
    store: &'a dyn Store,
    actor: String,
}

impl<'a> Person<'a> {
    pub(crate) fn new(store: &'a dyn Store) -> Self {
        Self { store, actor: actor() }
    }
}

#[async_trait]
impl Operator for Person<'_> {
    type Error = postrider::Error;

    async fn operate(&self, action: &Action) -> std::result::Result<Done, postrider::Error> {
        self.store.operate(&self.actor, action).await
    }
}

/// An action that was interrupted between two batches: how far it came, and that the rest is unchanged.
pub(crate) fn interrupted(stop: &Stop, done: u64, words: &str) -> Option<Failure> {
    let code = stop.heard()?;
    let done = format::count(done);
    Some(
        Failure::new(code, format!("{}: {done} {words}, the rest is unchanged", code.word()))
            .hint("run the same command again to continue"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_right_answer_goes_on() {
        for (line, answer, goes_on) in [
            ("y\n", Answer::Yes, true),
            ("YES\n", Answer::Yes, true),
            ("\n", Answer::Yes, false),
            ("1\n", Answer::Yes, false),
            ("", Answer::Yes, false),
            ("1200\n", Answer::Count(1_200), true),
            ("1,200\n", Answer::Count(1_200), true),
            ("y\n", Answer::Count(1_200), false),
            ("120\n", Answer::Count(1_200), false),
            ("\n", Answer::Count(0), false),
        ] {
            assert_eq!(answer.is_given_by(line), goes_on, "{line:?} to {answer:?}");
        }
    }

    #[test]
    fn a_user_id_has_its_name() {
        let users = "root:x:0:0:root:/root:/bin/sh\n\nbroken\nops:x:1001:1001::/home/ops:/bin/sh\n";
        for (id, name) in [(0, Some("root")), (1001, Some("ops")), (7, None)] {
            assert_eq!(name_of(id, users).as_deref(), name, "{id}");
        }
    }

    #[test]
    fn the_actor_is_a_user_at_a_host() {
        let actor = actor();
        let (user, host) = actor.split_once('@').unwrap();
        assert!(!user.is_empty() && !host.is_empty(), "{actor}");
    }
}
