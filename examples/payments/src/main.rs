//! Starts one of the two servers on a free port of this machine: `example-payments service`, on the database that
//! `DATABASE_URL` names, or `example-payments rails`. `run` starts both. A relay is neither: it is `postrider run`.

use std::error::Error;

use sqlx::postgres::PgPoolOptions;

/// Requests beyond this many wait for a connection.
const MOST_CONNECTIONS: u32 = 10;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let router = match std::env::args().nth(1).as_deref() {
        Some("service") => {
            let url = std::env::var("DATABASE_URL").map_err(|_| "DATABASE_URL must name the database")?;
            let pool = PgPoolOptions::new().max_connections(MOST_CONNECTIONS).connect(&url).await?;
            example_payments::router(pool)
        }
        Some("rails") => example_payments::rails(),
        _ => return Err("usage: example-payments service|rails".into()),
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("listening on {}", listener.local_addr()?);
    let mut stop = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    tokio::select! {
        served = axum::serve(listener, router) => served?,
        _ = stop.recv() => {}
    }
    Ok(())
}
