//! `postrider migrate`: brings a schema up to this build, says how it stands, prints the SQL, makes the group roles.
//! The work is the library's; this file asks for it and reports. PostgreSQL only: an SQLite file migrates itself.

use clap::Subcommand;
use postrider::inspect::rfc3339;
use postrider::migrate::{self, Applied, Roles, State, Status};
use postrider::{PostgresStore, Schema};

use crate::exit_code::ExitCode;
use crate::failure::{Failure, Result};
use crate::options::Global;
use crate::output::{Column, Output, Paint, Text};

/// Create, upgrade or inspect the PostgreSQL schema
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

const AFTER_UP: &str = "\
Runs in one transaction. Any number of processes can run it at once. SQLite files
need no migration: they are upgraded when they are opened.

Example:
  postrider migrate up";

const AFTER_STATUS: &str = "\
Exit code 0 if there is nothing to do; 3 if a migration is pending, the schema is
missing, or a newer postrider created it.

Example:
  postrider migrate status || postrider migrate up";

const AFTER_PRINT: &str = "\
Needs no database. The script creates a new schema; it does not upgrade one.

Example:
  postrider migrate print --schema events > outbox.sql
  psql -v ON_ERROR_STOP=1 -f outbox.sql";

const AFTER_ROLES: &str = "\
Safe to repeat. The role that runs it needs CREATEROLE and owns the schema.
Roles belong to the whole server: two outboxes that must not share roles need
different prefixes.

Example:
  postrider migrate roles
  psql -c 'GRANT outbox_producer TO web_app'";

#[derive(Debug, Subcommand)]
enum Verb {
    /// Apply missing migrations
    #[command(after_help = AFTER_UP)]
    Up,
    /// Show which migrations are applied and pending
    #[command(after_help = AFTER_STATUS)]
    Status,
    /// Print the whole schema as an SQL script
    #[command(after_help = AFTER_PRINT)]
    Print,
    /// Create the group roles and their grants
    #[command(after_help = AFTER_ROLES)]
    Roles {
        /// Prefix of the roles' names [default: the schema's name]
        #[arg(long, value_name = "PREFIX")]
        prefix: Option<Schema>,
    },
}

pub(crate) enum Prepared {
    /// An SQLite file: nothing to do.
    ByItself,
    Up(PostgresStore),
    Status(PostgresStore),
    Print(Schema),
    Roles(PostgresStore, Schema),
}

impl Args {
    pub(crate) fn prepare(self, global: &Global) -> Result<Prepared> {
        Ok(match self.verb {
            Verb::Up => global.postgres()?.map_or(Prepared::ByItself, Prepared::Up),
            Verb::Status => global.postgres()?.map_or(Prepared::ByItself, Prepared::Status),
            Verb::Print => Prepared::Print(global.schema()?),
            Verb::Roles { prefix } => {
                let store = global.postgres()?.ok_or_else(|| {
                    Failure::usage("an SQLite file has no roles")
                        .hint("who may read and write it is said by the rights of the file and its directory")
                })?;
                let prefix = prefix.unwrap_or_else(|| store.schema().clone());
                Prepared::Roles(store, prefix)
            }
        })
    }
}

impl Prepared {
    pub(crate) async fn run(self, output: &mut Output) -> Result<ExitCode> {
        match self {
            Self::ByItself => print_by_itself(output),
            Self::Up(store) => {
                let mut connection = store.connection().await?;
                let applied = migrate::up(&mut connection, store.schema()).await?;
                print_applied(&applied, store.schema(), output)
            }
            Self::Status(store) => {
                let connection = store.connection().await?;
                let status = migrate::status(&*connection, store.schema()).await?;
                print_status(&status, store.schema(), output)
            }
            Self::Print(schema) => print_script(&schema, output),
            Self::Roles(store, prefix) => {
                let mut connection = store.connection().await?;
                let roles = migrate::roles(&mut connection, store.schema(), &prefix).await?;
                print_roles(&roles, output)
            }
        }
    }
}

fn print_by_itself(output: &mut Output) -> Result<ExitCode> {
    if output.json {
        output.json(&serde_json::json!({"migrates_itself": true}))?;
    } else {
        output.line("nothing to do: an SQLite file is brought up to date when it is opened")?;
    }
    Ok(ExitCode::Ok)
}

fn print_applied(applied: &Applied, schema: &Schema, output: &mut Output) -> Result<ExitCode> {
    if output.json {
        output.json(applied)?;
        return Ok(ExitCode::Ok);
    }
    for name in &applied.migrations {
        output.line(format!("applied {name}"))?;
    }
    if applied.functions {
        output.line("replaced functions and views")?;
    }
    if applied.migrations.is_empty() && !applied.functions {
        output.line(format!("nothing to do: schema {schema} is current"))?;
    } else {
        output.line(format!("schema {schema} is now current"))?;
    }
    Ok(ExitCode::Ok)
}

fn print_status(status: &Status, schema: &Schema, output: &mut Output) -> Result<ExitCode> {
    let code = if status.state == State::Current { ExitCode::Ok } else { ExitCode::SchemaNotCurrent };
    if output.json {
        output.json(status)?;
        return Ok(code);
    }
    let rows = status.migrations.iter().map(|migration| {
        let applied = match migration.applied_at {
            Some(time) => Text::from(rfc3339(time)),
            None => Text::new("pending", Paint::Warning),
        };
        vec![Text::from(format!("{:04}", migration.version)), Text::from(&migration.name), applied]
    });
    let columns = [Column::Left("MIGRATION"), Column::Left("NAME"), Column::Left("APPLIED")];
    output.table("", &columns, rows.collect())?;
    output.line("")?;
    let functions = match status.state {
        State::Missing => output.paint(Paint::Warning, "pending"),
        State::TooNew => output.paint(Paint::Warning, "another build's"),
        State::Current | State::Pending if status.functions_current => output.paint(Paint::Good, "current"),
        State::Current | State::Pending => output.paint(Paint::Warning, "to be replaced"),
    };
    output.line(format!("functions  {functions}"))?;
    let roles = match &status.role_prefix {
        Some(prefix) if status.missing_roles.is_empty() => {
            format!("{prefix}_owner, _producer, _receiver, _relay, _reader, _operator, _auditor")
        }
        Some(prefix) => roles_there(prefix, schema, &status.missing_roles),
        None => "none (see `postrider migrate roles`)".to_owned(),
    };
    output.line(format!("roles      {roles}"))?;
    output.line("")?;
    output.line(match status.state {
        State::Current => format!("schema {schema} is current"),
        State::Pending => format!("schema {schema} is not current: run `postrider migrate up`"),
        State::Missing => format!("there is no outbox in schema {schema} yet: run `postrider migrate up`"),
        State::TooNew => format!("schema {schema} was made by a newer postrider: use that one"),
    })?;
    Ok(code)
}

/// The roles that are there, those that are not, and what makes them.
fn roles_there(prefix: &str, schema: &Schema, missing: &[String]) -> String {
    let there: Vec<String> = Schema::new(prefix).map_or_else(
        |_| Vec::new(),
        |prefix| {
            Roles::new(&prefix).names().map(str::to_owned).into_iter().filter(|role| !missing.contains(role)).collect()
        },
    );
    let there = if there.is_empty() { "none".to_owned() } else { there.join(", ") };
    let option = if prefix == schema.as_str() { String::new() } else { format!(" --prefix {prefix}") };
    format!("{there}; missing: {} (run `postrider migrate roles{option}`)", missing.join(", "))
}

fn print_script(schema: &Schema, output: &mut Output) -> Result<ExitCode> {
    let script = migrate::script(schema);
    if output.json {
        output.json(&serde_json::json!({"version": migrate::latest_version(), "sql": script}))?;
    } else {
        output.line(script.trim_end())?;
    }
    Ok(ExitCode::Ok)
}

fn print_roles(roles: &Roles, output: &mut Output) -> Result<ExitCode> {
    if output.json {
        output.json(roles)?;
        return Ok(ExitCode::Ok);
    }
    let Roles { owner, producer, receiver, relay, reader, operator, auditor } = roles;
    let rows = [
        (owner, "owns everything, cannot log in"),
        (producer, "may enqueue, and nothing else"),
        (receiver, "may note what it received"),
        (relay, "may claim, complete and keep house"),
        (reader, "reads everything, changes nothing"),
        (operator, "reads everything, acts on what is in the outbox"),
        (auditor, "reads everything but the sequences"),
    ];
    let rows = rows.map(|(role, may)| vec![Text::from(role), Text::from(may)]);
    output.table("", &[Column::Left("ROLE"), Column::Left("WHAT IT IS FOR")], rows.into())?;
    output.line("")?;
    output.line(format!("Give them to your logins, for instance: GRANT {producer} TO your_login"))?;
    Ok(ExitCode::Ok)
}
