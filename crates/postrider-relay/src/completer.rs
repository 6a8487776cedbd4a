//! Gathers outcomes for a few milliseconds, or for as long as a statement is under way, and records them in one round trip.
//! Messages to release go the same way. What the store does not accept has lost its lease: that is logged once a batch, and
//! nothing more is done. Ends when everything that could still end has ended.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use postrider::ErrorKind;
use postrider::lifecycle::{AttemptState, Claimed, Completed, Completion, LeaseToken, Outcome};
use tokio::sync::mpsc;
use tokio::task::{self, JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, warn};
use uuid::Uuid;

use crate::clock::Clock;
use crate::lease::LeasedMessage;
use crate::memory_budget::MemoryBudget;
use crate::options::RelayOptions;
use crate::stats::Stats;
use crate::store_client::{StoreClient, StoreError};
use crate::telemetry::Telemetry;

/// Most outcomes of one statement.
const MAX_OUTCOMES: usize = 2_000;
/// Outcomes that are recorded beside a statement under way instead of after it.
const BESIDE: usize = 500;
/// Outcomes of one lease that get a statement of their own.
const OWN_STATEMENT: usize = 100;
/// Between two tries to record while the store is away.
const RETRY_EVERY: Duration = Duration::from_millis(250);
/// Evens out bursts; the memory budget bounds the messages.
const CHANNEL_CAPACITY: usize = 4_096;

/// Statements under way at once.
const MAX_UNDER_WAY: usize = 2;

/// What to do with a message that the relay is done with.
pub(crate) enum Disposition {
    /// Record its outcome.
    Complete(LeasedMessage, Completion),
    /// Hand it back unsent.
    Release(LeasedMessage),
    /// Nothing: its lease could not be kept, and others have it, or will.
    Lost(LeasedMessage),
}

#[derive(Clone)]
pub(crate) struct CompleterHandle(mpsc::Sender<Disposition>);

impl CompleterHandle {
    pub(crate) async fn send(&self, disposition: Disposition) {
        // The completer outlives every sender, unless the whole relay is dropped.
        let _sent = self.0.send(disposition).await;
    }

    pub(crate) async fn release(&self, messages: impl IntoIterator<Item = LeasedMessage>) {
        for message in messages {
            self.send(Disposition::Release(message)).await;
        }
    }
}

pub(crate) fn channel() -> (CompleterHandle, mpsc::Receiver<Disposition>) {
    let (sender, inbox) = mpsc::channel(CHANNEL_CAPACITY);
    (CompleterHandle(sender), inbox)
}

/// What goes into one statement.
#[derive(Default)]
struct Gathered {
    messages: Vec<Disposition>,
    /// The leases of those in a lane.
    laned: Vec<LeaseToken>,
}

impl Gathered {
    fn push(&mut self, disposition: Disposition) {
        let (Disposition::Complete(message, _) | Disposition::Release(message) | Disposition::Lost(message)) =
            &disposition;
        let Claimed { lane, lease_token, .. } = &*message.message;
        if lane.is_some() && !self.laned.contains(lease_token) {
            self.laned.push(*lease_token);
        }
        self.messages.push(disposition);
    }
}

/// The statements that are being carried out. They end with the completer if it is dropped.
#[derive(Default)]
struct UnderWay {
    tasks: JoinSet<()>,
    /// Of each: its task, how many messages it has, and the leases of those in a lane.
    statements: Vec<(task::Id, usize, Vec<LeaseToken>)>,
}

impl UnderWay {
    fn is_empty(&self) -> bool {
        self.statements.is_empty()
    }

    fn messages(&self) -> usize {
        self.statements.iter().map(|(_, messages, _)| messages).sum()
    }

    /// Whether these may be recorded beside what is under way. What happened in a lane is recorded in that order.
    fn takes_beside(&self, gathered: &Gathered) -> bool {
        let under_way = |token| self.statements.iter().any(|(_, _, laned)| laned.contains(token));
        self.statements.len() < MAX_UNDER_WAY && !gathered.laned.iter().any(under_way)
    }

    fn start(&mut self, completer: &Arc<Completer>, gathered: Gathered) {
        let (completer, messages) = (Arc::clone(completer), gathered.messages.len());
        let task = self.tasks.spawn(async move { completer.record(gathered.messages).await });
        self.statements.push((task.id(), messages, gathered.laned));
    }

    /// Waits for the end of one.
    async fn next(&mut self) {
        let ended = match self.tasks.join_next_with_id().await {
            Some(Ok((id, ()))) => id,
            Some(Err(error)) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(error) => error.id(),
            },
            None => return,
        };
        self.statements.retain(|(id, ..)| *id != ended);
    }
}

pub(crate) struct Completer {
    pub(crate) store: Arc<StoreClient>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) options: Arc<RelayOptions>,
    pub(crate) memory: Arc<MemoryBudget>,
    pub(crate) stats: Arc<Stats>,
    pub(crate) telemetry: Telemetry,
    /// Cancelled when the grace period of a shutdown is over.
    pub(crate) cut_short: CancellationToken,
}

impl Completer {
    /// Runs until `all_ended` is cancelled and the inbox is empty.
    pub(crate) async fn run(self, mut inbox: mpsc::Receiver<Disposition>, all_ended: CancellationToken) {
        let completer = Arc::new(self);
        let mut under_way = UnderWay::default();
        loop {
            let first = tokio::select! {
                biased;
                first = inbox.recv() => first,
                () = under_way.next(), if !under_way.is_empty() => continue,
                () = all_ended.cancelled(), if !inbox.is_closed() => {
                    inbox.close();
                    continue;
                }
            };
            let Some(first) = first else { break };
            let gathered = completer.gather(first, &mut inbox, &mut under_way).await;
            under_way.start(&completer, gathered);
        }
        while !under_way.is_empty() {
            under_way.next().await;
        }
    }

    /// The more there is to record, the longer its statement takes and the more comes together for the next.
    async fn gather(
        &self,
        first: Disposition,
        inbox: &mut mpsc::Receiver<Disposition>,
        under_way: &mut UnderWay,
    ) -> Gathered {
        let mut gathered = Gathered::default();
        gathered.push(first);
        let mut flush = self.clock.sleep_until(self.clock.now() + self.options.complete_gather);
        let (mut time_is_up, mut closed) = (false, false);
        loop {
            let full = gathered.messages.len() >= MAX_OUTCOMES;
            // When everything in memory is gathered or being recorded, nothing more can come.
            let all = closed || gathered.messages.len() + under_way.messages() >= self.memory.held();
            let ready = if under_way.is_empty() {
                full || all || time_is_up
            } else {
                gathered.messages.len() >= BESIDE && under_way.takes_beside(&gathered)
            };
            if ready {
                return gathered;
            }
            tokio::select! {
                biased;
                next = inbox.recv(), if !full && !closed => match next {
                    Some(next) => gathered.push(next),
                    None => closed = true,
                },
                () = under_way.next(), if !under_way.is_empty() => {}
                () = &mut flush, if !time_is_up => time_is_up = true,
            }
        }
    }

    async fn record(&self, gathered: Vec<Disposition>) {
        let (mut outcomes, mut unsent, mut losses) =
            (Vec::with_capacity(gathered.len()), Vec::new(), Losses::default());
        for disposition in gathered {
            match disposition {
                Disposition::Complete(message, completion) => outcomes.push((message, completion)),
                Disposition::Release(message) => unsent.push(message),
                Disposition::Lost(message) => losses.add(message.message.message_id),
            }
        }
        if !outcomes.is_empty() {
            self.complete(outcomes, &mut losses).await;
        }
        if !unsent.is_empty() {
            self.release(unsent, &mut losses).await;
        }
        if losses.count > 0 {
            self.stats.lost(losses.count);
            self.telemetry.lost_leases(losses.count);
            losses.log();
        }
    }

    /// Tries until the store answers, or for as long as a lease lasts; after that another relay has the messages.
    async fn complete(&self, outcomes: Vec<(LeasedMessage, Completion)>, losses: &mut Losses) {
        let give_up_at = self.clock.now() + self.options.lease;
        let mut parts = by_lease(outcomes);
        while let Some(part) = parts.pop() {
            let (messages, completions): (Vec<LeasedMessage>, Vec<Completion>) = part.into_iter().unzip();
            let worker_id = &self.options.worker_id;
            let answer = self.store.ask("record outcomes", |store| store.complete(worker_id, &completions)).await;
            let error = match answer {
                Ok(completed) => {
                    self.completed(messages, &completions, &completed, losses);
                    continue;
                }
                Err(error) => error,
            };
            let refused = matches!(&error, StoreError::Failed(error) if error.kind() == ErrorKind::Refused);
            // The answer may be lost, not the statement: then the next try finds these messages gone.
            losses.unsure |= !refused;
            let too_late = self.clock.now() >= give_up_at || self.cut_short.is_cancelled();
            if too_late || (refused && completions.len() == 1) {
                if refused {
                    error!(message_id = %completions[0].message_id, "the store refused this outcome; the message is tried again when its lease ends");
                }
                for completion in &completions {
                    losses.add(completion.message_id);
                }
                continue;
            }
            if !refused {
                self.clock.sleep_until(self.clock.now() + RETRY_EVERY).await;
            }
            let mut part: Vec<_> = messages.into_iter().zip(completions).collect();
            // The store refused one of them, or their number: smaller parts tell which.
            if error.is_refusal() && part.len() > 1 {
                let rest = part.split_off(part.len() / 2);
                parts.push(rest);
            }
            parts.push(part);
        }
    }

    fn completed(
        &self,
        messages: Vec<LeasedMessage>,
        completions: &[Completion],
        completed: &[Completed],
        losses: &mut Losses,
    ) {
        let dead: HashMap<(Uuid, &str), bool> =
            completed.iter().map(|one| ((one.message_id, one.sink.as_str()), one.dead)).collect();
        let mut states: BTreeMap<(&str, &str), (AttemptState, usize)> = BTreeMap::new();
        for (message, completion) in messages.iter().zip(completions) {
            let sink = &message.sink;
            let dead = dead.get(&(completion.message_id, sink.name.as_str()));
            if dead.is_none() {
                losses.add(completion.message_id);
            }
            if dead.is_none() && !losses.unsure {
                continue;
            }
            // No notification tells the claimer that the lane goes on.
            if message.message.lane.is_some() {
                sink.claim_again.notify_one();
            }
            if let Outcome::Retryable { retry_after, .. } = &completion.outcome {
                sink.retry_at(self.clock.now() + *retry_after);
            }
            let Some(dead) = dead else { continue };
            log_failure(message, completion, *dead);
            let state = completion.outcome.state();
            states.entry((&sink.name, state.as_str())).or_insert((state, 0)).1 += 1;
            match &completion.outcome {
                _ if *dead => self.stats.dead(1),
                Outcome::Dispatched => self.stats.delivered(1),
                Outcome::Retryable { .. } | Outcome::Failed(_) => self.stats.retried(1),
            }
        }
        for ((sink, _), (state, count)) in states {
            self.telemetry.attempts(sink, state, count);
        }
        drop(messages);
    }

    /// One try: what is not released comes back when its lease ends.
    async fn release(&self, unsent: Vec<LeasedMessage>, losses: &mut Losses) {
        let mut by_token: HashMap<LeaseToken, Vec<LeasedMessage>> = HashMap::new();
        for message in unsent {
            by_token.entry(message.message.lease_token).or_default().push(message);
        }
        for (token, messages) in by_token {
            let ids: Vec<Uuid> = messages.iter().map(|one| one.message.message_id).collect();
            let released = self.store.ask("release messages", |store| store.release(token, &ids)).await;
            let released: HashSet<Uuid> = released.unwrap_or_default().into_iter().collect();
            self.stats.released(released.len());
            for id in ids.iter().filter(|id| !released.contains(id)) {
                losses.add(*id);
            }
            for message in &messages {
                message.sink.claim_again.notify_one();
            }
        }
    }
}

/// A lease with many outcomes gets a statement of its own: the store writes down fastest what is of one lease and was
/// delivered. What is left goes together.
fn by_lease(outcomes: Vec<(LeasedMessage, Completion)>) -> Vec<Vec<(LeasedMessage, Completion)>> {
    let mut leases: HashMap<LeaseToken, Vec<_>> = HashMap::new();
    for outcome in outcomes {
        leases.entry(outcome.1.lease_token).or_default().push(outcome);
    }
    let (mut parts, few): (Vec<_>, Vec<_>) = leases.into_values().partition(|lease| lease.len() >= OWN_STATEMENT);
    if !few.is_empty() {
        parts.push(few.into_iter().flatten().collect());
    }
    parts
}

/// Messages whose lease was lost, counted and logged once for all that was gathered.
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

    fn log(&self) {
        let Some(first) = self.first else { return };
        if self.unsure {
            warn!(messages = self.count, %first, "lease lost, or recorded by a statement whose answer was lost");
        } else {
            warn!(messages = self.count, %first, "lease lost: others have these messages, and nothing is said about them");
        }
    }
}

/// A death is a warning, a failed attempt a debug line. Codes only: the text of an error may repeat what is in the message.
fn log_failure(message: &LeasedMessage, completion: &Completion, dead: bool) {
    let Some(failure) = completion.outcome.failure() else { return };
    let (claimed, sink) = (&message.message, message.sink.name.as_str());
    let error_code = failure.error_code.as_deref().unwrap_or_default();
    let (message_id, topic, attempt_no) = (claimed.message_id, claimed.topic.as_str(), claimed.attempt_no);
    let retry_after = match &completion.outcome {
        Outcome::Retryable { retry_after, .. } if !dead => Some(*retry_after),
        _ => None,
    };
    debug!(%message_id, sink, topic, attempt_no, error_code, retry_after = ?retry_after, "attempt failed");
    if dead {
        warn!(%message_id, sink, topic, attempt_no, error_code, "message is dead: it waits for a person");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::Fixture;

    #[tokio::test]
    async fn it_records_releases_and_counts_what_is_lost() {
        let fixture = Fixture::new();
        let claimed = fixture.claim(2).await;
        let [delivered, unsent] = [0, 1].map(|index| fixture.message(|message| *message = claimed[index].clone()));
        let stranger = fixture.message(|_| {});
        let completion = |message: &LeasedMessage| Completion::new(&message.message, Outcome::Dispatched);
        let completions = [completion(&delivered), completion(&stranger)];
        for (message, completion) in [delivered, stranger].into_iter().zip(completions) {
            fixture.completer.send(Disposition::Complete(message, completion)).await;
        }
        fixture.completer.release([unsent]).await;
        let (completer, all_ended) = (fixture.new_completer(), CancellationToken::new());
        let stats = Arc::clone(&completer.stats);
        all_ended.cancel();
        completer.run(fixture.ended, all_ended).await;
        let counts = stats.counts();
        assert_eq!((counts.delivered, counts.released, counts.lost), (1, 1, 1));
    }
}
