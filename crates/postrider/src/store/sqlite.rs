//! The SQLite store: an outbox in an application's own database file, for a site without a database server. Each
//! transition is one transaction of the statements in `sql/sqlite/statements`, run by one writer thread; several
//! processes may share a file. No row is written any other way.

mod claim;
mod complete;
mod dead;
mod file;
pub(crate) mod input;
mod inspect;
mod list;
mod listen;
mod migrate;
mod open;
mod operate;
mod pending;
mod prune;
mod queue;
mod routes;
mod session;
pub(crate) mod statement;
#[cfg(feature = "testing")]
mod testing;
mod watch;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::Transaction;

use self::file::OpenFile;
use self::session::Thread;
use crate::error::{Cause, Error};

pub use self::migrate::migrate;
pub use self::open::{holds_outbox, try_enqueue};

/// An outbox in a SQLite file. Cheap to clone; its threads end with the last clone.
#[derive(Clone)]
pub struct SqliteStore {
    path: Arc<Path>,
    writer: Thread,
    reader: Thread,
    file: OpenFile,
}

impl SqliteStore {
    /// Opens a file, making it if it is not there, and brings its tables to what this build needs. The file gets a
    /// write-ahead log (two more files beside it) and keeps it.
    ///
    /// Blocks for a moment: until the file is open and, the first time, its tables are made.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let mut connection = open::open(path)?;
        migrate(&mut connection)?;
        let file = OpenFile::new(path);
        let reader = open::open(path)?;
        reader.pragma_update(None, "query_only", true)?;
        let start = |name: &str, connection| {
            Thread::start(name, connection, Some(file.clone())).map_err(|error| {
                Error::from(Cause::SqliteOpen {
                    path: path.display().to_string(),
                    reason: format!("the system gave no thread for it: {error}"),
                })
            })
        };
        Ok(Self {
            path: path.into(),
            writer: start("postrider-writer", connection)?,
            reader: start("postrider-reader", reader)?,
            file: file.clone(),
        })
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.path.to_path_buf()
    }

    /// In a transaction that holds the write lock.
    async fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Transaction<'_>, i64) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        self.writer.run(move |session| session.write(work)).await
    }

    /// On a connection of its own, so that a long look holds up no claim.
    async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Transaction<'_>, i64) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        self.reader.run(move |session| session.read(work)).await
    }
}
