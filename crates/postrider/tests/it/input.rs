//! Wrong input, of every kind, to every SQL function: the documented SQLSTATE, words that name what is wrong, and not
//! one row written. Then the same through the library's typed errors, and through psql as a service in another
//! language would call it.

use std::time::Duration;

use postrider::operate::Action;
use postrider::{
    ErrorKind, InvalidMessage, MAX_BATCH_MESSAGES, Message, Operate as _, Outbox, PostgresStore, Queue as _, Schema,
};
use postrider_testkit::psql;
use tokio_postgres::Client;
use uuid::Uuid;

use crate::support::{
    Held, claim, claim_expired, complete, contents, enqueue, fresh, mark_delivered, number, run, sqlstate, try_sql,
};

/// A call (after `select … from outbox.`) and words that its error must contain.
type Case = (&'static str, &'static str);

const ENQUEUE: &[Case] = &[
    ("enqueue(null, '1')", "topic must be 1 to 255 bytes"),
    ("enqueue('', '1')", "topic must be 1 to 255 bytes"),
    ("enqueue(repeat('x', 256), '1')", "topic must be 1 to 255 bytes"),
    ("enqueue(repeat('ö', 128), '1')", "topic must be 1 to 255 bytes"),
    ("enqueue('t')", "exactly one"),
    ("enqueue('t', null)", "exactly one"),
    ("enqueue('t', '1', body => 'x')", "exactly one"),
    ("enqueue('t', body => convert_to(repeat('x', 16777217), 'utf8'))", "larger than 16 MiB"),
    ("enqueue('t', to_jsonb(repeat('x', 16777217)))", "larger than 16 MiB"),
    ("enqueue('t', '1', namespace => '')", "namespace must be"),
    ("enqueue('t', '1', namespace => repeat('x', 256))", "namespace must be"),
    ("enqueue('t', '1', lane => '')", "lane must be"),
    ("enqueue('t', '1', lane => repeat('x', 256))", "lane must be"),
    ("enqueue('t', '1', tenant_id => '')", "tenant_id must be"),
    ("enqueue('t', '1', tenant_id => repeat('x', 256), dedupe_key => 'k')", "tenant_id must be"),
    ("enqueue('t', '1', dedupe_key => '')", "dedupe_key must be"),
    ("enqueue('t', '1', dedupe_key => repeat('x', 513))", "dedupe_key must be"),
    ("enqueue('t', '1', lane => 'l', tenant_id => 'TENANT', dedupe_key => 'k')", "does not belong to the tenant"),
    ("enqueue('t', '1', tenant_id => 'TENANT', dedupe_key => 'TENANT')", "does not belong to the tenant"),
    ("enqueue('t', '1', tenant_id => 'TENANT', dedupe_key => 'TENANTx/1')", "does not belong to the tenant"),
    ("enqueue('t', '1', tenant_id => 'TENANT', dedupe_key => '/TENANT/1')", "does not belong to the tenant"),
    (
        "enqueue('t', '1', tenant_id => 'TENANT', dedupe_key => upper('TENANT') || '/1')",
        "does not belong to the tenant",
    ),
    ("enqueue('t', '1', tenant_id => 'tenant-1', dedupe_key => 'tenant1/1')", "does not belong to the tenant"),
    ("enqueue('t', '1', tenant_id => 'tenant-1', dedupe_key => 'tenant-10/1')", "does not belong to the tenant"),
    ("enqueue('t', '1', priority => 101)", "between -100 and 100"),
    ("enqueue('t', '1', priority => -101)", "between -100 and 100"),
    ("enqueue('t', '1', headers => '[]')", "headers must be a JSON object"),
    ("enqueue('t', '1', headers => '\"x\"')", "headers must be a JSON object"),
    ("enqueue('t', '1', headers => 'null')", "headers must be a JSON object"),
    ("enqueue('t', '1', headers => '{\"a\": 1}')", "whose values are strings"),
    ("enqueue('t', '1', headers => '{\"a\": null}')", "whose values are strings"),
    ("enqueue('t', '1', headers => '{\"a\": {\"b\": \"c\"}}')", "whose values are strings"),
    ("enqueue('t', '1', headers => '{\"a\": [\"b\"]}')", "whose values are strings"),
    ("enqueue('t', '1', headers => '{\"a\": []}')", "whose values are strings"),
    ("enqueue('t', '1', headers => jsonb_build_object('h', repeat('x', 65536)))", "larger than 64 KiB"),
    ("enqueue('t', '1', content_type => '')", "content_type must be"),
    ("enqueue('t', '1', content_type => repeat('x', 256))", "content_type must be"),
    ("enqueue('t', '1', due_at => 'infinity')", "must be finite"),
    ("enqueue('t', '1', due_at => '-infinity')", "must be finite"),
    ("enqueue('t', '1', occurred_at => 'infinity')", "must be finite"),
    ("enqueue('t', '1', due_at => '10000-01-01 00:00+00')", "years 1 to 9999"),
    ("enqueue('t', '1', occurred_at => '10000-01-01 00:00+00')", "years 1 to 9999"),
    ("enqueue('t', '1', occurred_at => '0001-12-31 23:59:59+00 BC')", "years 1 to 9999"),
    ("enqueue('t', '1', due_at => now(), delay_seconds => 1)", "not both"),
    ("enqueue('t', '1', delay_seconds => -0.001)", "between 0 and 3155760000"),
    ("enqueue('t', '1', delay_seconds => 'NaN')", "between 0 and 3155760000"),
    ("enqueue('t', '1', delay_seconds => 1e300)", "between 0 and 3155760000"),
    ("enqueue('t', '1', delay_seconds => 3155760000.1)", "between 0 and 3155760000"),
    // A batch names the message; nothing of the batch is written.
    (
        "enqueue_many(array['a', '', 'c'], array['1', '2', '3']::jsonb[], lane => array['l', 'l', 'l'])",
        "message 2 of 3: topic",
    ),
    ("enqueue_many(array['a', null], array['1', '2']::jsonb[])", "message 2 of 2: topic"),
    ("enqueue_many(array['a', 'b'], array['1', null]::jsonb[], dedupe_key => array['k', 'l'])", "message 2 of 2: give"),
    (
        "enqueue_many(array['a', 'b', 'c'], array['1', '2', '3']::jsonb[], priority => array[0, 500, 500])",
        "message 2 of 3: priority",
    ),
    ("enqueue_many(array['a', 'b'], array['1']::jsonb[])", "differ in length"),
    ("enqueue_many(array['a', 'b'], array['1', '2', '3']::jsonb[])", "differ in length"),
    ("enqueue_many(array['a'], array['1']::jsonb[], lane => '{}')", "differ in length"),
    ("enqueue_many(array['a'], array['1']::jsonb[], namespace => array['a', 'b'])", "differ in length"),
    ("enqueue_many(array['a'], array['1']::jsonb[], tenant_id => '{}')", "differ in length"),
    ("enqueue_many(array['a'], array['1']::jsonb[], dedupe_key => '{}')", "differ in length"),
    ("enqueue_many(array['a'], array['1']::jsonb[], priority => '{}')", "differ in length"),
    ("enqueue_many(array['a'], array['1']::jsonb[], headers => '{}')", "differ in length"),
    ("enqueue_many(array['a'], array['1']::jsonb[], due_at => '{}')", "differ in length"),
    ("enqueue_many(array['a'], array['1']::jsonb[], occurred_at => '{}')", "differ in length"),
    ("enqueue_many(array['a'], array['1']::jsonb[], body => '{}')", "differ in length"),
    ("enqueue_many(array['a'], array['1']::jsonb[], content_type => '{}')", "differ in length"),
    ("enqueue_many(array['a'], array['1']::jsonb[], delay_seconds => '{}')", "differ in length"),
    ("enqueue_many(null, array['1']::jsonb[])", "differ in length"),
    ("enqueue_many(array[array['a'], array['b']], array['1', '2']::jsonb[])", "one-dimensional"),
    ("next_sequence(null)", "lane must be"),
    ("next_sequence('')", "lane must be"),
    ("next_sequence(repeat('x', 256))", "lane must be"),
];

/// `ID` and `TOKEN` are a leased message's.
const RELAY: &[Case] = &[
    ("claim(null, 1, 1)", "worker_id must be"),
    ("claim('', 1, 1)", "worker_id must be"),
    ("claim(repeat('x', 256), 1, 1)", "worker_id must be"),
    ("claim('w', null, 1)", "batch_size must be"),
    ("claim('w', 0, 1)", "batch_size must be"),
    ("claim('w', 10001, 1)", "batch_size must be"),
    ("claim('w', 1, null)", "lease_seconds must be"),
    ("claim('w', 1, 0)", "lease_seconds must be"),
    ("claim('w', 1, -1)", "lease_seconds must be"),
    ("claim('w', 1, 'NaN')", "lease_seconds must be"),
    ("claim('w', 1, 1e300)", "lease_seconds must be"),
    ("claim('w', 1, 1, sink => null)", "sink must be"),
    ("claim('w', 1, 1, sink => '')", "sink must be"),
    ("claim('w', 1, 1, sink => repeat('x', 256))", "sink must be"),
    ("claim('w', 1, 1, max_attempts => null)", "max_attempts must be"),
    ("claim('w', 1, 1, max_attempts => 0)", "max_attempts must be"),
    ("claim('w', 1, 1, max_attempts => 1000001)", "max_attempts must be"),
    ("claim('w', 1, 1, lane_run => null)", "lane_run must be"),
    ("claim('w', 1, 1, lane_run => 0)", "lane_run must be"),
    ("claim('w', 1, 1, hop_limit => 0)", "hop_limit must be"),
    ("claim('w', 1, 1, due_from => null)", "due_from must not be null"),
    ("complete('ID', 'TOKEN', null, 'DISPATCHED')", "worker_id must not be null"),
    ("complete('ID', 'TOKEN', 'w', null)", "unknown state"),
    ("complete('ID', 'TOKEN', 'w', '')", "unknown state"),
    ("complete('ID', 'TOKEN', 'w', 'dispatched')", "unknown state"),
    ("complete('ID', 'TOKEN', 'w', 'ZOMBIE_REQUEUE')", "unknown state"),
    ("complete('ID', 'TOKEN', 'w', 'RETRYABLE', -1)", "retry_after_seconds must be"),
    ("complete('ID', 'TOKEN', 'w', 'RETRYABLE', 'NaN')", "retry_after_seconds must be"),
    ("complete('ID', 'TOKEN', 'w', 'RETRYABLE', 1e300)", "retry_after_seconds must be"),
    ("complete('ID', 'TOKEN', 'w', 'DISPATCHED', latency_ms => -1)", "latency_ms must not be negative"),
    ("complete_many('{ID}', '{TOKEN}', '{DISPATCHED,FAILED}')", "differ in length"),
    ("complete_many('{ID}', '{}', '{DISPATCHED}')", "differ in length"),
    ("complete_many('{ID}', null, '{DISPATCHED}')", "differ in length"),
    ("complete_many('{ID}', '{TOKEN}', '{FAILED}', error_code => '{}')", "differ in length"),
    ("complete_many('{ID}', '{TOKEN}', '{FAILED}', latency_ms => '{1,2}')", "differ in length"),
    ("complete_many('{ID,ID}', '{TOKEN,TOKEN}', '{DISPATCHED,LOST}')", "unknown state"),
    ("renew('TOKEN', '{ID}', null)", "lease_seconds must be"),
    ("renew('TOKEN', '{ID}', 0)", "lease_seconds must be"),
    ("renew('TOKEN', '{ID}', 'NaN')", "lease_seconds must be"),
    ("renew('TOKEN', '{ID}', 86400.1)", "lease_seconds must be"),
    ("repair_expired_leases(0)", "batch_size must be"),
    ("repair_expired_leases(null)", "batch_size must be"),
    ("sleep(null, 1)", "worker_id must be"),
    ("sleep('', 1)", "worker_id must be"),
    ("sleep('w', 0)", "seconds must be"),
    ("sleep('w', null)", "seconds must be"),
    ("sleep('w', 'NaN')", "seconds must be"),
    ("report('', '1', 10, '[]')", "worker_id must be"),
    ("report('w', null, 10, '[]')", "version must be"),
    ("report('w', '1', 0, '[]')", "every_seconds must be"),
    ("report('w', '1', 10, '{}')", "sinks must be"),
    ("report('w', '1', 10, null)", "sinks must be"),
    ("make_partitions(-1)", "ahead must be"),
    ("make_partitions(1001)", "ahead must be"),
    ("prune(-1)", "older_than_seconds must be"),
    ("prune('NaN')", "older_than_seconds must be"),
    ("prune(1e300)", "older_than_seconds must be"),
    ("prune(1, 0)", "batch_size must be"),
    ("prune(1, null)", "batch_size must be"),
];

const CONTROL: &[Case] = &[
    ("redrive()", "exactly one"),
    ("redrive(null, null)", "exactly one"),
    ("redrive('{ID}', true)", "exactly one"),
    ("discard(null)", "must not be null"),
    ("unclaim_stuck(null)", "older_than_seconds must be"),
    ("unclaim_stuck(-1)", "older_than_seconds must be"),
    ("unclaim_stuck('NaN')", "older_than_seconds must be"),
    ("unclaim_stuck(1, live => null)", "live must be true or false"),
    ("retry_now(at_most => null)", "at_most must be"),
    ("retry_now(at_most => 0)", "at_most must be"),
    ("retry_now(at_most => 10001)", "at_most must be"),
    ("apply_routes(at_most => 0)", "at_most must be"),
    ("apply_routes(at_most => 10001)", "at_most must be"),
    ("apply_routes(dry_run => null)", "dry_run must be"),
    ("replay()", "name message_ids"),
    ("replay('{ID}', null)", "sink must be"),
    ("replay('{ID}', '')", "sink must be"),
    ("replay('{ID}', repeat('x', 256))", "sink must be"),
    ("replay('{ID}', 's', now(), now())", "name message_ids"),
    ("replay('{ID}', 's', now())", "name message_ids"),
    ("replay(null, 's', now())", "name message_ids"),
    ("configure_sink(null)", "sink must be"),
    ("configure_sink('')", "sink must be"),
    ("configure_sink('s', on_dead => 'explode')", "on_dead must be"),
    ("add_route(null)", "must each be"),
    ("add_route('')", "must each be"),
    ("add_route('s', '')", "must each be"),
    ("add_route('s', null)", "must each be"),
    ("add_route('s', '*', repeat('x', 256))", "must each be"),
    ("redrive_matching(at_most => 0)", "at_most must be between 1 and 10000"),
    ("discard_matching(at_most => 10001)", "at_most must be between 1 and 10000"),
    ("redrive_matching(at_most => null)", "at_most must be between 1 and 10000"),
    ("skip('', 'a')", "sink and lane must each be 1 to 255 bytes of text"),
    ("skip('s', null)", "sink and lane must each be 1 to 255 bytes of text"),
    ("replay_batch(sink => 's')", "name message_ids, or enqueued_from and enqueued_to"),
    ("replay_batch('{}', at_most => 0)", "at_most must be between 1 and 10000"),
    ("replay_batch('{}', per_second => 0)", "per_second must be between 1 and 1000000"),
    ("replay_batch('{}', include_never_delivered => null)", "include_never_delivered must be true or false"),
    ("cancel(at_most => null)", "at_most must be between 1 and 10000"),
    ("prunable(-1)", "older_than_seconds must be"),
    ("cancel(actor => '')", "actor must be 1 to 255 bytes of text"),
    ("redrive(all_dead => true, actor => repeat('a', 256))", "actor must be 1 to 255 bytes of text"),
    ("find_messages(page_size => 0)", "page_size must be"),
    ("find_messages(look_at => 0)", "look_at must be"),
    ("find_messages(look_at => null)", "look_at must be"),
    ("find_messages(state => 'gone')", "state must be"),
    ("find_ids('708')", "id_tail must be"),
    ("find_ids('customer')", "id_tail must be"),
    ("find_ids(null)", "id_tail must be"),
    ("find_ids('%9708')", "id_tail must be"),
    ("find_ids('9708', page_size => 0)", "page_size must be"),
    ("find_ids('9708', look_at => null)", "look_at must be"),
    ("find_keys('')", "dedupe_key must not be empty"),
    ("find_keys(null)", "dedupe_key must not be empty"),
    ("find_keys('k', most_topics => 0)", "most_topics must be"),
];

const RECEIVER: &[Case] = &[
    ("receive(null)", "event_id must not be null"),
    ("receive(gen_random_uuid(), lane => 'a')", "lane and sequence_id belong together"),
    ("receive(gen_random_uuid(), sequence_id => 1)", "lane and sequence_id belong together"),
    ("receive(gen_random_uuid(), lane => '', sequence_id => 1)", "lane must be"),
    ("receive(gen_random_uuid(), lane => 'a', sequence_id => 0)", "sequence_id must be at least 1"),
    ("receive(gen_random_uuid(), source => repeat('x', 256))", "source must be"),
    ("receive(gen_random_uuid(), tenant_id => '')", "tenant_id must be"),
    ("receive(gen_random_uuid(), tenant_id => repeat('x', 256))", "tenant_id must be"),
    ("receive_many(array[[gen_random_uuid()]])", "one-dimensional"),
    ("receive_many(array[gen_random_uuid()], source => '{}')", "differ in length"),
    ("receive_many(array[gen_random_uuid(), null])", "event 2 of 2: event_id must not be null"),
    ("prune_inbox(-1)", "older_than_seconds must be"),
    ("prune_inbox(batch_size => 0)", "batch_size must be"),
];

/// A queue in which every table has a row, and a message leased to `w`.
async fn furnished(client: &Client) -> Held {
    run(client, "select outbox.configure_sink('x', paused => true); select outbox.add_route('x', 'x*')").await;
    for arguments in ["", ", lane => 'a', dedupe_key => 'k'", ""] {
        enqueue(client, "t", arguments).await;
    }
    let held = claim(client, "w", 2).await;
    complete(client, "w", &held[1], "FAILED").await.unwrap();
    held[0].clone()
}

async fn assert_all_refused(cases: &[Case]) {
    let (_database, client) = fresh().await;
    let held = furnished(&client).await;
    let before = contents(&client, "outbox").await;
    for (call, words) in cases {
        let call = call.replace("TENANT", "00000000-0000-0000-0000-00000000000a");
        let call = call.replace("ID", &held.id.to_string()).replace("TOKEN", &held.token.to_string());
        let error = match client.batch_execute(&format!("select * from outbox.{call}")).await {
            Ok(()) => panic!("{call} was accepted"),
            Err(error) => error,
        };
        assert_eq!(sqlstate(&error), "22023", "{call}: {error:?}");
        let message = error.as_db_error().unwrap().message();
        assert!(message.contains(words), "{call} says {message:?}, not {words:?}");
        assert_eq!(contents(&client, "outbox").await, before, "{call}");
    }
}

/// Proves M2, M4, P6: a producer's wrong input is refused with 22023 and writes nothing.
#[tokio::test]
async fn a_producers_wrong_input_is_refused() {
    assert_all_refused(ENQUEUE).await;
}

/// Proves L2, L3: a worker's wrong input is refused with 22023 and changes nothing.
#[tokio::test]
async fn a_relays_wrong_input_is_refused() {
    assert_all_refused(RELAY).await;
}

#[tokio::test]
async fn an_operators_wrong_input_is_refused() {
    assert_all_refused(CONTROL).await;
}

#[tokio::test]
async fn a_receivers_wrong_input_is_refused() {
    assert_all_refused(RECEIVER).await;
}

/// Times at the edge of the world are times: an operator may say "since ever" and "for ever".
#[tokio::test]
async fn endless_ranges_are_accepted() {
    let (_database, client) = fresh().await;
    enqueue(&client, "t", "").await;
    let held = claim(&client, "w", 1).await;
    complete(&client, "w", &held[0], "DISPATCHED").await.unwrap();
    for (from, to, count) in [
        ("-infinity", "infinity", 1),
        ("1900-01-01", "tomorrow", 1),
        ("1900-01-01", "1901-01-01", 0),
        ("tomorrow", "infinity", 0),
        ("200000-01-01", "infinity", 0),
    ] {
        run(&client, "begin").await;
        let sql = format!("select outbox.replay(null, 'default', '{from}', '{to}')");
        assert_eq!(number(&client, &sql).await, count, "{from} to {to}");
        run(&client, "rollback").await;
    }
}

/// Proves L3: whoever does not hold the lease gets P7002, is told so, and changes nothing.
#[tokio::test]
async fn a_lost_lease_is_p7002() {
    let (_database, client) = fresh().await;
    let held = furnished(&client).await;
    let ended = claim_expired(&client, "w", 1).await.remove(0);
    let before = contents(&client, "outbox").await;
    let other = |change: fn(&mut Held)| {
        let mut other = held.clone();
        change(&mut other);
        other
    };
    assert_eq!(mark_delivered(&client, std::slice::from_ref(&ended)).await, 0);
    let cases = [
        ("another token", "w", other(|held| held.token = Uuid::from_u128(1))),
        ("another worker", "v", held.clone()),
        ("no worker", "", held.clone()),
        ("an unknown message", "w", other(|held| held.id = Uuid::from_u128(1))),
        ("an ended lease", "w", ended),
    ];
    for (what, worker, held) in &cases {
        for state in ["DISPATCHED", "RETRYABLE", "FAILED"] {
            let error = complete(&client, worker, held, state).await.expect_err(what);
            assert_eq!(sqlstate(&error), "P7002", "{what}, {state}");
            let db = error.as_db_error().unwrap();
            assert_eq!(db.message(), "LEASE_LOST");
            assert!(db.detail().unwrap().contains(&held.id.to_string()), "{db:?}");
            assert!(db.hint().is_some());
        }
    }
    let no_token = format!("select outbox.complete('{}', null, 'w', 'FAILED')", held.id);
    assert_eq!(try_sql(&client, &no_token).await, "P7002");
    for nothing in
        ["mark_delivered(null, null)", "mark_delivered(gen_random_uuid(), '{}')", "mark_delivered(null, '{null}')"]
    {
        assert_eq!(number(&client, &format!("select outbox.{nothing}")).await, 0, "{nothing}");
    }
    assert_eq!(contents(&client, "outbox").await, before);
}

/// Proves M4: the library refuses before the database is asked, and names the message of a batch.
#[tokio::test]
async fn the_library_refuses_with_typed_errors() {
    let (database, mut client) = fresh().await;
    let outbox = Outbox::default();
    let good = Message::json("t", &1).unwrap();
    let tx = client.transaction().await.unwrap();
    let nul = [
        (Message::json("a\0", &1).unwrap(), "topic"),
        (good.clone().namespace("\0"), "namespace"),
        (good.clone().lane("a\0"), "lane"),
        (good.clone().dedupe_key("a\0"), "dedupe_key"),
        (good.clone().content_type("a\0"), "content_type"),
        (good.clone().header("a", "\0"), "header"),
        (Message::json("t", "a\0b").unwrap(), "payload"),
    ];
    for (message, named) in nul {
        let error = outbox.enqueue(&tx, &message).await.unwrap_err();
        assert_eq!(error.invalid_message(), Some(&InvalidMessage::Nul { field: named }), "{error:?}");
    }
    let batch = [good.clone(), good.clone(), good.clone().lane("")];
    let error = outbox.enqueue_many(&tx, &batch).await.unwrap_err();
    assert_eq!(
        (error.batch_index(), error.invalid_message()),
        (Some(2), Some(&InvalidMessage::Empty { field: "lane" })),
        "{error:?}"
    );
    let error = outbox.enqueue_many(&tx, &vec![good.clone(); MAX_BATCH_MESSAGES + 1]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BatchTooLarge, "{error:?}");
    assert!(error.to_string().contains("10001") && error.to_string().contains("10000"), "{error}");
    assert_eq!(outbox.enqueue_many(&tx, &[]).await.unwrap(), []);
    // What only the database can know is its typed refusal, with its hint: these few numbers have millions of digits.
    let numbers = serde_json::value::RawValue::from_string(format!("[{}1]", "1e131071,".repeat(200))).unwrap();
    let wide = Message::json("t", &numbers).unwrap();
    let error = outbox.enqueue(&tx, &wide).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error:?}");
    assert!(error.hint().is_some() && error.reason().is_some_and(|reason| reason.contains("16 MiB")), "{error:?}");
    tx.rollback().await.unwrap();

    let store = PostgresStore::connect(&database.url(), Schema::default()).await.unwrap();
    let error = store.claim(&postrider::lifecycle::Claim::new("")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error:?}");
    assert!(error.reason().is_some_and(|reason| reason.contains("worker_id")), "{error:?}");
    let error = store.operate("ann", &Action::Prune { older_than: Some(Duration::MAX) }).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error:?}");
    assert_eq!(number(&client, "select count(*) from outbox.message").await, 0);
}

/// Proves M1: the SQL function is the interface of every language, psql's included.
#[tokio::test]
async fn psql_enqueues_and_rolls_back() {
    let (database, client) = fresh().await;
    let before = contents(&client, "outbox").await;
    let call = "select * from outbox.enqueue(topic => 'order.placed', payload => '{\"id\":1}');";
    let output = psql(
        &database,
        &format!("begin; {call} {} rollback;", call.replace(");", ", lane => 'a', dedupe_key => 'k');")),
    )
    .await;
    assert!(output.status.success(), "{}", output.stderr);
    assert_eq!(contents(&client, "outbox").await, before);
    let output = psql(&database, call).await;
    let columns: Vec<&str> = output.stdout.trim().split('|').collect();
    let [id, "", "t"] = columns.as_slice() else { panic!("{output:?}") };
    let sql = format!("select count(*) from outbox.message where id = '{id}' and payload = '{{\"id\": 1}}'");
    assert_eq!(number(&client, &sql).await, 1);
    let output = psql(&database, "select * from outbox.enqueue(topic => '', payload => '1');").await;
    assert!(!output.status.success() && output.stderr.contains("topic must be"), "{output:?}");
    assert!(output.stderr.contains("HINT"), "{output:?}");
}
