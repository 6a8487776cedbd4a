//! The clock of a SQLite outbox, moved by a test: every statement reads the one view, so another view is another time.

use std::time::Duration;

use async_trait::async_trait;

use super::SqliteStore;
use super::statement::{execute, micros, sql};
use crate::error::Error;
use crate::testing::MovableClock;

#[async_trait]
impl MovableClock for SqliteStore {
    async fn advance(&self, by: Duration) -> Result<(), Error> {
        self.write(move |tx, _| {
            tx.execute_batch(sql!("testing", "movable_clock"))?;
            execute(tx, sql!("testing", "advance"), &[(":by_us", &micros(by))]).map(drop)
        })
        .await
    }
}
