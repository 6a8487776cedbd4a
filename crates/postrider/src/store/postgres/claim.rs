//! Claims in PostgreSQL. Called by the store; the rules are in `sql/postgres/functions/claim.sql`.

use tokio_postgres::types::Type;

use super::PostgresStore;
use super::statement::{int, seconds, sql};
use crate::error::Error;
use crate::lifecycle::{Claim, Claimed};

/// How many blocked lanes a claim looks at before it stops; a thorough one looks at this many.
const THOROUGH_HOPS: i32 = 1_000_000;
const USUAL_HOPS: i32 = 2_000;

pub(super) async fn claim(store: &PostgresStore, claim: &Claim) -> Result<Vec<Claimed>, Error> {
    let answer = store
        .query(
            sql!("claim", "claim"),
            &[
                (&claim.worker_id, Type::TEXT),
                (&int(claim.batch_size), Type::INT4),
                (&seconds(claim.lease), Type::TEXT),
                (&claim.sink, Type::TEXT),
                (&int(claim.max_attempts), Type::INT4),
                (&claim.tenant_id, Type::TEXT),
                (&int(claim.lane_run), Type::INT4),
                (&claim.due_from, Type::TIMESTAMPTZ),
                (&if claim.thorough { THOROUGH_HOPS } else { USUAL_HOPS }, Type::INT4),
                (&claim.max_bytes.map(|bytes| i64::try_from(bytes).unwrap_or(i64::MAX)), Type::INT8),
                (&claim.lease_token.map(|token| token.0), Type::UUID),
                (&claim.with_content, Type::BOOL),
            ],
        )
        .await?;
    answer.all()
}

/// Whether a claim would find something.
pub(super) async fn has_due(store: &PostgresStore, sink: &str, tenant_id: Option<&str>) -> Result<bool, Error> {
    let which = [(&sink as _, Type::TEXT), (&tenant_id as _, Type::TEXT)];
    Ok(store.query(sql!("claim", "has_due"), &which).await?.value()?.unwrap_or(false))
}
