//! Takes instructions over HTTP and writes each with its message, in one transaction. `main.rs` and the tests serve it.
//! It logs in as `payments_ingest`, which may write instructions and enqueue, and nothing else. It checks no payment: the
//! schema of the rail does, before anything is sent.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use postrider::{Enqueued, Message, Outbox};
use serde::Deserialize;
use serde_json::{Value, json};
use sqlx::PgPool;
use uuid::Uuid;

/// What a client asks for.
#[derive(Clone, Debug, Deserialize)]
pub struct Instruction {
    /// Whose order of payments it belongs to.
    pub participant_id: String,
    /// The client's name for it.
    pub instruction_id: String,
    /// A request that is repeated has the same one.
    pub idempotency_key: String,
    /// `instant` or `wire`.
    pub rail: Rail,
    /// Amount, currency, destination.
    pub payment: Value,
}

/// Where a payment goes; each rail is a topic, a route and a sink.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Rail {
    /// Account numbers, in seconds.
    Instant,
    /// IBANs, one at a time.
    Wire,
}

impl Rail {
    fn name(self) -> &'static str {
        match self {
            Self::Instant => "instant",
            Self::Wire => "wire",
        }
    }
}

/// The message of an instruction, made now or before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// The message.
    pub outbox_id: Uuid,
    /// Its number in the participant's order.
    pub sequence_id: Option<i64>,
    /// Whether this call made it.
    pub created: bool,
}

/// Why an instruction was not accepted.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// A client uses one key for two payments.
    #[error("another instruction has this id and this idempotency key")]
    Different,
    /// The database did not do it.
    #[error("the database failed")]
    Database(#[from] sqlx::Error),
    /// The outbox did not take it.
    #[error("the message was not written")]
    Outbox(#[from] postrider::Error),
}

/// Writes the instruction and its message in one transaction. A repeated request gets the first one's message; nothing is
/// written, and no number is used.
pub async fn accept(pool: &PgPool, instruction: &Instruction) -> Result<Accepted, Refused> {
    let message = message(instruction)?;
    let mut tx = pool.begin().await?;
    let recorded = bind(sqlx::query_scalar(include_str!("../sql/accept.sql")), instruction);
    if recorded.fetch_optional(&mut *tx).await?.is_none() {
        let is_same = bind(sqlx::query_scalar(include_str!("../sql/is_same.sql")), instruction);
        if !is_same.fetch_one(&mut *tx).await? {
            return Err(Refused::Different);
        }
    }
    let Enqueued { message_id, sequence_id, created, .. } = Outbox::default().enqueue(&mut tx, &message).await?;
    tx.commit().await?;
    Ok(Accepted { outbox_id: message_id, sequence_id, created })
}

/// The participant is the lane: one payment after the other, in the order of the commits. The headers go to the rail, too,
/// and are what names.sql reads.
fn message(instruction: &Instruction) -> Result<Message, postrider::Error> {
    let Instruction { participant_id, instruction_id, idempotency_key, rail, .. } = instruction;
    let mut payload = instruction.payment.clone();
    if let Some(fields) = payload.as_object_mut() {
        fields.insert("instruction_id".to_owned(), json!(instruction_id));
    }
    let message = Message::json(format!("payment.{}", rail.name()), &payload)?
        .lane(participant_id)
        .dedupe_key(format!("{instruction_id}/{idempotency_key}"))
        .header("instruction-id", instruction_id)
        .header("client-key", idempotency_key);
    Ok(message)
}

type Question<'q> = sqlx::query::QueryScalar<'q, sqlx::Postgres, bool, sqlx::postgres::PgArguments>;

fn bind<'q>(query: Question<'q>, instruction: &Instruction) -> Question<'q> {
    query
        .bind(instruction.instruction_id.clone())
        .bind(instruction.idempotency_key.clone())
        .bind(instruction.participant_id.clone())
        .bind(instruction.rail.name())
        .bind(instruction.payment.to_string())
}

/// The service, on this database.
pub fn router(pool: PgPool) -> Router {
    Router::new().route("/instructions", post(answer)).with_state(pool)
}

async fn answer(State(pool): State<PgPool>, Json(instruction): Json<Instruction>) -> Response {
    let refuse =
        |status: StatusCode, error: &Refused| (status, Json(json!({ "error": error.to_string() }))).into_response();
    match accept(&pool, &instruction).await {
        Ok(Accepted { outbox_id, sequence_id, created }) => {
            let status = if created { StatusCode::CREATED } else { StatusCode::OK };
            (status, Json(json!({ "outbox_id": outbox_id, "sequence_id": sequence_id }))).into_response()
        }
        Err(error @ Refused::Different) => refuse(StatusCode::CONFLICT, &error),
        Err(error) => {
            // The client may try again; the cause is for the log alone.
            eprintln!("an instruction failed: {error:?}");
            refuse(StatusCode::SERVICE_UNAVAILABLE, &error)
        }
    }
}
