//! Runs a script with psql, as an operator or a service in another language would: the SQL functions are an interface
//! of their own, and what is promised for them must hold without our driver.

use std::process::ExitStatus;

use tokio::process::Command;

use crate::{binaries::psql_program, database::Database, error::or_panic, script};

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
pub async fn psql(database: &Database, text: &str) -> PsqlOutput {
    let program = or_panic(psql_program(database.cluster().bin_dir()));
    let mut command = Command::new(program);
    command
        .args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d"])
        .arg(database.url())
        .env_remove("PGOPTIONS")
        .env("LC_ALL", "C")
        .env("PGCLIENTENCODING", "UTF8");
    let (status, stdout, stderr) = script::run(command, text.as_bytes()).await;
    PsqlOutput { status, stdout, stderr }
}
