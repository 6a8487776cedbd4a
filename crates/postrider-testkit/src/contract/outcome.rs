//! How attempts end and what follows: delivered, tried again, dead; released, redriven, discarded, replayed, pruned. And
//! what is recorded about it.

use std::time::Duration;

use postrider::Route;
use postrider::lifecycle::{Completion, Failure, Outcome};
use postrider::operate::{Action, Replay};
use uuid::Uuid;

use super::hand::{Hand, LONG, NO_IDS, by_outcome, ids, message, token};

const HOUR: Duration = Duration::from_hours(1);

/// Proves L4, M8: delivered is final, with one attempt.
pub async fn dispatched_ends_the_delivery(hand: Hand) {
    let id = hand.put(message("t")).await.message_id;
    let held = hand.take(1).await;
    let completed = hand.finish_all(&held, &Outcome::Dispatched).await;
    let line = &completed[0];
    assert_eq!((line.message_id, line.sink.as_str(), line.attempt_no, line.dead), (id, "default", 1, false));
    assert_eq!((hand.attempts(id).await, hand.stands(id).await), (vec!["1 DISPATCHED".to_owned()], vec![]));
    assert_eq!((hand.take(1).await.len(), hand.counts().await), (0, (0, 0, 0)));
}

/// Proves P5, E8: an attempt holds times, latency, code, reference, both words of an error and the answer.
pub async fn an_attempt_records_everything(hand: Hand) {
    let id = hand.put(message("t")).await.message_id;
    let held = hand.take(1).await.remove(0);
    let completion = Completion::new(
        &held,
        Outcome::Retryable {
            retry_after: Duration::ZERO,
            failure: Failure::new("BUSY", "nul\0inside").answer(Some("{\"error\":\0}".to_owned())),
        },
    )
    .reference(Some("offset 7".to_owned()))
    .code(Some("503".to_owned()))
    .latency(Some(Duration::from_millis(42)));
    hand.complete(hand.worker(), &[completion]).await.expect("complete");
    let attempt = hand.shown(id).await.attempts.remove(0);
    assert_eq!((attempt.sink.as_str(), attempt.attempt_no, attempt.state.as_str()), ("default", 1, "RETRYABLE"));
    assert_eq!((attempt.worker_id.as_str(), attempt.claimed_at), (hand.worker(), held.claimed_at));
    assert!(attempt.completed_at >= attempt.claimed_at && attempt.completed_at <= hand.clock().await);
    assert_eq!((attempt.latency_ms, attempt.code.as_deref()), (Some(42), Some("503")));
    assert_eq!((attempt.reference.as_deref(), attempt.error_code.as_deref()), (Some("offset 7"), Some("BUSY")));
    assert_eq!(attempt.error_message.as_deref(), Some("nul\u{fffd}inside"), "an outcome is not lost over a NUL");
    assert_eq!(attempt.answer.as_deref(), Some("{\"error\":\u{fffd}}"));
    hand.deliver(&hand.take(1).await).await;
    let delivered = hand.shown(id).await.attempts.remove(1);
    assert_eq!((delivered.state.as_str(), delivered.answer), ("DISPATCHED", None));
}

/// A destination that talks too much does not lose its outcome.
pub async fn what_was_said_too_much_is_cut(hand: Hand) {
    let id = hand.put(message("t")).await.message_id;
    let held = hand.take(1).await.remove(0);
    let much = "ü".repeat(10_000);
    let completion = Completion::new(&held, Outcome::Failed(Failure::new(&much, &much).answer(Some(much.clone()))))
        .reference(Some(much.clone()))
        .code(Some(much.clone()))
        .latency(Some(Duration::MAX));
    assert_eq!(hand.complete(hand.worker(), &[completion]).await.expect("complete").len(), 1);
    let attempt = hand.shown(id).await.attempts.remove(0);
    let length = |text: Option<String>| text.expect("it was said").chars().count();
    assert_eq!((length(attempt.code), length(attempt.reference)), (255, 1000));
    assert_eq!((length(attempt.error_code), length(attempt.error_message)), (255, 4000));
    assert_eq!(length(attempt.answer), 8192);
    assert_eq!(attempt.latency_ms, Some(i32::MAX));
}

/// Proves L3, P2: a retry is due after the delay it was given, by the store's clock; it keeps its id and takes the next
/// number.
pub async fn a_retry_comes_after_its_delay(hand: Hand) {
    let id = hand.put(message("t")).await.message_id;
    let delay = Duration::from_secs(1);
    hand.retry(&hand.take(1).await, delay).await;
    assert_eq!(hand.take(1).await.len(), 0);
    let detail = hand.shown(id).await;
    let (due_at, completed_at) = (detail.deliveries[0].due_at.expect("pending"), detail.attempts[0].completed_at);
    assert_eq!(due_at, completed_at + delay);
    hand.until(due_at).await;
    let again = hand.take(1).await.remove(0);
    assert_eq!((again.message_id, again.attempt_no, again.attempt_count, again.due_at), (id, 2, 2, due_at));
    hand.retry(&[again], HOUR).await;
    assert_eq!(hand.attempts(id).await, ["1 RETRYABLE", "2 RETRYABLE"]);
}

/// Proves M8, E8: FAILED is dead at once, RETRYABLE on the last attempt too; dead is final for a worker.
pub async fn failures_become_dead_letters(hand: Hand) {
    let refused = hand.put(message("refused")).await.message_id;
    let tired = hand.put(message("tired")).await.message_id;
    let held = hand.take_as(&hand.wants(2).max_attempts(1)).await;
    let failure = Failure::new("E1", "no");
    let completed = hand
        .complete(
            hand.worker(),
            &[
                Completion::new(&held[0], Outcome::Failed(failure.clone())),
                Completion::new(&held[1], Outcome::Retryable { retry_after: HOUR, failure }),
            ],
        )
        .await
        .expect("complete");
    assert!(completed.len() == 2 && completed.iter().all(|one| one.dead), "{completed:?}");
    for (id, attempt, reason) in [(refused, "1 FAILED", "FAILED"), (tired, "1 RETRYABLE", "ATTEMPTS_EXHAUSTED")] {
        assert_eq!(
            (hand.attempts(id).await, hand.stands(id).await),
            (vec![attempt.to_owned()], vec!["default dead".to_owned()])
        );
        let letter = hand.dead_letter(id).await;
        assert_eq!((letter.reason.as_str(), letter.error_code.as_deref()), (reason, Some("E1")));
        assert!(letter.error_message.as_deref() == Some("no") && letter.died_at >= held[0].claimed_at, "{letter:?}");
    }
    assert_eq!((hand.take(10).await.len(), hand.counts().await), (0, (0, 0, 2)));
}

/// Proves H2: outcomes of several leases, of every kind, in one call; lost ones are left out of the answer.
pub async fn mixed_outcomes_in_one_call(hand: Hand) {
    hand.put_plain(6).await;
    let mut held = hand.take(3).await;
    held.extend(hand.take(3).await);
    assert_ne!(held[0].lease_token, held[3].lease_token, "each claim has a token of its own");
    hand.deliver(&held[5..]).await;
    let retry = Outcome::Retryable { retry_after: HOUR, failure: Failure::new("BUSY", "later") };
    let outcomes = [
        Outcome::Dispatched,
        retry.clone(),
        Outcome::Failed(Failure::default()),
        Outcome::Dispatched,
        retry,
        Outcome::Dispatched,
    ];
    let completions: Vec<Completion> =
        held.iter().zip(outcomes).map(|(held, outcome)| Completion::new(held, outcome)).collect();
    let completed = hand.complete(hand.worker(), &completions).await.expect("complete");
    assert_eq!(completed.len(), 5, "the sixth was delivered before");
    let dead: Vec<Uuid> = completed.iter().filter(|one| one.dead).map(|one| one.message_id).collect();
    assert_eq!(dead, [held[2].message_id]);
    let status = hand.status_of("default").await;
    assert_eq!((status.pending, status.due, status.leased, status.dead), (2, 0, 0, 1));
    assert_eq!(status.recent, by_outcome([3, 2, 1, 0]));
}

/// Proves L4: one claim, one attempt, also when a worker repeats itself in one call.
pub async fn a_message_named_twice_is_completed_once(hand: Hand) {
    hand.put_plain(2).await;
    let held = hand.take(2).await;
    let failed = Outcome::Failed(Failure::default());
    for (one, outcome) in held.iter().zip([Outcome::Dispatched, failed]) {
        let twice = [Completion::new(one, outcome.clone()), Completion::new(one, outcome)];
        assert_eq!(hand.complete(hand.worker(), &twice).await.expect("complete").len(), 1);
        assert_eq!(hand.attempts(one.message_id).await.len(), 1);
    }
    assert_eq!(hand.counts().await, (0, 0, 1));
}

/// Proves L4: a release undoes the claim: the number is given back, nothing is recorded, and it is due as before.
pub async fn release_gives_the_attempt_back(hand: Hand) {
    let other = hand.another().await;
    let id = hand.put(message("t")).await.message_id;
    hand.retry(&hand.take(1).await, Duration::ZERO).await;
    let held = hand.take(1).await;
    assert_eq!(hand.release(token(&held), &[id]).await.expect("release"), [id]);
    assert_eq!(hand.attempts(id).await, ["1 RETRYABLE"]);
    let again = other.take(1).await.remove(0);
    assert_eq!((again.attempt_no, again.attempt_count, again.due_at), (2, 2, held[0].due_at));
}

/// Proves H2: renew and release answer with what they really changed.
pub async fn renew_and_release_return_what_changed(hand: Hand) {
    let all = hand.put_plain(3).await;
    let held = hand.take_as(&hand.wants(10).lease(Duration::from_mins(1))).await;
    let stranger = Uuid::new_v4();
    let mut renewed = hand.renew(token(&held), &[all[1], all[0], stranger, all[1]], LONG).await.expect("renew");
    renewed.sort_unstable();
    assert_eq!(renewed, all[..2], "each once");
    for (id, lasts_long) in all.iter().zip([true, true, false]) {
        let seen = hand.shown(*id).await.deliveries.remove(0);
        let lasts = seen.lease_expires_at.expect("leased").duration_since(held[0].claimed_at).expect("later");
        assert_eq!(lasts >= LONG, lasts_long);
    }
    assert_eq!(hand.release(token(&held), &[all[2], all[2]]).await.expect("release"), [all[2]]);
    assert_eq!(hand.release(token(&held), &[all[2]]).await.expect("release"), NO_IDS);
    assert_eq!(hand.renew(token(&held), &[all[2]], LONG).await.expect("renew"), NO_IDS);
    assert_eq!(hand.release(token(&held), &[]).await.expect("release"), NO_IDS);
    assert_eq!(hand.counts().await, (1, 2, 0));
}

/// Proves E6: redrive puts the dead back to pending with a budget of 0; numbering and history go on; once each.
pub async fn redrive_starts_a_new_budget(hand: Hand) {
    let all = hand.put_plain(2).await;
    hand.fail(&hand.take(2).await).await;
    for expected in [1, 0] {
        assert_eq!(hand.redrive(Some(&all[..1]), None).await.expect("redrive"), expected);
    }
    let held = hand.take(10).await;
    assert_eq!((ids(&held), held[0].attempt_no, held[0].attempt_count), (all[..1].to_vec(), 2, 1));
    hand.deliver(&held).await;
    assert_eq!(hand.attempts(all[0]).await, ["1 FAILED", "2 DISPATCHED"]);
    assert_eq!(hand.redrive(None, Some("elsewhere")).await.expect("redrive"), 0);
    assert_eq!(hand.redrive_all().await, 1);
    assert_eq!(ids(&hand.take(10).await), all[1..]);
    assert_eq!(hand.redrive(Some(&[Uuid::new_v4()]), None).await.expect("redrive"), 0);
}

/// A message that died for two sinks is redriven and discarded for each of them.
pub async fn redrive_and_discard_of_one_sink(hand: Hand) {
    for sink in ["a", "b"] {
        hand.add_route(&Route::new("*", sink)).await.expect("add_route");
    }
    let id = hand.put(message("t")).await.message_id;
    for sink in ["a", "b"] {
        hand.fail(&hand.take_from(sink, 1).await).await;
    }
    assert_eq!(hand.redrive(Some(&[id]), Some("a")).await.expect("redrive"), 1);
    assert_eq!(hand.stands(id).await, ["a pending", "b dead"]);
    assert_eq!(hand.discard(&[id], Some("a")).await.expect("discard"), 0, "it is pending there");
    assert_eq!(hand.discard(&[id], None).await.expect("discard"), 1);
    assert_eq!(hand.stands(id).await, ["a pending"]);
}

/// Discard gives up a dead letter for good and keeps its history.
pub async fn discard_gives_up(hand: Hand) {
    let id = hand.put(message("t")).await.message_id;
    assert_eq!(hand.discard(&[id], None).await.expect("discard"), 0, "it is not dead");
    hand.fail(&hand.take(1).await).await;
    for expected in [1, 0] {
        assert_eq!(hand.discard(&[id], None).await.expect("discard"), expected);
    }
    assert_eq!((hand.redrive_all().await, hand.take(1).await.len()), (0, 0));
    assert_eq!(hand.attempts(id).await, ["1 FAILED"]);
}

/// Replay delivers again what was delivered: attempt numbers go on; what is pending, leased or dead is left alone.
pub async fn replay_delivers_again(hand: Hand) {
    let delivered = hand.put_plain(1).await;
    hand.deliver(&hand.take(1).await).await;
    let dead = hand.put_plain(1).await;
    hand.fail(&hand.take(1).await).await;
    let leased = hand.put_plain(1).await;
    hand.take(1).await;
    let pending = hand.put_plain(1).await;
    let all = [&delivered[..], &dead[..], &leased[..], &pending[..], &[Uuid::new_v4()]].concat();
    assert_eq!(hand.replay("default", &all).await.expect("replay"), 1);
    assert_eq!(hand.replay("default", &all).await.expect("replay"), 0, "it is pending already");
    let again = hand.take(10).await;
    let mut both = [delivered.clone(), pending].concat();
    both.sort_unstable();
    let mut found = ids(&again);
    found.sort_unstable();
    assert_eq!(found, both);
    let replayed = again.iter().find(|one| one.message_id == delivered[0]).expect("it was claimed");
    assert_eq!((replayed.attempt_no, replayed.attempt_count), (2, 1), "a new budget, the next number");
}

/// Replay of a range of time, narrowed by namespace and topic.
pub async fn replay_by_time(hand: Hand) {
    let now = hand.clock().await;
    hand.put_all(&[message("a"), message("b"), message("b").namespace("n")]).await;
    hand.deliver(&hand.take(10).await).await;
    let within = |topic: Option<&str>, namespace: Option<&str>| Replay {
        sink: "default".to_owned(),
        from: Some(now - HOUR),
        to: Some(now + HOUR),
        namespace: namespace.map(str::to_owned),
        topic: topic.map(str::to_owned),
        at_most: 10,
        ..Replay::default()
    };
    let before = Replay { from: Some(now - 2 * HOUR), to: Some(now - HOUR), ..within(None, None) };
    let replay = async |replay| hand.act(Action::Replay(replay)).await.expect("replay");
    assert_eq!(replay(before).await, 0);
    assert_eq!(replay(within(Some("b"), Some("n"))).await, 1);
    assert_eq!(replay(within(Some("b"), None)).await, 1, "the other one");
    assert_eq!(replay(within(None, None)).await, 1, "the last one");
}

/// Proves H8: however old, nothing undelivered is pruned, and a key is remembered for its window.
pub async fn prune_leaves_what_is_undelivered(hand: Hand) {
    let delivered = hand.put(message("t").dedupe_key("k")).await.message_id;
    hand.deliver(&hand.take(1).await).await;
    let dead = hand.put_plain(1).await;
    hand.fail(&hand.take(1).await).await;
    let leased = hand.put_plain(1).await;
    let held = hand.take(1).await;
    let pending = hand.put_lane("a", 1).await;
    hand.prune(Duration::ZERO).await.expect("prune");
    hand.make_partitions().await.expect("make_partitions");
    for (id, state) in [(dead[0], "dead"), (leased[0], "leased"), (pending[0], "pending")] {
        assert_eq!(hand.stands(id).await, [format!("default {state}")]);
    }
    hand.deliver(&held).await;
    let known = hand.put(message("t").dedupe_key("k")).await;
    assert_eq!((known.message_id, known.created), (delivered, false));
    assert_eq!(hand.redrive_all().await, 1);
    assert_eq!(hand.take(10).await.len(), 2);
}
