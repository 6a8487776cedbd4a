//! Hears that somebody committed, in this process or another: SQLite keeps a number that changes with every commit of
//! another connection. It is looked at every few milliseconds on a connection of its own, which costs microseconds and
//! reads no page. What was committed is not known: a claim tells.

use std::time::Duration;

use async_trait::async_trait;
use rusqlite::Connection;

use super::file::OpenFile;
use crate::error::Error;
use crate::store::Listener;

/// Between two looks: a hundredth of a second is soon enough for a person, and rare enough for a battery.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Looks between two looks at whether the file is still there: a second.
const LOOKS_BETWEEN_CHECKS: u32 = 100;

pub(super) struct SqliteListener {
    connection: Connection,
    file: OpenFile,
    heard_version: i64,
    looks: u32,
}

impl SqliteListener {
    pub(super) fn new(connection: Connection, file: OpenFile) -> Result<Self, Error> {
        let heard_version = version(&connection)?;
        Ok(Self { connection, file, heard_version, looks: 0 })
    }
}

#[async_trait]
impl Listener for SqliteListener {
    async fn news(&mut self) -> Result<(), Error> {
        loop {
            if self.looks == 0 {
                self.file.check()?;
            }
            self.looks = (self.looks + 1) % LOOKS_BETWEEN_CHECKS;
            let version = version(&self.connection)?;
            if version != self.heard_version {
                self.heard_version = version;
                return Ok(());
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

fn version(connection: &Connection) -> Result<i64, Error> {
    Ok(connection.prepare_cached("pragma data_version")?.query_row([], |row| row.get(0))?)
}
