//! Runs a story in a real browser: a Node program that drives Chromium, both from where `scripts/setup` puts them. Called
//! by the tests of the web page. A missing browser fails the test; it is never skipped.

use std::{path::Path, process::ExitStatus};

use tokio::process::Command;

use crate::{
    binaries::{browser_modules, find},
    error::or_panic,
    script,
};

/// What a story left behind.
#[derive(Clone, Debug)]
pub struct StoryOutput {
    /// Zero if everything was as the story says.
    pub status: ExitStatus,
    /// What it printed.
    pub stdout: String,
    /// What was not as it should be.
    pub stderr: String,
}

/// Runs a Node program, which finds the browser as `CHROMIUM` and what drives it in `MODULES`, beside these variables.
pub async fn story(arguments: &[&Path], variables: &[(&str, &str)]) -> StoryOutput {
    let mut command = Command::new(or_panic(find("node", None)));
    command
        .args(arguments)
        .env("CHROMIUM", or_panic(find("chromium", None)))
        .env("MODULES", or_panic(browser_modules()));
    command.envs(variables.iter().copied());
    let (status, stdout, stderr) = script::run(command, b"").await;
    StoryOutput { status, stdout, stderr }
}
