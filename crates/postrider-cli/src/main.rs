//! The `postrider` command, in two phases: read the arguments and do everything that can fail without the database,
//! then run. Only this file prints a failure and starts the runtime.

mod admin;
mod advice;
mod bulk;
mod command;
mod config;
#[cfg(test)]
mod documented;
mod exit_code;
mod failure;
mod filter;
mod format;

mod json_text;
mod log;
mod maybe;
mod operator;
mod options;
mod output;
mod schemas;
mod server;
mod signals;
mod store;
mod telemetry;
mod terminal;
mod traces;

use std::ffi::OsString;
use std::io::{IsTerminal as _, Write as _};

use clap::{CommandFactory as _, Parser as _};

use crate::command::Prepared;
use crate::exit_code::ExitCode;
use crate::failure::{Failure, Result};
use crate::options::Cli;
use crate::output::Output;

fn main() -> std::process::ExitCode {
    let arguments = help_as_an_option(std::env::args_os().collect());
    // Looked for by hand: a usage error, too, is JSON for a program.
    let json = arguments.iter().skip(1).take_while(|argument| *argument != "--").any(|argument| argument == "--json");
    let ended = prepare(&arguments).and_then(|prepared| match prepared {
        Some(prepared) => run(prepared, json),
        None => Ok(ExitCode::Ok),
    });
    let code = ended.unwrap_or_else(|failure| {
        failure.print(json, output::colour(std::io::stderr().is_terminal()));
        failure.code()
    });
    code.into()
}

/// `postrider help dlq redrive` is `postrider dlq redrive --help`.
fn help_as_an_option(mut arguments: Vec<OsString>) -> Vec<OsString> {
    if arguments.get(1).is_some_and(|first| first == "help") {
        arguments.remove(1);
        arguments.push("--help".into());
    }
    arguments
}

/// Phase one: arguments, URL, schema name, input files, the message. `None` if help or version was all that was asked.
fn prepare(arguments: &[OsString]) -> Result<Option<Prepared>> {
    match Cli::try_parse_from(arguments) {
        Ok(cli) => cli.command.prepare(&cli.global).map(Some),
        Err(answer) if !answer.use_stderr() => {
            // Help and version go to stdout; if that is closed, nobody wanted them.
            drop(answer.print());
            Ok(None)
        }
        Err(_) if arguments.len() <= 1 => {
            drop(write!(std::io::stderr(), "{}", Cli::command().render_help()));
            Err(Failure::Silent(ExitCode::Usage))
        }
        Err(wrong) => Err(options::explain(&wrong, arguments)),
    }
}

/// Phase two: the runtime and the database.
fn run(prepared: Prepared, json: bool) -> Result<ExitCode> {
    let mut builder = if prepared.wants_threads() {
        tokio::runtime::Builder::new_multi_thread()
    } else {
        tokio::runtime::Builder::new_current_thread()
    };
    let runtime = builder
        .enable_all()
        .build()
        .map_err(|error| Failure::new(ExitCode::Failure, format!("cannot start: {error}")))?;
    let mut output = Output::new(json);
    let ended = runtime.block_on(prepared.run(&mut output));
    // A write to a pipe that nobody empties must not hold up the end of the process.
    runtime.shutdown_background();
    let code = ended?;
    output.finish()?;
    Ok(code)
}
