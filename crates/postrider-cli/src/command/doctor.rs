//! `postrider doctor`: what hurts this outbox, from the server's settings to the letters that wait for a person. The
//! looking is the library's; this file adds what only the machine can tell, and reports. Nothing is changed.

use std::path::Path;
use std::time::Duration;

use postrider::doctor::{self, Finding, Level, Limits};
use rustix::fs::statvfs;
use serde::Serialize;

use crate::advice;
use crate::exit_code::ExitCode;
use crate::failure::Result;
use crate::format::{self, counted, parse_duration};
use crate::options::Global;
use crate::output::{Output, Paint, printable, wrap};
use crate::store::{Address, Missing, Opened};

/// Free space on an SQLite file's disk.
const LITTLE_SPACE_BYTES: u64 = 1024 * 1024 * 1024;
const NO_SPACE_BYTES: u64 = 64 * 1024 * 1024;

/// Width of the words where there is no terminal.
const PLAIN_WIDTH: usize = 100;

const AFTER_HELP: &str = "\
Checks for what slows an outbox down or loses messages: old and prepared
transactions, slots and standbys that keep dead rows, autovacuum, partitions,
clocks, LISTEN, schema and functions, privileges, durability, relays, dead
letters, parked lanes and leases. For SQLite: the journal, the file's integrity
and permissions, the disk.

Exit code 8 if something is bad, otherwise 0; --strict counts warnings too.

Examples:
  postrider doctor
  postrider doctor --json | jq '.findings[] | select(.level != \"ok\")'
  postrider doctor --strict --old-transaction 1m";

/// Check this outbox for problems, and say how to fix them
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// When a transaction is old; bad after 12 times this
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = parse_duration)]
    old_transaction: Duration,
    /// When a due message is late
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = parse_duration)]
    late: Duration,
    /// Exit code 8 for warnings too
    #[arg(long)]
    strict: bool,
}

pub(crate) struct Prepared {
    address: Address,
    limits: Limits,
    strict: bool,
}

impl Args {
    pub(crate) fn prepare(self, global: &Global) -> Result<Prepared> {
        let limits = Limits { old_transaction: self.old_transaction, late: self.late, ..Limits::default() };
        Ok(Prepared { address: global.address()?, limits, strict: self.strict })
    }
}

#[derive(Serialize)]
struct Document<'a> {
    store: &'a str,
    bad: usize,
    warnings: usize,
    notes: usize,
    findings: &'a [Finding],
}

impl Prepared {
    pub(crate) async fn run(self, output: &mut Output) -> Result<ExitCode> {
        let (place, findings) = look(self.address, &self.limits).await?;
        let findings: Vec<Finding> = findings.into_iter().map(advice::with_command).collect();
        let count = |level: Level| findings.iter().filter(|finding| finding.level == level).count();
        let (bad, warnings, notes) = (count(Level::Bad), count(Level::Warning), count(Level::Note));
        if output.json {
            output.json(&Document { store: &place, bad, warnings, notes, findings: &findings })?;
        } else {
            let title = output.paint(Paint::Strong, &printable(&place));
            output.line(title)?;
            for finding in &findings {
                print(finding, output)?;
            }
            output.line("")?;
            output.line(summary(bad, warnings, notes))?;
        }
        let failed = bad > 0 || (self.strict && warnings > 0);
        Ok(if failed { ExitCode::CheckFailed } else { ExitCode::Ok })
    }
}

async fn look(address: Address, limits: &Limits) -> Result<(String, Vec<Finding>)> {
    match address {
        Address::Postgres { store, place } => {
            // Nobody can look at a server that does not answer: that is this command's failure, not a finding.
            drop(store.connection().await?);
            Ok((place, doctor::postgres(&store, limits).await))
        }
        Address::Sqlite { ref file, .. } => {
            let file = file.clone();
            // Before it is opened as a store, which would switch its journal.
            let mut findings = if file.exists() { doctor::sqlite(&file) } else { Vec::new() };
            let Opened { store, place, .. } = address.open(Missing::Refuse).await?;
            findings.extend(disk(&file));
            findings.extend(doctor::backlog(&*store, limits).await);
            Ok((place, findings))
        }
    }
}

/// Free space where an SQLite file is.
fn disk(file: &Path) -> Option<Finding> {
    let stat = statvfs(file).ok()?;
    Some(judge_space(stat.f_bavail.saturating_mul(stat.f_frsize)))
}

fn judge_space(free_bytes: u64) -> Finding {
    let seen = format!("{} MiB are free on its disk", format::count(free_bytes / (1024 * 1024)));
    let level = match free_bytes {
        ..NO_SPACE_BYTES => Level::Bad,
        NO_SPACE_BYTES..LITTLE_SPACE_BYTES => Level::Warning,
        _ => return Finding::ok("disk", seen),
    };
    Finding::new("disk", level, seen, "a full disk refuses every message, and every outcome").fix("make room")
}

fn print(finding: &Finding, output: &mut Output) -> Result<()> {
    let (sign, paint) = match finding.level {
        Level::Ok => ("✓", Paint::Good),
        Level::Note => ("·", Paint::Quiet),
        Level::Warning => ("!", Paint::Warning),
        Level::Bad => ("✗", Paint::Bad),
    };
    let width = output.width().unwrap_or(PLAIN_WIDTH).saturating_sub(4);
    let check = output.paint(Paint::Strong, &finding.check.replace('_', " "));
    let head = format!("  {} {check}: ", output.paint(paint, sign));
    let room = width.saturating_sub(finding.check.len() + 2);
    for (index, line) in wrap(&printable(&finding.seen), room).iter().enumerate() {
        output.line(if index == 0 { format!("{head}{line}") } else { format!("    {line}") })?;
    }
    if finding.level == Level::Ok {
        return Ok(());
    }
    for line in wrap(finding.why, width) {
        output.line(format!("    {line}"))?;
    }
    // Not wrapped: it is to be copied.
    match &finding.fix {
        Some(fix) => output.line(format!("    → {}", printable(fix))),
        None => Ok(()),
    }
}

fn summary(bad: usize, warnings: usize, notes: usize) -> String {
    if bad + warnings == 0 {
        return "all is well".to_owned();
    }
    let parts = [
        (bad > 0).then(|| format!("{bad} bad")),
        (warnings > 0).then(|| counted(warnings as u64, "warning")),
        (notes > 0).then(|| counted(notes as u64, "note")),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn space_is_judged_before_it_runs_out() {
        for (bytes, level) in [
            (0, Level::Bad),
            (NO_SPACE_BYTES, Level::Warning),
            (LITTLE_SPACE_BYTES - 1, Level::Warning),
            (LITTLE_SPACE_BYTES, Level::Ok),
        ] {
            assert_eq!(judge_space(bytes).level, level, "{bytes}");
        }
    }

    #[test]
    fn the_summary_names_the_worst_first() {
        assert_eq!(summary(0, 0, 3), "all is well");
        assert_eq!(summary(1, 2, 0), "1 bad, 2 warnings");
        assert_eq!(summary(0, 1, 1), "1 warning, 1 note");
    }
}
