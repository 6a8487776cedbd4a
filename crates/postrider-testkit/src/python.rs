//! Runs a Python program with the client libraries that `scripts/setup` installed: what is promised to services in other
//! languages is proved with their libraries. Tests call it for one program; [`crate::Consumer`] keeps one running.

use std::process::ExitStatus;

use tokio::process::Command;

use crate::{binaries::python_program, error::or_panic, script};

/// What a Python program left behind.
#[derive(Clone, Debug)]
pub struct PythonOutput {
    /// Zero unless it ended with an exception or an exit code of its own.
    pub status: ExitStatus,
    /// What it printed.
    pub stdout: String,
    /// Its traceback, if any.
    pub stderr: String,
}

/// Runs a program, given as its text, with arguments (`sys.argv[1:]`) and standard input.
pub async fn python(program: &str, arguments: &[&str], input: &[u8]) -> PythonOutput {
    let mut command = command();
    command.args(["-c", program]).args(arguments);
    let (status, stdout, stderr) = script::run(command, input).await;
    PythonOutput { status, stdout, stderr }
}

/// Without the user's own Python settings, and it writes no cache beside our files.
pub(crate) fn command() -> Command {
    let mut command = Command::new(or_panic(python_program()));
    command.args(["-E", "-s", "-B", "-u"]).kill_on_drop(true);
    command
}
