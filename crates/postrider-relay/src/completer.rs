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
    /// Its lease could not be kept. Others have it, or will.
    Lost(Held),
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

/// What the store did not take, or could not be asked to: counted and said once for all that was gathered.
#[derive(Default)]
struct Losses {
    count: usize,
    first: Option<Uuid>,
    /// Some may have been recorded by a statement whose answer was lost.
    unsure: bool,
}

impl Losses {
    fn add(&mut self, message_id: Uuid) {
        self.count += 1;
        self.first = self.first.or(Some(message_id));
    }

    fn tell(&self, shared: &Shared) {
        let Some(first) = self.first else { return };
        shared.stats.lost(self.count);
        shared.telemetry.lost_leases(self.count);
        if self.unsure {
            warn!(messages = self.count, %first, "lease lost, or recorded by a statement whose answer was lost");
        } else {
            warn!(messages = self.count, %first, "lease lost: others have these messages, and nothing is said about them");
        }
    }
}

async fn record(shared: &Shared, gathered: Vec<Ended>) {
    let (mut outcomes, mut unsent, mut losses) = (Vec::new(), Vec::new(), Losses::default());
    for ended in gathered {
        match ended {
            Ended::Outcome(held, completion) => outcomes.push((held, completion)),
            Ended::Unsent(held) => unsent.push(held),
            Ended::Lost(held) => losses.add(held.message.message_id),
        }
    }
    if !outcomes.is_empty() {
        complete(shared, outcomes, &mut losses).await;
    }
    if !unsent.is_empty() {
        release(shared, unsent, &mut losses).await;
    }
    losses.tell(shared);
}

/// Records outcomes: until the store answers, or for as long as a lease, after which somebody else shall try.
async fn complete(shared: &Shared, outcomes: Vec<(Held, Completion)>, losses: &mut Losses) {
    let give_up_at = shared.clock.now() + shared.options.lease;
    let mut parts = vec![outcomes];
    while let Some(part) = parts.pop() {
        let (helds, completions): (Vec<Held>, Vec<Completion>) = part.into_iter().unzip();
        let trouble =
            match shared.ask("record outcomes", shared.store.complete(&shared.options.worker_id, &completions)).await {
                Ok(completed) => {
                    recorded(shared, helds, &completions, &completed, losses);
                    continue;
                }
                Err(trouble) => trouble,
            };
        let refused = matches!(&trouble, Trouble::Store(postrider::Error::Refused { .. }));
        // The answer may be lost, not the statement: then the next try finds these messages gone.
        losses.unsure |= !refused;
        if shared.clock.now() >= give_up_at || shared.cut_short.is_cancelled() || (refused && completions.len() == 1) {
            if refused {
                error!(message_id = %completions[0].message_id, "the store refused this outcome; the message is tried again when its lease ends");
            }
            for completion in &completions {
                losses.add(completion.message_id);
            }
            continue;
        }
        if !refused {
            shared.clock.sleep_until(shared.clock.now() + RETRY_EVERY).await;
        }
        let mut part: Vec<_> = helds.into_iter().zip(completions).collect();
        // The server answered and said no, to one of them or to their number: smaller parts tell which.
        if trouble.is_an_answer() && part.len() > 1 {
            let rest = part.split_off(part.len() / 2);
            parts.push(rest);
        }
        parts.push(part);
    }
}

fn recorded(
    shared: &Shared,
    helds: Vec<Held>,
    completions: &[Completion],
    completed: &[Completed],
    losses: &mut Losses,
) {
    let dead: HashMap<(Uuid, &str), bool> =
        completed.iter().map(|one| ((one.message_id, one.sink.as_str()), one.dead)).collect();
    let mut states: BTreeMap<(&str, &str), (AttemptState, usize)> = BTreeMap::new();
    for (held, completion) in helds.iter().zip(completions) {
        let outlet = &held.outlet;
        let dead = dead.get(&(completion.message_id, outlet.name.as_str()));
        if dead.is_none() {
            losses.add(completion.message_id);
        }
        if dead.is_none() && !losses.unsure {
            continue;
        }
        // The lane may go on, which nobody else will tell the claimer.
        if held.message.lane.is_some() {
            outlet.nudge.notify_one();
        }
        if let Outcome::Retryable { retry_after, .. } = &completion.outcome {
            outlet.retry_at(shared.clock.now() + *retry_after);
        }
        let Some(dead) = dead else { continue };
        tell(held, completion, *dead);
        let state = completion.outcome.state();
        states.entry((&outlet.name, state.as_str())).or_insert((state, 0)).1 += 1;
        match &completion.outcome {
            _ if *dead => shared.stats.dead(1),
            Outcome::Dispatched => shared.stats.delivered(1),
            Outcome::Retryable { .. } | Outcome::Failed(_) => shared.stats.retried(1),
        }
    }
    for ((sink, _), (state, count)) in states {
        shared.telemetry.attempts(sink, state, count);
    }
    drop(helds);
}

/// A death is a line in every log, a failed attempt one for whoever looks for it. Codes only: the words of an error may
/// repeat what is in the message, and stand in the attempt.
fn tell(held: &Held, completion: &Completion, dead: bool) {
    let Some(failure) = completion.outcome.failure() else { return };
    let (message, sink) = (&held.message, held.outlet.name.as_str());
    let error_code = failure.error_code.as_deref().unwrap_or_default();
    let (message_id, topic, attempt_no) = (message.message_id, message.topic.as_str(), message.attempt_no);
    let retry_after = match &completion.outcome {
        Outcome::Retryable { retry_after, .. } if !dead => Some(*retry_after),
        _ => None,
    };
    debug!(%message_id, sink, topic, attempt_no, error_code, retry_after = ?retry_after, "attempt failed");
    if dead {
        warn!(%message_id, sink, topic, attempt_no, error_code, "message is dead: it waits for a person");
    }
}

async fn release(shared: &Shared, unsent: Vec<Held>, losses: &mut Losses) {
    let mut by_token: HashMap<LeaseToken, Vec<Held>> = HashMap::new();
    for held in unsent {
        by_token.entry(held.message.lease_token).or_default().push(held);
    }
    for (token, helds) in by_token {
        let message_ids: Vec<Uuid> = helds.iter().map(|held| held.message.message_id).collect();
        // One try: what is not handed back returns when its lease ends.
        let released: HashSet<Uuid> =
            match shared.ask("hand messages back", shared.store.release(token, &message_ids)).await {
                Ok(released) => released.into_iter().collect(),
                Err(_) => HashSet::new(),
            };
        shared.stats.released(released.len());
        for id in message_ids.iter().filter(|id| !released.contains(id)) {
            losses.add(*id);
        }
        for held in &helds {
            held.outlet.nudge.notify_one();
        }
    }
}
