//! `postrider man`: manual pages, one for the program and one for each command, made from the same text as `--help`.
//! Needs no database.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::CommandFactory as _;
use clap_mangen::Man;
use serde::Serialize;

use crate::exit_code::ExitCode;
use crate::failure::{Failure, Result};
use crate::format::counted;
use crate::options::Cli;
use crate::output::Output;

const AFTER_HELP: &str = "\
Examples:
  postrider man | man -l -
  postrider man --dir ~/.local/share/man/man1";

/// Print the manual page, or write one for each command
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Write postrider.1, postrider-run.1 and so on into this directory
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

pub(crate) struct Prepared {
    dir: Option<PathBuf>,
}

impl Args {
    pub(crate) fn prepare(self) -> Result<Prepared> {
        if let Some(dir) = self.dir.as_deref().filter(|dir| !dir.is_dir()) {
            return Err(Failure::usage(format!("there is no directory {}", dir.display())).hint("make it first"));
        }
        Ok(Prepared { dir: self.dir })
    }
}

impl Prepared {
    pub(crate) fn run(&self, output: &mut Output) -> Result<ExitCode> {
        #[derive(Serialize)]
        struct Document {
            written: Vec<String>,
        }
        let mut command = Cli::command();
        command.build();
        let Some(dir) = &self.dir else {
            let mut page = Vec::new();
            Man::new(command).render(&mut page).map_err(|error| Failure::output(&error))?;
            output.line(String::from_utf8_lossy(&page).trim_end())?;
            return Ok(ExitCode::Ok);
        };
        let mut written = Vec::new();
        write_pages(&command, dir, &mut written)
            .map_err(|error| Failure::new(ExitCode::Failure, format!("cannot write to {}: {error}", dir.display())))?;
        if output.json {
            output.json(&Document { written })?;
        } else {
            output.line(format!("wrote {} to {}", counted(written.len() as u64, "page"), dir.display()))?;
        }
        Ok(ExitCode::Ok)
    }
}

/// A page for the command and for each under it.
fn write_pages(command: &clap::Command, dir: &Path, written: &mut Vec<String>) -> io::Result<()> {
    let man = Man::new(command.clone());
    let name = man.get_filename();
    let mut page = Vec::new();
    man.render(&mut page)?;
    fs::write(dir.join(&name), page)?;
    written.push(name);
    command.get_subcommands().filter(|one| !one.is_hide_set()).try_for_each(|one| write_pages(one, dir, written))
}
