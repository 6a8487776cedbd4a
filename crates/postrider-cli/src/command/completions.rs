//! `postrider completions`: the script that lets a shell complete commands and options. Needs no database.

use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::exit_code::ExitCode;
use crate::failure::Result;
use crate::options::Cli;
use crate::output::Output;

const AFTER_HELP: &str = "\
Examples:
  postrider completions bash > ~/.local/share/bash-completion/completions/postrider
  postrider completions zsh > ~/.zfunc/_postrider
  postrider completions fish > ~/.config/fish/completions/postrider.fish";

/// Print a completion script for a shell
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

pub(crate) struct Prepared {
    shell: Shell,
}

impl Args {
    #[expect(clippy::unnecessary_wraps, reason = "every command is prepared the same way")]
    pub(crate) fn prepare(self) -> Result<Prepared> {
        Ok(Prepared { shell: self.shell })
    }
}

impl Prepared {
    pub(crate) fn run(&self, output: &mut Output) -> Result<ExitCode> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "postrider", &mut script);
        output.line(String::from_utf8_lossy(&script).trim_end())?;
        Ok(ExitCode::Ok)
    }
}
