//! The names of an older edge outbox over this one (`examples/edge/names.sql`): its document's statements run as written, every
//! status is read there, and what cannot be carried out is refused.

use postrider_testkit::{Database, psql};

use crate::support::{run, sql};

async fn named() -> Database {
    let database = postrider_testkit::database().await;
    // Twice: it may be applied again.
    for _ in 0..2 {
        sql(&database, include_str!("../../../../../examples/edge/names.sql")).await;
    }
    database
}

/// The row as the view has it: what is asked for, over all rows.
async fn rows(database: &Database, columns: &str) -> String {
    sql(
        database,
        &format!("select concat_ws(', ', {columns}) from sync_outbox order by priority desc, occurred_at, id"),
    )
    .await
}

/// Proves E10: walks 2, 3 and 5 as the document writes them in SQL.
#[tokio::test]
async fn the_statements_of_the_walks_run_as_written() {
    let database = named().await;
    let seed = "INSERT INTO sync_outbox (id, tenant_id, event_type, status, next_attempt_at, payload_json)
   VALUES 
     (gen_random_uuid(), 'tenant-1', 'test.event', 'pending', NOW(), '{\"test\": 1}'),
     (gen_random_uuid(), 'tenant-1', 'test.event', 'pending', NOW(), '{\"test\": 1}');";
    sql(&database, seed).await;
    let inserted = "tenant_id, event_type, status, payload_json, payload_size_bytes, attempt_count, priority";
    let row = "tenant-1, test.event, pending, {\"test\": 1}, 11, 0, 0";
    assert_eq!(rows(&database, inserted).await, format!("{row}\n{row}"));

    let monitor = "SELECT status, attempt_count, next_attempt_at, last_error_code
   FROM sync_outbox
   WHERE status IN ('pending', 'dlq')
   ORDER BY attempt_count DESC;";
    let claim = "select count(*) from outbox.claim('dead-pod-1', 1, 3600)";
    assert_eq!(sql(&database, monitor).await.lines().count(), 2);
    assert_eq!(sql(&database, claim).await, "1");
    assert_eq!(sql(&database, monitor).await.lines().count(), 1);
    let held = "select status, claimed_by, lease_expires_at > now(), claimed_at <= now() from sync_outbox where claimed_by is not null";
    assert_eq!(sql(&database, held).await, "claimed|dead-pod-1|t|t");

    let stuck = "UPDATE sync_outbox 
   SET lease_expires_at = NOW() - INTERVAL '1 minute'
   WHERE claimed_by = 'dead-pod-1';";
    sql(&database, stuck).await;
    assert_eq!(sql(&database, held).await, "claimed|dead-pod-1|f|t");
    assert_eq!(sql(&database, "select outbox.repair_expired_leases()").await, "1");
    assert_eq!(sql(&database, monitor).await.lines().count(), 2);
}

/// Proves E7, E8: what becomes of rows is read in the view: the claim takes priority first, then the older row; a failure is
/// kept, and so is when a row became dead and why; what was delivered is acked.
#[tokio::test]
async fn every_status_is_read_there() {
    let database = named().await;
    sql(
        &database,
        "insert into sync_outbox (event_type, payload_json, priority, occurred_at, next_attempt_at) values
             ('delivered', '1', 0, now() - interval '2 hours', now()), ('failed', '2', 9, now(), now()),
             ('retried', '3', 0, now() - interval '1 hour', now()), ('later', '4', 0, now(), now() + interval '1 hour'),
             ('waits', '5', -1, null, null)",
    )
    .await;
    let claimed = "select string_agg(topic, ' ' order by nth) from (select topic, row_number() over () as nth from outbox.claim('w', 3, 60)) c";
    assert_eq!(sql(&database, claimed).await, "failed delivered retried");
    for (topic, outcome) in [
        ("delivered", "'DISPATCHED'"),
        ("failed", "'FAILED', error_code => 'HTTP_422', error_message => 'refused'"),
        ("retried", "'RETRYABLE', retry_after_seconds => 600, error_code => 'HTTP_503', error_message => 'away'"),
    ] {
        let complete = format!(
            "select outbox.complete(d.message_id, d.lease_token, 'w', {outcome}) from outbox.delivery d \
             join outbox.message m on m.id = d.message_id where m.topic = '{topic}'"
        );
        sql(&database, &complete).await;
    }
    let standing = "event_type, status, attempt_count, last_error_code, last_error_message, dlq_reason, \
        failed_at is not null, last_attempt_at is not null, next_attempt_at > now()";
    let stands = rows(&database, standing).await;
    let expected = "failed, dlq, 1, HTTP_422, refused, FAILED, t, t\n\
        delivered, acked, 1, f, t\n\
        retried, pending, 1, HTTP_503, away, f, t, t\n\
        later, pending, 0, f, f, t\n\
        waits, pending, 0, f, f, f";
    assert_eq!(stands, expected);
    run(&database, &["dlq", "redrive", "--all", "--yes"]).ok();
    let again = "select status, attempt_count, last_error_code from sync_outbox where event_type = 'failed'";
    assert_eq!(sql(&database, again).await, "pending|0|HTTP_422", "redriven");
}

/// The code of the error that this ends with.
async fn refused(database: &Database, statement: &str) -> String {
    let ran = psql(database, &format!("\\set VERBOSITY sqlstate\n{statement}")).await;
    ran.stderr.rsplit("ERROR:  ").next().unwrap_or_default().trim_end().to_owned()
}

/// Proves L8: an id is taken once in its tenant, the outbox's own id is returned, and nothing but a new row and the end of a
/// lease is accepted.
#[tokio::test]
async fn what_the_names_cannot_do_is_refused() {
    let database = named().await;
    let given = |tenant: &str| {
        format!(
            "insert into sync_outbox (id, tenant_id, event_type, payload_json) \
             values ('11111111-1111-4111-8111-111111111111', '{tenant}', 't', '1') returning id"
        )
    };
    let id = sql(&database, &given("tenant-1")).await;
    assert_eq!(rows(&database, "id").await, id, "the id that the cloud gets");
    assert_eq!(refused(&database, &given("tenant-1")).await, "23505");
    sql(&database, &given("tenant-2")).await;
    let key = "select dedupe_key from outbox.messages where tenant_id = 'tenant-2'";
    assert_eq!(sql(&database, key).await, "tenant-2/11111111-1111-4111-8111-111111111111");

    sql(&database, "select count(*) from outbox.claim('w', 1, 60)").await;
    for (statement, code) in [
        ("insert into sync_outbox (event_type, payload_json, status) values ('t', '1', 'acked')", "0A000"),
        ("insert into sync_outbox (event_type, payload_json, attempt_count) values ('t', '1', 3)", "0A000"),
        ("insert into sync_outbox (event_type, payload_json, claimed_by) values ('t', '1', 'w')", "0A000"),
        ("insert into sync_outbox (payload_json) values ('1')", "22023"),
        ("update sync_outbox set status = 'pending'", "0A000"),
        ("update sync_outbox set lease_expires_at = now() + interval '1 day'", "0A000"),
        ("update sync_outbox set lease_expires_at = null where claimed_by = 'w'", "0A000"),
        ("delete from sync_outbox", "55000"),
    ] {
        assert_eq!(refused(&database, statement).await, code, "{statement}");
    }
}

/// Proves P7: who writes events needs to be a producer, and can end no lease.
#[tokio::test]
async fn a_producer_may_insert_and_no_more() {
    let database = named().await;
    run(&database, &["migrate", "roles"]).ok();
    let writer = format!("writer_{}", database.name());
    let grants = format!(
        "create role {writer}; grant insert, select, update on sync_outbox to {writer}; grant outbox_producer to {writer}"
    );
    sql(&database, &grants).await;
    let insert = format!("set role {writer}; insert into sync_outbox (event_type, payload_json) values ('t', '1')");
    sql(&database, &insert).await;
    sql(&database, "select count(*) from outbox.claim('w', 1, 60)").await;
    let end = format!("set role {writer}; update sync_outbox set lease_expires_at = now()");
    assert_eq!(refused(&database, &end).await, "42501");
    sql(&database, &format!("revoke outbox_producer from {writer}")).await;
    assert_eq!(refused(&database, &insert).await, "42501");
}
