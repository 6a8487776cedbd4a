//! Actions that concern more than the store takes at once: carried out batch by batch until nothing is left, or a bound is
//! met, which the answer says. Each batch is a transaction and an entry of the audit of its own.

use std::time::{Duration, Instant};

use postrider::MAX_PER_ACTION;
use uuid::Uuid;

use super::error::ApiError;
use super::state::Served;
use crate::bulk::{Bulk, Counted};

/// After this long no further batch is begun: whoever wants more asks again.
pub(super) const ACTION_TIME: Duration = Duration::from_secs(20);

/// How far it went.
pub(super) struct Acted {
    pub(super) counted: Counted,
    pub(super) affected: u64,
    pub(super) remaining: u64,
}

/// More ids than one action takes.
pub(super) fn check_ids(message_ids: Option<&Vec<Uuid>>) -> Result<(), ApiError> {
    match message_ids {
        Some(ids) if ids.len() > MAX_PER_ACTION as usize => {
            Err(ApiError::invalid(format!("more than {MAX_PER_ACTION} message_ids in one request")))
        }
        _ => Ok(()),
    }
}

/// The same, limited to what is dead now.
pub(super) async fn dead_by_now(database: &Served, bulk: Bulk) -> Result<Bulk, ApiError> {
    Ok(bulk.dead_by(database.ask(database.store.now()).await?))
}

/// All of this kind, in batches; in a dry run none.
pub(super) async fn until_done(database: &Served, actor: &str, bulk: &Bulk, dry_run: bool) -> Result<Acted, ApiError> {
    let counted = database.ask(bulk.count(&*database.store)).await?;
    let matching = counted.matching;
    let (begun, mut affected) = (Instant::now(), 0);
    while !dry_run && begun.elapsed() < ACTION_TIME {
        // At least once: a request that finds nothing is in the audit, too.
        let done = database.operate(actor, &bulk.batch((matching - affected).max(1))).await;
        let batch = done.map_err(|error| error.after(affected, bulk.done()))?.affected;
        affected += batch;
        if batch == 0 || affected >= matching {
            return Ok(Acted { counted, affected, remaining: 0 });
        }
    }
    Ok(Acted { counted, affected, remaining: matching.saturating_sub(affected) })
}
