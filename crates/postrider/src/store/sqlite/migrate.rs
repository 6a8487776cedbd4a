//! Brings an application's SQLite file to the tables this build needs: numbered migrations, each applied once and frozen,
//! then views and their triggers, re-applied whenever their text changed. All in one transaction under the write lock,
//! so any number of processes may start at once. A file that is current is only read.

use rusqlite::{Connection, Transaction, TransactionBehavior, params};

use super::statement;
use crate::error::{Cause, Error};
use crate::migration::{self, Migration, SQLITE_MIGRATIONS, SQLITE_VIEWS, hash};

const BOOTSTRAP: &str = include_str!("../../../sql/sqlite/bootstrap.sql");

fn migrations() -> impl DoubleEndedIterator<Item = Migration> {
    migration::migrations(SQLITE_MIGRATIONS)
}

/// Makes or updates the outbox's tables in this connection's main database, beside the application's own. Refuses a file
/// that a newer build has made, and one whose applied migrations are not this build's.
///
/// [`crate::SqliteStore::open`] does this by itself. An application calls it where it makes its own tables.
pub fn migrate(connection: &mut Connection) -> Result<(), Error> {
    let file = connection.path().filter(|path| !path.is_empty()).unwrap_or("this SQLite database").to_owned();
    if is_current(&connection.transaction()?, &file)? {
        return Ok(());
    }
    let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Somebody may have done it while this one waited for the lock.
    if !is_current(&tx, &file)? {
        tx.execute_batch(BOOTSTRAP)?;
        let applied = applied(&tx)?;
        let new: Vec<Migration> =
            migrations().filter(|one| applied.iter().all(|(version, ..)| *version != one.version)).collect();
        for migration in &new {
            tx.execute_batch(migration.sql)?;
        }
        replace_views(&tx)?;
        let now = statement::now(&tx)?;
        for migration in &new {
            tx.execute(
                "insert into outbox_migration (version, name, checksum, applied_at) values (?1, ?2, ?3, ?4)",
                params![migration.version, migration.name, hash([migration.sql]), now],
            )?;
        }
        tx.commit()?;
    }
    Ok(())
}

/// Whether there is nothing to do; an error if this build must not touch the file.
fn is_current(tx: &Transaction<'_>, file: &str) -> Result<bool, Error> {
    let applied = applied(tx)?;
    let known = migrations().next_back().map_or(0, |migration| migration.version);
    let found = applied.iter().map(|(version, ..)| *version).max().unwrap_or(0);
    if found > known {
        return Err(Error::from(Cause::SchemaTooNew { schema: file.to_owned(), found, known }));
    }
    for (version, name, checksum) in &applied {
        let ours = migrations().find(|migration| migration.version == *version);
        if ours.is_none_or(|migration| hash([migration.sql]) != *checksum) {
            return Err(Error::from(Cause::MigrationChanged { version: *version, name: name.clone() }));
        }
    }
    if applied.len() < SQLITE_MIGRATIONS.len() {
        return Ok(false);
    }
    let views: Option<String> = tx.query_row("select views_hash from outbox_setting", [], |row| row.get(0))?;
    Ok(views == Some(views_hash()))
}

/// Version, name and checksum of what was applied, oldest first. Nothing in a file without an outbox.
fn applied(tx: &Transaction<'_>) -> Result<Vec<(i32, String, String)>, Error> {
    if !tx.table_exists(None, "outbox_migration")? {
        return Ok(Vec::new());
    }
    let mut statement = tx.prepare("select version, name, checksum from outbox_migration order by version")?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

fn replace_views(tx: &Transaction<'_>) -> Result<(), Error> {
    for (name, _) in SQLITE_VIEWS {
        // The triggers of a view go with it.
        tx.execute_batch(&format!("drop view if exists outbox_{name}"))?;
    }
    for (_, sql) in SQLITE_VIEWS {
        tx.execute_batch(sql)?;
    }
    tx.execute("update outbox_setting set views_hash = ?1", [views_hash()])?;
    Ok(())
}

fn views_hash() -> String {
    hash(SQLITE_VIEWS.iter().map(|(_, sql)| *sql))
}
