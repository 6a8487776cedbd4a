//! Runs a program to its end with a given input and collects what it prints. Called for psql, Python and Node.

use std::process::{ExitStatus, Stdio};

use tokio::{io::AsyncWriteExt as _, process::Command};

/// Its status, output and errors.
pub(crate) async fn run(mut command: Command, input: &[u8]) -> (ExitStatus, String, String) {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let program = command.as_std().get_program().to_string_lossy().into_owned();
    let mut child = command.spawn().unwrap_or_else(|error| panic!("could not run {program}: {error}"));
    let mut stdin = child.stdin.take().expect("stdin was asked to be piped");
    // Beside the reading: a long script and a long answer would otherwise wait for each other. A script that stops
    // early closes its end, and its status tells why.
    let input = input.to_owned();
    let writing = tokio::spawn(async move { stdin.write_all(&input).await });
    let output = child.wait_with_output().await.unwrap_or_else(|error| panic!("could not wait for {program}: {error}"));
    drop(writing.await);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status, text(&output.stdout), text(&output.stderr))
}
