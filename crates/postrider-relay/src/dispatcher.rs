//! Splits what a claim brought into units that may go side by side, and takes each unit through the sink batch by batch:
//! lanes in order, within the limits of sink and process. It asks `attempt.rs` to deliver and hands every message to the
//! completer, exactly once: with its outcome, to be handed back, or as lost.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use postrider::{Action, Completion, Outcome, limit};
use tokio::sync::SemaphorePermit;
use tracing::warn;

use crate::attempt::{Attempted, attempt};
use crate::completer::Ended;
use crate::leases::{Held, Hold};
use crate::outlet::Outlet;
use crate::policy::{self, FailureClass};
use crate::relay::Shared;
use crate::sink::{Batching, Receipt, SinkFailure, Verdict};
use crate::trace;

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
    // What is left of the last unit's first batch.
    let (mut messages_left, mut bytes_left) = (0, 0);
    for run in runs {
        let (messages, bytes) = share(&run, batching);
        let room = company(&run, batching).min(batching.max_messages);
        if let Some(Unit(last)) = units.last_mut()
            && messages <= messages_left
            && bytes <= bytes_left
            && room == company(&last[0], batching)
        {
            messages_left -= messages;
            bytes_left -= bytes;
            last.push(run);
        } else {
            messages_left = room.saturating_sub(messages);
            bytes_left = batching.max_bytes.saturating_sub(bytes);
            units.push(Unit(vec![run]));
        }
    }
    units
}

fn same_lane(run: &Run, held: &Held) -> bool {
    run.back().is_some_and(|last| last.message.lane == held.message.lane)
}

/// What a run brings into a batch: one message at a time, or all of them if the sink keeps order.
fn share(run: &Run, batching: Batching) -> (usize, usize) {
    let messages = if batching.ordered { run.len() } else { 1 };
    (messages, run.iter().take(messages).map(|held| held.message.content.as_bytes().len()).sum())
}

/// How many may share a batch with a run. It halves with every attempt: a message that fails its whole batch, by a panic
/// or a timeout, must not take the same neighbours with it until they are all dead.
fn company(run: &Run, batching: Batching) -> usize {
    let tried_before = run.front().map_or(0, |held| held.message.attempt_count.saturating_sub(1));
    batching.max_messages.checked_shr(tried_before.unsigned_abs()).unwrap_or(0).max(1)
}

/// Takes a unit to its end.
pub(crate) async fn deliver(shared: Arc<Shared>, outlet: Arc<Outlet>, hold: Arc<Hold>, unit: Unit) {
    let Unit(mut runs) = unit;
    while !runs.is_empty() {
        let (batch, run_of) = next_batch(&mut runs, outlet.batching);
        let Some(_permits) = permits(&shared, &outlet, &batch).await else {
            runs.push(batch.into());
            return hand_back(&shared, runs).await;
        };
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

/// Waits for its turn: the sink's, the rate's, the process's. `None`: the messages are not to be sent now.
async fn permits<'a>(
    shared: &'a Shared,
    outlet: &'a Outlet,
    batch: &[Held],
) -> Option<(SemaphorePermit<'a>, SemaphorePermit<'a>)> {
    let turn = async {
        let sink = outlet.concurrency.acquire().await.ok()?;
        if let Some(rate) = &outlet.rate {
            for _ in 0..batch.len() {
                rate.until_ready().await;
            }
        }
        let process = shared.concurrency.acquire().await.ok()?;
        Some((sink, process))
    };
    let permits = tokio::select! {
        permits = turn => permits?,
        () = shared.stopping.cancelled() => return None,
    };
    // Somebody's message goes alone: what is on its way ends, the rest goes back.
    let make_way = shared.make_way.load(Ordering::Acquire) && batch.iter().any(|held| held.beside_others.is_some());
    let not_now = shared.stopping.is_cancelled() || outlet.breaker().is_open() || make_way;
    if not_now { None } else { Some(permits) }
}

/// Takes the next batch off the runs, and says which run each message is of.
fn next_batch(runs: &mut [Run], batching: Batching) -> (Vec<Held>, Vec<usize>) {
    let (mut batch, mut run_of, mut bytes) = (Vec::new(), Vec::new(), 0_usize);
    let max_messages = runs.first().map_or(1, |run| company(run, batching));
    for (index, run) in runs.iter_mut().enumerate() {
        let most = if batching.ordered { usize::MAX } else { 1 };
        for _ in 0..most {
            let Some(next) = run.front() else { break };
            bytes = bytes.saturating_add(next.message.content.as_bytes().len());
            let fits = batch.len() < max_messages && bytes <= batching.max_bytes;
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
    // A lease may have ended while it waited for its turn, or while the whole process stood still.
    if shared.clock.now() + shared.options.lease_margin() >= hold.trusted_until() {
        lose(shared, batch).await;
        return None;
    }
    let (mut batch, lost): (Vec<Held>, Vec<Held>) =
        batch.into_iter().partition(|held| hold.holds(held.message.message_id));
    if !lost.is_empty() {
        lose(shared, lost).await;
        hand_back(shared, vec![batch.into()]).await;
        return None;
    }
    let (verdicts, latency) = match attempt(shared, outlet, &mut batch, hold).await {
        Attempted::Answered(verdicts, latency) => (verdicts, latency),
        Attempted::LeaseLost => {
            lose(shared, batch).await;
            return None;
        }
        Attempted::CutShort(latency) => {
            // It may have been sent, so it counts.
            for held in batch {
                let words = "the relay ended before the destination answered";
                let verdict = Verdict::Failed(SinkFailure::retryable(SinkFailure::CUT_SHORT, words));
                shared.end(ended(shared, outlet, held, verdict, latency)).await;
            }
            return None;
        }
    };
    let whole = verdicts.iter().all(|verdict| matches!(verdict, Verdict::Delivered(_)));
    outlet.telemetry.dispatched(&outlet.name, latency, whole);
    note_for_breaker(shared, outlet, &verdicts);
    let paused = pause_if_asked(shared, outlet, &verdicts).await;
    let mut failed_runs = Vec::new();
    for ((held, verdict), run) in batch.into_iter().zip(verdicts).zip(run_of) {
        if !matches!(verdict, Verdict::Delivered(_)) {
            failed_runs.push(*run);
        }
        shared.end(ended(shared, outlet, held, verdict, latency)).await;
    }
    if paused { None } else { Some(failed_runs) }
}

/// A destination that wants nothing more is left alone until a person resumes the sink.
async fn pause_if_asked(shared: &Shared, outlet: &Outlet, verdicts: &[Verdict]) -> bool {
    let asked = verdicts.iter().find_map(|verdict| match verdict {
        Verdict::Failed(failure) if failure.pause => Some(failure),
        _ => None,
    });
    let Some(failure) = asked else { return false };
    warn!(
        sink = outlet.name,
        code = failure.code,
        "the destination wants nothing more: pausing the sink until it is resumed"
    );
    let (actor, pause) = (actor(&shared.options.worker_id), Action::Pause { sink: outlet.name.clone() });
    if shared.ask("pause a sink", shared.store.operate(&actor, &pause)).await.is_err() {
        warn!(sink = outlet.name, "the sink could not be paused; it is asked again when it is tried again");
    }
    true
}

/// How the audit calls this relay; a long name is cut to what the audit takes.
pub(crate) fn actor(worker_id: &str) -> String {
    let mut actor = format!("relay:{worker_id}");
    actor.truncate(actor.floor_char_boundary(limit::NAME_BYTES));
    actor
}

/// One call of the sink counts once: it failed if nothing was sent, or if every message that was sent failed in a way
/// that may be retried. What was refused before it was sent says nothing about the destination.
fn note_for_breaker(shared: &Shared, outlet: &Outlet, verdicts: &[Verdict]) {
    let answers = |verdict: &&Verdict| match verdict {
        Verdict::Delivered(_) => true,
        Verdict::NotSent => false,
        Verdict::Failed(failure) => outlet.options.codes.class_of(failure) == FailureClass::Terminal,
    };
    let refused_here = |verdict: &Verdict| matches!(verdict, Verdict::Failed(failure) if failure.is_refused_here());
    let answered = verdicts.iter().filter(|verdict| answers(verdict) && !refused_here(verdict)).count();
    if answered > 0 {
        outlet.answered(answered);
    } else if !verdicts.iter().any(refused_here) {
        let failure = verdicts.iter().rev().find_map(|verdict| match verdict {
            Verdict::Failed(failure) => Some(failure),
            _ => None,
        });
        outlet.failed(shared.clock.now(), failure);
    }
}

fn ended(shared: &Shared, outlet: &Outlet, mut held: Held, verdict: Verdict, latency: Duration) -> Ended {
    let (outcome, receipt) = match verdict {
        Verdict::NotSent => {
            trace::end(&mut held, "NOT_SENT", None);
            return Ended::Unsent(held);
        }
        Verdict::Delivered(receipt) => (Outcome::Dispatched, receipt),
        Verdict::Failed(mut failure) => {
            let class = outlet.options.codes.class_of(&failure);
            let receipt = Receipt { code: failure.reply_code.take(), ..Receipt::default() };
            let attempts = held.message.attempt_count;
            let outcome = policy::outcome(failure, class, attempts, &outlet.options.retry, &mut *shared.dice());
            (outcome, receipt)
        }
    };
    trace::end(&mut held, outcome.state().as_str(), failure_code(&outcome));
    let mut completion = Completion::new(&held.message, outcome);
    completion.reference = receipt.reference;
    completion.code = receipt.code;
    completion.latency = Some(latency);
    Ended::Outcome(held, completion)
}

fn failure_code(outcome: &Outcome) -> Option<&str> {
    outcome.failure().map(|failure| failure.error_code.as_deref().unwrap_or(SinkFailure::ERROR))
}

async fn hand_back(shared: &Shared, runs: Vec<Run>) {
    for held in runs.into_iter().flatten() {
        shared.end(Ended::Unsent(held)).await;
    }
}

async fn lose(shared: &Shared, batch: Vec<Held>) {
    for mut held in batch {
        trace::end(&mut held, "LEASE_LOST", Some("LEASE_LOST"));
        shared.end(Ended::Lost(held)).await;
    }
}
