//! An operator's actions in PostgreSQL: what only two real connections, a broken audit or a missing table can show. What
//! each action does is in the store's contract.

use postrider::inspect::{DeadFilter, PageRequest};
use postrider::operate::{Action, MAX_PER_ACTION};
use postrider::{ErrorKind, Inspect as _, Operate as _, PostgresStore, Schema};
use postrider_testkit::{Database, WireCounter};
use tokio_postgres::Client;

use crate::support::{
    attempts, claim, complete, contents, dead, enqueue, enqueue_plain, fresh, mark_delivered, number, numbers, run,
    texts, try_sql, waits, with_impatient,
};

async fn store_of(database: &Database) -> PostgresStore {
    PostgresStore::connect(&database.url(), Schema::default()).await.unwrap()
}

/// A lane of two whose head is dead and parks it.
async fn parked_lane(client: &Client) {
    for _ in 0..2 {
        enqueue(client, "t", ", lane => 'a'").await;
    }
    let head = claim(client, "w", 1).await.remove(0);
    complete(client, "w", &head, "FAILED").await.unwrap();
}

/// An action that cannot be written down is not carried out.
#[tokio::test]
async fn an_action_and_its_entry_are_one_transaction() {
    let (database, client) = fresh().await;
    dead(&client, 2).await;
    let store = store_of(&database).await;
    let forbid = "alter table outbox.audit add constraint not_mallory check (actor <> 'mallory')";
    run(&client, forbid).await;
    let before = contents(&client, "outbox").await;
    let which = DeadFilter::default();
    for action in [
        Action::Redrive { which: which.clone(), at_most: MAX_PER_ACTION },
        Action::Discard { which: which.clone(), at_most: MAX_PER_ACTION },
        Action::Pause { sink: "s".to_owned() },
        Action::AddRoute { route: postrider::Route::new("*", "s") },
    ] {
        let error = store.operate("mallory", &action).await.unwrap_err();
        assert!(error.to_string().contains("not_mallory"), "{error}");
    }
    assert_eq!(contents(&client, "outbox").await, before);
    assert_eq!(store.operate("ann", &Action::Redrive { which, at_most: 1 }).await.unwrap().affected, 1);
    assert_eq!(texts(&client, "select actor || ' ' || affected from outbox.audit_log").await, ["ann 1"]);
}

/// Action and entry are one round trip.
#[tokio::test]
async fn an_action_is_one_round_trip() {
    let (database, client) = fresh().await;
    dead(&client, 3).await;
    let wire = WireCounter::start(database.cluster().port()).await;
    let store = PostgresStore::connect(&wire.url(&database), Schema::default()).await.unwrap();
    wire.reset();
    let action = Action::Redrive { which: DeadFilter::default(), at_most: 2 };
    assert_eq!(store.operate("ann", &action).await.unwrap().affected, 2);
    assert_eq!(wire.round_trips(), 1);
    assert_eq!(number(&client, "select count(*) from outbox.audit").await, 1);
}

/// Two operators at once: the second neither waits nor takes what the first is taking, and gets it if that one gives up.
#[tokio::test]
async fn two_redrives_of_one_kind_share_it() {
    for (ending, left) in [("commit", 0), ("rollback", 2)] {
        let (_database, client, other) = with_impatient().await;
        dead(&client, 5).await;
        run(&client, "begin").await;
        assert_eq!(number(&client, "select outbox.redrive_matching(at_most => 2)").await, 2);
        assert_eq!(number(&other, "select outbox.redrive_matching(topic => 't')").await, 3, "before {ending}");
        assert_eq!(number(&other, "select outbox.discard_matching()").await, 0, "before {ending}");
        run(&client, ending).await;
        assert_eq!(number(&other, "select outbox.redrive_matching()").await, left, "after {ending}");
        assert_eq!(claim(&client, "w", 10).await.len(), 5);
    }
}

/// Skip against redrive, in both orders: lane and dead letter agree afterwards, and the lane stays in sequence.
#[tokio::test]
async fn skip_against_redrive() {
    const SKIP: &str = "select outbox.skip('default', 'a')";
    const REDRIVE: &str = "select outbox.redrive(all_dead => true)";
    for (first, second, after_commit) in [(SKIP, REDRIVE, 1), (REDRIVE, SKIP, 0), (SKIP, SKIP, 0)] {
        for (ending, expected) in [("commit", after_commit), ("rollback", 1)] {
            let (database, client) = fresh().await;
            parked_lane(&client).await;
            run(&client, "begin").await;
            assert_eq!(number(&client, first).await, 1);
            let after = waits(&database, &client, second, ending).await;
            assert_eq!(after, Ok(expected), "{first}, {second}, {ending}");
            let redriven = number(&client, "select 1 - count(*) from outbox.dead_letter").await == 1;
            assert_eq!(
                numbers(&claim(&client, "w", 10).await),
                if redriven { vec![1, 2] } else { vec![2] },
                "{first}, {second}, {ending}"
            );
        }
    }
}

/// With a hundred thousand dead letters, to count and to group them must not read as many messages: here none can be.
#[tokio::test]
async fn to_count_and_to_group_reads_no_message() {
    let (database, client) = fresh().await;
    enqueue(&client, "t", ", namespace => 'n'").await;
    let held = claim(&client, "w", 1).await.remove(0);
    complete(&client, "w", &held, "FAILED").await.unwrap();
    let store = store_of(&database).await;
    run(&client, "alter table outbox.message rename to elsewhere").await;
    run(&client, "create view outbox.message as select 1 / 0 as id").await;
    let text = |text: &str| Some(text.to_owned());
    let filter = DeadFilter { topic: text("t"), namespace: text("n"), ..DeadFilter::default() };
    assert_eq!(store.count_dead(&filter).await.unwrap(), 1);
    let groups = store.dead_groups(&filter).await.unwrap();
    assert_eq!((groups.len(), groups[0].topic.as_str()), (1, "t"));
    let action = Action::Redrive { which: filter, at_most: 1 };
    assert_eq!(store.operate("ann", &action).await.unwrap().affected, 1);
    assert_eq!(attempts(&client, held.id).await, ["1 FAILED"]);
}

/// A page of dead letters is read through an index that is in its order, for one sink and for all.
#[tokio::test]
async fn a_page_is_read_in_the_order_of_its_index() {
    let (database, client) = fresh().await;
    enqueue_plain(&client, 1).await;
    let many = "insert into outbox.dead_letter (message_id, sink, died_at, reason, priority, size_bytes, attempt_no, \
                attempt_count, parked) select gen_random_uuid(), 's' || n % 3, now() - n * interval '1 second', 'FAILED', 0, 1, 1, 1, false \
                from generate_series(1, 20000) n; analyze outbox.dead_letter";
    run(&client, many).await;
    let store = store_of(&database).await;
    for sink in [None, Some("s1".to_owned())] {
        let filter = DeadFilter { sink, ..DeadFilter::default() };
        let page = store.dead_letters(&filter, &PageRequest::first(100)).await.unwrap();
        let after = page.next;
        let next = store.dead_letters(&filter, &PageRequest { after, limit: 100 }).await.unwrap().items;
        let page = page.items;
        assert_eq!(page.len(), 100);
        assert!(next[0].died_at < page[99].died_at);
        let seconds = next[99].died_at.duration_since(page[99].died_at).unwrap_err().duration().as_secs();
        assert_eq!(seconds, if filter.sink.is_some() { 300 } else { 100 }, "nothing is left out");
    }
    for wanted in ["true", "l.sink = 's1'"] {
        let plan = format!(
            "explain select l.* from outbox.dead_letter l where num_nulls(l.died_at) <> 1 and {wanted} and (l.died_at, l.message_id) <= \
             (now() - interval '1 hour', gen_random_uuid()) order by l.died_at desc, l.message_id desc, l.sink limit 100"
        );
        let plan = texts(&client, &plan).await.join("\n");
        assert!(plan.contains("Index Scan using dead_letter_") && !plan.contains("Sort"), "{plan}");
    }
}

/// A claim that has locked a message keeps it, and so has whoever cancels first: nobody waits, and each delivery ends once.
#[tokio::test]
async fn cancel_against_claim() {
    const CANCEL: &str = "select outbox.cancel()";
    for (ending, cancelled_after) in [("commit", 0), ("rollback", 1)] {
        let (_database, client, other) = with_impatient().await;
        let id = enqueue(&client, "t", "").await;
        run(&client, "begin").await;
        assert_eq!(claim(&client, "w", 1).await.len(), 1);
        assert_eq!(number(&other, CANCEL).await, 0, "a claim is taking it");
        run(&client, ending).await;
        assert_eq!(number(&other, CANCEL).await, cancelled_after, "after {ending}");
        assert_eq!(attempts(&client, id).await.len(), usize::from(ending == "rollback"));
    }
    for (ending, claimed_after) in [("commit", 0), ("rollback", 1)] {
        let (database, client) = fresh().await;
        enqueue(&client, "t", "").await;
        let other = database.connect().await;
        run(&client, "begin").await;
        assert_eq!(number(&client, CANCEL).await, 1);
        assert_eq!(claim(&other, "w", 1).await.len(), 0, "somebody is taking it back");
        run(&client, ending).await;
        assert_eq!(claim(&other, "w", 1).await.len(), claimed_after, "after {ending}");
    }
}

/// The head of a lane is being cancelled: nobody gets what stands behind it before that is committed, and then the next
/// becomes the head. A lane in which a lease lives stays in one hand.
#[tokio::test]
async fn a_cancelled_head_passes_the_lane_on() {
    for (ending, next) in [("commit", vec![2, 3]), ("rollback", vec![1, 2, 3])] {
        let (database, client) = fresh().await;
        let head = enqueue(&client, "t", ", lane => 'a'").await;
        for _ in 0..2 {
            enqueue(&client, "t", ", lane => 'a'").await;
        }
        let other = database.connect().await;
        run(&client, "begin").await;
        assert_eq!(number(&client, &format!("select outbox.cancel(array['{head}'::uuid])")).await, 1);
        assert_eq!(numbers(&claim(&other, "w", 10).await), Vec::<i64>::new(), "before {ending}");
        run(&client, ending).await;
        assert_eq!(numbers(&claim(&other, "w", 10).await), next, "after {ending}");
    }
    // A head that comes back in front of leased ones, and is cancelled there: the lane is still in that hand.
    let (database, client) = fresh().await;
    for _ in 0..3 {
        enqueue(&client, "t", ", lane => 'a'").await;
    }
    let first = claim(&client, "w", 1).await;
    mark_delivered(&client, &first).await;
    let held = claim(&client, "w", 1).await;
    assert_eq!(numbers(&held), [2]);
    assert_eq!(number(&client, &format!("select outbox.replay(array['{}'::uuid])", first[0].id)).await, 1);
    assert_eq!(number(&client, &format!("select outbox.cancel(array['{}'::uuid])", first[0].id)).await, 1);
    let other = database.connect().await;
    assert_eq!(numbers(&claim(&other, "w2", 10).await), Vec::<i64>::new(), "2 is in another hand");
    mark_delivered(&client, &held).await;
    assert_eq!(numbers(&claim(&other, "w2", 10).await), [3]);
}

/// Cancel against a redrive of the same lane: the parked head belongs to its dead letter, before and after.
#[tokio::test]
async fn cancel_against_redrive() {
    let (_database, client, other) = with_impatient().await;
    parked_lane(&client).await;
    run(&client, "begin").await;
    assert_eq!(number(&client, "select outbox.redrive(all_dead => true)").await, 1);
    assert_eq!(number(&other, "select outbox.cancel(lane => 'a')").await, 1, "the one behind the head");
    run(&client, "commit").await;
    assert_eq!(numbers(&claim(&other, "w", 10).await), [1], "the head was redriven, not cancelled");
    let (_database, client) = fresh().await;
    parked_lane(&client).await;
    assert_eq!(number(&client, "select outbox.cancel()").await, 1);
    assert_eq!(number(&client, "select count(*) from outbox.delivery where due_at = 'infinity'").await, 1);
    assert_eq!(number(&client, "select outbox.redrive(all_dead => true)").await, 1);
}

/// A replay to a sink that nobody has heard of is refused, and changes nothing.
#[tokio::test]
async fn a_replay_to_an_unknown_sink_is_refused() {
    let (database, client) = fresh().await;
    let id = enqueue(&client, "t", "").await;
    mark_delivered(&client, &claim(&client, "w", 1).await).await;
    let before = contents(&client, "outbox").await;
    for call in [
        format!("replay(array['{id}'::uuid], 'defualt')"),
        format!("replay(array['{id}'::uuid], 'defualt', include_never_delivered => true)"),
        "replay(sink => 'defualt', enqueued_from => '-infinity', enqueued_to => 'infinity')".to_owned(),
    ] {
        assert_eq!(try_sql(&client, &format!("select outbox.{call}")).await, "P7003", "{call}");
    }
    assert_eq!(contents(&client, "outbox").await, before);
    // Known by a setting, a route, a relay that reported it, or an attempt.
    run(&client, "select outbox.configure_sink('set'), outbox.add_route('routed', 'x')").await;
    let report = "select outbox.report('w', '1', 10, '[{\"sink\": \"told\", \"breaker\": \"closed\"}]')";
    run(&client, report).await;
    let attempt = "insert into outbox.attempt (message_id, claimed_at, completed_at, attempt_no, state, sink, worker_id) \
                   select message_id, now(), now(), 1, 'FAILED', 'tried', 'w' from outbox.messages";
    run(&client, attempt).await;
    for sink in ["default", "set", "routed", "told", "tried"] {
        let call = format!("select outbox.replay(array['{id}'::uuid], '{sink}', include_never_delivered => true)");
        assert_eq!(number(&client, &call).await, 1, "{sink}");
    }
    let store = store_of(&database).await;
    let mistyped = postrider::operate::Replay {
        sink: "defualt".to_owned(),
        message_ids: Some(vec![id]),
        at_most: 1,
        ..postrider::operate::Replay::default()
    };
    for error in [
        store.count_replay(&mistyped).await.unwrap_err(),
        store.operate("ann", &Action::Replay(mistyped)).await.unwrap_err(),
    ] {
        assert!(error.kind() == ErrorKind::NoSuchSink, "{error}");
        assert!(error.to_string().contains("there is no sink \"defualt\""), "{error}");
    }
}
