//! Writes batches as they come from the reader, each in one transaction, and keeps account: what is committed, what
//! is not, and where to go on. One connection, one batch at a time, so that the order of the input is the order of
//! every lane.

use std::io::BufRead;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use postrider::{Enqueued, Error, ErrorKind, Message};
use serde::Serialize;
use tokio::sync::mpsc;

use super::batches::{self, BadLine, Batch};
use crate::exit_code::ExitCode;
use crate::failure::{Failure, Progress, Result};
use crate::format;
use crate::output::Output;
use crate::store::Opened;

/// Batches read ahead of the database.
const BATCHES_AHEAD: usize = 1;
/// How often the progress bar moves by itself.
const TICK: Duration = Duration::from_millis(120);

/// An input of many messages.
pub(crate) struct Source {
    /// The file; `None` is stdin.
    pub(super) name: Option<PathBuf>,
    pub(super) reader: Box<dyn BufRead + Send>,
    /// Its size, if that is known.
    pub(super) bytes: Option<u64>,
    pub(super) batch_size: usize,
}

pub(super) async fn run(opened: &Opened, source: Source, output: &mut Output) -> Result<ExitCode> {
    let Source { name, reader, bytes, batch_size } = source;
    let (sender, batches) = mpsc::channel(BATCHES_AHEAD);
    // Not a task of the runtime: it may wait for stdin for ever, and must not hold up the end of the process.
    std::thread::spawn(move || batches::read(reader, batch_size, |batch| sender.blocking_send(batch).is_ok()));
    let bar = progress_bar(bytes);
    let mut load = Load { opened, name, account: Account::new() };
    let ended = load.drain(batches, &bar).await;
    bar.finish_and_clear();
    ended?;
    load.account.print(output)?;
    Ok(ExitCode::Ok)
}

struct Load<'a> {
    opened: &'a Opened,
    name: Option<PathBuf>,
    account: Account,
}

/// What is committed so far.
struct Account {
    started: Instant,
    enqueued: u64,
    duplicates: u64,
    batches: u64,
    /// Everything before this line is committed.
    next_line: u64,
}

/// What became of a batch that failed.
enum Unwritten {
    /// Nothing of it is in the database.
    RolledBack(Error),
    /// The connection broke after the batch was sent and before the answer came.
    Unknown(Error),
}

impl Load<'_> {
    async fn drain(
        &mut self,
        mut batches: mpsc::Receiver<std::result::Result<Batch, BadLine>>,
        bar: &ProgressBar,
    ) -> Result<()> {
        let (interrupt, mut interrupted) = mpsc::channel(1);
        tokio::spawn(async move {
            if tokio::signal::ctrl_c().await.is_ok() && interrupt.send(()).await.is_ok() {
                // The first asks to stop after the batch at hand; the second does not wait for the database.
                drop(tokio::signal::ctrl_c().await);
                std::process::exit(i32::from(ExitCode::Interrupted as u8));
            }
            std::future::pending::<()>().await;
        });
        loop {
            let batch = tokio::select! {
                biased;
                Some(()) = interrupted.recv() => {
                    return Err(self.stopped(ExitCode::Interrupted, "interrupted", None));
                }
                batch = batches.recv() => batch,
            };
            match batch {
                Some(Ok(batch)) => {
                    let written = self.write(&batch.messages).await;
                    match written {
                        Ok(rows) => self.account.add(&rows, &batch),
                        Err(unwritten) => return Err(self.explain(unwritten, &batch).await),
                    }
                    bar.set_message(format::counted(self.account.messages(), "message"));
                    bar.set_position(batch.end_bytes);
                }
                Some(Err(BadLine { line, code, message })) => return Err(self.stopped(code, &message, Some(line))),
                None => return Ok(()),
            }
        }
    }

    async fn write(&self, messages: &[Message]) -> std::result::Result<Vec<Enqueued>, Unwritten> {
        self.opened.store.enqueue(messages).await.map_err(|error| {
            if error.changed_nothing() { Unwritten::RolledBack(error) } else { Unwritten::Unknown(error) }
        })
    }

    async fn explain(&self, unwritten: Unwritten, batch: &Batch) -> Failure {
        let error = match unwritten {
            Unwritten::RolledBack(error) => error,
            Unwritten::Unknown(error) => return self.unknown(&error, batch),
        };
        let (code, _) = ExitCode::of(&error);
        let (index, error) = match (error.batch_index(), error.invalid_message()) {
            (Some(index), Some(invalid)) => (Some(index), invalid.clone().into()),
            _ if error.kind() == ErrorKind::Refused => self.find_refused(&batch.messages, error).await,
            _ => (None, error),
        };
        let line = index.and_then(|index| batch.lines.get(index).copied());
        let message = match (line, batch.lines.first(), batch.lines.last()) {
            (Some(line), ..) => format!("line {line}: {}", error.in_short()),
            (None, Some(first), Some(last)) => format!("lines {first} to {last}: {}", error.in_short()),
            _ => error.in_short(),
        };
        self.stopped(code, &message, line)
    }

    /// The database refused a batch for what is in it, such as a number that jsonb cannot hold, and does not say which
    /// message it was: halve until one is left. Every try is rolled back.
    async fn find_refused(&self, messages: &[Message], refusal: Error) -> (Option<usize>, Error) {
        let (mut start, mut end) = (0, messages.len());
        let mut error = refusal;
        while end - start > 1 {
            let middle = start + (end - start) / 2;
            match self.opened.try_out(&messages[start..middle]).await {
                Ok(()) => start = middle,
                Err(refused) if refused.kind() == ErrorKind::Refused => {
                    end = middle;
                    error = refused;
                }
                Err(_) => return (None, error),
            }
        }
        // The last look was perhaps at its neighbour: ask for this one's own words.
        match self.opened.try_out(&messages[start..end]).await {
            Err(refused) if refused.kind() == ErrorKind::Refused => (Some(start), refused),
            _ => (None, error),
        }
    }

    /// The failure, with what is committed and where to go on.
    fn stopped(&self, code: ExitCode, message: &str, line: Option<u64>) -> Failure {
        let Account { enqueued, duplicates, next_line, .. } = self.account;
        let first = if code == ExitCode::InvalidInput { "correct it, then " } else { "" };
        let hint = match (&self.name, next_line) {
            (_, 1) => format!("{first}start again from the beginning"),
            (Some(file), next) => format!("{first}go on with: tail -n +{next} {} | postrider enqueue", quoted(file)),
            (None, next) => format!("{first}go on with line {next}"),
        };
        let progress = Progress { line, enqueued, duplicates, next_line };
        Failure::new(code, message).hint(hint).progress(progress, self.account.committed())
    }

    fn unknown(&self, error: &Error, batch: &Batch) -> Failure {
        let (first, last) = (batch.lines.first().copied().unwrap_or(0), batch.lines.last().copied().unwrap_or(0));
        let Account { enqueued, duplicates, next_line, .. } = self.account;
        let message = format!("the connection broke while lines {first} to {last} were written: {}", error.in_short());
        let hint = format!(
            "look whether line {first} is there (`postrider list`), then go on with line {next_line} if not, with line {} \
             if it is",
            last + 1
        );
        let progress = Progress { line: None, enqueued, duplicates, next_line };
        Failure::new(ExitCode::Failure, message).hint(hint).progress(progress, self.account.committed())
    }
}

impl Account {
    fn new() -> Self {
        Self { started: Instant::now(), enqueued: 0, duplicates: 0, batches: 0, next_line: 1 }
    }

    fn messages(&self) -> u64 {
        self.enqueued + self.duplicates
    }

    fn committed(&self) -> String {
        match self.messages() {
            0 => "nothing was enqueued".to_owned(),
            messages => {
                let messages = format::counted(messages, "message");
                format!("{messages} up to line {} committed, nothing after", self.next_line - 1)
            }
        }
    }

    fn add(&mut self, rows: &[Enqueued], batch: &Batch) {
        let created = rows.iter().filter(|row| row.created).count() as u64;
        self.enqueued += created;
        self.duplicates += rows.len() as u64 - created;
        self.batches += 1;
        self.next_line = batch.lines.last().map_or(self.next_line, |line| line + 1);
    }

    fn print(&self, output: &mut Output) -> Result<()> {
        #[derive(Serialize)]
        struct Document {
            enqueued: u64,
            duplicates: u64,
            batches: u64,
            elapsed_seconds: f64,
            messages_per_second: f64,
        }
        let elapsed = self.started.elapsed();
        #[expect(clippy::cast_precision_loss, reason = "a rate needs no 53 bits")]
        let rate = self.messages() as f64 / elapsed.as_secs_f64().max(1e-6);
        if output.json {
            return output.json(&Document {
                enqueued: self.enqueued,
                duplicates: self.duplicates,
                batches: self.batches,
                elapsed_seconds: elapsed.as_secs_f64(),
                messages_per_second: rate,
            });
        }
        let (enqueued, duplicates) = (format::count(self.enqueued), format::count(self.duplicates));
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a positive rate, rounded for people"
        )]
        let rate = format::count(rate as u64);
        output.line(format!("enqueued {enqueued}, duplicates {duplicates}, in {} ({rate}/s)", format::span(elapsed)))
    }
}

/// A file name as the shell reads it.
fn quoted(file: &Path) -> String {
    let name = file.display().to_string();
    if name.chars().all(|c| c.is_alphanumeric() || "/._-+,:@".contains(c)) {
        return name;
    }
    format!("'{}'", name.replace('\'', "'\\''"))
}

/// On stderr, and only if that is a terminal: a bar where the size is known, a counter where it is not.
fn progress_bar(bytes: Option<u64>) -> ProgressBar {
    let (bar, template) = match bytes {
        Some(bytes) => (ProgressBar::new(bytes), "{bar:24.green} {percent:>3}%  {msg}  {eta} left"),
        None => (ProgressBar::new_spinner(), "{spinner:.green} {msg}  {bytes}  {elapsed}"),
    };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("━━╌"));
    }
    bar.set_message("0 messages");
    bar.enable_steady_tick(TICK);
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_are_quoted_for_the_shell() {
        assert_eq!(quoted(Path::new("/tmp/orders-1.ndjson")), "/tmp/orders-1.ndjson");
        assert_eq!(quoted(Path::new("it's $HOME")), r"'it'\''s $HOME'");
    }
}
