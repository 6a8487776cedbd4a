//! Gathers outcomes for a few milliseconds and records them together: one round trip for as many as there are. Messages
//! to be handed back go the same way. What the store does not take has lost its lease: that is logged, once a batch,
//! and nothing more is done about it. Ends when everything that could still end has.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use postrider::{AttemptState, Completed, Completion, LeaseToken, Outcome};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, warn};
use uuid::Uuid;

use crate::leases::Held;
use crate::relay::{Shared, Trouble};
use crate::telemetry;

/// Most outcomes of one statement.
const MAX_OUTCOMES: usize = 2_000;
/// Between two tries to record while the store is away.
const RETRY_EVERY: Duration = Duration::from_millis(250);

/// What became of a held message.
pub(crate) enum Ended {
    /// It was tried.
    Outcome(Held, Completion),
    /// It was not: hand it back.
    Unsent(Held),
}

/// Runs until `all_ended` and the inbox is empty.
pub(crate) async fn run(shared: Arc<Shared>, mut inbox: mpsc::Receiver<Ended>, all_ended: CancellationToken) {
    loop {
        let first = tokio::select! {
            biased;
            first = inbox.recv() => first,
            () = all_ended.cancelled(), if !inbox.is_closed() => {
                inbox.close();
                continue;
            }
        };
        let Some(first) = first else { return };
        let mut gathered = vec![first];
        let flush_at = shared.clock.now() + shared.options.complete_gather;
        loop {
            // All that is held is in our hands: nothing more can come.
            if gathered.len() >= MAX_OUTCOMES || gathered.len() >= shared.room.held() {
                break;
            }
            tokio::select! {
                biased;
                next = inbox.recv() => match next {
                    Some(next) => gathered.push(next),
                    None => break,
                },
                () = shared.clock.sleep_until(flush_at) => break,
            }
        }
        record(&shared, gathered).await;
    }
}

async fn record(shared: &Shared, gathered: Vec<Ended>) {
    let (mut outcomes, mut unsent) = (Vec::new(), Vec::new());
    for ended in gathered {
        match ended {
            Ended::Outcome(held, completion) => outcomes.push((held, completion)),
            Ended::Unsent(held) => unsent.push(held),
        }
    }
    if !outcomes.is_empty() {
        complete(shared, outcomes).await;
    }
    if !unsent.is_empty() {
        release(shared, unsent).await;
    }
}

/// Records outcomes, as long as it takes: until the store answers, or until no lease among them can be alive.
async fn complete(shared: &Shared, outcomes: Vec<(Held, Completion)>) {
    let mut unsure = false;
    let mut parts = vec![outcomes];
    while let Some(part) = parts.pop() {
        let (helds, completions): (Vec<Held>, Vec<Completion>) = part.into_iter().unzip();
        match shared.ask("record outcomes", shared.store.complete(&shared.options.worker_id, &completions)).await {
            Ok(completed) => recorded(shared, helds, &completions, &completed, unsure),
            Err(Trouble::Store(postrider::Error::Refused { message, .. })) if completions.len() == 1 => {
                error!(message_id = %completions[0].message_id, %message, "the store refused this outcome; the message is tried again when its lease ends");
            }
            Err(Trouble::Store(postrider::Error::Refused { .. })) => {
                // One bad outcome must not take the others with it: find it by halves.
                let mut first: Vec<_> = helds.into_iter().zip(completions).collect();
                let second = first.split_off(first.len() / 2);
                parts.extend([second, first]);
            }
            Err(_) => {
                // The answer may be lost, not the statement: then the next try finds these messages gone.
                unsure = true;
                let alive = helds.iter().any(|held| shared.clock.now() < held.hold.trusted_until());
                if alive && !shared.cut_short.is_cancelled() {
                    shared.clock.sleep_until(shared.clock.now() + RETRY_EVERY).await;
                    parts.push(helds.into_iter().zip(completions).collect());
                } else {
                    shared.stats.lost(helds.len());
                    telemetry::lost_leases(helds.len());
                    warn!(
                        messages = helds.len(),
                        "the store was away for longer than the leases: these outcomes are not recorded and the messages are delivered again"
                    );
                }
            }
        }
    }
}

fn recorded(shared: &Shared, helds: Vec<Held>, completions: &[Completion], completed: &[Completed], unsure: bool) {
    let dead: HashMap<(Uuid, &str), bool> =
        completed.iter().map(|one| ((one.message_id, one.sink.as_str()), one.dead)).collect();
    let mut states: BTreeMap<(&str, &str), (AttemptState, usize)> = BTreeMap::new();
    let mut lost = Vec::new();
    let mut in_lanes: HashSet<*const crate::outlet::Outlet> = HashSet::new();
    for (held, completion) in helds.iter().zip(completions) {
        let outlet = &held.outlet;
        let Some(dead) = dead.get(&(completion.message_id, outlet.name.as_str())) else {
            if held.hold.lose(completion.message_id) {
                lost.push(completion.message_id);
            }
            continue;
        };
        let state = completion.outcome.state();
        states.entry((&outlet.name, state.as_str())).or_insert((state, 0)).1 += 1;
        match &completion.outcome {
            _ if *dead => shared.stats.dead(1),
            Outcome::Dispatched => shared.stats.delivered(1),
            Outcome::Retryable { retry_after, .. } => {
                shared.stats.retried(1);
                outlet.retry_at(shared.clock.now() + *retry_after);
            }
            Outcome::Failed(_) => {}
        }
        // The lane may go on, which nobody else will tell the claimer.
        if held.message.lane.is_some() && in_lanes.insert(Arc::as_ptr(outlet)) {
            outlet.nudge.notify_one();
        }
    }
    for ((sink, _), (state, count)) in states {
        telemetry::attempts(sink, state, count);
    }
    if let Some(first) = lost.first() {
        shared.stats.lost(lost.len());
        telemetry::lost_leases(lost.len());
        if unsure {
            debug!(messages = lost.len(), %first, "recorded by a statement whose answer was lost, or lost leases");
        } else {
            warn!(messages = lost.len(), %first, "lease lost: these outcomes were refused; others have the messages");
        }
    }
    drop(helds);
}

async fn release(shared: &Shared, unsent: Vec<Held>) {
    let mut by_token: HashMap<LeaseToken, Vec<Held>> = HashMap::new();
    for held in unsent {
        by_token.entry(held.message.lease_token).or_default().push(held);
    }
    for (token, helds) in by_token {
        let message_ids: Vec<Uuid> = helds.iter().map(|held| held.message.message_id).collect();
        // One try: what is not handed back returns when its lease ends.
        if let Ok(released) = shared.ask("hand messages back", shared.store.release(token, &message_ids)).await {
            shared.stats.released(released.len());
        }
        for held in &helds {
            held.outlet.nudge.notify_one();
        }
    }
}
