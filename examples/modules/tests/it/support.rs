//! What the tests share: a database with both modules' tables, every driver connected to it, and relays of the application.

use std::sync::Arc;
use std::time::Duration;

use example_modules::chat::Turn;
use example_modules::{Driver, Drivers, relay};
use postrider::{PostgresStore, Schema, Store};
use postrider_relay::{Counts, RelayBuilder};
use postrider_testkit::{Database, database};
use sqlx::postgres::PgPoolOptions;
use sqlx::{AssertSqlSafe, PgPool};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

pub(crate) const DRIVERS: [Driver; 4] = [Driver::SeaOrm, Driver::DieselAsync, Driver::Sqlx, Driver::TokioPostgres];

/// Longer than any test; tests that need its end move it.
const LEASE: Duration = Duration::from_mins(5);

pub(crate) const TENANT: Uuid = Uuid::from_u128(0x1000);

/// The application on a fresh database.
pub(crate) struct Site {
    pub(crate) database: Database,
    pub(crate) pool: PgPool,
    pub(crate) drivers: Drivers,
    pub(crate) store: Arc<PostgresStore>,
}

/// A turn of the tenant, known by its number.
pub(crate) fn turn(number: u128) -> Turn {
    Turn { tenant_id: TENANT, turn_id: Uuid::from_u128(number), request_id: Uuid::from_u128(1), tokens: 10 }
}

pub(crate) async fn site() -> Site {
    let database = database().await;
    let pool = PgPoolOptions::new().max_connections(20).connect(&database.url()).await.unwrap();
    sqlx::raw_sql(include_str!("../../sql/schema.sql")).execute(&pool).await.unwrap();
    let drivers = Drivers::connect(&database.url()).await.unwrap();
    let store = Arc::new(PostgresStore::connect(&database.url(), Schema::default()).await.unwrap());
    Site { database, pool, drivers, store }
}

impl Site {
    /// Turns 1 to `count`, by all drivers in turn.
    pub(crate) async fn finish(&self, count: u128) {
        for (number, driver) in (1..=count).zip(DRIVERS.into_iter().cycle()) {
            self.drivers.finish(driver, &turn(number)).await.unwrap();
        }
    }

    pub(crate) fn relay(&self) -> RelayBuilder {
        relay(Arc::clone(&self.store) as Arc<dyn Store>, &self.pool, LEASE)
    }

    /// Delivers what is due.
    pub(crate) async fn drain(&self) -> Counts {
        self.relay().build().unwrap().drain(CancellationToken::new()).await.unwrap()
    }

    pub(crate) async fn run(&self, sql: impl Into<String>) {
        sqlx::raw_sql(AssertSqlSafe(sql.into())).execute(&self.pool).await.unwrap();
    }

    /// The first column of the first row, as a text.
    pub(crate) async fn ask(&self, sql: &'static str) -> String {
        let row: (String,) =
            sqlx::query_as(AssertSqlSafe(format!("select ({sql})::text"))).fetch_one(&self.pool).await.unwrap();
        row.0
    }

    /// How many turns there are, and how many events of turns.
    pub(crate) async fn counts(&self) -> String {
        let turns = "select count(*) from chat.turn";
        let events = "select count(*) from outbox.messages where namespace = 'chat'";
        format!("{} {}", self.ask(turns).await, self.ask(events).await)
    }
}
