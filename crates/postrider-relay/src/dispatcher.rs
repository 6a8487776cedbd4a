//! Splits what a claim brought into units that may go side by side, and takes each unit through the sink batch by batch:
//! lanes in order, within the limits of sink and process. It asks `attempt.rs` to deliver and hands every message to the
//! completer, exactly once, with its outcome or to be handed back.

use std::collections::VecDeque;
use std::sync::Arc;

use postrider::{Completion, Outcome};

use crate::attempt::{Attempted, attempt};
use crate::completer::Ended;
use crate::leases::{Held, Hold};
use crate::outlet::Outlet;
use crate::policy::{self, FailureClass};
use crate::relay::Shared;
use crate::sink::{Batching, Verdict};
use crate::telemetry;

/// Messages that go one after the other: a run of one lane, or one message without a lane.
type Run = VecDeque<Held>;

/// Runs that share batches.
pub(crate) struct Unit(Vec<Run>);

/// Splits a claim, which is in delivery order with each lane's messages together.
pub(crate) fn units(claimed: Vec<Held>, batching: Batching) -> Vec<Unit> {
    let mut runs: Vec<Run> = Vec::new();
    for held in claimed {
        match runs.last_mut() {
            Some(run) if held.message.lane.is_some() && same_lane(run, &held) => run.push_back(held),
            _ => runs.push(VecDeque::from([held])),
        }
    }
    let mut units: Vec<Unit> = Vec::new();
    let mut full = true;
    for run in runs {
        // A batch takes one of each run at a time, or the whole run if the sink keeps order.
        let taken: usize = units.last().map_or(0, |Unit(runs)| runs.iter().map(|run| share(run, batching)).sum());
        match units.last_mut() {
            Some(Unit(runs)) if !full && taken + share(&run, batching) <= batching.max_messages => runs.push(run),
            _ => units.push(Unit(vec![run])),
        }
        full = batching.max_messages <= 1;
    }
    units
}

fn same_lane(run: &Run, held: &Held) -> bool {
    run.back().is_some_and(|last| last.message.lane == held.message.lane)
}

fn share(run: &Run, batching: Batching) -> usize {
    if batching.ordered { run.len() } else { 1 }
}

/// Takes a unit to its end.
pub(crate) async fn deliver(shared: Arc<Shared>, outlet: Arc<Outlet>, hold: Arc<Hold>, unit: Unit) {
    let Unit(mut runs) = unit;
    while !runs.is_empty() {
        let Some(_permits) = permits(&shared, &outlet).await else { return hand_back(&shared, runs).await };
        let (batch, run_of) = next_batch(&mut runs, outlet.batching);
        let Some(failed_runs) = deliver_batch(&shared, &outlet, &hold, batch, &run_of).await else {
            return hand_back(&shared, runs).await;
        };
        // The rest of a run whose message did not arrive waits with it.
        let mut index = 0;
        let mut held_back = Vec::new();
        runs.retain_mut(|run| {
            if failed_runs.contains(&index) {
                held_back.push(std::mem::take(run));
            }
            index += 1;
            !run.is_empty()
        });
        hand_back(&shared, held_back).await;
    }
}

/// Waits for its turn. `None`: the messages are not to be sent now.
async fn permits<'a>(
    shared: &'a Shared,
    outlet: &'a Outlet,
) -> Option<(tokio::sync::SemaphorePermit<'a>, tokio::sync::SemaphorePermit<'a>)> {
    let turn = async {
        let sink = outlet.concurrency.acquire().await.ok()?;
        let process = shared.concurrency.acquire().await.ok()?;
        Some((sink, process))
    };
    let permits = tokio::select! {
        permits = turn => permits?,
        () = shared.stopping.cancelled() => return None,
    };
    let not_now = shared.stopping.is_cancelled() || outlet.breaker().is_open();
    if not_now { None } else { Some(permits) }
}

/// Takes the next batch off the runs, and says which run each message is of.
fn next_batch(runs: &mut [Run], batching: Batching) -> (Vec<Held>, Vec<usize>) {
    let (mut batch, mut run_of, mut bytes) = (Vec::new(), Vec::new(), 0_usize);
    for (index, run) in runs.iter_mut().enumerate() {
        let most = if batching.ordered { usize::MAX } else { 1 };
        for _ in 0..most {
            let Some(next) = run.front() else { break };
            bytes = bytes.saturating_add(next.message.content.as_bytes().len());
            let fits = batch.len() < batching.max_messages && bytes <= batching.max_bytes;
            if !batch.is_empty() && !fits {
                return (batch, run_of);
            }
            batch.extend(run.pop_front());
            run_of.push(index);
        }
    }
    (batch, run_of)
}

/// Delivers one batch and hands in its outcomes. Says which runs must not go on; `None`: none of them.
async fn deliver_batch(
    shared: &Shared,
    outlet: &Outlet,
    hold: &Hold,
    batch: Vec<Held>,
    run_of: &[usize],
) -> Option<Vec<usize>> {
    if let Some(rate) = &outlet.rate {
        for _ in 0..batch.len() {
            rate.until_ready().await;
        }
    }
    // A lease may have ended while it waited for its turn, or while the whole process stood still.
    let trusted = hold.trusted_until().checked_sub(shared.options.lease_margin());
    if trusted.is_none_or(|until| shared.clock.now() >= until)
        || batch.iter().any(|held| !hold.holds(held.message.message_id))
    {
        shared.give_up(outlet, batch);
        return None;
    }
    let (verdicts, latency) = match attempt(shared, outlet, &batch, hold).await {
        Attempted::Answered(verdicts, latency) => (verdicts, latency),
        Attempted::LeaseLost => {
            shared.give_up(outlet, batch);
            return None;
        }
        Attempted::CutShort => {
            hand_back(shared, vec![batch.into()]).await;
            return None;
        }
    };
    telemetry::dispatched(&outlet.name, latency);
    note_for_breaker(shared, outlet, &verdicts);
    let mut failed_runs = Vec::new();
    for ((held, verdict), run) in batch.into_iter().zip(verdicts).zip(run_of) {
        if !matches!(verdict, Verdict::Delivered(_)) {
            failed_runs.push(*run);
        }
        shared.end(ended(shared, outlet, held, verdict, latency)).await;
    }
    Some(failed_runs)
}

/// One call of the sink counts once: it failed if every message of it failed in a way that may be retried.
fn note_for_breaker(shared: &Shared, outlet: &Outlet, verdicts: &[Verdict]) {
    let mut sent = verdicts.iter().filter(|verdict| !matches!(verdict, Verdict::NotSent)).peekable();
    if sent.peek().is_none() {
        return;
    }
    let failed = sent.all(|verdict| {
        matches!(verdict, Verdict::Failed(failure) if outlet.options.codes.class_of(failure) == FailureClass::Retryable)
    });
    if failed { outlet.failed(shared.clock.now()) } else { outlet.answered() }
}

fn ended(shared: &Shared, outlet: &Outlet, held: Held, verdict: Verdict, latency: std::time::Duration) -> Ended {
    let (outcome, receipt) = match verdict {
        Verdict::NotSent => return Ended::Unsent(held),
        Verdict::Delivered(receipt) => (Outcome::Dispatched, receipt),
        Verdict::Failed(failure) => {
            let class = outlet.options.codes.class_of(&failure);
            let attempts = held.message.attempt_count;
            let outcome = policy::outcome(failure, class, attempts, &outlet.options.retry, &mut *shared.dice());
            (outcome, crate::sink::Receipt::default())
        }
    };
    let mut completion = Completion::new(&held.message, outcome);
    completion.reference = receipt.reference;
    completion.code = receipt.code;
    completion.latency = Some(latency);
    Ended::Outcome(held, completion)
}

async fn hand_back(shared: &Shared, runs: Vec<Run>) {
    for held in runs.into_iter().flatten() {
        shared.end(Ended::Unsent(held)).await;
    }
}
