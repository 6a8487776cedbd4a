//! The HTTP interface: `POST /turns` finishes a turn with the driver that the request names. `main.rs` serves it. It holds no
//! rule about turns, and answers before billing has heard of them.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use diesel_async::{AsyncConnection as _, AsyncPgConnection};
use postrider::Enqueued;
use sea_orm::DatabaseConnection;
use serde::Deserialize;
use serde_json::json;
use sqlx::PgPool;
use tokio::sync::Mutex;
use tokio_postgres::{Client, NoTls};

use crate::chat::{self, Turn, Unfinished};

/// One database, by every driver. An application has one of them.
pub struct Drivers {
    sea_orm: DatabaseConnection,
    diesel_async: Mutex<AsyncPgConnection>,
    sqlx: PgPool,
    tokio_postgres: Mutex<Client>,
}

/// Which driver is to finish a turn.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "their names say it")]
pub enum Driver {
    SeaOrm,
    DieselAsync,
    Sqlx,
    TokioPostgres,
}

impl Drivers {
    /// Connects.
    pub async fn connect(url: &str) -> Result<Self, Box<dyn std::error::Error>> {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
        // It ends with the client, and with an error that the client's own calls tell.
        tokio::spawn(async move { drop(connection.await) });
        Ok(Self {
            sea_orm: sea_orm::Database::connect(url).await?,
            diesel_async: Mutex::new(AsyncPgConnection::establish(url).await?),
            sqlx: PgPool::connect(url).await?,
            tokio_postgres: Mutex::new(client),
        })
    }

    /// Finishes a turn.
    pub async fn finish(&self, driver: Driver, turn: &Turn) -> Result<Enqueued, Unfinished> {
        match driver {
            Driver::SeaOrm => chat::finish_with_sea_orm(&self.sea_orm, turn).await,
            Driver::DieselAsync => chat::finish_with_diesel_async(&mut *self.diesel_async.lock().await, turn).await,
            Driver::Sqlx => chat::finish_with_sqlx(&self.sqlx, turn).await,
            Driver::TokioPostgres => {
                chat::finish_with_tokio_postgres(&mut *self.tokio_postgres.lock().await, turn).await
            }
        }
    }
}

#[derive(Debug, Deserialize)]
struct Request {
    driver: Driver,
    #[serde(flatten)]
    turn: Turn,
}

/// The service.
pub fn router(drivers: Drivers) -> Router {
    Router::new().route("/turns", post(answer)).with_state(Arc::new(drivers))
}

async fn answer(State(drivers): State<Arc<Drivers>>, Json(request): Json<Request>) -> Response {
    let refuse =
        |status: StatusCode, error: &Unfinished| (status, Json(json!({ "error": error.to_string() }))).into_response();
    match drivers.finish(request.driver, &request.turn).await {
        Ok(Enqueued { message_id, created, .. }) => {
            let status = if created { StatusCode::CREATED } else { StatusCode::OK };
            (status, Json(json!({ "message_id": message_id, "created": created }))).into_response()
        }
        Err(error @ Unfinished::TenantIsClosed) => refuse(StatusCode::PAYMENT_REQUIRED, &error),
        Err(error) => {
            // The client may try again; the cause is for the log alone.
            eprintln!("a turn failed: {error:?}");
            refuse(StatusCode::SERVICE_UNAVAILABLE, &error)
        }
    }
}
