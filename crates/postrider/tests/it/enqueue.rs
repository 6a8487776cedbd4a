//! What a producer is promised: the message and the business row commit together or not at all, whatever the driver; a
//! dedupe key stands for one message for ever; a lane is numbered without a hole; what was said is what is delivered,
//! to every sink its topic is routed to, when it is due by the database's clock.

use std::time::{Duration, SystemTime};

use futures_util::future::join_all;
use postrider::{
    Claim, Content, Enqueued, Error, MAX_BATCH_MESSAGES, Message, Outbox, PostgresStore, Queue as _, Schema,
};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use sqlx::{Connection, PgConnection};
use tokio_postgres::Client;
use uuid::Uuid;

use crate::support::{
    attempts, claim, claim_expired, claim_with, complete, contents, enqueue, fresh, mark_delivered, number, texts,
};

fn message(topic: &str) -> Message {
    Message::json(topic, &serde_json::json!({"id": 7})).unwrap()
}

/// Orders and messages that are there.
async fn counts(client: &Client) -> (i64, i64) {
    (number(client, "select count(*) from orders").await, number(client, "select count(*) from outbox.message").await)
}

/// Proves M1: tokio-postgres. Commit both, roll back both; a transaction that is dropped is rolled back.
#[tokio::test]
async fn a_tokio_postgres_transaction_commits_both_or_neither() {
    let (_database, mut client) = fresh().await;
    client.batch_execute("create table orders (id serial primary key)").await.unwrap();
    for (nth, end) in [(0, "rollback"), (0, "drop"), (1, "commit")] {
        let tx = client.transaction().await.unwrap();
        tx.execute("insert into orders default values", &[]).await.unwrap();
        assert!(Outbox::default().enqueue(&tx, &message("order.placed").lane("a")).await.unwrap().created);
        match end {
            "commit" => tx.commit().await.unwrap(),
            "rollback" => tx.rollback().await.unwrap(),
            _ => drop(tx),
        }
        assert_eq!(counts(&client).await, (nth, nth), "{end}");
    }
}

/// Proves M1: sqlx, with its transaction and with a bare connection in one.
#[tokio::test]
async fn a_sqlx_transaction_commits_both_or_neither() {
    let (database, client) = fresh().await;
    client.batch_execute("create table orders (id serial primary key)").await.unwrap();
    let outbox = Outbox::default();
    let mut connection = PgConnection::connect(&database.url()).await.unwrap();
    for (nth, commit) in [(1, true), (1, false), (2, true)] {
        let mut tx = connection.begin().await.unwrap();
        sqlx::query("insert into orders default values").execute(&mut *tx).await.unwrap();
        outbox.enqueue(&mut tx, &message("order.placed")).await.unwrap();
        let end = if commit { tx.commit().await } else { tx.rollback().await };
        end.unwrap();
        assert_eq!(counts(&client).await, (nth, nth), "commit: {commit}");
    }
    for (nth, end) in [(3, "commit"), (3, "rollback")] {
        sqlx::query("begin").execute(&mut connection).await.unwrap();
        sqlx::query("insert into orders default values").execute(&mut connection).await.unwrap();
        let batch = [message("order.placed")];
        assert_eq!(outbox.enqueue_many(&mut connection, &batch).await.unwrap().len(), 1);
        sqlx::query(end).execute(&mut connection).await.unwrap();
        assert_eq!(counts(&client).await, (nth, nth), "{end}");
    }
    // What the database refuses is typed here too, hint included.
    let wide = Message::json("t", &vec![1_u8; 6_000_000]).unwrap();
    let error = outbox.enqueue(&mut connection, &wide).await.unwrap_err();
    assert!(matches!(&error, Error::Refused { hint: Some(_), .. }), "{error:?}");
}

/// Proves M2: namespace and topic address a message, the tenant is optional, and the relay gets back what was said.
#[tokio::test]
async fn what_was_said_is_what_is_claimed() {
    let (database, mut client) = fresh().await;
    let tenant = Uuid::from_u128(7);
    let said = serde_json::json!({"text": "Grüße \u{1F40E} \\u0000 \"'", "big": 123_456_789_012_345_678_u64, "none": null, "list": [1.5, []]});
    let bytes: Vec<u8> = (0..=255).cycle().take(70_000).collect();
    let occurred = SystemTime::UNIX_EPOCH + Duration::from_micros(1_700_000_000_123_456);
    let messages = [
        Message::json("json", &said).unwrap().header("trace", "00-ü").header("b", ""),
        Message::bytes("bytes", bytes.clone(), "application/x-thing").namespace("billing").tenant(tenant),
        Message::bytes("empty", Vec::new(), "x/y").priority(-100).dedupe_key("k"),
        Message::json("null", &()).unwrap().occurred_at(occurred).lane("a").priority(100),
    ];
    let tx = client.transaction().await.unwrap();
    let enqueued = Outbox::default().enqueue_many(&tx, &messages).await.unwrap();
    tx.commit().await.unwrap();
    let store = PostgresStore::connect(&database.url(), Schema::default()).await.unwrap();
    let claimed = store.claim(&Claim::new("w")).await.unwrap();
    let find = |topic: &str| claimed.iter().find(|one| one.topic == topic).unwrap();
    for (at, topic) in ["json", "bytes", "empty", "null"].iter().enumerate() {
        assert_eq!(find(topic).message_id, enqueued[at].message_id);
        assert_eq!(find(topic).sequence_id, enqueued[at].sequence_id);
    }
    let expected =
        [("json", Ok(said)), ("null", Ok(serde_json::Value::Null)), ("bytes", Err(bytes)), ("empty", Err(vec![]))];
    for (topic, expected) in expected {
        let found = match &find(topic).content {
            Content::Json(raw) => Ok(serde_json::from_str::<serde_json::Value>(raw.get()).unwrap()),
            Content::Bytes(bytes) => Err(bytes.clone()),
        };
        assert_eq!(found, expected, "{topic}");
    }
    let headers: Vec<_> = find("json").headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(headers, [("b", ""), ("trace", "00-ü")]);
    let bytes = find("bytes");
    assert_eq!((bytes.namespace.as_str(), bytes.tenant_id), ("billing", Some(tenant)));
    assert_eq!(bytes.content_type.as_deref(), Some("application/x-thing"));
    assert_eq!((find("json").namespace.as_str(), find("json").tenant_id), ("default", None));
    assert_eq!((find("empty").priority, find("empty").dedupe_key.as_deref()), (-100, Some("k")));
    assert_eq!((find("null").occurred_at, find("null").lane.as_deref()), (occurred, Some("a")));
}

/// Proves M3, P6: a known key answers with the first id and number and writes nothing, whatever became of the message.
#[tokio::test]
async fn a_known_key_returns_the_first_message() {
    let (_database, client) = fresh().await;
    let sql = "select message_id, sequence_id, created from outbox.enqueue('t', '1', lane => 'a', dedupe_key => 'k')";
    let first = client.query_one(sql, &[]).await.unwrap();
    assert!(first.get::<_, bool>(2));
    let again = async |when: &str| {
        let before = contents(&client, "outbox").await;
        let row = client.query_one(sql, &[]).await.unwrap();
        let (id, sequence, created): (Uuid, Option<i64>, bool) = (row.get(0), row.get(1), row.get(2));
        assert_eq!((id, sequence, created), (first.get(0), Some(1), false), "{when}");
        assert_eq!(contents(&client, "outbox").await, before, "{when}");
    };
    again("pending").await;
    let held = claim(&client, "w", 1).await;
    again("leased").await;
    complete(&client, "w", &held[0], "FAILED").await.unwrap();
    again("dead").await;
    number(&client, "select outbox.redrive(all_dead => true)").await;
    mark_delivered(&client, &claim(&client, "w", 1).await).await;
    again("delivered").await;
    // The key belongs to its namespace and topic; its lane goes on with the next number.
    for other in
        ["'u', '1', dedupe_key => 'k'", "'t', '1', dedupe_key => 'k', namespace => 'n'", "'t', '1', dedupe_key => 'K'"]
    {
        let sql = format!("select created::int from outbox.enqueue({other}, lane => 'a')");
        assert_eq!(number(&client, &sql).await, 1, "{other}");
    }
    assert_eq!(number(&client, "select last_sequence from outbox.lane_sequence").await, 4);
}

/// Proves M3, P1, P6: a batch answers row by row, in input order: lanes, known keys, and keys that repeat inside it.
#[tokio::test]
async fn a_mixed_batch_answers_in_input_order() {
    let (_database, mut client) = fresh().await;
    let known = enqueue(&client, "t", ", lane => 'b', dedupe_key => 'known'").await;
    let keyed = |lane: Option<&str>, key: Option<&str>| {
        let message = lane.into_iter().fold(message("t"), |message: Message, lane| message.lane(lane));
        key.into_iter().fold(message, |message: Message, key| message.dedupe_key(key))
    };
    let batch = ["b z", "- -", "a -", "b known", "b z", "- y", "b -", "a x", "- y"].map(|lane_and_key| {
        let mut words = lane_and_key.split(' ').map(|word| (word != "-").then_some(word));
        keyed(words.next().flatten(), words.next().flatten())
    });
    let tx = client.transaction().await.unwrap();
    let rows = Outbox::default().enqueue_many(&tx, &batch).await.unwrap();
    tx.commit().await.unwrap();
    let answers: Vec<_> = rows.iter().map(|row| (row.sequence_id, row.created)).collect();
    let (new, old) = (true, false);
    assert_eq!(
        answers,
        [
            (Some(2), new),
            (None, new),
            (Some(1), new),
            (Some(1), old),
            (Some(2), old),
            (None, new),
            (Some(3), new),
            (Some(2), new),
            (None, old)
        ]
    );
    assert_eq!(
        (rows[3].message_id, rows[4].message_id, rows[8].message_id),
        (known, rows[0].message_id, rows[5].message_id)
    );
    assert_eq!(number(&client, "select count(*) from outbox.message").await, 7);
    let before = contents(&client, "outbox").await;
    let tx = client.transaction().await.unwrap();
    let repeat: Vec<Message> = [0, 3, 4, 5, 7].iter().map(|at: &usize| batch[*at].clone()).collect();
    let again = Outbox::default().enqueue_many(&tx, &repeat).await.unwrap();
    tx.commit().await.unwrap();
    assert!(again.iter().all(|row| !row.created));
    assert_eq!(contents(&client, "outbox").await, before);
}

/// Proves M4 in SQL: both spellings of the tenant id, in lower case, followed by "/"; nothing else.
#[tokio::test]
async fn a_dedupe_key_belongs_to_its_tenant() {
    let (_database, client) = fresh().await;
    let tenant = Uuid::from_u128(0xabcd_ef01);
    let enqueue = async |key: &str| {
        let sql = "select created from outbox.enqueue('t', '1', tenant_id => $1, dedupe_key => $2)";
        client.query_one(sql, &[&tenant, &key]).await.map(|row| row.get::<_, bool>(0))
    };
    for good in [format!("{tenant}/1"), format!("{}/1", tenant.simple()), format!("{tenant}/")] {
        assert!(enqueue(&good).await.unwrap(), "{good}");
    }
    let upper = tenant.to_string().to_uppercase();
    for bad in
        ["1".to_owned(), tenant.to_string(), format!("{tenant}x/1"), format!("{upper}/1"), format!("/{tenant}/1")]
    {
        assert!(enqueue(&bad).await.is_err(), "{bad}");
    }
    assert_eq!(number(&client, "select count(*) from outbox.dedupe").await, 3);
}

/// Proves P1: numbers are 1..n without a hole, whatever was rolled back, by whole transactions and by savepoints.
#[tokio::test]
async fn a_lane_has_no_hole_after_rollbacks() {
    let (database, client) = fresh().await;
    let mut producers = Vec::new();
    for seed in 1..=4 {
        producers.push((database.connect().await, StdRng::seed_from_u64(seed)));
    }
    let committed: i64 = join_all(producers.iter_mut().map(async |(client, rng)| {
        let mut committed = 0;
        for _ in 0..50 {
            let lanes: Vec<String> =
                (0..rng.random_range(1..=3)).map(|_| format!("lane-{}", rng.random_range(0..3))).collect();
            let messages: Vec<Message> = lanes.iter().map(|lane| message("t").lane(lane)).collect();
            let (commit, savepoint) = (rng.random_bool(0.5), rng.random_bool(0.3));
            let tx = client.transaction().await.unwrap();
            if savepoint {
                tx.batch_execute("savepoint s").await.unwrap();
                Outbox::default().enqueue_many(&tx, &messages).await.unwrap();
                tx.batch_execute("rollback to s").await.unwrap();
            }
            Outbox::default().enqueue_many(&tx, &messages).await.unwrap();
            if commit {
                tx.commit().await.unwrap();
                committed += i64::try_from(messages.len()).unwrap();
            } else {
                tx.rollback().await.unwrap();
            }
        }
        committed
    }))
    .await
    .iter()
    .sum();
    assert_eq!(number(&client, "select count(*) from outbox.message").await, committed);
    let holes = "select m.lane from outbox.message m join outbox.lane_sequence s using (lane) group by m.lane, s.last_sequence \
                 having (min(m.sequence_id), max(m.sequence_id), count(distinct m.sequence_id), count(*)) \
                 <> (1, s.last_sequence, s.last_sequence, s.last_sequence)";
    assert_eq!(texts(&client, holes).await, Vec::<String>::new());
    assert_eq!(number(&client, "select count(distinct lane) from outbox.message").await, 3);
    let twice = "insert into outbox.delivery (message_id, due_at, priority, size_bytes, sequence_id, sink, lane) select \
                 gen_random_uuid(), due_at, 0, 1, sequence_id, sink, lane from outbox.delivery limit 1";
    assert_eq!(crate::support::try_sql(&client, twice).await, "23505", "a number is taken once");
}

/// Proves P2: retry, expiry, redrive and replay keep the id and the number.
#[tokio::test]
async fn id_and_sequence_are_kept_for_ever() {
    let (_database, client) = fresh().await;
    enqueue(&client, "t", ", lane => 'a'").await;
    let id = enqueue(&client, "t", ", lane => 'b'").await;
    client
        .batch_execute("delete from outbox.delivery where lane = 'a'; select outbox.next_sequence('b')")
        .await
        .unwrap();
    let same = (id, Some(1));
    for (attempt_no, end) in (1..).zip(["RETRYABLE", "expires", "FAILED", "DISPATCHED", "DISPATCHED"]) {
        let held = if end == "expires" { claim_expired(&client, "w", 1).await } else { claim(&client, "w", 1).await };
        assert_eq!((held[0].id, held[0].sequence), same, "{end}");
        assert_eq!(held[0].attempt_no, attempt_no);
        if end == "expires" {
            continue;
        }
        complete(&client, "w", &held[0], end).await.unwrap();
        let back = match end {
            "FAILED" => "select outbox.redrive(all_dead => true)".to_owned(),
            "DISPATCHED" => format!("select outbox.replay(array['{id}']::uuid[])"),
            _ => "select 1".to_owned(),
        };
        assert_eq!(number(&client, &back).await, 1, "{back}");
    }
    assert_eq!(
        attempts(&client, id).await,
        ["1 RETRYABLE", "2 ZOMBIE_REQUEUE", "3 FAILED", "4 DISPATCHED", "5 DISPATCHED"]
    );
    assert_eq!(number(&client, "select last_sequence from outbox.lane_sequence where lane = 'b'").await, 2);
}

/// The largest batch: one row per message, ids are UUIDv7 in the order of the input, the clock in them is now.
#[tokio::test]
async fn ten_thousand_messages_in_one_call() {
    let (_database, mut client) = fresh().await;
    let messages: Vec<Message> = (0..MAX_BATCH_MESSAGES)
        .map(|n| Message::json("t", &n).unwrap().lane(format!("lane-{}", n % 7)).dedupe_key(format!("{n}")))
        .collect();
    let tx = client.transaction().await.unwrap();
    let rows: Vec<Enqueued> = Outbox::default().enqueue_many(&tx, &messages).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(rows.len(), MAX_BATCH_MESSAGES);
    assert!(rows.windows(2).all(|pair| pair[0].message_id < pair[1].message_id));
    for (n, row) in rows.iter().enumerate() {
        let id = row.message_id;
        assert_eq!((row.created, id.get_version_num(), id.get_variant()), (true, 7, uuid::Variant::RFC4122));
        assert_eq!(row.sequence_id, Some(i64::try_from(n / 7 + 1).unwrap()), "message {n}");
    }
    let kept = "select count(*) from (select row_number() over (order by id) - 1 as n, payload from outbox.message) m \
                where payload = to_jsonb(n)";
    assert_eq!(number(&client, kept).await, 10_000, "each id carries its own payload");
    let off = "select count(*) from outbox.messages where abs(extract(epoch from enqueued_at - now())) > 60";
    assert_eq!(number(&client, off).await, 0);
}

/// Delays and due times count by the database's clock, from the beginning of the transaction.
#[tokio::test]
async fn due_times_are_the_databases() {
    let (_database, mut client) = fresh().await;
    let then = SystemTime::UNIX_EPOCH + Duration::from_secs(4_000_000_000);
    let past = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let messages = [
        message("now"),
        message("delay").delay(Duration::from_micros(1_500_001)),
        message("at").due_at(then),
        message("past").occurred_at(past),
        message("future").occurred_at(then),
        message("late").occurred_at(past).delay(Duration::from_secs(9)),
    ];
    let tx = client.transaction().await.unwrap();
    tx.batch_execute("select pg_sleep(0.02)").await.unwrap();
    Outbox::default().enqueue_many(&tx, &messages).await.unwrap();
    let sql = "select topic || ' ' || case when due_at > '2090-01-01' or due_at < '2010-01-01' then due_at::text else (due_at - now())::text end \
               || ' ' || case when occurred_at = now() then 'now' else occurred_at::text end from outbox.message m join outbox.delivery d on d.message_id = m.id order by m.id";
    let found: Vec<String> = tx.query(sql, &[]).await.unwrap().iter().map(|row| row.get(0)).collect();
    let (then, past) = ("2096-10-02 07:06:40+00", "2001-09-09 01:46:40+00");
    assert_eq!(
        found,
        [
            "now 00:00:00 now".to_owned(),
            "delay 00:00:01.500001 now".to_owned(),
            format!("at {then} now"),
            format!("past {past} {past}"),
            format!("future 00:00:00 {then}"),
            format!("late 00:00:09 {past}")
        ]
    );
    tx.commit().await.unwrap();
    let claimed: Vec<String> = claim(&client, "w", 10).await.into_iter().map(|held| held.topic).collect();
    assert_eq!(claimed, ["past", "now", "future"], "what is due, oldest first");
}

/// One message to several sinks: each is delivered, retried and buried for itself; routes concern new messages only.
#[tokio::test]
async fn routes_fan_out() {
    let (_database, client) = fresh().await;
    for route in
        ["'mail', 'order.*'", "'audit'", "'audit', 'order.placed'", "'odd', 'a_b%\\'", "'bills', 'order.*', 'billing'"]
    {
        assert_eq!(number(&client, &format!("select outbox.add_route({route})::int")).await, 1, "{route}");
    }
    assert_eq!(number(&client, "select outbox.add_route('audit')::int").await, 0, "it is there");
    let sinks = async |topic: &str, more: &str| -> String {
        let id = enqueue(&client, topic, more).await;
        texts(&client, &format!("select sink from outbox.delivery where message_id = '{id}' order by 1"))
            .await
            .join(" ")
    };
    assert_eq!(sinks("order.placed", "").await, "audit mail");
    assert_eq!(sinks("order.placed", ", namespace => 'billing'").await, "audit bills mail");
    assert_eq!(sinks("border.placed", "").await, "audit");
    assert_eq!(sinks("a_b%\\", "").await, "audit odd");
    assert_eq!(sinks("axb%\\", "").await, "audit", "an underscore is an underscore");
    assert_eq!(
        number(&client, "select outbox.remove_route('audit')::int + outbox.remove_route('audit')::int").await,
        1
    );
    assert_eq!(sinks("user.created", "").await, "default", "no route left");
    assert_eq!(sinks("order.placed", ", lane => 'a'").await, "audit mail");

    let mail = claim_with(&client, "w", 1, ", sink => 'mail'").await;
    let id = mail[0].id;
    complete(&client, "w", &mail[0], "RETRYABLE").await.unwrap();
    let mail = claim_with(&client, "w", 10, ", sink => 'mail'").await;
    let audit = claim_with(&client, "v", 10, ", sink => 'audit'").await;
    assert_eq!((mail.len(), audit.len()), (3, 6), "what was routed before keeps its sink");
    assert_eq!(mark_delivered(&client, &audit).await, 6);
    complete(&client, "w", mail.iter().find(|held| held.id == id).unwrap(), "FAILED").await.unwrap();
    assert_eq!(attempts(&client, id).await, ["1 DISPATCHED", "1 RETRYABLE", "2 FAILED"], "audit, then mail");
    assert_eq!(texts(&client, "select sink from outbox.dead_letter").await, ["mail"]);
}
