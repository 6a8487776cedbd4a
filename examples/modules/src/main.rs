//! The application: it serves turns on a free port of this machine and runs a relay beside it, both on the database that
//! `DATABASE_URL` names, until it is told to stop. `run` starts two of it.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use example_modules::{Drivers, relay, router};
use postrider::{PostgresStore, Schema};
use sqlx::postgres::PgPoolOptions;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Two minutes unless set; short here, so that one sees what a killed process leaves behind come back.
const LEASE: Duration = Duration::from_secs(6);
/// As many callbacks as run at once, over both sinks.
const MOST_CONNECTIONS: u32 = 16;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("DATABASE_URL").map_err(|_| "DATABASE_URL must name the database")?;
    let shutdown = CancellationToken::new();
    let pool = PgPoolOptions::new().max_connections(MOST_CONNECTIONS).connect(&url).await?;
    let store = PostgresStore::connect(&url, Schema::default()).await?;
    let relay = tokio::spawn(relay(Arc::new(store), &pool, LEASE).build()?.run(shutdown.clone()));

    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("listening on {}", listener.local_addr()?);
    let mut stop = signal(SignalKind::terminate())?;
    axum::serve(listener, router(Drivers::connect(&url).await?))
        .with_graceful_shutdown(async move {
            stop.recv().await;
        })
        .await?;
    // What is with a callback is finished and recorded; what is not goes back.
    shutdown.cancel();
    let counts = relay.await??;
    println!("delivered {}", counts.delivered);
    Ok(())
}
