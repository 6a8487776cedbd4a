//! Serves the contacts of the database that `DATABASE_URL` names, on a free port of this machine or on the address given as
//! the only argument. `run` starts it. It delivers nothing.

use std::error::Error;

use sqlx::postgres::PgPoolOptions;

/// Requests beyond this many wait for a connection.
const MOST_CONNECTIONS: u32 = 10;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("DATABASE_URL").map_err(|_| "DATABASE_URL must name the database")?;
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:0".to_owned());
    let pool = PgPoolOptions::new().max_connections(MOST_CONNECTIONS).connect(&url).await?;
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("listening on {}", listener.local_addr()?);
    let mut stop = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    axum::serve(listener, example_contacts::router(pool))
        .with_graceful_shutdown(async move {
            stop.recv().await;
        })
        .await?;
    Ok(())
}
