//! What an operator does: each action does what it says and is written down in the same transaction, with who asked for it;
//! what is refused leaves no trace. How dead letters are told apart is in `dead.rs`, what is taken back in `cancel.rs`.

use std::num::NonZeroU32;
use std::time::{Duration, SystemTime};

use postrider::inspect::{AuditRecord, DeadFilter, DeliveryFilter, PageRequest, ReplayCount};
use postrider::operate::{Action, Done, MAX_PER_ACTION, Replay};
use postrider::{ErrorKind, OnDead, Queue, Route};
use uuid::Uuid;

use super::hand::{Hand, ids, message, numbers};

const HOUR: Duration = Duration::from_hours(1);
const SECOND: Duration = Duration::from_secs(1);

/// Every dead letter, so many at most.
fn redrive(at_most: u32) -> Action {
    Action::Redrive { which: DeadFilter::default(), at_most }
}

fn discard(at_most: u32) -> Action {
    Action::Discard { which: DeadFilter::default(), at_most }
}

fn skip(lane: &str) -> Action {
    Action::Skip { sink: "default".to_owned(), lane: lane.to_owned() }
}

/// Everything of the last hour and the next, in steps of so many.
async fn replay(hand: &Hand, at_most: u32) -> Replay {
    let now = hand.clock().await;
    Replay { sink: "default".to_owned(), from: Some(now - HOUR), to: Some(now + HOUR), at_most, ..Replay::default() }
}

async fn act(hand: &Hand, action: &Action) -> Done {
    hand.operate("ann", action).await.expect("operate")
}

/// How much an action changed.
async fn affected(hand: &Hand, what: &Action) -> u64 {
    act(hand, what).await.affected
}

/// The newest entry is this action's, and there is one for each action so far.
async fn last_entry(hand: &Hand, actions: usize) -> AuditRecord {
    let mut entries = hand.audit(&PageRequest::first(1_000)).await.expect("audit").items;
    assert_eq!(entries.len(), actions, "one entry for each action");
    entries.remove(0)
}

/// Each action is written down once: who, what, and how much it changed, if that was nothing, too.
pub async fn every_action_is_written_down(hand: Hand) {
    hand.put_plain(4).await;
    hand.fail(&hand.take(2).await).await;
    hand.put_lane("a", 2).await;
    hand.fail(&hand.take_as(&hand.wants(3).lane_run(1)).await).await;
    let route = Route::new("*", "copy");
    let all = Replay { include_never_delivered: true, ..replay(&hand, 10).await };
    let actions = [
        (skip("a"), 1),
        (skip("a"), 0),
        (redrive(1), 1),
        (discard(1), 1),
        (Action::Replay(all.clone()), 1),
        (Action::Pause { sink: "default".to_owned() }, 1),
        (Action::Pause { sink: "default".to_owned() }, 0),
        (Action::Resume { sink: "default".to_owned() }, 1),
        (Action::Resume { sink: "elsewhere".to_owned() }, 0),
        (Action::SetOnDead { sink: "default".to_owned(), on_dead: OnDead::Skip }, 1),
        (
            Action::RetryNow {
                which: DeliveryFilter { lane: Some("b".to_owned()), ..DeliveryFilter::default() },
                at_most: 7,
            },
            0,
        ),
        (
            Action::Cancel {
                which: DeliveryFilter { sink: Some("default".to_owned()), ..DeliveryFilter::default() },
                at_most: 1,
            },
            1,
        ),
        (Action::AddRoute { route: route.clone() }, 1),
        (Action::AddRoute { route: route.clone() }, 0),
        (Action::RemoveRoute { route: route.clone() }, 1),
        (Action::RemoveRoute { route }, 0),
        (Action::ApplyRoutes { at_most: 5 }, 0),
        (Action::UnclaimStuck { older_than: HOUR, live: true }, 0),
        (Action::Prune { older_than: None }, 0),
    ];
    let began = hand.clock().await;
    for (nth, (what, expected)) in actions.iter().enumerate() {
        assert_eq!(affected(&hand, what).await, *expected, "{what:?}");
        let entry = last_entry(&hand, nth + 1).await;
        assert_eq!((entry.actor.as_str(), entry.action), ("ann", what.name()));
        assert_eq!(entry.affected, i64::try_from(*expected).expect("a small number"), "{what:?}");
        assert!(entry.at >= began && entry.at <= began + HOUR);
        let detail: serde_json::Value = serde_json::from_str(entry.detail.get()).expect("JSON");
        let mut expected = serde_json::to_value(what).expect("JSON");
        let given = expected.as_object_mut().expect("an object");
        given.remove("action");
        given.retain(|_, value| !value.is_null());
        assert_eq!(detail, expected, "what was asked for");
    }
}

/// A message that an operator enqueues is there, and so is who did it; what it says is not in the audit.
pub async fn an_operators_message_is_written_down(hand: Hand) {
    let said = message("t").namespace("n").lane("a").dedupe_key("k");
    let first = hand.enqueue_as("ann", &said).await.expect("enqueue_as");
    assert!(first.created && first.sequence_id == Some(1));
    let again = hand.enqueue_as("bob", &said).await.expect("enqueue_as");
    assert_eq!((again.message_id, again.created), (first.message_id, false));
    assert_eq!(hand.counts().await, (1, 0, 0));
    let entries = hand.audit(&PageRequest::first(10)).await.expect("audit").items;
    let told: Vec<_> =
        entries.iter().map(|entry| (entry.actor.as_str(), entry.action.as_str(), entry.affected)).collect();
    assert_eq!(told, [("bob", "enqueue", 0), ("ann", "enqueue", 1)]);
    let detail: serde_json::Value = serde_json::from_str(entries[1].detail.get()).expect("JSON");
    let expected = serde_json::json!({"topic": "t", "namespace": "n", "lane": "a",
        "dedupe_key": "k", "message_id": first.message_id});
    assert_eq!(detail, expected);
    for (actor, said) in [("", message("t")), ("ann", message(""))] {
        hand.enqueue_as(actor, &said).await.expect_err("refused");
    }
    assert_eq!(
        (hand.audit(&PageRequest::first(10)).await.expect("audit").items.len(), hand.counts().await),
        (2, (1, 0, 0))
    );
}

/// What is refused changes nothing and is not written down.
pub async fn a_refused_action_leaves_no_trace(hand: Hand) {
    hand.put_plain(1).await;
    hand.fail(&hand.take(1).await).await;
    let named = |sink: &str| Action::Pause { sink: sink.to_owned() };
    let far = Duration::from_hours(24 * 365 * 101);
    let nowhere = Replay { sink: String::new(), ..replay(&hand, 1).await };
    let endless = Replay { to: None, ..replay(&hand, 1).await };
    let far_off = Some(hand.clock().await + Duration::from_hours(24 * 400));
    let later = Replay { paced_from: far_off, per_second: NonZeroU32::new(1), ..replay(&hand, 1).await };
    let unpaced = Replay { per_second: None, ..later.clone() };
    let fast = Replay { per_second: NonZeroU32::new(1_000_001), ..replay(&hand, 1).await };
    for (actor, what, words) in [
        ("", redrive(1), "actor"),
        ("a".repeat(256).as_str(), redrive(1), "actor"),
        ("ann", redrive(0), "at_most must be between 1 and 10000"),
        ("ann", redrive(MAX_PER_ACTION + 1), "at_most must be between 1 and 10000"),
        ("ann", discard(0), "at_most must be between 1 and 10000"),
        (
            "ann",
            Action::RetryNow { which: DeliveryFilter::default(), at_most: 0 },
            "at_most must be between 1 and 10000",
        ),
        ("ann", Action::Replay(replay(&hand, 0).await), "at_most must be between 1 and 10000"),
        ("ann", Action::Replay(nowhere), "sink must be 1 to 255 bytes"),
        ("ann", Action::Replay(endless), "name message_ids, or from and to"),
        ("ann", Action::Cancel { which: DeliveryFilter::default(), at_most: 0 }, "at_most must be between 1 and 10000"),
        ("ann", Action::Replay(fast), "per_second must be between 1 and 1000000"),
        ("ann", Action::Replay(later), "paced_from must be at most 366 days ahead"),
        ("ann", Action::Replay(unpaced), "paced_from needs per_second"),
        ("ann", named(""), "sink must be 1 to 255 bytes"),
        ("ann", skip(""), "sink and lane must each be 1 to 255 bytes"),
        ("ann", Action::UnclaimStuck { older_than: far, live: false }, "older_than_seconds"),
        ("ann", Action::Prune { older_than: Some(far) }, "older_than_seconds"),
        ("ann", Action::AddRoute { route: Route::new("", "s") }, "1 to 255 bytes"),
    ] {
        let error = hand.operate(actor, &what).await.expect_err(words);
        assert!(error.kind() == ErrorKind::Refused && error.to_string().contains(words), "{what:?}: {error}");
    }
    assert_eq!(hand.audit(&PageRequest::first(10)).await.expect("audit").items.len(), 0);
    assert_eq!(hand.counts().await, (0, 0, 1));
}

/// Proves E6: a redrive takes the oldest first and goes on until nothing is left; each has a new budget, and its history
/// goes on.
pub async fn a_redrive_goes_on_in_batches(hand: Hand) {
    let all = hand.put_plain(5).await;
    for _ in &all {
        hand.fail(&hand.take(1).await).await;
    }
    let mut again = Vec::new();
    for (expected, left) in [(2, 3), (2, 1), (1, 0), (0, 0)] {
        assert_eq!(affected(&hand, &redrive(2)).await, expected);
        assert_eq!(hand.count_dead(&DeadFilter::default()).await.expect("count_dead"), left);
        again.extend(hand.take(10).await);
    }
    assert_eq!(ids(&again), all, "the oldest first");
    assert!(again.iter().all(|one| (one.attempt_no, one.attempt_count) == (2, 1)));
    hand.deliver(&again).await;
    assert_eq!(hand.attempts(all[0]).await, ["1 FAILED", "2 DISPATCHED"]);
}

/// A discard goes in batches, too: parked lanes go on, and the messages stay as history.
pub async fn a_discard_goes_on_in_batches(hand: Hand) {
    let all = [hand.put_lane("a", 1).await, hand.put_lane("b", 1).await, hand.put_plain(1).await].concat();
    hand.fail(&hand.take(3).await).await;
    hand.put_lane("a", 1).await;
    for expected in [2, 1, 0] {
        assert_eq!(affected(&hand, &discard(2)).await, expected);
    }
    assert_eq!(numbers(&hand.take(10).await), [2]);
    assert_eq!(hand.attempts(all[0]).await, ["1 FAILED"]);
}

/// A message that died for two sinks is redriven for the one that is meant.
pub async fn an_action_means_one_sink_of_a_message(hand: Hand) {
    for sink in ["a", "b"] {
        hand.add_route(&Route::new("*", sink)).await.expect("add_route");
    }
    let id = hand.put(message("t")).await.message_id;
    hand.fail(&hand.take_from("a", 1).await).await;
    hand.until(hand.clock().await + Duration::from_millis(2)).await;
    let between = hand.clock().await;
    hand.fail(&hand.take_from("b", 1).await).await;
    let which = DeadFilter { died_from: Some(between), ..DeadFilter::default() };
    assert_eq!(affected(&hand, &Action::Redrive { which, at_most: 10 }).await, 1);
    assert_eq!(hand.stands(id).await, ["a dead", "b pending"]);
    assert_eq!(affected(&hand, &discard(1)).await, 1);
    assert_eq!(hand.stands(id).await, ["b pending"]);
}

/// Skip: a parked lane goes on with its next number, in order; the head stays a dead letter, and comes back at its own
/// number when it is redriven.
pub async fn a_skipped_head_lets_its_lane_go_on(hand: Hand) {
    let all = hand.put_lane("a", 3).await;
    assert_eq!(affected(&hand, &skip("a")).await, 0, "it is not parked");
    assert_eq!(affected(&hand, &skip("b")).await, 0, "there is no such lane");
    let head = hand.take_as(&hand.wants(1).lane_run(1)).await;
    hand.fail(&head).await;
    assert_eq!((hand.take(10).await.len(), hand.status_of("default").await.parked_lanes), (0, 1));
    let parked = async || {
        let page = PageRequest::first(10);
        let letters = hand.dead_letters(&DeadFilter::default(), &page).await.expect("dead_letters").items;
        letters.iter().map(|letter| (letter.message_id, letter.parked)).collect::<Vec<_>>()
    };
    assert_eq!(parked().await, [(all[0], true)]);
    for expected in [1, 0] {
        assert_eq!(affected(&hand, &skip("a")).await, expected);
    }
    assert_eq!(parked().await, [(all[0], false)]);
    assert_eq!((hand.counts().await, hand.status_of("default").await.parked_lanes), ((2, 0, 1), 0));
    let next = hand.take_as(&hand.wants(10).lane_run(1)).await;
    assert_eq!(numbers(&next), [2]);
    hand.deliver(&next).await;
    assert_eq!(affected(&hand, &redrive(10)).await, 1);
    let rest = hand.take(10).await;
    assert_eq!(numbers(&rest), [1, 3]);
    hand.deliver(&rest).await;
    assert_eq!(hand.attempts(all[0]).await, ["1 FAILED", "2 DISPATCHED"]);
}

/// What a replay without a rate answers.
fn step(affected: u64, next: Option<Uuid>) -> Done {
    Done { affected, next, paced_until: None }
}

/// When its delivery is due.
async fn due_at(hand: &Hand, id: Uuid) -> SystemTime {
    let shown = hand.shown(id).await;
    shown.deliveries[0].due_at.expect("it is pending")
}

/// A replay goes step by step in the order of ids, and at its rate from one step to the next.
pub async fn a_replay_goes_on_at_its_rate(hand: Hand) {
    let all = hand.put_plain(5).await;
    hand.deliver(&hand.take(5).await).await;
    let mut wanted = Replay { per_second: NonZeroU32::new(1), ..replay(&hand, 2).await };
    let began = hand.clock().await;
    for (expected, next) in [(2, Some(all[1])), (2, Some(all[3])), (1, None)] {
        let done = act(&hand, &Action::Replay(wanted.clone())).await;
        assert_eq!((done.affected, done.next), (expected, next));
        assert!(done.paced_until.is_some(), "when the next is due");
        (wanted.after, wanted.paced_from) = (next, done.paced_until);
    }
    let mut due = Vec::new();
    for id in &all {
        due.push(due_at(&hand, *id).await);
    }
    assert!(due[0] >= began, "from now on");
    assert_eq!(due[1], due[0] + SECOND, "one after the other");
    assert_eq!(due[2], due[1] + SECOND, "and from one step to the next");
    assert_eq!((due[3], due[4]), (due[2] + SECOND, due[3] + SECOND));
    assert_eq!(ids(&hand.take(10).await).first(), all.first(), "the first is due");
}

/// A replay is narrowed by namespace and topic, leaves alone what is pending or dead, and says where to go on even if it
/// had nothing to do.
pub async fn a_replay_takes_what_is_meant(hand: Hand) {
    let put = hand.put_all(&[message("a"), message("b"), message("b").namespace("n")]).await;
    hand.deliver(&hand.take(3).await).await;
    hand.put_plain(1).await;
    hand.fail(&hand.take(1).await).await;
    let all = replay(&hand, 3).await;
    let narrowed = Replay { topic: Some("b*".to_owned()), namespace: Some("n".to_owned()), ..all.clone() };
    let last = Some(put[2].message_id);
    assert_eq!(act(&hand, &Action::Replay(narrowed)).await, step(1, last), "three were looked at");
    assert_eq!(act(&hand, &Action::Replay(all.clone())).await, step(2, last));
    assert_eq!(act(&hand, &Action::Replay(all.clone())).await, step(0, last), "all are pending");
    let rest = Replay { after: last, ..all.clone() };
    assert_eq!(act(&hand, &Action::Replay(rest)).await, step(0, None), "what is dead stays dead");
    let before = Replay { to: all.from, from: all.from.map(|from| from - HOUR), ..all };
    assert_eq!(act(&hand, &Action::Replay(before)).await, step(0, None));
    assert_eq!(hand.counts().await, (3, 0, 1));
}

/// Unclaim and prune by hand: what each ends is counted.
pub async fn leases_and_history_end_by_hand(hand: Hand) {
    hand.put_plain(3).await;
    hand.deliver(&hand.take(1).await).await;
    let held = hand.lose(2).await;
    assert_eq!(affected(&hand, &Action::UnclaimStuck { older_than: Duration::ZERO, live: false }).await, 2);
    assert_eq!(hand.counts().await, (2, 0, 0));
    assert_eq!(hand.attempts(held[0].message_id).await, ["1 ZOMBIE_REQUEUE"]);
    // What a prune finds depends on how a store keeps its history; nothing undelivered is ever part of it.
    act(&hand, &Action::Prune { older_than: Some(Duration::ZERO) }).await;
    assert_eq!(hand.counts().await, (2, 0, 0));
    assert_eq!(last_entry(&hand, 2).await.action, "prune");
}

/// The audit is read newest first, page by page.
pub async fn the_audit_is_read_in_pages(hand: Hand) {
    for nth in 0..5 {
        let sink = format!("s{nth}");
        hand.operate(&format!("actor-{nth}"), &Action::Pause { sink }).await.expect("operate");
    }
    let mut after = None;
    for expected in [&["actor-4", "actor-3"][..], &["actor-2", "actor-1"], &["actor-0"]] {
        let page = hand.audit(&PageRequest { after: after.clone(), limit: 2 }).await.expect("audit");
        assert_eq!(page.items.iter().map(|entry| entry.actor.as_str()).collect::<Vec<_>>(), expected);
        after = page.next.or(after);
    }
}

/// Two operators who want the same redriven get it done once, each his share.
pub async fn two_operators_redrive_each_once(hand: Hand) {
    let other = hand.another().await;
    hand.put_plain(200).await;
    hand.fail(&hand.take(200).await).await;
    let share = |hand: Hand| async move {
        let mut share = 0;
        loop {
            match affected(&hand, &redrive(7)).await {
                0 => return share,
                more => share += more,
            }
        }
    };
    let (one, two) = tokio::join!(tokio::spawn(share(hand.clone())), tokio::spawn(share(other)));
    assert_eq!(one.expect("it ends") + two.expect("it ends"), 200);
    assert_eq!(hand.counts().await, (200, 0, 0));
    let entries = hand.audit(&PageRequest::first(1_000)).await.expect("audit").items;
    assert_eq!(entries.iter().map(|entry| entry.affected).sum::<i64>(), 200);
}

/// What waits for a retry or for its time is made due, what is due next first: of one message, of one sink, of all. What is
/// leased and what is dead stays as it is, a lane keeps its order, and attempts go on being counted.
pub async fn what_waits_is_due_at_once(hand: Hand) {
    hand.add_route(&Route::new("other", "s")).await.expect("add_route");
    hand.put(message("other").delay(HOUR)).await;
    let [later, soon, named] = [3, 2, 4].map(|hours| message("t").delay(HOUR * hours));
    let put = hand.put_all(&[later, soon, named]).await;
    let [later, soon, named] = [0, 1, 2].map(|nth| put[nth].message_id);
    hand.put_lane("parked", 2).await;
    hand.fail(&hand.take(1).await).await;
    let lane = hand.put_lane("a", 2).await;
    hand.retry(&hand.take(2).await, HOUR).await;
    let retry = |message_ids: Option<Vec<Uuid>>, sink: Option<&str>, at_most| Action::RetryNow {
        which: DeliveryFilter { message_ids, sink: sink.map(str::to_owned), ..DeliveryFilter::default() },
        at_most,
    };
    let waiting = DeliveryFilter { sink: Some("default".to_owned()), ..DeliveryFilter::default() };
    let open = hand.count_open(&waiting).await.expect("count");
    assert_eq!((open.waiting, open.pending), (5, 6), "three that were put, two of a lane; one is behind a dead head");
    assert_eq!(hand.take(10).await.len(), 0);

    assert_eq!(affected(&hand, &retry(Some(vec![named, Uuid::nil()]), None, 10)).await, 1);
    assert_eq!(ids(&hand.take(10).await), [named]);
    assert_eq!(affected(&hand, &retry(Some(vec![named]), None, 10)).await, 0, "it is leased");
    assert_eq!(affected(&hand, &retry(None, Some("default"), 3)).await, 3, "the lane, and the one that is due next");
    // A head that failed may go alone, and what stands behind it after it.
    let mut taken = hand.take(10).await;
    hand.deliver(&taken).await;
    taken.extend(hand.take(10).await);
    let in_lane: Vec<Uuid> = taken.iter().filter(|one| one.lane.is_some()).map(|one| one.message_id).collect();
    assert_eq!(in_lane, lane, "in order");
    assert!(taken.iter().any(|one| one.message_id == soon) && taken.len() == 3, "{taken:?}");
    assert_eq!(hand.attempts(lane[0]).await, ["1 RETRYABLE", "2 DISPATCHED"]);
    assert!(taken.iter().filter(|one| one.lane.is_some()).all(|one| one.attempt_count == 2), "{taken:?}");
    assert_eq!(affected(&hand, &retry(None, None, 10)).await, 2, "the last, and the other sink's");
    assert_eq!(ids(&hand.take(10).await), [later]);
    assert_eq!(hand.take_from("s", 10).await.len(), 1);
    assert_eq!(affected(&hand, &retry(None, None, 10)).await, 0, "a parked lane waits for a person");
    let entry = last_entry(&hand, 6).await;
    assert_eq!((entry.action.as_str(), entry.affected), ("retry_now", 0));
}

/// A replay sends again what the sink had; what it never had is counted, and sent only if that is asked for by name. A sink
/// that nobody has heard of is refused.
pub async fn a_replay_sends_what_was_delivered_before(hand: Hand) {
    hand.add_route(&Route::new("both", "copy")).await.expect("add_route");
    hand.add_route(&Route::new("both", "default")).await.expect("add_route");
    let both = hand.put(message("both")).await.message_id;
    let secret = hand.put(message("secret")).await.message_id;
    hand.deliver(&hand.take(10).await).await;
    hand.deliver(&hand.take_from("copy", 10).await).await;
    let to_copy = Replay { sink: "copy".to_owned(), ..replay(&hand, 10).await };
    let count = ReplayCount { delivered: 1, never_delivered: 1, next: None };
    assert_eq!(hand.count_replay(&to_copy).await.expect("count"), count);
    assert_eq!(act(&hand, &Action::Replay(to_copy.clone())).await, step(1, None), "what was routed there");
    assert_eq!((hand.stands(both).await, hand.stands(secret).await), (vec!["copy pending".to_owned()], vec![]));
    let count = ReplayCount { delivered: 0, never_delivered: 1, next: None };
    assert_eq!(hand.count_replay(&to_copy).await.expect("count"), count, "what is pending is neither");
    let one = Replay { from: None, to: None, message_ids: Some(vec![secret]), ..to_copy.clone() };
    assert_eq!(act(&hand, &Action::Replay(one.clone())).await, step(0, None), "by its id neither");
    let told = Replay { include_never_delivered: true, ..one };
    assert_eq!(act(&hand, &Action::Replay(told)).await, step(1, None));
    assert_eq!(hand.stands(secret).await, ["copy pending"]);
    let entries = hand.audit(&PageRequest::first(100)).await.expect("audit").items.len();
    for mistyped in [
        Replay { sink: "cpoy".to_owned(), ..to_copy.clone() },
        Replay { sink: "cpoy".to_owned(), include_never_delivered: true, ..to_copy },
    ] {
        let error = hand.count_replay(&mistyped).await.expect_err("no such sink");
        assert!(error.kind() == ErrorKind::NoSuchSink, "{error}");
        let error = hand.operate("ann", &Action::Replay(mistyped)).await.expect_err("no such sink");
        assert!(error.kind() == ErrorKind::NoSuchSink && error.to_string().contains("\"cpoy\""), "{error}");
    }
    assert_eq!(
        hand.audit(&PageRequest::first(100)).await.expect("audit").items.len(),
        entries,
        "what is refused leaves no trace"
    );
}

/// A message is replayed by its id, without its neighbours of the same millisecond.
pub async fn a_replay_by_id_leaves_neighbours_alone(hand: Hand) {
    let all = hand.put_plain(3).await;
    hand.deliver(&hand.take(10).await).await;
    let unknown = Uuid::now_v7();
    let one = Replay {
        sink: "default".to_owned(),
        message_ids: Some(vec![all[1], unknown]),
        at_most: 10,
        ..Replay::default()
    };
    assert_eq!(hand.count_replay(&one).await.expect("count").delivered, 1);
    assert_eq!(act(&hand, &Action::Replay(one)).await, step(1, None));
    assert_eq!(ids(&hand.take(10).await), [all[1]]);
}

/// House-keeping that finds nothing to prune leaves no entry.
pub async fn an_idle_prune_is_not_written_down(hand: Hand) {
    hand.put_plain(1).await;
    hand.deliver(&hand.take(1).await).await;
    assert_eq!(Queue::prune(&*hand).await.expect("prune"), postrider::operate::Pruned::default());
    assert_eq!(hand.audit(&PageRequest::first(10)).await.expect("audit").items.len(), 0);
}

/// What unclaim and prune would take is counted, and nothing is changed by that.
pub async fn what_ends_by_hand_is_counted_first(hand: Hand) {
    hand.put_plain(3).await;
    hand.take(1).await;
    let stale = async |older_than, live| hand.count_stale(older_than, live).await.expect("count_stale");
    assert_eq!((stale(Duration::ZERO, false).await, stale(HOUR, true).await), (0, 0), "a young lease is left alone");
    hand.lose(2).await;
    assert_eq!((stale(Duration::ZERO, false).await, stale(HOUR, false).await), (2, 2), "two ended, at any age");
    assert_eq!(stale(Duration::ZERO, true).await, 3, "with live ones, every lease");
    assert_eq!(hand.counts().await.1, 3, "nothing was changed");
    let prunable = hand.prunable(Some(Duration::ZERO)).await.expect("prunable");
    assert_eq!(prunable, postrider::operate::Pruned::default(), "nothing undelivered");
    let error = hand.prunable(Some(Duration::MAX)).await.expect_err("out of range");
    assert!(error.to_string().contains("older_than_seconds"), "{error}");
}
