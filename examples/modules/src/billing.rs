//! The module that bills. It hears from chat what each turn has cost, counts each turn once, and tells when a tenant has used
//! up its tokens. It never calls chat. The relay calls `hears_chat`; the tests call `record`.

use postrider::{Message, Outbox};
use postrider_relay::{Sink, SinkFailure, json_handler};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use uuid::Uuid;

use crate::chat::Turn;

/// Under which this module writes, and its sink.
pub const NAMESPACE: &str = "billing";

/// A tenant has no tokens left.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct QuotaUsedUp {
    /// Which.
    pub tenant_id: Uuid,
}

/// What chat says, and this module does. An error is recorded, and the turn comes again later.
#[must_use]
pub fn hears_chat(pool: PgPool) -> impl Sink {
    json_handler(move |turn: Turn, _| {
        let pool = pool.clone();
        async move { record(&pool, &turn).await }
    })
}

/// Adds a turn to its tenant's account. The primary key of `billing.usage` is what the event's dedupe key says, so a turn that
/// comes again changes nothing. What this module has to say is written in the same transaction.
pub async fn record(pool: &PgPool, turn: &Turn) -> Result<(), SinkFailure> {
    let Turn { tenant_id, turn_id, request_id, tokens } = *turn;
    let mut tx = pool.begin().await?;
    let statement = sqlx::query_scalar(include_str!("../sql/record_usage.sql"));
    let statement = statement.bind(tenant_id).bind(turn_id).bind(request_id).bind(tokens);
    let used_up: Option<bool> = statement.fetch_optional(&mut *tx).await?;
    if used_up == Some(true) {
        // It is used up by every further turn, too: the key says it once.
        let event = Message::json("quota-used-up", &QuotaUsedUp { tenant_id })?
            .namespace(NAMESPACE)
            .tenant(tenant_id)
            .dedupe_key(format!("{tenant_id}/quota-used-up"));
        Outbox::default().enqueue(&mut tx, &event).await?;
    }
    tx.commit().await?;
    Ok(())
}
