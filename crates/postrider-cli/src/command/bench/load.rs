//! Messages for a measurement: their payload, and outboxes and tables that are full before the clock starts.

use tokio_postgres::types::Type;
use uuid::Uuid;

use super::place::Postgres;
use crate::failure::Result;

const LOAD: &str = include_str!("sql/load.sql");
const HISTORY: &str = include_str!("sql/history.sql");
/// Messages of one statement: it can be waited for when a run is interrupted.
const CHUNK: u32 = 5_000;
const HISTORY_CHUNK: u32 = 50_000;
/// Bytes of one statement.
const CHUNK_BYTES: u32 = 8 * 1024 * 1024;
/// What the JSON around the data takes.
const FRAME_BYTES: u32 = 11;

/// Messages that are loaded.
#[derive(Clone, Copy)]
pub(super) struct Load {
    pub(super) messages: u32,
    pub(super) payload_bytes: u32,
    /// 0: without a lane.
    pub(super) lanes: u32,
    pub(super) lane: &'static str,
    pub(super) delay_seconds: u32,
}

impl Load {
    pub(super) fn new(messages: u32, payload_bytes: u32) -> Self {
        Self { messages, payload_bytes, lanes: 0, lane: "lane", delay_seconds: 0 }
    }

    /// Enqueues them in batches.
    pub(super) async fn run(&self, place: &Postgres) -> Result<()> {
        let client = place.client().await?;
        let (sql, payload) = (place.fill(LOAD), payload(self.payload_bytes));
        for chunk in batches(self.messages, batch_of(self.payload_bytes)) {
            let (lanes, delay) = (self.lanes.cast_signed(), self.delay_seconds.cast_signed());
            let parameters: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 5] = [
                (&chunk.cast_signed(), Type::INT4),
                (&lanes, Type::INT4),
                (&payload, Type::TEXT),
                (&delay, Type::INT4),
                (&self.lane, Type::TEXT),
            ];
            client.query_typed(&sql, &parameters).await?;
        }
        analyze(place).await
    }
}

/// Messages that were delivered already.
pub(super) async fn history(place: &Postgres, messages: u32, payload_bytes: u32) -> Result<()> {
    let client = place.client().await?;
    let (sql, payload) = (place.fill(HISTORY), payload(payload_bytes));
    for chunk in batches(messages, HISTORY_CHUNK) {
        client.query_typed(&sql, &[(&chunk.cast_signed(), Type::INT4), (&payload, Type::TEXT)]).await?;
    }
    analyze(place).await
}

/// As autovacuum would, a moment later.
async fn analyze(place: &Postgres) -> Result<()> {
    let tables = ":\"schema\".message, :\"schema\".delivery, :\"schema\".attempt";
    Ok(place.client().await?.batch_execute(&place.fill(&format!("analyze {tables}"))).await?)
}

/// `{"data":"…"}` of so many bytes that hardly compress.
pub(super) fn payload(bytes: u32) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let letter = |_| char::from(LETTERS[usize::from(rand::random::<u8>() & 63)]);
    let data: String = (0..bytes.saturating_sub(FRAME_BYTES)).map(letter).collect();
    format!("{{\"data\":\"{data}\"}}")
}

/// New ids, of this moment.
pub(super) fn ids(count: u32) -> Vec<Uuid> {
    (0..count).map(|_| Uuid::now_v7()).collect()
}

/// Messages of one statement, so that it stays small enough.
pub(super) fn batch_of(payload_bytes: u32) -> u32 {
    (CHUNK_BYTES / payload_bytes.max(1)).clamp(1, CHUNK)
}

/// `total` in parts of `most`.
pub(super) fn batches(total: u32, most: u32) -> impl Iterator<Item = u32> {
    (0..total).step_by(most as usize).map(move |from| most.min(total - from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_add_up() {
        assert_eq!(batches(2_500, 1_000).collect::<Vec<_>>(), [1_000, 1_000, 500]);
        assert_eq!(batches(0, 10).count(), 0);
    }

    #[test]
    fn a_payload_has_its_size_and_is_json() {
        let text = payload(200);
        assert_eq!(text.len(), 200);
        assert!(serde_json::from_str::<serde_json::Value>(&text).is_ok());
    }
}
