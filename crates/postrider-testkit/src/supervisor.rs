//! A small shell process beside the test process that owns one directory and the server in it. It cleans up when its
//! input ends, which the kernel sees to however the test process ends: return, panic, abort or SIGKILL. Every private
//! server starts its processes through it; nobody else removes their directories.

use std::{
    ffi::OsStr,
    fs,
    io::{BufRead as _, BufReader, Write as _},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
};

use uuid::Uuid;

use crate::{
    account::Account,
    error::{Error, Result},
    processes,
};

const SCRIPT: &str = include_str!("supervisor.sh");
/// As much of a server's log as a failing test shows.
const LOG_TAIL_LINES: usize = 30;

#[derive(Debug)]
pub(crate) struct Supervisor {
    directory: PathBuf,
    shell: Child,
    /// `None` only while dropping.
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    /// The process that runs now, if any.
    pid: Option<u32>,
}

impl Supervisor {
    /// Makes a new directory in the temporary directory. The name is short: a socket path may have 107 bytes.
    pub(crate) fn start(account: Account) -> Result<Self> {
        let id = Uuid::new_v4().simple().to_string();
        let directory = std::env::temp_dir().join(format!("postrider-{}", &id[..12]));
        let mut command = Command::new("sh");
        account.apply(&mut command);
        command
            .args(["-c", SCRIPT, "postrider-supervisor"])
            .arg(&directory)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut shell =
            command.spawn().map_err(|source| Error::Spawn { program: "sh (the supervisor)".to_owned(), source })?;
        let orders = shell.stdin.take();
        let answers = BufReader::new(shell.stdout.take().expect("stdout was asked to be piped"));
        let mut supervisor = Self { directory, shell, orders, answers, pid: None };
        if supervisor.answer()? != "ready" {
            return Err(Error::Server {
                what: format!(
                    "the account with uid {} could not make {}; point TMPDIR at a directory that it may write to",
                    account.uid,
                    supervisor.directory.display()
                ),
                log: String::new(),
            });
        }
        Ok(supervisor)
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(crate) fn pid(&self) -> Option<u32> {
        self.pid
    }

    /// Starts a process; `stop_signal` is what ends it at once when the test process is gone.
    pub(crate) fn run<S: AsRef<OsStr>>(&mut self, stop_signal: &str, argv: &[S]) -> Result<u32> {
        debug_assert!(self.pid.is_none(), "one process at a time");
        let words: Vec<String> = argv.iter().map(|word| quoted(&word.as_ref().to_string_lossy())).collect();
        self.order(&format!("run {stop_signal} {}", words.join(" ")))?;
        let answer = self.answer()?;
        let pid = answer.parse().map_err(|_| self.lost("a process could not be started"))?;
        self.pid = Some(pid);
        Ok(pid)
    }

    /// Waits for the end of the process and reaps it.
    pub(crate) fn wait(&mut self) -> Result<i32> {
        self.order("wait")?;
        let answer = self.answer()?;
        self.pid = None;
        answer.parse().map_err(|_| self.lost("a process ended without an exit code"))
    }

    pub(crate) fn run_to_end<S: AsRef<OsStr>>(&mut self, what: &str, argv: &[S]) -> Result<()> {
        self.run("TERM", argv)?;
        match self.wait()? {
            0 => Ok(()),
            code => Err(self.lost(&format!("{what} failed with exit code {code}"))),
        }
    }

    /// Kills the process and its children at once, as a loss of power would, and returns when they are gone.
    pub(crate) fn kill(&mut self) -> Result<()> {
        let Some(pid) = self.pid else { return Ok(()) };
        let all = processes::freeze(pid);
        processes::signal("KILL", &all);
        self.wait()?;
        processes::wait_gone(&all);
        Ok(())
    }

    /// Asks the process to end and waits for it; a frozen one is woken for that.
    pub(crate) fn stop(&mut self, signal: &str) -> Result<()> {
        let Some(pid) = self.pid else { return Ok(()) };
        processes::signal(signal, &[pid]);
        processes::thaw(pid);
        self.wait().map(drop)
    }

    /// Freezes the process and its children: connections stay open and nobody answers.
    pub(crate) fn freeze(&self) {
        if let Some(pid) = self.pid {
            processes::freeze(pid);
        }
    }

    pub(crate) fn thaw(&self) {
        if let Some(pid) = self.pid {
            processes::thaw(pid);
        }
    }

    pub(crate) fn log_path(&self) -> PathBuf {
        self.directory.join("log")
    }

    pub(crate) fn log_tail(&self) -> String {
        let log = fs::read(self.log_path()).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].join("\n")
    }

    pub(crate) fn lost(&self, what: &str) -> Error {
        Error::Server { what: what.to_owned(), log: self.log_tail() }
    }

    fn order(&mut self, line: &str) -> Result<()> {
        debug_assert!(!line.contains('\n'), "an order is one line");
        let orders = self.orders.as_mut().expect("the supervisor is not being dropped");
        writeln!(orders, "{line}").map_err(|_| self.lost("the supervisor of a private server is gone"))
    }

    fn answer(&mut self) -> Result<String> {
        let mut line = String::new();
        self.answers.read_line(&mut line).map_err(|_| self.lost("the supervisor of a private server is gone"))?;
        Ok(line.trim_end().to_owned())
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        drop(self.orders.take());
        let _ = self.shell.wait();
    }
}

/// A test that panicked while it held the lock must not hide its own message behind a second panic.
pub(crate) fn lock(supervisor: &Mutex<Supervisor>) -> MutexGuard<'_, Supervisor> {
    supervisor.lock().unwrap_or_else(PoisonError::into_inner)
}

fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn quotes_what_the_shell_would_take_apart() {
        assert_eq!(quoted("/tmp/it's $HOME"), r"'/tmp/it'\''s $HOME'");
    }
}
