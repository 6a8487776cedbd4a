//! Runs a script with psql, as an operator or a service in another language would: the SQL functions are an interface
//! of their own, and what is promised for them must hold without our driver.

use std::process::{ExitStatus, Stdio};

use tokio::{io::AsyncWriteExt as _, process::Command};

use crate::{binaries::psql_program, database::Database, error::or_panic};

/// What psql left behind.
#[derive(Clone, Debug)]
pub struct PsqlOutput {
    /// Zero if every statement went well; the script stops at the first that does not.
    pub status: ExitStatus,
    /// Unaligned rows without headings, columns parted by `|`.
    pub stdout: String,
    /// Errors and notices.
    pub stderr: String,
}

/// Runs a script as superuser.
///
/// # Panics
/// When psql is not installed.
pub async fn psql(database: &Database, script: &str) -> PsqlOutput {
    let program = or_panic(psql_program(database.cluster().bin_dir()));
    let mut child = Command::new(&program)
        .args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d"])
        .arg(database.url())
        .env_remove("PGOPTIONS")
        .env("LC_ALL", "C")
        .env("PGCLIENTENCODING", "UTF8")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap_or_else(|error| panic!("could not run {}: {error}", program.display()));
    let mut stdin = child.stdin.take().expect("stdin was asked to be piped");
    // Beside the reading: a long script and a long answer would otherwise wait for each other. A script that stops
    // early closes its end, and its status tells why.
    let script = script.to_owned();
    let writing = tokio::spawn(async move { stdin.write_all(script.as_bytes()).await });
    let output = child.wait_with_output().await.expect("psql can be waited for");
    drop(writing.await);
    PsqlOutput {
        status: output.status,
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}
