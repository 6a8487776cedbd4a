//! Actions that concern more than the store takes at once: carried out batch by batch until nothing is left, or a bound is
//! met, which the answer says. Each batch is a transaction and an entry of the audit of its own.

use std::time::{Duration, Instant};

use postrider::{Action, DeadFilter, MAX_PER_ACTION};

use super::error::ApiError;
use super::state::Served;

/// After this long no further batch is begun: whoever wants more asks again.
pub(super) const ACTION_TIME: Duration = Duration::from_secs(20);

/// What to do with dead letters.
#[derive(Clone, Copy, Debug)]
pub(super) enum Act {
    Redrive,
    Discard,
}

impl Act {
    fn action(self, which: DeadFilter) -> Action {
        match self {
            Self::Redrive => Action::Redrive { which, at_most: MAX_PER_ACTION },
            Self::Discard => Action::Discard { which, at_most: MAX_PER_ACTION },
        }
    }

    fn past(self) -> &'static str {
        match self {
            Self::Redrive => "redriven",
            Self::Discard => "discarded",
        }
    }
}

/// How far it went.
pub(super) struct Acted {
    pub(super) matching: u64,
    pub(super) affected: u64,
    pub(super) remaining: u64,
}

/// What is dead now: what dies again while the batches go on is not taken a second time.
pub(super) async fn dead_now(database: &Served, filter: DeadFilter) -> Result<DeadFilter, ApiError> {
    // One step past the store's clock, for what died in this very moment.
    let now = database.ask(database.store.now()).await? + Duration::from_micros(1);
    let died_to = Some(filter.died_to.map_or(now, |to| to.min(now)));
    Ok(DeadFilter { died_to, ..filter })
}

/// All dead letters of this kind, in batches.
pub(super) async fn until_done(
    database: &Served,
    actor: &str,
    act: Act,
    filter: DeadFilter,
) -> Result<Acted, ApiError> {
    let filter = dead_now(database, filter).await?;
    let matching = database.ask(database.store.count_dead(&filter)).await?;
    let action = act.action(filter.clone());
    let begun = Instant::now();
    let mut affected = 0;
    loop {
        let batch = database.operate(actor, &action).await.map_err(|error| error.after(affected, act.past()))?.affected;
        affected += batch;
        if batch < u64::from(MAX_PER_ACTION) {
            return Ok(Acted { matching, affected, remaining: 0 });
        }
        if begun.elapsed() >= ACTION_TIME {
            let remaining = database.ask(database.store.count_dead(&filter)).await;
            let remaining = remaining.map_err(|error| error.after(affected, act.past()))?;
            return Ok(Acted { matching, affected, remaining });
        }
    }
}
