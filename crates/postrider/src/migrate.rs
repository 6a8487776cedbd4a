//! Brings a database to the schema this build needs: numbered migrations, each applied once and frozen, then functions
//! and views, re-applied whenever their text changed. All in one transaction, under a lock on the list of migrations, so any
//! number of migrators may start at once. Called by the command line, by tests, and by applications at start.

mod roles;

use std::time::SystemTime;

use serde::Serialize;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, GenericClient, IsolationLevel, Transaction};

use crate::doctor::locks;
use crate::error::{Cause, Error};
use crate::json;
use crate::migration::{self, Migration, POSTGRES_FUNCTIONS, POSTGRES_MIGRATIONS, POSTGRES_VIEWS, hash};
use crate::record::records;
use crate::schema::Schema;
use crate::store::postgres::statement::sql;
use crate::store::row::{FromRow as _, Row as _};
use crate::words::words;

pub use roles::{Roles, roles};

const BOOTSTRAP: &str = include_str!("../sql/postgres/bootstrap.sql");

/// How long a migration waits for a lock that somebody else has, unless the session's own `lock_timeout` says otherwise:
/// longer than another migrator takes, and short enough that somebody is still there to read who it was.
const LOCK_WAIT: &str = "60s";
/// Two migrators may make the schema at once: the second finds it there when it begins again. More are beaten in a row only if
/// those before them fail.
const MAX_BEGINNINGS: usize = 10;

/// Nothing that somebody put into `public` is called by a migration, a backslash is a backslash, and a function may be made before
/// what it calls.
const SETTINGS: &str = "set local search_path = pg_catalog, pg_temp;\nset local standard_conforming_strings = on;\n\
     set local check_function_bodies = off";

/// The session's own limit stands above ours. $1: ours.
const LIMIT_WAITS: &str =
    "select set_config('lock_timeout', coalesce(nullif(current_setting('lock_timeout'), '0'), $1), true)";
const LIMIT_IN_FORCE: &str = "select coalesce(nullif(current_setting('lock_timeout'), '0'), $1)";

fn migrations() -> impl DoubleEndedIterator<Item = Migration> {
    migration::migrations(POSTGRES_MIGRATIONS)
}

/// Every function, then every view. The grants among the text are left out: their roles may not be there.
fn functions_and_views() -> impl Iterator<Item = String> {
    let files = POSTGRES_FUNCTIONS.iter().chain(POSTGRES_VIEWS);
    files.map(|(_, sql)| sql.split_inclusive('\n').filter(|line| !line.starts_with(GRANT)).collect())
}

/// The newest migration in this build.
#[must_use]
pub fn latest_version() -> i32 {
    migrations().next_back().map_or(0, |migration| migration.version)
}

/// A hash of all SQL in this build: two builds with the same one make the same schema.
#[must_use]
pub fn fingerprint() -> String {
    let migrations = POSTGRES_MIGRATIONS.iter().map(|(_, sql)| *sql);
    hash(std::iter::once(BOOTSTRAP).chain(migrations).chain([functions_hash().as_str()]))
}

/// What `up` did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Applied {
    /// Names of the migrations that were applied, oldest first.
    pub migrations: Vec<String>,
    /// Whether functions and views were replaced.
    pub functions: bool,
}

/// One migration, applied or not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MigrationState {
    /// Its number.
    pub version: i32,
    /// Its name.
    pub name: String,
    /// When it was applied.
    #[serde(serialize_with = "json::time_option")]
    pub applied_at: Option<SystemTime>,
}

records! { MigrationState(row) { version, name, applied_at } }

words! {
    /// How a database stands against this build, in one word.
    pub enum State {
        /// There is nothing to do.
        Current = "current",
        /// A migration or the functions are to be applied.
        Pending = "pending",
        /// Nothing was applied yet.
        Missing = "missing",
        /// A newer build was here.
        TooNew = "too_new",
    }
}

/// How a database stands against this build.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Status {
    /// In one word.
    pub state: State,
    /// Every migration known to the database or this build.
    pub migrations: Vec<MigrationState>,
    /// Whether functions and views are this build's.
    pub functions_current: bool,
    /// Prefix of the group roles, if they were made.
    pub role_prefix: Option<String>,
    /// Which of the group roles the server does not have: a restore on another server brings none.
    pub missing_roles: Vec<String>,
}

/// Applies what is missing, as one transaction. Safe to call from many processes at once: one works, the others wait
/// and find nothing to do. Refuses a schema that is newer than this build. No lock is waited for without end: see
/// [`crate::ErrorKind::Locked`].
pub async fn up(client: &mut Client, schema: &Schema) -> Result<Applied, Error> {
    let mut beginnings = 1;
    loop {
        match try_up(client, schema).await {
            Err(error) if is_code(&error, &SqlState::LOCK_NOT_AVAILABLE) => {
                return Err(locked(client, schema, error).await);
            }
            Err(error) if was_made_meanwhile(&error) && beginnings < MAX_BEGINNINGS => beginnings += 1,
            done => return done,
        }
    }
}

async fn try_up(client: &mut Client, schema: &Schema) -> Result<Applied, Error> {
    let tx = begin(client).await?;
    become_owner(&tx, schema).await?;
    // CREATE SCHEMA IF NOT EXISTS asks for CREATE on the database even when the schema is there; the owner role has none.
    if exists(&tx, schema).await? {
        if let Some(nothing) = nothing_to_do(&tx, schema).await? {
            make_partitions(&tx, schema).await?;
            tx.commit().await?;
            return Ok(nothing);
        }
        lock(&tx, schema).await?;
        // Roles may have been made while the lock was waited for.
        become_owner(&tx, schema).await?;
    } else {
        // Whoever else is making them is waited for here, and then this is a unique violation.
        tx.batch_execute(&schema.fill(BOOTSTRAP)).await?;
    }
    let done = apply(&tx, schema).await?;
    make_partitions(&tx, schema).await?;
    tx.commit().await?;
    Ok(done)
}

/// Without the lock, which needs more rights than to look. What is applied stays applied.
async fn nothing_to_do(tx: &Transaction<'_>, schema: &Schema) -> Result<Option<Applied>, Error> {
    let known = applied(tx, schema).await?;
    refuse_newer(&known, schema)?;
    let has = |migration: &Migration| {
        let checksum = hash([migration.sql]);
        known.iter().any(|(state, found)| state.version == migration.version && *found == checksum)
    };
    let current = migrations().all(|migration| has(&migration))
        && installed(tx, schema).await?.functions_hash.as_deref() == Some(functions_hash().as_str());
    Ok(current.then(|| Applied { migrations: Vec::new(), functions: false }))
}

/// What is missing, under the lock.
async fn apply(tx: &Transaction<'_>, schema: &Schema) -> Result<Applied, Error> {
    let known = applied(tx, schema).await?;
    refuse_newer(&known, schema)?;

    let mut done = Applied { migrations: Vec::new(), functions: false };
    for migration in migrations() {
        let checksum = hash([migration.sql]);
        match known.iter().find(|(state, _)| state.version == migration.version) {
            Some((MigrationState { version, name, .. }, found)) if *found != checksum => {
                return Err(Error::from(Cause::MigrationChanged { version: *version, name: name.clone() }));
            }
            Some(_) => {}
            None => {
                tx.batch_execute(&schema.fill(migration.sql)).await?;
                tx.batch_execute(&record(&migration, schema)).await?;
                done.migrations.push(format!("{:04}_{}", migration.version, migration.name));
            }
        }
    }
    if !done.migrations.is_empty() || installed(tx, schema).await?.functions_hash.as_deref() != Some(&functions_hash())
    {
        replace_functions(tx, schema).await?;
        done.functions = true;
    }
    Ok(done)
}

async fn make_partitions(tx: &Transaction<'_>, schema: &Schema) -> Result<(), Error> {
    Ok(tx.batch_execute(&schema.fill("select :\"schema\".make_partitions()")).await?)
}

/// Compares a database with this build; changes nothing.
pub async fn status(client: &impl GenericClient, schema: &Schema) -> Result<Status, Error> {
    let exists = exists(client, schema).await?;
    let known = if exists { applied(client, schema).await? } else { Vec::new() };
    let installed = if exists { installed(client, schema).await? } else { Installed::default() };
    let mut states: Vec<MigrationState> = known.into_iter().map(|(state, _)| state).collect();
    for Migration { version, name, .. } in migrations() {
        if states.iter().all(|known| known.version != version) {
            states.push(MigrationState { version, name: name.to_owned(), applied_at: None });
        }
    }
    let missing_roles = match &installed.role_prefix {
        Some(prefix) => roles::missing(client, &Roles::new(&Schema::new(prefix)?)).await?,
        None => Vec::new(),
    };
    let functions_current = installed.functions_hash.as_deref() == Some(&functions_hash());
    let pending = states.iter().filter(|migration| migration.applied_at.is_none()).count();
    let state = match pending {
        _ if states.iter().any(|migration| migration.version > latest_version()) => State::TooNew,
        0 if functions_current => State::Current,
        pending if pending == states.len() => State::Missing,
        _ => State::Pending,
    };
    Ok(Status { state, migrations: states, functions_current, role_prefix: installed.role_prefix, missing_roles })
}

/// Fails unless the schema is exactly at the version this build understands. One round trip; any role may ask.
pub async fn check(client: &impl GenericClient, schema: &Schema) -> Result<(), Error> {
    let rows = client.query_typed(&schema.fill(sql!("migrate", "schema_version")), &[]).await.map_err(|error| {
        match error.code().map(tokio_postgres::error::SqlState::code) {
            // Schema or function missing. (A schema one may not look into answers with 42501, which is left as it is.)
            Some("3F000" | "42883") => Error::from(Cause::SchemaMissing { schema: schema.to_string() }),
            _ => Error::from(error),
        }
    })?;
    let found: i32 = rows.first().map(|row| row.try_get(0)).transpose()?.unwrap_or(0);
    let known = latest_version();
    match found.cmp(&known) {
        std::cmp::Ordering::Equal => Ok(()),
        std::cmp::Ordering::Less => {
            Err(Error::from(Cause::SchemaTooOld { schema: schema.to_string(), found, needed: known }))
        }
        std::cmp::Ordering::Greater => {
            Err(Error::from(Cause::SchemaTooNew { schema: schema.to_string(), found, known }))
        }
    }
}

/// The whole schema as one script, for people who let nobody but their own tools near the database.
#[must_use]
pub fn script(schema: &Schema) -> String {
    let mut script = format!("begin;\n{SETTINGS};\n");
    script.push_str(&schema.fill(BOOTSTRAP));
    for migration in migrations() {
        script.push_str(&schema.fill(migration.sql));
        script.push_str(&record(&migration, schema));
    }
    script.extend(functions_and_views().map(|sql| schema.fill(&sql)));
    script.push_str(&finish(schema));
    script.push_str(&schema.fill("select :\"schema\".make_partitions();\ncommit;\n"));
    script
}

/// What a statement begins with that gives a group role its right to a function or view, in the file of that: one line.
const GRANT: &str = "grant ";

/// All that the group roles may do. Their names are left as they stand in the files.
pub(crate) fn grants(schema: &Schema) -> String {
    let files = POSTGRES_FUNCTIONS.iter().chain(POSTGRES_VIEWS);
    let lines = files.flat_map(|(_, sql)| sql.split_inclusive('\n')).filter(|line| line.starts_with(GRANT));
    schema.fill(&std::iter::once(roles::GRANTS).chain(lines).collect::<String>())
}

/// Whoever waited for the lock is to see what the one before did, whatever the database's isolation is.
async fn begin(client: &mut Client) -> Result<Transaction<'_>, Error> {
    let tx = client.build_transaction().isolation_level(IsolationLevel::ReadCommitted).start().await?;
    tx.batch_execute(SETTINGS).await?;
    tx.query_typed(LIMIT_WAITS, &[(&LOCK_WAIT, Type::TEXT)]).await?;
    Ok(tx)
}

/// One migrator at a time; readers go on. It takes the owner's rights: nobody else can keep migrators waiting.
async fn lock(tx: &Transaction<'_>, schema: &Schema) -> Result<(), Error> {
    Ok(tx.batch_execute(&schema.fill(sql!("migrate", "lock"))).await?)
}

fn is_code(error: &Error, code: &SqlState) -> bool {
    error.sqlstate() == Some(code.code())
}

/// A unique violation in PostgreSQL's own tables: somebody else has made the schema or its first table.
fn was_made_meanwhile(error: &Error) -> bool {
    let Cause::Postgres(driver) = error.cause() else { return false };
    driver.as_db_error().is_some_and(|db| *db.code() == SqlState::UNIQUE_VIOLATION && db.schema() == Some("pg_catalog"))
}

/// A lock was not to be had: says who has locks now. If even that cannot be asked, the error stays what it was.
async fn locked(client: &Client, schema: &Schema, error: Error) -> Error {
    let Ok(holders) = locks::holders(client, schema).await else { return error };
    let waited = client.query_typed(LIMIT_IN_FORCE, &[(&LOCK_WAIT, Type::TEXT)]).await;
    let waited = waited.ok().and_then(|rows| rows.first()?.try_get(0).ok()).unwrap_or_else(|| LOCK_WAIT.to_owned());
    Error::from(Cause::Locked { schema: schema.to_string(), waited, holders })
}

/// Once the schema belongs to the NOLOGIN owner role, migrations act as that role: what they make belongs to it too.
async fn become_owner(tx: &Transaction<'_>, schema: &Schema) -> Result<(), Error> {
    let rows = tx
        .query_typed(
            "select quote_ident(r.rolname) from pg_namespace n join pg_roles r on r.oid = n.nspowner \
             where n.nspname = $1 and r.rolname <> current_user and pg_has_role(r.oid, 'member')",
            &[(&schema.as_str(), Type::TEXT)],
        )
        .await?;
    if let Some(row) = rows.first() {
        let owner: String = row.try_get(0)?;
        tx.batch_execute(&format!("set local role {owner}")).await?;
    }
    Ok(())
}

async fn exists(client: &impl GenericClient, schema: &Schema) -> Result<bool, Error> {
    let name = schema.fill(":\"schema\".migration");
    let rows = client.query_typed("select to_regclass($1) is not null", &[(&name, Type::TEXT)]).await?;
    Ok(rows.first().map(|row| row.try_get(0)).transpose()?.unwrap_or(false))
}

/// What was applied, and its checksum.
type Known = (MigrationState, String);

async fn applied(client: &impl GenericClient, schema: &Schema) -> Result<Vec<Known>, Error> {
    let rows = client.query_typed(&schema.fill(sql!("migrate", "applied")), &[]).await?;
    rows.iter().map(|row| Ok((MigrationState::from_row(row)?, row.read("checksum")?))).collect()
}

fn refuse_newer(known: &[Known], schema: &Schema) -> Result<(), Error> {
    match known.iter().map(|(state, _)| state.version).max() {
        Some(found) if found > latest_version() => {
            Err(Error::from(Cause::SchemaTooNew { schema: schema.to_string(), found, known: latest_version() }))
        }
        _ => Ok(()),
    }
}

#[derive(Default)]
struct Installed {
    functions_hash: Option<String>,
    role_prefix: Option<String>,
}

async fn installed(client: &impl GenericClient, schema: &Schema) -> Result<Installed, Error> {
    let rows = client.query_typed(&schema.fill(sql!("migrate", "installed")), &[]).await?;
    match rows.first() {
        Some(row) => Ok(Installed { functions_hash: row.try_get(0)?, role_prefix: row.try_get(1)? }),
        None => Ok(Installed::default()),
    }
}

/// Puts this build's functions and views in place of whatever was there, and gives the roles their rights again.
async fn replace_functions(tx: &Transaction<'_>, schema: &Schema) -> Result<(), Error> {
    for (name, _) in POSTGRES_VIEWS.iter().rev() {
        tx.batch_execute(&schema.fill(&format!("drop view if exists :\"schema\".{name}"))).await?;
    }
    // A function whose result or parameter names changed cannot be replaced, and one whose types changed would stay
    // beside the new one as an overload: all go first. Trigger functions belong to the migrations.
    tx.batch_execute(&schema.fill(
        "do $$ declare f record; begin \
         for f in select p.oid::regprocedure as signature from pg_proc p \
                  where p.pronamespace = ':\"schema\"'::regnamespace and p.prorettype <> 'trigger'::regtype loop \
         execute 'drop function ' || f.signature; end loop; end $$",
    ))
    .await?;
    for sql in functions_and_views() {
        tx.batch_execute(&schema.fill(&sql)).await?;
    }
    tx.batch_execute(&finish(schema)).await?;
    // Roles that a restore did not bring can get no rights; `migrate status` says that they are missing.
    if let Some(prefix) = installed(tx, schema).await?.role_prefix
        && roles::missing(tx, &Roles::new(&Schema::new(&prefix)?)).await?.is_empty()
    {
        roles::grant(tx, schema, &prefix).await?;
    }
    Ok(())
}

/// After functions and views: PUBLIC may nothing, and the hash says what is installed.
fn finish(schema: &Schema) -> String {
    schema.fill(&format!(
        "revoke all on schema :\"schema\" from public;\nrevoke all on all functions in schema :\"schema\" from public;\n\
         update :\"schema\".setting set functions_hash = '{}';\n",
        functions_hash()
    ))
}

fn record(migration: &Migration, schema: &Schema) -> String {
    schema.fill(&format!(
        "insert into :\"schema\".migration (version, name, checksum) values ({}, '{}', '{}');\n",
        migration.version,
        migration.name,
        hash([migration.sql])
    ))
}

fn functions_hash() -> String {
    hash(POSTGRES_FUNCTIONS.iter().chain(POSTGRES_VIEWS).map(|(_, sql)| *sql).chain([roles::GRANTS]))
}
