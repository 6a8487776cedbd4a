//! The same promises behind a pooler in transaction mode, whose two server connections forty tasks share: every task
//! must get the answers to its own questions, and every message is delivered once. A prepared statement, a session
//! setting or a session lock that leaked from one task to another would show here.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::join_all;
use postrider::lifecycle::{Claim, Completion, Failure, Outcome};
use postrider::{Inspect as _, Message, Outbox, PostgresStore, Queue as _, Schema};
use postrider_testkit::PgBouncer;
use sqlx::{Connection, PgConnection};
use tokio_postgres::NoTls;
use uuid::Uuid;

use crate::support::{fresh, number, run, texts};

const PRODUCERS: usize = 20;
const RELAYS: usize = 20;
const TRANSACTIONS: usize = 10;
const PER_TRANSACTION: usize = 4;

/// Enqueues in transactions, every fourth of them rolled back, by one driver or the other. Returns what was committed.
async fn produce(url: String, producer: usize) -> Vec<(Uuid, String)> {
    let (outbox, in_lane) = (Outbox::default(), producer.is_multiple_of(2));
    let mut committed = Vec::new();
    let mut sqlx = PgConnection::connect(&url).await.unwrap();
    let (mut client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
    let driving = tokio::spawn(connection);
    for nth in 0..TRANSACTIONS {
        let topic = |n: usize| format!("topic-{producer}-{nth}-{n}");
        let messages: Vec<Message> = (0..PER_TRANSACTION)
            .map(|n| Message::json(topic(n), &topic(n)).unwrap().dedupe_key(topic(n)))
            .map(|message| if in_lane { message.lane(format!("lane-{producer}")) } else { message })
            .collect();
        let roll_back = nth % 4 == 3;
        let rows = if nth % 2 == 0 {
            let tx = client.transaction().await.unwrap();
            let rows = outbox.enqueue_many(&tx, &messages).await.unwrap();
            let end = if roll_back { tx.rollback().await } else { tx.commit().await };
            end.unwrap();
            rows
        } else {
            let mut tx = sqlx.begin().await.unwrap();
            let mut rows = outbox.enqueue_many(&mut tx, &messages[1..]).await.unwrap();
            rows.insert(0, outbox.enqueue(&mut tx, &messages[0]).await.unwrap());
            let end = if roll_back { tx.rollback().await } else { tx.commit().await };
            end.unwrap();
            rows
        };
        assert_eq!(rows.len(), PER_TRANSACTION);
        assert!(rows.iter().all(|row| row.created), "{rows:?}");
        assert!(rows.iter().all(|row| row.sequence_id.is_some() == in_lane), "{rows:?}");
        if !roll_back {
            committed.extend(rows.iter().enumerate().map(|(n, row)| (row.message_id, topic(n))));
        }
    }
    drop(client);
    driving.await.unwrap().unwrap();
    committed
}

/// Claims, renews, hands back a part, lets a part fail once, and completes the rest, until everything is delivered.
async fn relay(url: String, relay: usize, expected: usize) -> Vec<(Uuid, String)> {
    let store = PostgresStore::connect(&url, Schema::default()).await.unwrap();
    let worker = format!("relay-{relay}");
    let mut delivered = Vec::new();
    let claim = Claim::new(&worker).batch_size(7);
    loop {
        let held = store.claim(&claim).await.unwrap();
        let Some(first) = held.first() else {
            let status = store.status().await.unwrap();
            let recorded: i64 = status.iter().map(|sink| sink.recent.dispatched).sum();
            if usize::try_from(recorded).unwrap() >= expected {
                return delivered;
            }
            continue;
        };
        assert!(held.iter().all(|one| one.lease_token == first.lease_token), "one claim, one token");
        let ids: Vec<Uuid> = held.iter().map(|one| one.message_id).collect();
        let mut renewed = store.renew(first.lease_token, &ids, Duration::from_mins(3)).await.unwrap();
        renewed.sort();
        let mut sorted = ids.clone();
        sorted.sort();
        assert_eq!(renewed, sorted, "what is held is renewed");
        // The last of a batch goes back, as at a shutdown; a first attempt of a third of the others fails.
        let keep = if held.len() > 3 { held.len() - 1 } else { held.len() };
        let released = store.release(first.lease_token, &ids[keep..]).await.unwrap();
        assert_eq!(released, ids[keep..]);
        let fails = |at: usize| at % 3 == 2 && held[at].attempt_no == 1 && held[at].lane.is_none();
        let completions: Vec<Completion> = (0..keep)
            .map(|at| {
                let failure = Failure::new("BUSY", &worker);
                if fails(at) {
                    Outcome::Retryable { retry_after: Duration::ZERO, failure }
                } else {
                    Outcome::Dispatched
                }
            })
            .zip(&held)
            .map(|(outcome, one)| Completion::new(one, outcome))
            .collect();
        let completed = store.complete(&worker, &completions).await.unwrap();
        let answered: BTreeMap<Uuid, i32> = completed.iter().map(|one| (one.message_id, one.attempt_no)).collect();
        let asked: BTreeMap<Uuid, i32> = held[..keep].iter().map(|one| (one.message_id, one.attempt_no)).collect();
        assert_eq!(answered, asked, "an answer for each outcome, and for no other");
        delivered.extend((0..keep).filter(|at| !fails(*at)).map(|at| (held[at].message_id, held[at].topic.clone())));
    }
}

/// Proves E2, H1, H2, M1: forty tasks over two server connections, and every answer is right.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forty_tasks_share_two_server_connections() {
    let (database, client) = fresh().await;
    let pooler = PgBouncer::start(&database).await;
    let committed_each = TRANSACTIONS - TRANSACTIONS / 4;
    let expected = PRODUCERS * committed_each * PER_TRANSACTION;
    let producers: Vec<_> = (0..PRODUCERS).map(|n| tokio::spawn(produce(pooler.url(), n))).collect();
    let relays: Vec<_> = (0..RELAYS).map(|n| tokio::spawn(relay(pooler.url(), n, expected))).collect();
    let mut said: Vec<(Uuid, String)> = join_all(producers).await.into_iter().flat_map(Result::unwrap).collect();
    let mut heard: Vec<(Uuid, String)> = join_all(relays).await.into_iter().flat_map(Result::unwrap).collect();
    said.sort();
    heard.sort();
    assert_eq!(said.len(), expected);
    assert_eq!(heard, said, "each message once, under its own id and topic");

    assert_eq!(number(&client, "select count(*) from outbox.delivery").await, 0);
    assert_eq!(number(&client, "select count(*) from outbox.dead_letter").await, 0);
    let twice =
        "select message_id::text from outbox.attempt where state = 'DISPATCHED' group by 1 having count(*) <> 1";
    assert_eq!(texts(&client, twice).await, Vec::<String>::new());
    let wrong = "select count(*) from outbox.attempt where state in ('FAILED', 'ZOMBIE_REQUEUE') \
                 or (state = 'RETRYABLE') <> (error_code is not null) or (error_message <> worker_id)";
    assert_eq!(number(&client, wrong).await, 0, "each outcome is its own worker's");
    let holes = "select lane from outbox.message where lane is not null group by lane \
                 having max(sequence_id) <> count(*) or count(distinct sequence_id) <> count(*)";
    assert_eq!(texts(&client, holes).await, Vec::<String>::new());
    let connections =
        "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()";
    assert!(number(&client, connections).await <= 2, "the pooler really pooled");
}

/// A question that takes too long is ended by the server, behind a pooler as without one; both serve the next question.
#[tokio::test]
async fn slow_a_question_ends_by_itself() {
    let (database, client) = fresh().await;
    let pooler = PgBouncer::start(&database).await;
    let keeper = database.connect().await;
    run(&keeper, "begin; lock table outbox.delivery in access exclusive mode").await;
    let asked: Vec<_> = join_all([database.url(), pooler.url()].map(async |url| {
        let store = PostgresStore::connect(&url, Schema::default()).await.unwrap();
        let given_up = tokio::time::timeout(Duration::from_secs(1), store.status()).await;
        assert!(given_up.is_err(), "the table is locked");
        store
    }))
    .await;
    let waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'";
    assert_eq!(number(&client, waiting).await, 2, "nobody waits for them, and the server does not know");
    let gone = async {
        while number(&client, waiting).await > 0 {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(Duration::from_mins(1), gone).await.expect("they wait on, for nobody");
    run(&keeper, "rollback").await;
    for store in asked {
        store.status().await.unwrap();
    }
}
