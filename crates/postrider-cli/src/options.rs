//! The command line's outermost shape: the program, the options that every command has, and what is said about wrong
//! ones. The options of a command stand in its own file.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, Parser};
use postrider::{PostgresStore, Schema};

use crate::command::Command;
use crate::config::layers::ONLY;
use crate::config::{Environment, Flags, Layers};
use crate::exit_code;
use crate::failure::{Failure, Result};
use crate::store::{Address, Database};

const GLOBAL: &str = "Options of every command";

const CONFIG_HELP: &str = "The configuration file, in TOML [env: POSTRIDER_CONFIG]";

const URL_HELP: &str = "The database: postgres://user@host:5432/name or sqlite:FILE [env: DATABASE_URL] [default: \
                        sqlite:postrider.db, except for migrate]";

const AFTER_HELP: &str = "\
Examples:
  postrider demo
  postrider enqueue --topic order.placed --payload '{\"id\": 7}'
  postrider run

  export DATABASE_URL=postgres://app@localhost:5432/app
  postrider migrate up
  postrider status";

/// A transactional outbox: enqueue messages, deliver them, and operate it.
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
    #[arg(long, global = true, value_name = "FILE", help = CONFIG_HELP, help_heading = GLOBAL)]
    config: Option<PathBuf>,

    #[arg(long, global = true, value_name = "URL", help = URL_HELP, help_heading = GLOBAL)]
    database_url: Option<String>,

    /// Use the database of this name in the configuration
    #[arg(long, global = true, value_name = "NAME", conflicts_with = "database_url", help_heading = GLOBAL)]
    database: Option<String>,

    /// The outbox's schema in PostgreSQL [default: outbox]
    #[arg(long, global = true, env = "POSTRIDER_SCHEMA", hide_env_values = true, value_name = "NAME")]
    #[arg(help_heading = GLOBAL)]
    schema: Option<Schema>,

    /// Print one JSON document; errors too, on stderr
    #[arg(long, global = true, help_heading = GLOBAL)]
    json: bool,
}

impl Global {
    /// The configuration with everything above it; `flags` are the command's own.
    pub(crate) fn layers(&self, flags: Flags) -> Result<Layers> {
        let flags = Flags {
            config: self.config.clone(),
            database_url: self.database_url.clone(),
            database: self.database.clone(),
            schema: self.schema.as_ref().map(Schema::to_string),
            ..flags
        };
        Layers::read(&flags, &Environment::of_process()?)
    }

    /// Where the outboxes are, or the one that was chosen: checks the URLs and touches nothing.
    pub(crate) fn databases(&self, layers: &Layers) -> Result<Vec<Database>> {
        let configured = layers.databases()?;
        let several = configured.len() > 1;
        if let Some(name) = &self.database
            && !configured.contains_key(name)
        {
            let known = configured.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
            let hint = if known.is_empty() {
                "add it: [databases.NAME] with a url, in the file of --config".to_owned()
            } else {
                format!("it has: {known}")
            };
            return Err(Failure::usage(format!("the configuration has no database {name:?}")).hint(hint));
        }
        if configured.is_empty() {
            let address = Address::read(None, &self.schema.clone().unwrap_or_default())?;
            return Ok(vec![Database { name: ONLY.to_owned(), address }]);
        }
        let wanted = configured.into_iter().filter(|(name, _)| self.database.as_ref().is_none_or(|one| one == name));
        let read = |(name, database)| Database::read(name, &database, several);
        wanted.map(read).collect()
    }

    /// Where the one outbox is that this command is about.
    pub(crate) fn address(&self) -> Result<Address> {
        Ok(self.one(&self.layers(Flags::default())?)?.address)
    }

    /// The one outbox that this command is about, of a configuration that was read.
    pub(crate) fn one(&self, layers: &Layers) -> Result<Database> {
        let mut databases = self.databases(layers)?;
        match (databases.pop(), databases.is_empty()) {
            (Some(database), true) => Ok(database),
            (last, _) => {
                let names: Vec<String> = databases.into_iter().chain(last).map(|database| database.name).collect();
                Err(Failure::usage("the configuration has several databases, and this is about one")
                    .hint(format!("choose one: --database {}", names.join(", or --database "))))
            }
        }
    }

    /// The schema, of which a script can be made without a database.
    pub(crate) fn schema(&self) -> Result<Schema> {
        if let Some(schema) = &self.schema {
            return Ok(schema.clone());
        }
        let mut configured = self.layers(Flags::default())?.databases()?;
        let one = match &self.database {
            Some(name) => configured.remove(name),
            None if configured.len() == 1 => configured.pop_first().map(|(_, database)| database),
            None => None,
        };
        Ok(one.map(|database| database.schema).unwrap_or_default())
    }

    /// The URL of the one database that was named, and its file if it is SQLite's; `None` if none was named.
    pub(crate) fn named_url(&self) -> Result<Option<(String, Option<PathBuf>)>> {
        let layers = self.layers(Flags::default())?;
        let mut configured = layers.databases()?;
        if configured.is_empty() && self.database.is_none() {
            return Ok(None);
        }
        let Database { name, address } = self.one(&layers)?;
        let file = match address {
            Address::Sqlite { file, .. } => Some(file),
            Address::Postgres { .. } => None,
        };
        let url = configured.remove(&name).map(|database| database.url.reveal("the URL")).transpose();
        let url = url.map_err(|error| Failure::usage(error.to_string()))?;
        Ok(url.map(|url| (url, file)))
    }

    /// The PostgreSQL store, not connected yet, for commands that know no other. `None`: it is an SQLite file.
    pub(crate) fn postgres(&self) -> Result<Option<PostgresStore>> {
        let layers = self.layers(Flags::default())?;
        if layers.databases()?.is_empty() && self.database.is_none() {
            return Err(Failure::usage("no database was given")
                .hint("set DATABASE_URL=postgres://user:password@host:5432/database, or give --database-url URL"));
        }
        Ok(match self.one(&layers)?.address {
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

/// One of the words of an enum of the library, in upper or lower case.
pub(crate) fn words<T: Copy + Send + Sync + 'static>(
    all: &'static [T],
    word: fn(T) -> &'static str,
) -> impl TypedValueParser<Value = T> {
    let known: Vec<&'static str> = all.iter().copied().map(word).collect();
    PossibleValuesParser::new(known).try_map(move |given: String| {
        let found = all.iter().copied().find(|one| word(*one).eq_ignore_ascii_case(&given));
        found.ok_or_else(|| format!("{given:?} is unknown"))
    })
}
