//! What the commands that change something share: who acts, whether a person agrees, and the loop that
//! carries a large action out in batches. Every change goes through `Store::operate`, which writes it down; nothing here
//! writes past it.

use std::env;
use std::fs;
use std::io::{self, BufRead as _, IsTerminal as _, Write as _};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use postrider::{Action, DeadFilter, MAX_PER_ACTION, Store};

use crate::exit_code::ExitCode;
use crate::failure::{Failure, Result};
use crate::humane;
use crate::signals::Stop;

/// Between two pictures of the progress bar, while a batch takes its time.
const TICK: Duration = Duration::from_millis(200);

/// More of a host's or a user's name says no more; the audit takes 255 bytes.
const MAX_NAME_CHARS: usize = 100;

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
            Self::Count(count) => line == count.to_string() || line == humane::count(count),
        }
    }
}

/// Asks on the terminal, and fails unless the answer is the one that goes on. Without a terminal nobody can answer.
pub(crate) fn confirm(question: &str, answer: Answer) -> Result<()> {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Err(Failure::usage(format!("{question}: nobody is here to confirm it"))
            .hint("give --yes to go on without a question, or --dry-run to see what it would take"));
    }
    let prompt = match answer {
        Answer::Yes => format!("{question}. Go on? [y/N] "),
        Answer::Count(count) => format!("{question}. Type {count} to go on: "),
    };
    let mut line = String::new();
    let asked = write!(io::stderr().lock(), "{prompt}").and_then(|()| io::stdin().lock().read_line(&mut line));
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

/// What happens to a batch of dead letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Redrive,
    Discard,
}

impl Fate {
    pub(crate) fn action(self, which: DeadFilter, at_most: u32) -> Action {
        match self {
            Self::Redrive => Action::Redrive { which, at_most },
            Self::Discard => Action::Discard { which, at_most },
        }
    }

    /// `redriven`, `discarded`.
    pub(crate) fn done(self) -> &'static str {
        match self {
            Self::Redrive => "redriven",
            Self::Discard => "discarded",
        }
    }
}

/// Acts batch by batch until `total` are done or nothing is left, and says after each how many it was. It never takes
/// more than `total`: what dies again meanwhile is not taken twice.
pub(crate) async fn in_batches(
    store: &dyn Store,
    fate: Fate,
    which: &DeadFilter,
    total: u64,
    mut after_batch: impl FnMut(u64) -> bool,
) -> std::result::Result<u64, postrider::Error> {
    let actor = actor();
    let mut done = 0;
    while done < total {
        let at_most = u32::try_from(total - done).unwrap_or(MAX_PER_ACTION).min(MAX_PER_ACTION);
        let affected = store.operate(&actor, &fate.action(which.clone(), at_most)).await?.affected;
        done += affected;
        if !after_batch(done) || affected == 0 {
            break;
        }
    }
    Ok(done)
}

/// An action that was interrupted between two batches: how far it came, and that the rest is as it was.
pub(crate) fn interrupted(stop: &Stop, done: u64, words: &str) -> Option<Failure> {
    let code = stop.heard()?;
    let done = humane::count(done);
    Some(
        Failure::new(code, format!("{}: {done} {words}, the rest is as it was", code.word()))
            .hint("the same command goes on"),
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
