//! The command line's outermost shape: the program, the options that every command has, and what is said about wrong
//! ones. The options of a command stand in its own file.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, Parser};
use postrider::{PostgresStore, Schema};

use crate::command::Command;
use crate::exit_code;
use crate::failure::{Failure, Result};
use crate::store::Address;

const GLOBAL: &str = "Options of every command";

const URL_HELP: &str =
    "The database: postgres://user@host:5432/name or sqlite:FILE [default: sqlite:postrider.db, but for migrate]";

const AFTER_HELP: &str = "\
Examples:
  postrider demo
  postrider enqueue --topic order.placed --payload '{\"id\": 7}'
  postrider run

  export DATABASE_URL=postgres://app@localhost:5432/app
  postrider migrate up
  postrider status";

/// The transactional outbox: enqueue, deliver, and see how it stands.
#[derive(Debug, Parser)]
#[command(name = "postrider", version, max_term_width = 80, disable_help_subcommand = true)]
#[command(after_help = format!("{AFTER_HELP}\n\n{}", exit_code::HELP))]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The options that every command has.
#[derive(Debug, Args)]
pub(crate) struct Global {
    #[arg(long, global = true, env = "DATABASE_URL", hide_env_values = true, value_name = "URL")]
    #[arg(help = URL_HELP, help_heading = GLOBAL)]
    database_url: Option<String>,

    /// The schema that the outbox is in, in PostgreSQL
    #[arg(long, global = true, env = "POSTRIDER_SCHEMA", hide_env_values = true, value_name = "NAME")]
    #[arg(default_value = "outbox", help_heading = GLOBAL)]
    pub(crate) schema: Schema,

    /// Print one JSON document; errors too, on stderr
    #[arg(long, global = true, help_heading = GLOBAL)]
    json: bool,
}

impl Global {
    /// Where the outbox is: checks the URL and touches nothing.
    pub(crate) fn address(&self) -> Result<Address> {
        Address::read(self.database_url.as_deref(), &self.schema)
    }

    /// The PostgreSQL store, not connected yet, for commands that know no other. `None`: it is an SQLite file.
    pub(crate) fn postgres(&self) -> Result<Option<PostgresStore>> {
        if self.database_url.is_none() {
            return Err(Failure::usage("no database was given")
                .hint("set DATABASE_URL=postgres://user:password@host:5432/database, or give --database-url URL"));
        }
        Ok(match self.address()? {
            Address::Postgres { store, .. } => Some(*store),
            Address::Sqlite { .. } => None,
        })
    }
}

/// A usage error in our own form. What the user typed may be a URL with a password, so such a word is never repeated.
pub(crate) fn explain(wrong: &clap::Error, arguments: &[OsString]) -> Failure {
    if wrong.kind() == ErrorKind::MissingSubcommand {
        let known = match wrong.get(ContextKind::ValidSubcommand) {
            Some(ContextValue::Strings(known)) => known.join(", "),
            _ => String::new(),
        };
        return Failure::usage("no command was given").hint(format!("give one of {known}; see --help"));
    }
    let rendered = wrong.render().to_string();
    let rendered = arguments
        .iter()
        .filter_map(|argument| argument.to_str())
        .flat_map(|argument| [Some(argument), argument.split_once('=').map(|(_, value)| value)])
        .flatten()
        .filter(|word| word.contains("://"))
        .fold(rendered, |text, word| text.replace(word, "postgres://…"));
    let (message, advice) = rendered.split_once("\n\n").unwrap_or((&rendered, ""));
    let message = message.trim_start_matches("error: ").lines().map(str::trim).collect::<Vec<_>>().join(" ");
    let tip = advice.lines().find_map(|line| line.trim().strip_prefix("tip: "));
    let usage = match wrong.get(ContextKind::Usage) {
        Some(ContextValue::StyledStr(usage)) => usage.to_string().trim_start_matches("Usage: ").trim().to_owned(),
        _ => String::new(),
    };
    match (tip, usage.is_empty()) {
        (Some(tip), _) => Failure::usage(message).hint(tip),
        (None, false) => Failure::usage(message).hint(format!("usage: {usage} (see --help)")),
        (None, true) => Failure::usage(message).hint("see --help"),
    }
}
