//! Receive inside a diesel-async transaction: the statement of every PostgreSQL driver.

use ::diesel_async::AsyncPgConnection;
use diesel::deserialize::QueryableByName;
use diesel::sql_types::Bool;

use super::{Batch, Receive};
use crate::enqueue::diesel_async::load;
use crate::error::Error;

impl Receive for &mut AsyncPgConnection {
    async fn receive(self, batch: &Batch<'_>) -> Result<Vec<bool>, Error> {
        let rows: Vec<ReceivedRow> = load(self, batch.postgres()).await?;
        Ok(rows.into_iter().map(|row| row.first).collect())
    }
}

#[derive(QueryableByName)]
struct ReceivedRow {
    #[diesel(sql_type = Bool)]
    first: bool,
}
