//! `postrider import`: takes messages over from another outbox's table in the same database. Looks first, asks, and then works
//! batch by batch; each batch is one transaction, and a run that ends early is gone on with by the next. The rules are the
//! library's and the database's; this file asks, counts and reports. It never changes the old table.

mod report;
mod shapes;

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use postrider::import::{Checked, Import, ImportOptions, Imported, Keys, Mapping, Mark};
use postrider::{PostgresStore, migrate};

use self::report::{MAX_REASONS, Report, StateRows, by_state, sum};
use crate::exit_code::ExitCode;
use crate::failure::{Failure, Result};
use crate::format::{count, counted};
use crate::operator::{self, Answer, Consent};
use crate::options::Global;
use crate::output::{Column, Output, Text};
use crate::signals::Stop;

/// Passes over the table: each takes what came during the one before.
const MAX_PASSES: usize = 10;

const AFTER_HELP: &str = "\
Reads a table of the same PostgreSQL database and writes its rows to the outbox:
what is pending, dead and delivered, with ids, lanes and their numbers, dedupe
keys, attempts and errors. The old table is not changed. Each batch is one
transaction; run it again after an interruption, and it goes on. A row is never
imported twice. Rows that break a rule are refused, with the reason.

Stop the old workers first. New writers may go on: --forward-sql prints a script
with a trigger that forwards each new row in its own transaction.

Exit code 5 if rows were refused, or if old workers hold some.

Examples:
  postrider import --list
  postrider import --from sync-outbox --dry-run
  postrider import --from sync-outbox --workers-stopped --yes
  postrider import --from debezium --table public.outboxevent --dry-run
  postrider import --from debezium --forward-sql | psql
  postrider import --from cap --print-mapping > mine.toml
  postrider import --mapping mine.toml --dry-run";

/// Take messages over from another outbox table
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of its own")]
pub(crate) struct Args {
    /// The table's design: a mapping that is built in
    #[arg(long, value_name = "NAME", required_unless_present_any = ["mapping", "list"])]
    from: Option<String>,
    /// A mapping of your own
    #[arg(long, value_name = "FILE", conflicts_with = "from")]
    mapping: Option<PathBuf>,
    /// The table, if it has another name than in the mapping
    #[arg(long, value_name = "NAME")]
    table: Option<String>,
    /// The old workers are stopped: what they held is pending
    #[arg(long)]
    workers_stopped: bool,
    /// Leave out what is delivered; its dedupe keys are forgotten
    #[arg(long)]
    skip_delivered: bool,
    /// Keys of rows to show for each reason
    #[arg(long, value_name = "N", default_value_t = 5)]
    examples: u16,
    /// Print a script that forwards new rows to the outbox
    #[arg(long, conflicts_with_all = ["dry_run", "yes"])]
    forward_sql: bool,
    /// Print the mapping
    #[arg(long, conflicts_with_all = ["forward_sql", "dry_run", "yes"])]
    print_mapping: bool,
    /// List the mappings that are built in
    #[arg(long, conflicts_with_all = ["from", "mapping"])]
    list: bool,
    #[command(flatten)]
    consent: Consent,
}

pub(crate) enum Prepared {
    List,
    Print(String),
    Forward { store: PostgresStore, mapping: Mapping, table: Option<String> },
    Run { store: PostgresStore, mapping: Mapping, args: Args },
}

impl Args {
    pub(crate) fn prepare(self, global: &Global) -> Result<Prepared> {
        if self.list {
            return Ok(Prepared::List);
        }
        let (text, place) = match (&self.mapping, &self.from) {
            (Some(file), _) => (read_file(file)?, file.display().to_string()),
            (None, name) => {
                let name = name.as_deref().unwrap_or_default();
                (shapes::text(name)?.to_owned(), name.to_owned())
            }
        };
        let mapping = shapes::read(&text, &place)?;
        if self.print_mapping {
            return Ok(Prepared::Print(text));
        }
        let store = global.postgres()?.ok_or_else(|| {
            Failure::usage("an import reads and writes one PostgreSQL database, and this is an SQLite file")
                .hint("`postrider enqueue` takes messages as NDJSON from anywhere")
        })?;
        Ok(if self.forward_sql {
            Prepared::Forward { store, mapping, table: self.table }
        } else {
            Prepared::Run { store, mapping, args: self }
        })
    }
}

fn read_file(file: &Path) -> Result<String> {
    fs::read_to_string(file)
        .map_err(|error| Failure::new(ExitCode::InvalidInput, format!("cannot read {}: {error}", file.display())))
}

impl Prepared {
    pub(crate) async fn run(self, output: &mut Output) -> Result<ExitCode> {
        match self {
            Self::List => print_list(output),
            Self::Print(text) => {
                output.line(text.trim_end())?;
                Ok(ExitCode::Ok)
            }
            Self::Forward { store, mapping, table } => {
                let import = open(&store, mapping, table, ImportOptions::default()).await?;
                output.line(import.forward_sql().trim_end())?;
                Ok(ExitCode::Ok)
            }
            Self::Run { store, mapping, args } => {
                let options =
                    ImportOptions { workers_stopped: args.workers_stopped, skip_delivered: args.skip_delivered };
                let name = mapping.name.clone();
                let import = open(&store, mapping, args.table.clone(), options).await?;
                run(import, &name, options, &args, output).await
            }
        }
    }
}

fn print_list(output: &mut Output) -> Result<ExitCode> {
    let mappings: Vec<Mapping> =
        shapes::SHAPES.iter().map(|(name, text)| shapes::read(text, name)).collect::<Result<_>>()?;
    if output.json {
        let items: Vec<_> = mappings
            .iter()
            .map(|mapping| serde_json::json!({"name": mapping.name, "table": mapping.table, "about": mapping.about}))
            .collect();
        output.json(&serde_json::json!({ "items": items }))?;
    } else {
        let row =
            |mapping: &Mapping| vec![Text::from(&mapping.name), Text::from(&mapping.table), Text::from(&mapping.about)];
        let columns = [Column::Whole("NAME"), Column::Whole("TABLE"), Column::Left("WHAT IT IS")];
        output.table("", &columns, mappings.iter().map(row).collect())?;
    }
    Ok(ExitCode::Ok)
}

async fn open(
    store: &PostgresStore,
    mapping: Mapping,
    table: Option<String>,
    options: ImportOptions,
) -> Result<Import> {
    let connection = store.connection().await?;
    migrate::check(&*connection, store.schema()).await?;
    drop(connection);
    Ok(Import::open(store, mapping, table, options).await?)
}

async fn run(
    mut import: Import,
    mapping: &str,
    options: ImportOptions,
    args: &Args,
    output: &mut Output,
) -> Result<ExitCode> {
    check_keys(&import).await?;
    let states = by_state(&import.standing().await?, options.skip_delivered);
    let mut report = Report {
        source: import.source().to_owned(),
        mapping: mapping.to_owned(),
        dry_run: args.consent.dry_run,
        this_run: Imported::default(),
        states,
        refusals: Vec::new(),
        outbox: None,
        complete: true,
    };
    let to_do = sum(&report.states, StateRows::unsettled);
    if args.consent.dry_run {
        (report.this_run, report.refusals) = look(&import, args.examples, to_do, output.json).await?;
        return report.print(output);
    }
    refuse_claimed(&report, options)?;
    if to_do > 0 && !args.consent.yes {
        let question = format!("This imports {} of {}", counted(to_do, "row"), import.source());
        operator::confirm(&question, Answer::Yes)?;
    }
    import.begin().await?;
    let mut open = to_do;
    for _ in 0..MAX_PASSES {
        let done = pass(&import, open, output.json, &report.this_run).await?;
        report.this_run.add(done);
        // Refused rows are looked at in every pass, and counted once.
        report.this_run.refused = done.refused;
        report.states = by_state(&import.standing().await?, options.skip_delivered);
        open = sum(&report.states, StateRows::open);
        if open == 0 || done.settled() == 0 {
            break;
        }
    }
    report.refusals = import.refusals(args.examples, MAX_REASONS).await?;
    report.outbox = Some(import.arrived().await?);
    report.complete = open == 0;
    report.print(output)
}

/// A row that cannot be told from another would be lost.
async fn check_keys(import: &Import) -> Result<()> {
    let Keys { missing, repeated } = import.keys().await?;
    if missing == 0 && repeated == 0 {
        return Ok(());
    }
    let words = if missing > 0 {
        format!("{} of {} have no key, or no value to sort by", counted(missing, "row"), import.source())
    } else {
        format!("{} of {} have the key of another row", counted(repeated, "row"), import.source())
    };
    Err(Failure::new(ExitCode::InvalidInput, words)
        .hint("the mapping's key has to be unique, and key and order never null"))
}

/// What an old worker holds may be on its way: only who stopped the workers can say that it is not.
fn refuse_claimed(report: &Report, options: ImportOptions) -> Result<()> {
    let held = report.states.get("claimed").map_or(0, StateRows::unsettled);
    if held == 0 || options.workers_stopped {
        return Ok(());
    }
    let words = format!("old workers hold {} of {}", counted(held, "row"), report.source);
    Err(Failure::new(ExitCode::InvalidInput, words).hint(
        "stop the old workers; then --workers-stopped imports what they held as pending, and it may arrive a second time",
    ))
}

/// Rows from the first to the last that are not imported yet.
async fn pass(import: &Import, to_do: u64, json: bool, before: &Imported) -> Result<Imported> {
    let (actor, stop) = (operator::actor(), Stop::on_signals(|| ())?);
    let bar = operator::progress(to_do, "importing", json);
    let (mut done, mut mark): (Imported, Option<Mark>) = (Imported::default(), None);
    loop {
        let batch = import.batch(&actor, mark.as_ref()).await.inspect_err(|_| bar.finish_and_clear())?;
        let Some((next, imported)) = batch else { break };
        done.add(imported);
        bar.set_position(done.settled() + done.refused);
        mark = Some(next);
        if stop.token.is_cancelled() {
            bar.finish_and_clear();
            let settled = before.settled() + done.settled();
            return Err(operator::interrupted(&stop, settled, "rows imported")
                .unwrap_or_else(|| Failure::new(ExitCode::Interrupted, "interrupted")));
        }
    }
    bar.finish_and_clear();
    Ok(done)
}

/// What a pass would do, batch by batch, without writing.
async fn look(import: &Import, examples: u16, to_do: u64, json: bool) -> Result<(Imported, Vec<Checked>)> {
    let bar = operator::progress(to_do, "checking", json);
    let mut total = Imported::default();
    let mut refusals: Vec<Checked> = Vec::new();
    let mut known: HashMap<String, usize> = HashMap::new();
    let mut mark: Option<Mark> = None;
    while let Some((next, checked)) =
        import.check(examples, mark.as_ref()).await.inspect_err(|_| bar.finish_and_clear())?
    {
        for group in checked {
            match group.outcome.as_str() {
                "pending" => total.pending += group.rows,
                "dead" => total.dead += group.rows,
                "delivered" => total.delivered += group.rows,
                "duplicate" => total.duplicates += group.rows,
                _ => {
                    total.refused += group.rows;
                    note(&mut refusals, &mut known, group, examples);
                }
            }
        }
        bar.set_position(total.settled() + total.refused);
        mark = Some(next);
    }
    bar.finish_and_clear();
    refusals.sort_by_key(|refusal| std::cmp::Reverse(refusal.rows));
    Ok((total, refusals))
}

/// Adds rows to those of their reason; reasons past the first are told together.
fn note(refusals: &mut Vec<Checked>, known: &mut HashMap<String, usize>, group: Checked, examples: u16) {
    let mut reason = group.reason.clone().unwrap_or_default();
    if !known.contains_key(&reason) && refusals.len() >= usize::from(MAX_REASONS) {
        reason = format!("other reasons than these {}", count(u64::from(MAX_REASONS)));
    }
    let place = *known.entry(reason.clone()).or_insert_with(|| {
        refusals.push(Checked { reason: Some(reason), rows: 0, examples: Vec::new(), ..group.clone() });
        refusals.len() - 1
    });
    if let Some(refusal) = refusals.get_mut(place) {
        refusal.rows += group.rows;
        refusal.examples.extend(group.examples);
        refusal.examples.truncate(usize::from(examples));
    }
}
