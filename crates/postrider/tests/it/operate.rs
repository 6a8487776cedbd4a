//! An operator's actions in PostgreSQL: what only two real connections, a broken audit or a missing table can show. What
//! each action does is in the store's contract.

use postrider::inspect::{DeadFilter, PageRequest};
use postrider::operate::{Action, MAX_PER_ACTION};
use postrider::{ErrorKind, Inspect as _, Operate as _, PostgresStore, Schema};
use postrider_testkit::{Database, WireCounter};
use tokio_postgres::Client;

use crate::support::{
    attempts, claim, complete, contents, enqueue, enqueue_plain, fresh, mark_delivered, number, sqlstate, texts,
    try_sql, until_blocked,
};

async fn store_of(database: &Database) -> PostgresStore {
    PostgresStore::connect(&database.url(), Schema::default()).await.unwrap()
}

/// Dead letters without a lane.
async fn dead(client: &Client, count: i32) {
    enqueue_plain(client, count).await;
    for held in claim(client, "w", count).await {
        complete(client, "w", &held, "FAILED").await.unwrap();
    }
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
    client.batch_execute(forbid).await.unwrap();
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
        let (database, client) = fresh().await;
        dead(&client, 5).await;
        let other = database.connect().await;
        other.batch_execute("set lock_timeout = '1ms'").await.unwrap();
        client.batch_execute("begin").await.unwrap();
        assert_eq!(number(&client, "select outbox.redrive_matching(at_most => 2)").await, 2);
        assert_eq!(number(&other, "select outbox.redrive_matching(topic => 't')").await, 3, "before {ending}");
        assert_eq!(number(&other, "select outbox.discard_matching()").await, 0, "before {ending}");
        client.batch_execute(ending).await.unwrap();
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
            client.batch_execute("begin").await.unwrap();
            assert_eq!(number(&client, first).await, 1);
            let other = database.connect().await;
            let waiting = tokio::spawn(async move { number(&other, second).await });
            until_blocked(&client, 1).await;
            client.batch_execute(ending).await.unwrap();
            assert_eq!(waiting.await.unwrap(), expected, "{first}, {second}, {ending}");
            let redriven = number(&client, "select 1 - count(*) from outbox.dead_letter").await == 1;
            let next: Vec<_> = claim(&client, "w", 10).await.iter().filter_map(|held| held.sequence).collect();
            assert_eq!(next, if redriven { vec![1, 2] } else { vec![2] }, "{first}, {second}, {ending}");
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
    client.batch_execute("alter table outbox.message rename to elsewhere").await.unwrap();
    client.batch_execute("create view outbox.message as select 1 / 0 as id").await.unwrap();
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
    client.batch_execute(many).await.unwrap();
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

/// The functions refuse what the library refuses before it asks, and say why.
#[tokio::test]
async fn wrong_arguments_are_refused() {
    let (_database, client) = fresh().await;
    let before = contents(&client, "outbox").await;
    for (call, words) in [
        ("redrive_matching(at_most => 0)", "at_most must be between 1 and 10000"),
        ("discard_matching(at_most => 10001)", "at_most must be between 1 and 10000"),
        ("redrive_matching(at_most => null)", "at_most must be between 1 and 10000"),
        ("skip('', 'a')", "sink and lane must each be 1 to 255 bytes of text"),
        ("skip('s', null)", "sink and lane must each be 1 to 255 bytes of text"),
        ("replay_batch(sink => 's')", "name message_ids, or enqueued_from and enqueued_to"),
        ("replay_batch('{}', at_most => 0)", "at_most must be between 1 and 10000"),
        ("replay_batch('{}', per_second => 0)", "per_second must be between 1 and 1000000"),
        ("replay_batch('{}', include_never_delivered => null)", "include_never_delivered must be true or false"),
        ("retry_now(at_most => 0)", "at_most must be between 1 and 10000"),
        ("cancel(at_most => null)", "at_most must be between 1 and 10000"),
        ("prunable(-1)", "older_than_seconds must be"),
        ("cancel(actor => '')", "actor must be 1 to 255 bytes of text"),
        ("redrive(all_dead => true, actor => repeat('a', 256))", "actor must be 1 to 255 bytes of text"),
    ] {
        let error = client.batch_execute(&format!("select outbox.{call}")).await.unwrap_err();
        assert_eq!(sqlstate(&error), "22023", "{call}");
        assert!(error.as_db_error().unwrap().message().contains(words), "{call}: {error:?}");
    }
    assert_eq!(contents(&client, "outbox").await, before);
}

/// A claim that has locked a message keeps it, and so has whoever cancels first: nobody waits, and each delivery ends once.
#[tokio::test]
async fn cancel_against_claim() {
    const CANCEL: &str = "select outbox.cancel()";
    for (ending, cancelled_after) in [("commit", 0), ("rollback", 1)] {
        let (database, client) = fresh().await;
        let id = enqueue(&client, "t", "").await;
        let other = database.connect().await;
        other.batch_execute("set lock_timeout = '1ms'").await.unwrap();
        client.batch_execute("begin").await.unwrap();
        assert_eq!(claim(&client, "w", 1).await.len(), 1);
        assert_eq!(number(&other, CANCEL).await, 0, "a claim is taking it");
        client.batch_execute(ending).await.unwrap();
        assert_eq!(number(&other, CANCEL).await, cancelled_after, "after {ending}");
        assert_eq!(attempts(&client, id).await.len(), usize::from(ending == "rollback"));
    }
    for (ending, claimed_after) in [("commit", 0), ("rollback", 1)] {
        let (database, client) = fresh().await;
        enqueue(&client, "t", "").await;
        let other = database.connect().await;
        client.batch_execute("begin").await.unwrap();
        assert_eq!(number(&client, CANCEL).await, 1);
        assert_eq!(claim(&other, "w", 1).await.len(), 0, "somebody is taking it back");
        client.batch_execute(ending).await.unwrap();
        assert_eq!(claim(&other, "w", 1).await.len(), claimed_after, "after {ending}");
    }
}

/// The head of a lane is being cancelled: nobody gets what stands behind it before that is committed, and then the next
/// becomes the head. A lane in which a lease lives stays in one hand.
#[tokio::test]
async fn a_cancelled_head_passes_the_lane_on() {
    let numbers = |held: &[crate::support::Held]| held.iter().filter_map(|one| one.sequence).collect::<Vec<_>>();
    for (ending, next) in [("commit", vec![2, 3]), ("rollback", vec![1, 2, 3])] {
        let (database, client) = fresh().await;
        let head = enqueue(&client, "t", ", lane => 'a'").await;
        for _ in 0..2 {
            enqueue(&client, "t", ", lane => 'a'").await;
        }
        let other = database.connect().await;
        client.batch_execute("begin").await.unwrap();
        assert_eq!(number(&client, &format!("select outbox.cancel(array['{head}'::uuid])")).await, 1);
        assert_eq!(numbers(&claim(&other, "w", 10).await), Vec::<i64>::new(), "before {ending}");
        client.batch_execute(ending).await.unwrap();
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
    let (database, client) = fresh().await;
    parked_lane(&client).await;
    let other = database.connect().await;
    other.batch_execute("set lock_timeout = '1ms'").await.unwrap();
    client.batch_execute("begin").await.unwrap();
    assert_eq!(number(&client, "select outbox.redrive(all_dead => true)").await, 1);
    assert_eq!(number(&other, "select outbox.cancel(lane => 'a')").await, 1, "the one behind the head");
    client.batch_execute("commit").await.unwrap();
    let next: Vec<_> = claim(&other, "w", 10).await.iter().filter_map(|held| held.sequence).collect();
    assert_eq!(next, [1], "the head was redriven, not cancelled");
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
    client.batch_execute("select outbox.configure_sink('set'), outbox.add_route('routed', 'x')").await.unwrap();
    let report = "select outbox.report('w', '1', 10, '[{\"sink\": \"told\", \"breaker\": \"closed\"}]')";
    client.batch_execute(report).await.unwrap();
    let attempt = "insert into outbox.attempt (message_id, claimed_at, completed_at, attempt_no, state, sink, worker_id) \
                   select message_id, now(), now(), 1, 'FAILED', 'tried', 'w' from outbox.messages";
    client.batch_execute(attempt).await.unwrap();
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
