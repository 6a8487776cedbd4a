//! The older library's names, over this one: what its producers and workers say runs as it did.

use postrider_testkit::database;
use tokio_postgres::{Client, Error};
use uuid::Uuid;

const INSERT: &str = "insert into modkit_outbox_events (namespace, topic, tenant_id, dedupe_key, payload) \
                      values ('mini-chat', 'usage', $1, $2, '{\"tokens\": 7}') on conflict do nothing returning id";
const CLAIM: &str = "select id, attempts from modkit_outbox.claim_batch($1, 'mini-chat', 10, $2::text::interval, 3)";

const TENANT: Uuid = Uuid::from_u128(0x1000);
const WORKER: Uuid = Uuid::from_u128(0xa);
const OTHER: Uuid = Uuid::from_u128(0xb);

async fn named() -> Client {
    let client = database().await.connect().await;
    // Twice: it may be applied again.
    for _ in 0..2 {
        client.batch_execute(include_str!("../../names.sql")).await.unwrap();
    }
    client
}

/// Inserts; the id, or nothing if the key was known.
async fn insert(client: &Client, key: &str) -> Result<Option<Uuid>, Error> {
    Ok(client.query_opt(INSERT, &[&TENANT, &key]).await?.map(|row| row.get(0)))
}

async fn claim(client: &Client, worker: Uuid, lease: &str) -> Vec<(Uuid, i32)> {
    let rows = client.query(CLAIM, &[&worker, &lease]).await.unwrap();
    rows.iter().map(|row| (row.get(0), row.get(1))).collect()
}

async fn ack(client: &Client, worker: Uuid, id: Uuid) -> Result<u64, Error> {
    client.execute("select modkit_outbox.ack($1, $2)", &[&worker, &id]).await
}

async fn nack(client: &Client, worker: Uuid, id: Uuid) -> Result<u64, Error> {
    client.execute("select modkit_outbox.nack($1, $2, 'billing is away')", &[&worker, &id]).await
}

fn sqlstate(error: &Error) -> &str {
    error.code().map_or("", |code| code.code())
}

/// One event as the older table shows it.
async fn shown(client: &Client, id: Uuid) -> String {
    let query = "select concat_ws(' ', status, attempts, coalesce(locked_by = $2, false)::text, \
                 coalesce(locked_until > now(), false)::text, coalesce(last_error, '-')) \
                 from modkit_outbox_events where id = $1";
    client.query_one(query, &[&id, &WORKER]).await.unwrap().get(0)
}

/// Proves M1, M3, M4: an INSERT is an enqueue in its transaction; a known key inserts nothing, and the function tells its id; a key
/// of another tenant is refused; and what only a claim may write cannot be inserted.
#[tokio::test]
async fn an_older_producer_runs_unchanged() {
    let mut client = named().await;
    let key = format!("{TENANT}/turn/request");
    let tx = client.transaction().await.unwrap();
    tx.query_one(INSERT, &[&TENANT, &key]).await.unwrap();
    tx.rollback().await.unwrap();
    let id = insert(&client, &key).await.unwrap().expect("the first was rolled back");
    assert_eq!(insert(&client, &key).await.unwrap(), None);
    let enqueue = "select modkit_outbox.enqueue('mini-chat', 'usage', $1, $2, '{}')";
    assert_eq!(client.query_one(enqueue, &[&TENANT, &key]).await.unwrap().get::<_, Uuid>(0), id);
    let foreign = insert(&client, "somebody/turn/request").await.unwrap_err();
    assert_eq!(sqlstate(&foreign), "22023");
    let columns = "select (tenant_id, dedupe_key, payload, status, attempts, locked_by, next_attempt_at = created_at)::text \
                   from modkit_outbox_events";
    let rows = client.query(columns, &[]).await.unwrap();
    let rows: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    assert_eq!(rows, [format!("({TENANT},{key},\"{{\"\"tokens\"\": 7}}\",pending,0,,t)")]);
    for (column, value) in
        [("id", "gen_random_uuid()"), ("status", "'delivered'"), ("attempts", "1"), ("locked_by", "gen_random_uuid()")]
    {
        let made = format!(
            "insert into modkit_outbox_events (namespace, topic, payload, {column}) values ('n', 't', '1', {value})"
        );
        let refused = client.batch_execute(&made).await.unwrap_err();
        assert_eq!(sqlstate(&refused), "0A000", "{column}");
    }
}

/// Proves M5, M6, M8: the life of an event by the older worker's calls: claimed, refused to others, failed, claimed again, and
/// delivered; or dead after its attempts.
#[tokio::test]
async fn an_older_worker_runs_unchanged() {
    let client = named().await;
    let id = insert(&client, &format!("{TENANT}/1")).await.unwrap().unwrap();
    assert_eq!(claim(&client, WORKER, "1 minute").await, [(id, 1)]);
    assert_eq!(shown(&client, id).await, "processing 1 true true -");
    assert_eq!(claim(&client, OTHER, "1 minute").await, [], "it is taken");
    assert_eq!(sqlstate(&ack(&client, OTHER, id).await.unwrap_err()), "P7002");
    assert_eq!(sqlstate(&nack(&client, OTHER, id).await.unwrap_err()), "P7002");
    nack(&client, WORKER, id).await.unwrap();
    assert_eq!(shown(&client, id).await, "pending 1 false false billing is away");
    let waits = "select (next_attempt_at - updated_at between '0.5 s' and '1 s')::text from modkit_outbox_events";
    assert_eq!(client.query_one(waits, &[]).await.unwrap().get::<_, String>(0), "true", "equal jitter");
    let due = "update outbox.delivery set due_at = now()";
    client.batch_execute(due).await.unwrap();
    assert_eq!(claim(&client, WORKER, "1 minute").await, [(id, 2)]);
    // A crash: the lease ends, another has it, and the first one's ack is refused.
    let crash =
        "update outbox.delivery set claimed_at = now() - interval '1 h', lease_expires_at = now() - interval '1 s'";
    client.batch_execute(crash).await.unwrap();
    assert_eq!(shown(&client, id).await, "processing 2 true false billing is away");
    assert_eq!(sqlstate(&ack(&client, WORKER, id).await.unwrap_err()), "P7002", "its lease has ended");
    assert_eq!(claim(&client, OTHER, "1 minute").await, [(id, 3)]);
    ack(&client, OTHER, id).await.unwrap();
    assert_eq!(shown(&client, id).await, "delivered 3 false false -");
    assert_eq!(sqlstate(&ack(&client, OTHER, id).await.unwrap_err()), "P7002", "delivered is final");

    let id = insert(&client, &format!("{TENANT}/2")).await.unwrap().unwrap();
    for attempt in 1..=3 {
        assert_eq!(claim(&client, WORKER, "1 minute").await, [(id, attempt)]);
        nack(&client, WORKER, id).await.unwrap();
        client.batch_execute(due).await.unwrap();
    }
    assert_eq!(shown(&client, id).await, "dead 3 false false billing is away");
    assert_eq!(claim(&client, WORKER, "1 minute").await, []);
}
