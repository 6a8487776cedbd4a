//! Brings a database to the schema this build needs: numbered migrations, each applied once and frozen, then functions
//! and views, re-applied whenever their text changed. All in one transaction, under a lock on the list of migrations, so any
//! number of migrators may start at once. Called by `postrider migrate`, by tests, and by applications at start.

mod roles;

use std::fmt::Write as _;

use sha2::{Digest, Sha256};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, GenericClient, IsolationLevel, Transaction};

use crate::doctor::locks;
use crate::error::{Cause, Error};
use crate::schema::Schema;

pub use roles::{Roles, roles};

struct Migration {
    version: i32,
    name: &'static str,
    sql: &'static str,
}

const BOOTSTRAP: &str = include_str!("../sql/postgres/bootstrap.sql");

const MIGRATIONS: &[Migration] = &[
    Migration { version: 1, name: "outbox", sql: include_str!("../sql/postgres/migrations/0001_outbox.sql") },
    Migration { version: 2, name: "inbox", sql: include_str!("../sql/postgres/migrations/0002_inbox.sql") },
    Migration { version: 3, name: "audit", sql: include_str!("../sql/postgres/migrations/0003_audit.sql") },
    Migration { version: 4, name: "watch", sql: include_str!("../sql/postgres/migrations/0004_watch.sql") },
];

/// How long a migration waits for a lock that somebody else has, unless the session's own `lock_timeout` says otherwise:
/// longer than another migrator takes, and short enough that somebody is still there to read who it was.
const LOCK_WAIT: &str = "60s";
/// Two migrators may make the schema at once: the second finds it there when it begins again. More are beaten in a row only if
/// those before them fail.
const MAX_BEGINNINGS: usize = 10;

/// Nothing that somebody put into `public` is called by a migration, and a backslash is a backslash.
const PINNED_PATH: &str = "set local search_path = pg_catalog, pg_temp;\nset local standard_conforming_strings = on";

/// The session's own limit stands above ours. $1: ours.
const LIMIT_WAITS: &str =
    "select set_config('lock_timeout', coalesce(nullif(current_setting('lock_timeout'), '0'), $1), true)";
const LIMIT_IN_FORCE: &str = "select coalesce(nullif(current_setting('lock_timeout'), '0'), $1)";

/// In the order they are created: SQL functions need what they call.
const FUNCTIONS: &[&str] = &[
    include_str!("../sql/postgres/functions/schema_name.sql"),
    include_str!("../sql/postgres/functions/topic_like.sql"),
    include_str!("../sql/postgres/functions/schema_version.sql"),
    include_str!("../sql/postgres/functions/refuse_stale_snapshot.sql"),
    include_str!("../sql/postgres/functions/locks.sql"),
    include_str!("../sql/postgres/functions/write_audit.sql"),
    include_str!("../sql/postgres/functions/message_id.sql"),
    include_str!("../sql/postgres/functions/next_sequence.sql"),
    include_str!("../sql/postgres/functions/wake.sql"),
    include_str!("../sql/postgres/functions/content_sizes.sql"),
    include_str!("../sql/postgres/functions/enqueue_many.sql"),
    include_str!("../sql/postgres/functions/enqueue.sql"),
    include_str!("../sql/postgres/functions/enqueue_as.sql"),
    include_str!("../sql/postgres/functions/bury.sql"),
    include_str!("../sql/postgres/functions/settle.sql"),
    include_str!("../sql/postgres/functions/lane_fronts.sql"),
    include_str!("../sql/postgres/functions/claim_due.sql"),
    include_str!("../sql/postgres/functions/claim_lane_runs.sql"),
    include_str!("../sql/postgres/functions/claim_lanes.sql"),
    include_str!("../sql/postgres/functions/claim.sql"),
    include_str!("../sql/postgres/functions/has_due.sql"),
    include_str!("../sql/postgres/functions/content.sql"),
    include_str!("../sql/postgres/functions/complete_many.sql"),
    include_str!("../sql/postgres/functions/complete.sql"),
    include_str!("../sql/postgres/functions/renew.sql"),
    include_str!("../sql/postgres/functions/release.sql"),
    include_str!("../sql/postgres/functions/abandon.sql"),
    include_str!("../sql/postgres/functions/repair_expired_leases.sql"),
    include_str!("../sql/postgres/functions/choose_dead.sql"),
    include_str!("../sql/postgres/functions/redrive.sql"),
    include_str!("../sql/postgres/functions/choose_pending.sql"),
    include_str!("../sql/postgres/functions/retry_now.sql"),
    include_str!("../sql/postgres/functions/cancel.sql"),
    include_str!("../sql/postgres/functions/discard.sql"),
    include_str!("../sql/postgres/functions/skip.sql"),
    include_str!("../sql/postgres/functions/sink_is_known.sql"),
    include_str!("../sql/postgres/functions/replay.sql"),
    include_str!("../sql/postgres/functions/configure_sink.sql"),
    include_str!("../sql/postgres/functions/partitions.sql"),
    include_str!("../sql/postgres/functions/prunable.sql"),
    include_str!("../sql/postgres/functions/receive_many.sql"),
    include_str!("../sql/postgres/functions/receive.sql"),
    include_str!("../sql/postgres/functions/prune_inbox.sql"),
    include_str!("../sql/postgres/functions/report.sql"),
    include_str!("../sql/postgres/functions/queues.sql"),
    include_str!("../sql/postgres/functions/measure.sql"),
    include_str!("../sql/postgres/functions/find_messages.sql"),
    include_str!("../sql/postgres/functions/find_ids.sql"),
    include_str!("../sql/postgres/functions/find_keys.sql"),
];

const VIEWS: &[(&str, &str)] = &[
    ("sinks", include_str!("../sql/postgres/views/sinks.sql")),
    ("status", include_str!("../sql/postgres/views/status.sql")),
    ("messages", include_str!("../sql/postgres/views/messages.sql")),
    ("deliveries", include_str!("../sql/postgres/views/deliveries.sql")),
    ("attempts", include_str!("../sql/postgres/views/attempts.sql")),
    ("in_flight", include_str!("../sql/postgres/views/in_flight.sql")),
    ("dead_letters", include_str!("../sql/postgres/views/dead_letters.sql")),
    ("lanes", include_str!("../sql/postgres/views/lanes.sql")),
    ("audit_log", include_str!("../sql/postgres/views/audit_log.sql")),
    ("relays", include_str!("../sql/postgres/views/relays.sql")),
    ("samples", include_str!("../sql/postgres/views/samples.sql")),
];

/// The newest migration in this build.
#[must_use]
pub fn latest_version() -> i32 {
    MIGRATIONS.last().map_or(0, |migration| migration.version)
}

/// A hash of all SQL in this build: two builds with the same one make the same schema.
#[must_use]
pub fn fingerprint() -> String {
    let migrations = MIGRATIONS.iter().map(|migration| migration.sql);
    hash(std::iter::once(BOOTSTRAP).chain(migrations).chain([functions_hash().as_str()]))
}

/// What `up` did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// Names of the migrations that were applied, oldest first.
    pub migrations: Vec<String>,
    /// Whether functions and views were replaced.
    pub functions: bool,
}

/// One migration, applied or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MigrationState {
    /// Its number.
    pub version: i32,
    /// Its name.
    pub name: String,
    /// When it was applied, as the database writes it.
    pub applied_at: Option<String>,
}

/// How a database stands against this build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// Every migration known to the database or this build.
    pub migrations: Vec<MigrationState>,
    /// Whether functions and views are this build's.
    pub functions_current: bool,
    /// Prefix of the group roles, if they were made.
    pub role_prefix: Option<String>,
    /// Which of the group roles the server does not have: a restore on another server brings none.
    pub missing_roles: Vec<String>,
}

impl Status {
    /// Whether there is nothing for `up` to do.
    #[must_use]
    pub fn is_current(&self) -> bool {
        self.functions_current && self.migrations.iter().all(|migration| migration.applied_at.is_some())
    }
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
        tx.batch_execute(&render(BOOTSTRAP, schema)).await?;
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
        known.iter().any(|(version, _, found)| *version == migration.version && *found == checksum)
    };
    let current = MIGRATIONS.iter().all(has)
        && installed(tx, schema).await?.functions_hash.as_deref() == Some(functions_hash().as_str());
    Ok(current.then(|| Applied { migrations: Vec::new(), functions: false }))
}

/// What is missing, under the lock.
async fn apply(tx: &Transaction<'_>, schema: &Schema) -> Result<Applied, Error> {
    let known = applied(tx, schema).await?;
    refuse_newer(&known, schema)?;

    let mut done = Applied { migrations: Vec::new(), functions: false };
    for migration in MIGRATIONS {
        let checksum = hash([migration.sql]);
        match known.iter().find(|(version, ..)| *version == migration.version) {
            Some((version, name, found)) if *found != checksum => {
                return Err(Error::from(Cause::MigrationChanged { version: *version, name: name.clone() }));
            }
            Some(_) => {}
            None => {
                tx.batch_execute(&render(migration.sql, schema)).await?;
                tx.batch_execute(&record(migration, schema)).await?;
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
    Ok(tx.batch_execute(&format!("select {}.make_partitions()", schema.quoted())).await?)
}

/// Compares a database with this build; changes nothing.
pub async fn status(client: &impl GenericClient, schema: &Schema) -> Result<Status, Error> {
    let exists = exists(client, schema).await?;
    let known = if exists { applied(client, schema).await? } else { Vec::new() };
    let installed = if exists { installed(client, schema).await? } else { Installed::default() };
    let mut migrations = Vec::new();
    if exists {
        let sql = format!("select version, name, applied_at::text from {}.migration order by version", schema.quoted());
        for row in client.query_typed(&sql, &[]).await? {
            migrations.push(MigrationState {
                version: row.try_get(0)?,
                name: row.try_get(1)?,
                applied_at: row.try_get(2)?,
            });
        }
    }
    for migration in MIGRATIONS.iter().filter(|one| known.iter().all(|(version, ..)| *version != one.version)) {
        migrations.push(MigrationState {
            version: migration.version,
            name: migration.name.to_owned(),
            applied_at: None,
        });
    }
    let missing_roles = match &installed.role_prefix {
        Some(prefix) => roles::missing(client, &Roles::new(&Schema::new(prefix)?)).await?,
        None => Vec::new(),
    };
    Ok(Status {
        migrations,
        functions_current: installed.functions_hash.as_deref() == Some(&functions_hash()),
        role_prefix: installed.role_prefix,
        missing_roles,
    })
}

/// Fails unless the schema is exactly at the version this build understands. One round trip; any role may ask.
pub async fn check(client: &impl GenericClient, schema: &Schema) -> Result<(), Error> {
    let sql = format!("select {}.schema_version()", schema.quoted());
    let rows = client.query_typed(&sql, &[]).await.map_err(|error| {
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
    let mut script = format!("begin;\n{PINNED_PATH};\n");
    script.push_str(&render(BOOTSTRAP, schema));
    for migration in MIGRATIONS {
        script.push_str(&render(migration.sql, schema));
        script.push_str(&record(migration, schema));
    }
    for sql in FUNCTIONS.iter().chain(VIEWS.iter().map(|(_, sql)| sql)) {
        script.push_str(&render(sql, schema));
    }
    script.push_str(&finish(schema));
    let _ = writeln!(script, "select {}.make_partitions();\ncommit;", schema.quoted());
    script
}

/// The grants of the group roles, whose names are left as they stand in the file.
pub(crate) fn grants(schema: &Schema) -> String {
    render(roles::GRANTS, schema)
}

/// Whoever waited for the lock is to see what the one before did, whatever the database's isolation is.
async fn begin(client: &mut Client) -> Result<Transaction<'_>, Error> {
    let tx = client.build_transaction().isolation_level(IsolationLevel::ReadCommitted).start().await?;
    tx.batch_execute(PINNED_PATH).await?;
    tx.query_typed(LIMIT_WAITS, &[(&LOCK_WAIT, Type::TEXT)]).await?;
    Ok(tx)
}

/// One migrator at a time; readers go on. It takes the owner's rights: nobody else can keep migrators waiting.
async fn lock(tx: &Transaction<'_>, schema: &Schema) -> Result<(), Error> {
    Ok(tx.batch_execute(&format!("lock table {}.migration in exclusive mode", schema.quoted())).await?)
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
    let name = format!("{}.migration", schema.quoted());
    let rows = client.query_typed("select to_regclass($1) is not null", &[(&name, Type::TEXT)]).await?;
    Ok(rows.first().map(|row| row.try_get(0)).transpose()?.unwrap_or(false))
}

async fn applied(client: &impl GenericClient, schema: &Schema) -> Result<Vec<(i32, String, String)>, Error> {
    let sql = format!("select version, name, checksum from {}.migration order by version", schema.quoted());
    let rows = client.query_typed(&sql, &[]).await?;
    rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?))).collect()
}

fn refuse_newer(known: &[(i32, String, String)], schema: &Schema) -> Result<(), Error> {
    match known.iter().map(|(version, ..)| *version).max() {
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
    let sql = format!("select functions_hash, role_prefix from {}.setting", schema.quoted());
    let rows = client.query_typed(&sql, &[]).await?;
    match rows.first() {
        Some(row) => Ok(Installed { functions_hash: row.try_get(0)?, role_prefix: row.try_get(1)? }),
        None => Ok(Installed::default()),
    }
}

/// Puts this build's functions and views in place of whatever was there, and gives the roles their rights again.
async fn replace_functions(tx: &Transaction<'_>, schema: &Schema) -> Result<(), Error> {
    for (name, _) in VIEWS.iter().rev() {
        tx.batch_execute(&format!("drop view if exists {}.{name}", schema.quoted())).await?;
    }
    // A function whose result or parameter names changed cannot be replaced, and one whose types changed would stay
    // beside the new one as an overload: all go first. Trigger functions belong to the migrations.
    tx.batch_execute(&format!(
        "do $$ declare f record; begin \
         for f in select p.oid::regprocedure as signature from pg_proc p \
                  where p.pronamespace = '{}'::regnamespace and p.prorettype <> 'trigger'::regtype loop \
         execute 'drop function ' || f.signature; end loop; end $$",
        schema.quoted()
    ))
    .await?;
    for sql in FUNCTIONS.iter().chain(VIEWS.iter().map(|(_, sql)| sql)) {
        tx.batch_execute(&render(sql, schema)).await?;
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
    format!(
        "revoke all on schema {0} from public;\nrevoke all on all functions in schema {0} from public;\n\
         update {0}.setting set functions_hash = '{1}';\n",
        schema.quoted(),
        functions_hash()
    )
}

fn record(migration: &Migration, schema: &Schema) -> String {
    format!(
        "insert into {}.migration (version, name, checksum) values ({}, '{}', '{}');\n",
        schema.quoted(),
        migration.version,
        migration.name,
        hash([migration.sql])
    )
}

fn functions_hash() -> String {
    hash(FUNCTIONS.iter().copied().chain(VIEWS.iter().map(|(_, sql)| *sql)).chain([roles::GRANTS]))
}

fn hash<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    let mut hasher = Sha256::new();
    for text in texts {
        hasher.update(text.len().to_le_bytes());
        hasher.update(text);
    }
    hasher.finalize().iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

/// The files use psql's notation for a quoted identifier, so that they also run in psql as they are.
fn render(sql: &str, schema: &Schema) -> String {
    sql.replace(":\"schema\"", &schema.quoted())
}
