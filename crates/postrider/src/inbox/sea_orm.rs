//! Receive inside a SeaORM transaction: the statement of every PostgreSQL driver.

use ::sea_orm::DatabaseTransaction;

use super::{Batch, Receive};
use crate::enqueue::sea_orm::query_all;
use crate::error::Error;

impl Receive for &DatabaseTransaction {
    async fn receive(self, batch: &Batch<'_>) -> Result<Vec<bool>, Error> {
        query_all(self, batch.postgres(), |row| row.try_get_by_index(0)).await
    }
}
