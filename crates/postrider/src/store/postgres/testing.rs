//! What a test does in place of moving PostgreSQL's clock, which nobody can: all that waits has waited longer.

use std::time::Duration;

use async_trait::async_trait;
use tokio_postgres::types::Type;

use super::PostgresStore;
use super::statement::{seconds, sql};
use crate::error::Error;
use crate::testing::MovableClock;

#[async_trait]
impl MovableClock for PostgresStore {
    async fn advance(&self, by: Duration) -> Result<(), Error> {
        self.query(sql!("testing", "advance"), &[(&seconds(by) as _, Type::TEXT)]).await.map(drop)
    }
}
