//! The module that chats. It finishes turns and tells of the tokens that each has cost; it hears from billing which tenants
//! have none left. It never calls billing. `http.rs` and the tests call `finish_with_…`, the relay calls `hears_billing`.

mod finish;

use postrider::{InvalidMessage, Message};
use postrider_relay::{Sink, SinkFailure, json_handler};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use uuid::Uuid;

pub use finish::{
    Unfinished, finish_with_diesel_async, finish_with_sea_orm, finish_with_sqlx, finish_with_tokio_postgres,
};

use crate::billing::QuotaUsedUp;

/// Under which this module writes, and its sink.
pub const NAMESPACE: &str = "chat";

/// A turn of a chat that has come to its end: also what its event says.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct Turn {
    /// Who pays.
    pub tenant_id: Uuid,
    /// The turn.
    pub turn_id: Uuid,
    /// A client that repeats a request repeats its id.
    pub request_id: Uuid,
    /// What it has cost.
    pub tokens: i64,
}

impl Turn {
    /// The event of this turn. Its key names the turn, so that it is written once, however often the turn is finished.
    pub fn event(&self) -> Result<Message, InvalidMessage> {
        let Self { tenant_id, turn_id, request_id, .. } = self;
        let event = Message::json("usage", self)?
            .namespace(NAMESPACE)
            .tenant(*tenant_id)
            .dedupe_key(format!("{tenant_id}/{turn_id}/{request_id}"));
        Ok(event)
    }
}

/// What billing says, and this module does: a tenant without tokens is closed. To do it twice is to do it once.
#[must_use]
pub fn hears_billing(pool: PgPool) -> impl Sink {
    json_handler(move |QuotaUsedUp { tenant_id }, _| {
        let pool = pool.clone();
        async move {
            let close = "insert into chat.closed_tenant (tenant_id) values ($1) on conflict (tenant_id) do nothing";
            sqlx::query(close).bind(tenant_id).execute(&pool).await?;
            Ok::<(), SinkFailure>(())
        }
    })
}
